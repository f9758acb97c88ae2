// C = A·B, rung 1: a warp's threads compute neighbouring columns of C.
//
// Over rung 0: thread x counts columns instead of rows; nothing else changes. At each step of k a warp reads one
// element of A (a broadcast) and 32 neighbouring elements of B (four whole sectors), and stores whole sectors.
//
// What limits it: two loads for every multiply-add. The caches deliver them, but the load unit takes far longer
// for two loads than the arithmetic units for one multiply-add.

// a is m×k, b k×n, c m×n, row by row. Block: BLOCK_N × BLOCK_M threads; grid: ceil(n / BLOCK_N) × ceil(m / BLOCK_M).
extern "C" __global__ void gemm_coalesced(const float *__restrict__ a, const float *__restrict__ b,
                                          float *__restrict__ c, long long m, long long n, long long k) {
    const long long col = (long long)blockIdx.x * BLOCK_N + threadIdx.x;
    const long long row = (long long)blockIdx.y * BLOCK_M + threadIdx.y;
    if (row >= m || col >= n) return;
    float sum = 0.0f;
    for (long long kk = 0; kk < k; ++kk) sum = fmaf(a[row * k + kk], b[kk * n + col], sum);
    c[row * n + col] = sum;
}
