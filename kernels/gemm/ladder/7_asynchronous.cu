// C = A·B, rung 7: asynchronous copies into a ring of tiles, and a step of k fetched while the last is multiplied.
//
// Over rung 6, four things. First, tiles go from global to shared memory without a stop in registers (cp.async, from
// compute capability 8.0 on; before that the same calls copy at once): no registers hold what is on its way, no
// instructions store it. B's tile is copied by vectors; A's by single elements, which is what lets a copy transpose
// it: lanes are 8 along k by 4 rows, so that what a warp copies fills whole sectors on one side and 32 banks on the
// other. STAGES tiles are in the ring, up to STAGES - 1 of them on their way. Second, the registers so gained hold
// two steps of k: the parts of A and B for the next step are read from shared memory before this one is multiplied,
// so that no multiply-add waits for them. Third, one barrier a tile suffices, and it comes before a tile's last step
// is multiplied: the next tile's first parts are read behind it, and the last step's arithmetic hides that wait too.
// Fourth, multiply-adds go up one column of the thread's rectangle and down the next, so that one shares a factor
// with the one before and needn't read it from the registers' two banks again (`reuse` in the machine code, see
// `warpdeck sass`; on an H200 the times of rung 6's 8×16 configurations at 4096³ follow how many do).
// GROUP blocks above each other come before the next column of blocks: those that run at the same time then share
// more rows of A and columns of B in the L2 cache. 1 is the plain order.
//
// What limits it: the multiply-add units of float32 themselves, nearly. Beyond lie other units: rung 8.

#include <cuda_pipeline_primitives.h>

constexpr int LANES_M = 4, LANES_N = 8;                      // a warp's threads
constexpr int CHUNK_M = 4 * LANES_M, CHUNK_N = 4 * LANES_N;  // from a thread's chunk to its next
constexpr int WARPS_N = TILE_N / (LANES_N * THREAD_N);
constexpr int THREADS = TILE_M / THREAD_M * (TILE_N / THREAD_N);
constexpr int A_PITCH = TILE_M + 4;
constexpr int A_SIZE = TILE_K * A_PITCH, SLOT = A_SIZE + TILE_K * TILE_N;  // floats
constexpr int A_ACROSS = 8, B_ACROSS = TILE_N / 4;                       // threads along a row's copies
constexpr int A_STEP = THREADS / A_ACROSS, B_STEP = THREADS / B_ACROSS;  // rows from a thread's copy to its next
constexpr int A_COPIES = TILE_M / A_STEP, B_COPIES = TILE_K / B_STEP;

static_assert(TILE_M % (LANES_M * THREAD_M) == 0 && TILE_N % (LANES_N * THREAD_N) == 0, "whole warps");
static_assert(TILE_K % A_ACROSS == 0 && TILE_M % A_STEP == 0, "whole copies of A");
static_assert(THREADS % B_ACROSS == 0 && TILE_K % B_STEP == 0, "whole copies of B");
static_assert(STAGES >= 2, "one tile to multiply, one on its way");

// Copies a HEIGHT×WIDTH tile of a matrix that has `rows`×`cols` elements left and `pitch` floats a row, element by
// element, to where DOWN and RIGHT floats separate neighbours; zeros outside.
template <int HEIGHT, int WIDTH, int DOWN, int RIGHT>
__device__ __forceinline__ void copy_edge(float *to, const float *from, long long pitch, long long rows,
                                          long long cols) {
#pragma unroll 1
    for (int e = threadIdx.x; e < HEIGHT * WIDTH; e += THREADS) {
        const int row = e / WIDTH, col = e % WIDTH;
        if (row < rows && col < cols)
            __pipeline_memcpy_async(to + row * DOWN + col * RIGHT, from + row * pitch + col, 4);
        else
            to[row * DOWN + col * RIGHT] = 0.0f;
    }
}

// a is m×k, b k×n, c m×n, row by row. Block: THREADS; grid: ceil(n / TILE_N) × ceil(m / TILE_M).
// Shared memory: STAGES · SLOT floats.
extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_asynchronous(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, long long m,
                      long long n, long long k) {
    extern __shared__ __align__(16) float ring[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int thread_row = warp / WARPS_N * (LANES_M * THREAD_M) + lane / LANES_N * 4;
    const int thread_col = warp % WARPS_N * (LANES_N * THREAD_N) + lane % LANES_N * 4;
    const unsigned id = blockIdx.y * gridDim.x + blockIdx.x;
    const unsigned top = id / (GROUP * gridDim.x) * GROUP, height = min(gridDim.y - top, unsigned(GROUP));
    const unsigned within = id - top * gridDim.x;
    const long long first_row = (long long)(top + within % height) * TILE_M;
    const long long first_col = (long long)(within / height) * TILE_N;

    // Whole tiles; rows and columns beyond C's edge are copied from the last one inside, since nobody stores their
    // sums. What is left of k, or all of it where B's rows aren't aligned to vectors: element by element.
    const int tiles = int((k + TILE_K - 1) / TILE_K), whole = n % 4 == 0 ? int(k / TILE_K) : 0;
    const int a_row = threadIdx.x / A_ACROSS, a_col = threadIdx.x % A_ACROSS;
    const int b_row = threadIdx.x / B_ACROSS, b_col = threadIdx.x % B_ACROSS * 4;
    const float *a_from[A_COPIES];
#pragma unroll
    for (int i = 0; i < A_COPIES; ++i) a_from[i] = a + min(first_row + a_row + i * A_STEP, m - 1) * k + a_col;
    const float *b_from = b + b_row * n + min(first_col + b_col, n - 4);
    float *a_to = ring + a_col * A_PITCH + a_row, *b_to = ring + A_SIZE + b_row * TILE_N + b_col;
    const auto copy = [&](int t, int slot) {
        if (t < whole) {
#pragma unroll
            for (int i = 0; i < A_COPIES; ++i) {
#pragma unroll
                for (int j = 0; j < TILE_K; j += A_ACROSS)
                    __pipeline_memcpy_async(a_to + slot + j * A_PITCH + i * A_STEP, a_from[i] + j, 4);
                a_from[i] += TILE_K;
            }
#pragma unroll
            for (int i = 0; i < B_COPIES; ++i)
                __pipeline_memcpy_async(b_to + slot + i * B_STEP * TILE_N, b_from + i * B_STEP * n, 16);
            b_from += TILE_K * n;
        } else if (t < tiles) {
            const long long k0 = (long long)t * TILE_K;
            copy_edge<TILE_M, TILE_K, 1, A_PITCH>(ring + slot, a + first_row * k + k0, k, m - first_row, k - k0);
            copy_edge<TILE_K, TILE_N, TILE_N, 1>(ring + slot + A_SIZE, b + k0 * n + first_col, n, k - k0,
                                                 n - first_col);
        }
        __pipeline_commit();  // also an empty group, so that counting groups counts tiles
    };

    alignas(16) float a_part[2][THREAD_M], b_part[2][THREAD_N];  // of this step of k and of the next
    const auto fetch = [&](int part, const float *tile, int kk) {
#pragma unroll
        for (int i = 0; i < THREAD_M; i += 4)
            *reinterpret_cast<float4 *>(a_part[part] + i) =
                *reinterpret_cast<const float4 *>(tile + kk * A_PITCH + thread_row + i / 4 * CHUNK_M);
#pragma unroll
        for (int j = 0; j < THREAD_N; j += 4)
            *reinterpret_cast<float4 *>(b_part[part] + j) = *reinterpret_cast<const float4 *>(
                tile + A_SIZE + kk * TILE_N + thread_col + j / 4 * CHUNK_N);
    };

    float sum[THREAD_M][THREAD_N] = {};
    for (int s = 0; s < STAGES - 1; ++s) copy(s, s * SLOT);
    __pipeline_wait_prior(STAGES - 2);
    __syncthreads();
    fetch(0, ring, 0);
    int slot = 0, free_slot = (STAGES - 1) * SLOT;  // floats from the ring's start
    for (int t = 0; t < tiles; ++t) {
        copy(t + STAGES - 1, free_slot);
        free_slot = slot;
        const int next = slot + SLOT == STAGES * SLOT ? 0 : slot + SLOT;
#pragma unroll
        for (int kk = 0; kk < TILE_K; ++kk) {
            if (kk + 1 < TILE_K) {
                fetch((kk + 1) % 2, ring + slot, kk + 1);
            } else {
                __pipeline_wait_prior(STAGES - 2);  // this thread's copies of tile t + 1 have arrived
                __syncthreads();                    // everyone's have, and everyone has read tile t
                fetch(0, ring + next, 0);           // behind the last tile: anything, for nothing
            }
#pragma unroll
            for (int j = 0; j < THREAD_N; ++j)
#pragma unroll
                for (int e = 0; e < THREAD_M; ++e) {
                    const int i = j % 2 ? THREAD_M - 1 - e : e;  // up one column, down the next
                    sum[i][j] = fmaf(a_part[kk % 2][i], b_part[kk % 2][j], sum[i][j]);
                }
        }
        slot = next;
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
