// C = A·B, rung 0: one thread computes one element of C.
//
// The simplest kernel that is right, for any m, n and k. Thread x counts rows, which looks natural and is slow:
// the 32 threads of a warp differ in x, so that at each step of k they read 32 rows of A, `k` floats apart. Each
// of these loads touches 32 sectors of 32 bytes to use 4 bytes of each, and C's stores do the same.
//
// What limits it: the load unit, busy with those sectors; the multiply-adds wait.

// a is m×k, b k×n, c m×n, row by row. Block: BLOCK_M × BLOCK_N threads; grid: ceil(m / BLOCK_M) × ceil(n / BLOCK_N).
extern "C" __global__ void gemm_naive(const float *__restrict__ a, const float *__restrict__ b,
                                      float *__restrict__ c, long long m, long long n, long long k) {
    const long long row = (long long)blockIdx.x * BLOCK_M + threadIdx.x;
    const long long col = (long long)blockIdx.y * BLOCK_N + threadIdx.y;
    if (row >= m || col >= n) return;  // the last blocks stick out where a size is no multiple
    float sum = 0.0f;
    for (long long kk = 0; kk < k; ++kk) sum = fmaf(a[row * k + kk], b[kk * n + col], sum);
    c[row * n + col] = sum;
}
