// C = A·B, rung 6: warp tiles, and the next tile on its way while this one is multiplied.
//
// Over rung 5, two things. First, who computes what: a warp is 4×8 threads, whose rectangles together are near
// square, so that it reads less for as many multiply-adds. A thread's rectangle is split into 4×4 chunks, 16 rows
// and 32 columns apart: the 8 vectors of B that a warp reads at once then are 128 contiguous bytes, free of
// conflicts. Second, when: a tile's loads from global memory start before the last tile is multiplied and stay in
// registers until it is, so that their latency hides behind the arithmetic. BUFFERS = 2 lets a warp store them
// while others still multiply; with 1 the block meets at two barriers a tile, which small blocks hardly feel,
// because several of them share a multiprocessor.
//
// What limits it: the loads on their way occupy registers, and the stores to shared memory instruction slots.

constexpr int LANES_M = 4, LANES_N = 8;                      // a warp's threads
constexpr int CHUNK_M = 4 * LANES_M, CHUNK_N = 4 * LANES_N;  // from a thread's chunk to its next
constexpr int WARPS_N = TILE_N / (LANES_N * THREAD_N);
constexpr int THREADS = TILE_M / THREAD_M * (TILE_N / THREAD_N);
constexpr int A_PITCH = TILE_M + 4;
constexpr int A_ACROSS = TILE_K / 4, B_ACROSS = TILE_N / 4;              // vectors a row
constexpr int A_STEP = THREADS / A_ACROSS, B_STEP = THREADS / B_ACROSS;  // rows from a thread's load to its next
constexpr int A_LOADS = TILE_M / A_STEP, B_LOADS = TILE_K / B_STEP;

static_assert(TILE_M % (LANES_M * THREAD_M) == 0 && TILE_N % (LANES_N * THREAD_N) == 0, "whole warps");
static_assert(THREADS % A_ACROSS == 0 && TILE_M % A_STEP == 0, "whole loads of A");
static_assert(THREADS % B_ACROSS == 0 && TILE_K % B_STEP == 0, "whole loads of B");

// a is m×k, b k×n, c m×n, row by row. Block: THREADS; grid: ceil(n / TILE_N) × ceil(m / TILE_M).
extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_warptiled(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, long long m,
                   long long n, long long k) {
    __shared__ alignas(16) float a_tile[BUFFERS][TILE_K][A_PITCH];  // transposed
    __shared__ alignas(16) float b_tile[BUFFERS][TILE_K][TILE_N];
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int thread_row = warp / WARPS_N * (LANES_M * THREAD_M) + lane / LANES_N * 4;
    const int thread_col = warp % WARPS_N * (LANES_N * THREAD_N) + lane % LANES_N * 4;
    const long long first_row = (long long)blockIdx.y * TILE_M, first_col = (long long)blockIdx.x * TILE_N;

    float sum[THREAD_M][THREAD_N] = {};
    const auto multiply = [&](int buffer) {
#pragma unroll
        for (int kk = 0; kk < TILE_K; ++kk) {
            alignas(16) float a_part[THREAD_M], b_part[THREAD_N];
#pragma unroll
            for (int i = 0; i < THREAD_M; i += 4)
                *reinterpret_cast<float4 *>(a_part + i) =
                    *reinterpret_cast<const float4 *>(&a_tile[buffer][kk][thread_row + i / 4 * CHUNK_M]);
#pragma unroll
            for (int j = 0; j < THREAD_N; j += 4)
                *reinterpret_cast<float4 *>(b_part + j) =
                    *reinterpret_cast<const float4 *>(&b_tile[buffer][kk][thread_col + j / 4 * CHUNK_N]);
#pragma unroll
            for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
                for (int j = 0; j < THREAD_N; ++j) sum[i][j] = fmaf(a_part[i], b_part[j], sum[i][j]);
        }
    };

    // Whole tiles. Rows and columns beyond C's edge are loaded from the last one inside; nobody stores their sums.
    const int a_row = tid / A_ACROSS, a_col = tid % A_ACROSS * 4;
    const int b_row = tid / B_ACROSS, b_col = tid % B_ACROSS * 4;
    const bool aligned = k % 4 == 0 && n % 4 == 0;
    const long long whole = aligned ? k / TILE_K : 0;
    const float *a_from[A_LOADS];
#pragma unroll
    for (int i = 0; i < A_LOADS; ++i) a_from[i] = a + min(first_row + a_row + i * A_STEP, m - 1) * k + a_col;
    const float *b_from = b + b_row * n + min(first_col + b_col, n - 4);
    int buffer = 0;
    for (long long t = -1; t < whole; ++t) {
        float4 a_next[A_LOADS], b_next[B_LOADS];
        const bool more = t + 1 < whole;
        if (more) {
#pragma unroll
            for (int i = 0; i < A_LOADS; ++i) {
                a_next[i] = *reinterpret_cast<const float4 *>(a_from[i]);
                a_from[i] += TILE_K;
            }
#pragma unroll
            for (int i = 0; i < B_LOADS; ++i)
                b_next[i] = *reinterpret_cast<const float4 *>(b_from + i * B_STEP * n);
            b_from += TILE_K * n;
        }
        if (t >= 0) multiply(buffer);
        if (more) {
            if (BUFFERS == 1) __syncthreads();  // everyone has multiplied
            buffer = (buffer + 1) % BUFFERS;
#pragma unroll
            for (int i = 0; i < A_LOADS; ++i) {
                a_tile[buffer][a_col][a_row + i * A_STEP] = a_next[i].x;
                a_tile[buffer][a_col + 1][a_row + i * A_STEP] = a_next[i].y;
                a_tile[buffer][a_col + 2][a_row + i * A_STEP] = a_next[i].z;
                a_tile[buffer][a_col + 3][a_row + i * A_STEP] = a_next[i].w;
            }
#pragma unroll
            for (int i = 0; i < B_LOADS; ++i)
                *reinterpret_cast<float4 *>(&b_tile[buffer][b_row + i * B_STEP][b_col]) = b_next[i];
            __syncthreads();
        }
    }

    // What is left of k, or all of it where rows aren't aligned to vectors: element by element.
    for (long long k0 = whole * TILE_K; k0 < k; k0 += TILE_K) {
        __syncthreads();
        for (int e = tid; e < TILE_M * TILE_K; e += THREADS) {
            const int row = e / TILE_K, col = e % TILE_K;
            const bool inside = first_row + row < m && k0 + col < k;
            a_tile[0][col][row] = inside ? a[(first_row + row) * k + k0 + col] : 0.0f;
        }
        for (int e = tid; e < TILE_K * TILE_N; e += THREADS) {
            const int row = e / TILE_N, col = e % TILE_N;
            const bool inside = k0 + row < k && first_col + col < n;
            b_tile[0][row][col] = inside ? b[(k0 + row) * n + first_col + col] : 0.0f;
        }
        __syncthreads();
        multiply(0);
    }

#pragma unroll
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; j += 4) {
            const long long row = first_row + thread_row + i / 4 * CHUNK_M + i % 4;
            const long long col = first_col + thread_col + j / 4 * CHUNK_N;
            if (row >= m) continue;
            if (n % 4 == 0) {
                if (col < n)
                    *reinterpret_cast<float4 *>(c + row * n + col) =
                        make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
            } else {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (col + e < n) c[row * n + col + e] = sum[i][j + e];
            }
        }
}
