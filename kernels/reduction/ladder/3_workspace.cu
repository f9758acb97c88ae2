// The sum of a matrix, rung 3: few blocks walk over the matrix and leave their sums in a workspace.
//
// Over rung 2: a fixed number of blocks, no more than fit on the chip, takes turn after turn, so that starts,
// barriers and ends are paid once a block and not once every BLOCK·EACH elements. So few sums need no atomic
// additions: a second launch adds them up, in a fixed order. The result is the same bits every time, and nothing
// has to be zeroed before. A load is still 4 bytes: there are four times as many as needed.
//
// Knobs: BLOCK threads a block, at most BLOCKS blocks (only the launch depends on it), UNROLL loads a thread.

constexpr int WARPS = BLOCK / 32;
constexpr int BATCH = BLOCK * UNROLL;  // elements a block reads at a time

__device__ float warp_sum(float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffff, x, lanes);
    return x;
}

// The sum of a block's values, in its first warp. All threads call it, once.
__device__ float block_sum(float x) {
    __shared__ float sums[WARPS];
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
    __syncthreads();
    return threadIdx.x < 32 ? warp_sum(threadIdx.x < WARPS ? sums[threadIdx.x] : 0.0f) : 0.0f;
}

// partials[b] = what block b has read of x, m×n. Grid: min(BLOCKS, ceil(m·n / BATCH)).
extern "C" __global__ void __launch_bounds__(BLOCK)
    sum_partials(const float *x, float *total, float *partials, int *ticket, long long m, long long n) {
    const long long elements = m * n;
    float mine = 0.0f;
    long long first = (long long)blockIdx.x * BATCH;
    for (; first + BATCH <= elements; first += (long long)gridDim.x * BATCH) {
        float part[UNROLL], turn = 0.0f;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) part[u] = x[first + u * BLOCK + threadIdx.x];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) turn += part[u];
        mine += turn;
    }
    for (long long i = first + threadIdx.x; i < elements; i += BLOCK) mine += x[i];  // an incomplete batch

    const float sum = block_sum(mine);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// Second launch, one block: total[0] = the sum of as many partials as the first launch had blocks.
extern "C" __global__ void __launch_bounds__(BLOCK)
    sum_total(const float *x, float *total, float *partials, int *ticket, long long m, long long n) {
    const long long batches = (m * n + BATCH - 1) / BATCH;
    const int blocks = batches < BLOCKS ? int(batches) : BLOCKS;
    float mine = 0.0f;
    for (int i = threadIdx.x; i < blocks; i += BLOCK) mine += partials[i];
    const float sum = block_sum(mine);
    if (threadIdx.x == 0) *total = sum;
}
