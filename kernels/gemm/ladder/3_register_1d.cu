// C = A·B, rung 3: a thread computes THREAD_M elements of one column of C.
//
// Over rung 2: an element of B that a thread has loaded from shared memory stays in a register and serves THREAD_M
// multiply-adds. A step of k costs THREAD_M + 1 loads for THREAD_M multiply-adds in place of 2 for 1. The block's
// tile is no longer a square: TILE_M×TILE_N of C, TILE_K deep, which fewer threads than elements fill in turns.
//
// What limits it: still more than one load from shared memory for a multiply-add. Elements of A aren't reused.

constexpr int THREADS = TILE_M / THREAD_M * TILE_N;

static_assert(TILE_M % THREAD_M == 0, "whole strips");

// a is m×k, b k×n, c m×n, row by row. Block: THREADS; grid: ceil(n / TILE_N) × ceil(m / TILE_M).
extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_register_1d(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, long long m,
                     long long n, long long k) {
    __shared__ float a_tile[TILE_M][TILE_K];
    __shared__ float b_tile[TILE_K][TILE_N];
    const long long first_row = (long long)blockIdx.y * TILE_M, first_col = (long long)blockIdx.x * TILE_N;
    const int tid = threadIdx.x;
    const int thread_row = tid / TILE_N * THREAD_M, thread_col = tid % TILE_N;  // a warp: one strip of rows

    float sum[THREAD_M] = {};
    for (long long k0 = 0; k0 < k; k0 += TILE_K) {
        for (int e = tid; e < TILE_M * TILE_K; e += THREADS) {
            const int row = e / TILE_K, col = e % TILE_K;
            const bool inside = first_row + row < m && k0 + col < k;
            a_tile[row][col] = inside ? a[(first_row + row) * k + k0 + col] : 0.0f;
        }
        for (int e = tid; e < TILE_K * TILE_N; e += THREADS) {
            const int row = e / TILE_N, col = e % TILE_N;
            const bool inside = k0 + row < k && first_col + col < n;
            b_tile[row][col] = inside ? b[(k0 + row) * n + first_col + col] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < TILE_K; ++kk) {
            const float b_part = b_tile[kk][thread_col];
#pragma unroll
            for (int i = 0; i < THREAD_M; ++i) sum[i] = fmaf(a_tile[thread_row + i][kk], b_part, sum[i]);
        }
        __syncthreads();
    }

    const long long col = first_col + thread_col;
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i) {
        const long long row = first_row + thread_row + i;
        if (row < m && col < n) c[row * n + col] = sum[i];
    }
}
