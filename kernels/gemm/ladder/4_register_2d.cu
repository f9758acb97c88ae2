// C = A·B, rung 4: a thread computes a THREAD_M×THREAD_N rectangle of C.
//
// Over rung 3: elements of A are reused as well. A step of k is an outer product: THREAD_M + THREAD_N loads from
// shared memory for THREAD_M·THREAD_N multiply-adds, at 8×8 one for four. From here on the arithmetic units can
// be the limit. The sums live in registers, of which a thread has 255: 8×8 is comfortable, 8×16 the end.
//
// What limits it: each load moves 4 bytes, so that a quarter of the instructions still are loads; threads read
// B's tile THREAD_N apart, from the same banks; and nothing is multiplied while the next tile is on its way.

constexpr int ACROSS = TILE_N / THREAD_N;  // threads along n
constexpr int THREADS = TILE_M / THREAD_M * ACROSS;

static_assert(TILE_M % THREAD_M == 0 && TILE_N % THREAD_N == 0, "whole rectangles");

// a is m×k, b k×n, c m×n, row by row. Block: THREADS; grid: ceil(n / TILE_N) × ceil(m / TILE_M).
extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_register_2d(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, long long m,
                     long long n, long long k) {
    __shared__ float a_tile[TILE_M][TILE_K];
    __shared__ float b_tile[TILE_K][TILE_N];
    const long long first_row = (long long)blockIdx.y * TILE_M, first_col = (long long)blockIdx.x * TILE_N;
    const int tid = threadIdx.x;
    const int thread_row = tid / ACROSS * THREAD_M, thread_col = tid % ACROSS * THREAD_N;

    float sum[THREAD_M][THREAD_N] = {};
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
            float a_part[THREAD_M], b_part[THREAD_N];
#pragma unroll
            for (int i = 0; i < THREAD_M; ++i) a_part[i] = a_tile[thread_row + i][kk];
#pragma unroll
            for (int j = 0; j < THREAD_N; ++j) b_part[j] = b_tile[kk][thread_col + j];
#pragma unroll
            for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
                for (int j = 0; j < THREAD_N; ++j) sum[i][j] = fmaf(a_part[i], b_part[j], sum[i][j]);
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; ++j) {
            const long long row = first_row + thread_row + i, col = first_col + thread_col + j;
            if (row < m && col < n) c[row * n + col] = sum[i][j];
        }
}
