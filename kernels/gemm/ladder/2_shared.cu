// C = A·B, rung 2: a block keeps tiles of A and B in shared memory.
//
// Over rung 1: the threads of a block need the same rows of A and columns of B. They copy a TILE×TILE square of
// each to shared memory together, so that an element is read from global memory once a block, not once a thread:
// TILE times less traffic. Two barriers a tile: no thread may multiply before all have copied, nor copy the next
// tile before all have multiplied. What lies outside of A or B becomes zero, which adds nothing to a sum.
//
// What limits it: still two loads for every multiply-add, now from shared memory. It is nearer, but a multiprocessor
// starts one warp's load a cycle, and the multiply-adds of four.

// a is m×k, b k×n, c m×n, row by row. Block: TILE × TILE threads; grid: ceil(n / TILE) × ceil(m / TILE).
extern "C" __global__ void gemm_shared(const float *__restrict__ a, const float *__restrict__ b,
                                       float *__restrict__ c, long long m, long long n, long long k) {
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    const long long col = (long long)blockIdx.x * TILE + x;
    const long long row = (long long)blockIdx.y * TILE + y;

    float sum = 0.0f;
    for (long long k0 = 0; k0 < k; k0 += TILE) {
        a_tile[y][x] = row < m && k0 + x < k ? a[row * k + k0 + x] : 0.0f;
        b_tile[y][x] = k0 + y < k && col < n ? b[(k0 + y) * n + col] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < TILE; ++kk) sum = fmaf(a_tile[y][kk], b_tile[kk][x], sum);
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
