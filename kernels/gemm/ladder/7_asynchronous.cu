// C = A·B, rung 7: asynchronous copies into a ring of tiles.
//
// Over rung 6: tiles go from global to shared memory without a stop in registers (cp.async, from compute capability
// 8.0 on; before that the same calls copy at once). STAGES tiles are in the ring, up to STAGES - 1 of them on their
// way, and one barrier a tile suffices: behind it the tile is there for all, and the slot that all have left is
// free. Since a copy can't transpose, A's tile keeps its rows along k; a thread reads 4 steps of k of each of its
// rows at once, which are as many loads as before. Rows of A's tile lie TILE_K + 4 floats apart, so that the 4
// rows that a warp reads at once lie in other banks.
// GROUP blocks above each other come before the next column of blocks: those that run at the same time then share
// more rows of A and columns of B in the L2 cache. 1 is the plain order.
//
// What limits it: the multiply-add units of float32 themselves, nearly. Beyond lie other units: rung 8.

#include <cuda_pipeline_primitives.h>

constexpr int LANES_M = 4, LANES_N = 8;  // a warp's threads
constexpr int WARP_M = LANES_M * THREAD_M, WARP_N = LANES_N * THREAD_N;
constexpr int WARPS_N = TILE_N / WARP_N;
constexpr int THREADS = TILE_M / THREAD_M * (TILE_N / THREAD_N);
constexpr int A_PITCH = TILE_K + 4;
constexpr int A_SIZE = TILE_M * A_PITCH, SLOT = A_SIZE + TILE_K * TILE_N;  // floats
constexpr int A_ACROSS = TILE_K / 4, B_ACROSS = TILE_N / 4;                // vectors a row
constexpr int A_STEP = THREADS / A_ACROSS, B_STEP = THREADS / B_ACROSS;    // rows from a thread's copy to its next
constexpr int A_COPIES = TILE_M / A_STEP, B_COPIES = TILE_K / B_STEP;

static_assert(TILE_M % WARP_M == 0 && TILE_N % WARP_N == 0 && THREAD_N % 4 == 0, "whole warps");
static_assert(THREADS % A_ACROSS == 0 && TILE_M % A_STEP == 0, "whole copies of A");
static_assert(THREADS % B_ACROSS == 0 && TILE_K % B_STEP == 0, "whole copies of B");
static_assert(STAGES >= 2, "one tile to multiply, one on its way");

// Copies a HEIGHT×WIDTH tile of a matrix that has `rows`×`cols` elements left and `pitch` floats a row, element by
// element; zeros outside.
template <int HEIGHT, int WIDTH, int PITCH>
__device__ __forceinline__ void copy_edge(float *to, const float *from, long long pitch, long long rows,
                                          long long cols) {
#pragma unroll 1
    for (int e = threadIdx.x; e < HEIGHT * WIDTH; e += THREADS) {
        const int row = e / WIDTH, col = e % WIDTH;
        if (row < rows && col < cols)
            __pipeline_memcpy_async(to + row * PITCH + col, from + row * pitch + col, 4);
        else
            to[row * PITCH + col] = 0.0f;
    }
}

// a is m×k, b k×n, c m×n, row by row. Block: THREADS; grid: ceil(n / TILE_N) × ceil(m / TILE_M).
// Shared memory: STAGES · SLOT floats.
extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_asynchronous(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, long long m,
                      long long n, long long k) {
    extern __shared__ __align__(16) float ring[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int thread_row = warp / WARPS_N * WARP_M + lane / LANES_N;  // and every fourth row after it
    const int thread_col = warp % WARPS_N * WARP_N + lane % LANES_N * 4;
    const unsigned id = blockIdx.y * gridDim.x + blockIdx.x;
    const unsigned top = id / (GROUP * gridDim.x) * GROUP, height = min(gridDim.y - top, unsigned(GROUP));
    const unsigned within = id - top * gridDim.x;
    const long long first_row = (long long)(top + within % height) * TILE_M;
    const long long first_col = (long long)(within / height) * TILE_N;

    // Whole tiles are copied by vectors; rows and columns beyond C's edge from the last one inside, since nobody
    // stores their sums. What is left of k, or all of it where rows aren't aligned to vectors: element by element.
    const int tiles = int((k + TILE_K - 1) / TILE_K);
    const int whole = k % 4 == 0 && n % 4 == 0 ? int(k / TILE_K) : 0;
    const int a_row = threadIdx.x / A_ACROSS, a_col = threadIdx.x % A_ACROSS * 4;
    const int b_row = threadIdx.x / B_ACROSS, b_col = threadIdx.x % B_ACROSS * 4;
    const float *a_from[A_COPIES], *b_from[B_COPIES];
#pragma unroll
    for (int i = 0; i < A_COPIES; ++i) a_from[i] = a + min(first_row + a_row + i * A_STEP, m - 1) * k + a_col;
#pragma unroll
    for (int i = 0; i < B_COPIES; ++i) b_from[i] = b + (b_row + i * B_STEP) * n + min(first_col + b_col, n - 4);
    float *a_to = ring + a_row * A_PITCH + a_col, *b_to = ring + A_SIZE + b_row * TILE_N + b_col;
    const auto copy = [&](int t, int slot) {
        float *to = ring + slot * SLOT;
        if (t < whole) {
#pragma unroll
            for (int i = 0; i < A_COPIES; ++i) {
                __pipeline_memcpy_async(a_to + slot * SLOT + i * A_STEP * A_PITCH, a_from[i], 16);
                a_from[i] += TILE_K;
            }
#pragma unroll
            for (int i = 0; i < B_COPIES; ++i) {
                __pipeline_memcpy_async(b_to + slot * SLOT + i * B_STEP * TILE_N, b_from[i], 16);
                b_from[i] += TILE_K * n;
            }
        } else if (t < tiles) {
            const long long k0 = (long long)t * TILE_K;
            copy_edge<TILE_M, TILE_K, A_PITCH>(to, a + first_row * k + k0, k, m - first_row, k - k0);
            copy_edge<TILE_K, TILE_N, TILE_N>(to + A_SIZE, b + k0 * n + first_col, n, k - k0, n - first_col);
        }
        __pipeline_commit();  // also an empty group, so that counting groups counts tiles
    };

    float sum[THREAD_M][THREAD_N] = {};
    for (int s = 0; s < STAGES - 1; ++s) copy(s, s);
    int slot = 0, free_slot = STAGES - 1;
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(STAGES - 2);  // this thread's copies of tile t have arrived
        __syncthreads();                    // everyone's have, and everyone has multiplied tile t - 1
        copy(t + STAGES - 1, free_slot);
        const float *a_tile = ring + slot * SLOT + thread_row * A_PITCH;
        const float *b_tile = ring + slot * SLOT + A_SIZE + thread_col;
#pragma unroll
        for (int kk = 0; kk < TILE_K; kk += 4) {
            alignas(16) float a_part[THREAD_M][4];
#pragma unroll
            for (int i = 0; i < THREAD_M; ++i)
                *reinterpret_cast<float4 *>(a_part[i]) =
                    *reinterpret_cast<const float4 *>(a_tile + i * LANES_M * A_PITCH + kk);
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                alignas(16) float b_part[THREAD_N];
#pragma unroll
                for (int j = 0; j < THREAD_N; j += 4)
                    *reinterpret_cast<float4 *>(b_part + j) =
                        *reinterpret_cast<const float4 *>(b_tile + (kk + step) * TILE_N + j * LANES_N);
#pragma unroll
                for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
                    for (int j = 0; j < THREAD_N; ++j)
                        sum[i][j] = fmaf(a_part[i][step], b_part[j], sum[i][j]);
            }
        }
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        free_slot = free_slot + 1 == STAGES ? 0 : free_slot + 1;
    }

#pragma unroll
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; j += 4) {
            const long long row = first_row + thread_row + i * LANES_M, col = first_col + thread_col + j * LANES_N;
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
