// The sum of a matrix, rung 4: loads of 16 bytes, several in flight a thread.
//
// Over rung 3: what limits a read is how many bytes are under way: latency times bandwidth must be, all the time.
// UNROLL independent loads of 16 bytes a thread make them, with a quarter of the instructions.
//
// Knobs: BLOCK threads a block, at most BLOCKS blocks (only the launch depends on it), UNROLL loads a thread.

constexpr int WARPS = BLOCK / 32;
constexpr int BATCH = BLOCK * UNROLL;  // vectors a block reads at a time

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

// partials[b] = what block b has read of x, m×n. Grid: min(BLOCKS, ceil(m·n / (4·BATCH))).
extern "C" __global__ void __launch_bounds__(BLOCK)
    sum_partials(const float *x, float *total, float *partials, int *ticket, long long m, long long n) {
    const long long elements = m * n, vectors = elements / 4;
    const float4 *from = reinterpret_cast<const float4 *>(x);

    float4 mine = make_float4(0.0f, 0.0f, 0.0f, 0.0f);  // four sums, since additions depend on each other
    long long first = (long long)blockIdx.x * BATCH;
    for (; first + BATCH <= vectors; first += (long long)gridDim.x * BATCH) {
        float4 part[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) part[u] = from[first + u * BLOCK + threadIdx.x];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            mine.x += part[u].x;
            mine.y += part[u].y;
            mine.z += part[u].z;
            mine.w += part[u].w;
        }
    }
    // At most one block has an incomplete batch, and the first one takes the last three elements.
    for (long long i = first + threadIdx.x; i < vectors; i += BLOCK) {
        const float4 part = from[i];
        mine.x += part.x + part.y + part.z + part.w;
    }
    const long long rest = 4 * vectors + threadIdx.x;
    if (blockIdx.x == 0 && rest < elements) mine.x += x[rest];

    const float sum = block_sum((mine.x + mine.y) + (mine.z + mine.w));
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// Second launch, one block: total[0] = the sum of as many partials as the first launch had blocks.
extern "C" __global__ void __launch_bounds__(BLOCK)
    sum_total(const float *x, float *total, float *partials, int *ticket, long long m, long long n) {
    const long long batches = (m * n + 4 * BATCH - 1) / (4 * BATCH);
    const int blocks = batches < BLOCKS ? int(batches) : BLOCKS;
    float mine = 0.0f;
    for (int i = threadIdx.x; i < blocks; i += BLOCK) mine += partials[i];
    const float sum = block_sum(mine);
    if (threadIdx.x == 0) *total = sum;
}
