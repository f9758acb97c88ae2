// Softmax over rows, rung 2: maximum and sum in one pass, and several loads in flight.
//
// Over rung 1: a sum against the maximum so far is corrected whenever the maximum grows, so that a row is read
// twice in place of three times. A thread reads EACH elements at once, independent of each other, and takes their
// maximum first: it corrects its sum once for all of them, where one element at a time would cost a second
// exponential each. Pairs (maximum, sum) combine across threads by shuffles within warps and with one barrier
// across them. y is declared to share no memory with x, so that the loads of the second pass needn't wait for the
// stores before them.
//
// Knobs: BLOCK threads a block, EACH elements a thread reads at a time.

constexpr int WARPS = BLOCK / 32;
constexpr float LOWEST = -3.402823466e38f;

// A maximum, and the sum of exponentials against it.
struct Running {
    float top, total;
};

__device__ Running combined(Running a, Running b) {
    const float top = fmaxf(a.top, b.top);
    return {top, a.total * expf(a.top - top) + b.total * expf(b.top - top)};
}

__device__ Running across_warp(Running mine) {
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const Running other{__shfl_xor_sync(0xffffffff, mine.top, lanes),
                            __shfl_xor_sync(0xffffffff, mine.total, lanes)};
        mine = combined(mine, other);
    }
    return mine;
}

// y = softmax(x) along rows; x and y are m×n. Grid: m.
extern "C" __global__ void __launch_bounds__(BLOCK)
    softmax_online(const float *__restrict__ x, float *__restrict__ y, long long m, long long n) {
    __shared__ Running found[WARPS];
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    Running mine{LOWEST, 0.0f};
    long long i = threadIdx.x;
    for (; i + (EACH - 1) * BLOCK < n; i += EACH * BLOCK) {
        float part[EACH], top = mine.top;
#pragma unroll
        for (int e = 0; e < EACH; ++e) part[e] = x[i + e * BLOCK];
#pragma unroll
        for (int e = 0; e < EACH; ++e) top = fmaxf(top, part[e]);
        mine = {top, mine.total * expf(mine.top - top)};
#pragma unroll
        for (int e = 0; e < EACH; ++e) mine.total += expf(part[e] - top);
    }
    for (; i < n; i += BLOCK) mine = combined(mine, {x[i], 1.0f});

    mine = across_warp(mine);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = mine;
    __syncthreads();
    const int lane = threadIdx.x % 32;
    mine = across_warp(lane < WARPS ? found[lane] : Running{LOWEST, 0.0f});

    const float scale = 1.0f / mine.total;
#pragma unroll EACH
    for (long long i = threadIdx.x; i < n; i += BLOCK) y[i] = expf(x[i] - mine.top) * scale;
}
