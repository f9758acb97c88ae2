// The sum of a matrix, rung 3: few blocks walk over the matrix with wide loads, several in flight a thread.
//
// Over rung 2: what limits a read is how many bytes are under way, about 32 KB a multiprocessor on an H200.
// UNROLL independent loads of 16 bytes a thread make them, and a fixed number of blocks walks over the matrix,
// so that the barrier and the atomic addition are paid once a block and not once every BLOCK elements.
//
// Knobs: BLOCK threads a block, at most BLOCKS blocks (only the launch depends on it), UNROLL loads a thread.

constexpr int WARPS = BLOCK / 32;
constexpr int BATCH = BLOCK * UNROLL;  // vectors a block reads at a time

__device__ float warp_sum(float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffff, x, lanes);
    return x;
}

// First launch, one thread: an atomic sum has to start from zero, and `total` holds anything.
extern "C" __global__ void zero_total(const float *x, float *total, float *partials, int *ticket,
                                      long long m, long long n) {
    *total = 0.0f;
}

// total[0] += the elements of x, m×n. Grid: min(BLOCKS, ceil(m·n / (4·BATCH))).
extern "C" __global__ void __launch_bounds__(BLOCK)
    sum_vectors(const float *x, float *total, float *partials, int *ticket, long long m, long long n) {
    __shared__ float sums[WARPS];
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

    float sum = warp_sum((mine.x + mine.y) + (mine.z + mine.w));
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < WARPS ? sums[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) atomicAdd(total, sum);
    }
}
