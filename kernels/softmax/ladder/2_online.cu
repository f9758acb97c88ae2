// Softmax over rows, rung 2: maximum and sum in one pass, warp shuffles.
//
// Over rung 1: a sum against the maximum so far is corrected whenever the maximum grows, so that a row is read
// twice in place of three times. Pairs (maximum, sum) combine in the same way, by shuffles within warps and
// with one barrier across them.
//
// Knob: BLOCK, threads a block.

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
extern "C" __global__ void softmax_online(const float *x, float *y, long long m, long long n) {
    __shared__ Running found[WARPS];
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    Running mine{LOWEST, 0.0f};
    for (long long i = threadIdx.x; i < n; i += BLOCK) mine = combined(mine, {x[i], 1.0f});

    mine = across_warp(mine);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = mine;
    __syncthreads();
    const int lane = threadIdx.x % 32;
    mine = across_warp(lane < WARPS ? found[lane] : Running{LOWEST, 0.0f});

    const float scale = 1.0f / mine.total;
    for (long long i = threadIdx.x; i < n; i += BLOCK) y[i] = expf(x[i] - mine.top) * scale;
}
