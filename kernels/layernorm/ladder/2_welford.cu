// Layer norm over rows, rung 2: mean and variance in one pass (Welford), warp shuffles.
//
// Over rung 1: a row is read twice in place of three times, since the mean and the squared deviations from it
// are brought up to date with every element. Two threads' results combine likewise, by shuffles within warps
// and with one barrier across them.
//
// Knob: BLOCK, threads a block.

constexpr int WARPS = BLOCK / 32;

// How many values, their mean, and the sum of their squared deviations from it.
struct Moments {
    float count, mean, squares;
};

// Those of two sets together (Chan, Golub and LeVeque 1979): no difference of large sums, as E[x²] - E[x]² is.
__device__ Moments combined(Moments a, Moments b) {
    const float count = a.count + b.count;
    if (count == 0.0f) return a;
    const float apart = b.mean - a.mean, share = b.count / count;
    return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * a.count * share};
}

__device__ Moments across_warp(Moments mine) {
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const Moments other{__shfl_xor_sync(0xffffffff, mine.count, lanes),
                            __shfl_xor_sync(0xffffffff, mine.mean, lanes),
                            __shfl_xor_sync(0xffffffff, mine.squares, lanes)};
        mine = combined(mine, other);
    }
    return mine;
}

// y = (x - mean) / sqrt(variance + eps) · weight + bias along rows; x and y are m×n. Grid: m.
extern "C" __global__ void layernorm_welford(const float *x, const float *weight, const float *bias, float *y,
                                             long long m, long long n, float eps) {
    __shared__ Moments found[WARPS];
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    Moments mine{0.0f, 0.0f, 0.0f};
    for (long long i = threadIdx.x; i < n; i += BLOCK) mine = combined(mine, {1.0f, x[i], 0.0f});

    mine = across_warp(mine);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = mine;
    __syncthreads();
    const int lane = threadIdx.x % 32;
    mine = across_warp(lane < WARPS ? found[lane] : Moments{0.0f, 0.0f, 0.0f});

    const float scale = rsqrtf(mine.squares / n + eps);
    for (long long i = threadIdx.x; i < n; i += BLOCK)
        y[i] = (x[i] - mine.mean) * scale * weight[i] + bias[i];
}
