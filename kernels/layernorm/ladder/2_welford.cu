// Layer norm over rows, rung 2: mean and variance in one pass, and several loads in flight.
//
// Over rung 1: a row is read twice in place of three times. A thread reads EACH elements at once, independent of
// each other, takes their mean and their squared deviations from it, and brings its own so far up to date with
// them: one division for EACH elements, where Welford's update divides for every one. Threads' results combine
// across a warp with one division as well, by shuffles, and with one barrier across warps. y is declared to share
// no memory with what is read, so that the loads of the second pass needn't wait for the stores before them.
//
// Knobs: BLOCK threads a block, EACH elements a thread reads at a time.

constexpr int WARPS = BLOCK / 32;

// How many values, their mean, and the sum of their squared deviations from it.
struct Moments {
    float count, mean, squares;
};

// Those of two sets together (Chan, Golub and LeVeque 1979): no difference of large sums, as E[x²] - E[x]² is.
// b isn't empty.
__device__ __forceinline__ Moments combined(Moments a, Moments b) {
    const float count = a.count + b.count;
    const float apart = b.mean - a.mean, share = b.count / count;
    return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * a.count * share};
}

__device__ __forceinline__ float warp_sum(float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffff, x, lanes);
    return x;
}

// The moments of all lanes' sets together; a lane's may be empty.
__device__ __forceinline__ Moments across_warp(Moments mine) {
    const float count = warp_sum(mine.count);
    const float mean = warp_sum(mine.count * mine.mean) / fmaxf(count, 1.0f);
    const float apart = mine.mean - mean;
    return {count, mean, warp_sum(mine.squares + mine.count * apart * apart)};
}

// y = (x - mean) / sqrt(variance + eps) · weight + bias along rows; x and y are m×n. Grid: m.
extern "C" __global__ void __launch_bounds__(BLOCK)
    layernorm_welford(const float *__restrict__ x, const float *__restrict__ weight,
                      const float *__restrict__ bias, float *__restrict__ y, long long m, long long n,
                      float eps) {
    __shared__ Moments found[WARPS];
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    Moments mine{0.0f, 0.0f, 0.0f};
    long long i = threadIdx.x;
    for (; i + (EACH - 1) * BLOCK < n; i += EACH * BLOCK) {
        float part[EACH], sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int e = 0; e < EACH; ++e) part[e] = x[i + e * BLOCK];
#pragma unroll
        for (int e = 0; e < EACH; ++e) sum += part[e];
        const float mean = sum / EACH;
#pragma unroll
        for (int e = 0; e < EACH; ++e) squares += (part[e] - mean) * (part[e] - mean);
        mine = combined(mine, {float(EACH), mean, squares});
    }
    for (; i < n; i += BLOCK) mine = combined(mine, {1.0f, x[i], 0.0f});

    mine = across_warp(mine);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = mine;
    __syncthreads();
    const int lane = threadIdx.x % 32;
    mine = across_warp(lane < WARPS ? found[lane] : Moments{0.0f, 0.0f, 0.0f});

    const float scale = rsqrtf(mine.squares / n + eps);
#pragma unroll EACH
    for (long long i = threadIdx.x; i < n; i += BLOCK)
        y[i] = (x[i] - mine.mean) * scale * weight[i] + bias[i];
}
