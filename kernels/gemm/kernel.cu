// C = A·B in float32, the plain CUDA C++ variant: register tiles fed from double-buffered shared memory.
//
// Knobs: a block computes a TILE_M×TILE_N tile of C, a thread THREAD_M×THREAD_N of it in chunks of 4×4, so that
// every access to shared memory is a 16-byte one without bank conflicts (a warp is 4×8 threads). The A tile,
// of depth TILE_K, is stored transposed. While one tile is multiplied, the next is on its way from global
// memory to registers. UNROLL steps of depth make the inner loop's body.

#include <warpdeck/trace.cuh>

WD_STAGES(load, wait, compute, store)

constexpr int LANES_M = 4, LANES_N = 8;
constexpr int CHUNK_M = 4 * LANES_M, CHUNK_N = 4 * LANES_N;  // from a thread's chunk to its next
constexpr int WARPS_N = TILE_N / (LANES_N * THREAD_N);
constexpr int THREADS = (TILE_M / THREAD_M) * (TILE_N / THREAD_N);
constexpr int STEPS = UNROLL;  // a pragma takes no macro
constexpr int A_PITCH = TILE_M + 4;  // keeps the transposing stores from colliding in the banks
constexpr int A_ACROSS = TILE_K / 4, B_ACROSS = TILE_N / 4;  // vectors a row
constexpr int A_STEP = THREADS / A_ACROSS, B_STEP = THREADS / B_ACROSS;  // rows from a thread's load to its next
constexpr int A_LOADS = TILE_M / A_STEP, B_LOADS = TILE_K / B_STEP;

static_assert(TILE_M % (LANES_M * THREAD_M) == 0 && TILE_N % (LANES_N * THREAD_N) == 0, "whole warps");
static_assert(THREAD_M % 4 == 0 && THREAD_N % 4 == 0 && TILE_K % 4 == 0, "whole vectors");
static_assert(THREADS % A_ACROSS == 0 && THREADS % B_ACROSS == 0, "a thread keeps to its columns");
static_assert(TILE_M % A_STEP == 0 && TILE_K % B_STEP == 0, "whole loads a thread");

// Four elements of a row that has `left` more; zeros beyond it, and for rows that aren't `inside`. `wide`: rows
// are whole vectors long, so that a vector is aligned, and inside as a whole or not at all.
__device__ __forceinline__ float4 fetch(const float *from, int left, bool inside, bool wide) {
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (wide) {
        if (inside && left > 0) v = *reinterpret_cast<const float4 *>(from);
    } else if (inside) {
        if (left > 0) v.x = from[0];
        if (left > 1) v.y = from[1];
        if (left > 2) v.z = from[2];
        if (left > 3) v.w = from[3];
    }
    return v;
}

// a is m×k, b k×n, c m×n. Grid: ceil(n / TILE_N) × ceil(m / TILE_M).
extern "C" __global__ void gemm_cuda(const float *__restrict__ a, const float *__restrict__ b,
                                     float *__restrict__ c, long long m, long long n,
                                     long long k WD_TRACE_PARAM) {
    __shared__ alignas(16) float a_tile[2][TILE_K][A_PITCH];
    __shared__ alignas(16) float b_tile[2][TILE_K][TILE_N];
    WD_TRACE_BEGIN();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int thread_row = warp / WARPS_N * (LANES_M * THREAD_M) + lane / LANES_N * 4;
    const int thread_col = warp % WARPS_N * (LANES_N * THREAD_N) + lane % LANES_N * 4;
    const long long first_row = (long long)blockIdx.y * TILE_M, first_col = (long long)blockIdx.x * TILE_N;
    const bool a_wide = k % 4 == 0, b_wide = n % 4 == 0;

    // What this thread loads: a vector of every A_STEP-th row of A's tile, of every B_STEP-th row of B's.
    const int a_row = threadIdx.x / A_ACROSS, a_col = threadIdx.x % A_ACROSS * 4;
    const int b_row = threadIdx.x / B_ACROSS, b_col = threadIdx.x % B_ACROSS * 4;
    const int rows = int(min(m - first_row, (long long)TILE_M)) - a_row;
    const int cols = int(min(n - first_col, (long long)TILE_N)) - b_col;
    const float *a_from = a + (first_row + a_row) * k + a_col;
    const float *b_from = b + b_row * n + first_col + b_col;
    float4 a_next[A_LOADS], b_next[B_LOADS];
    const auto load = [&](long long t) {
        const int depth = int(min(k - t * TILE_K, (long long)TILE_K));
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i)
            a_next[i] = fetch(a_from + i * A_STEP * k, depth - a_col, i * A_STEP < rows, a_wide);
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i)
            b_next[i] = fetch(b_from + i * B_STEP * n, cols, b_row + i * B_STEP < depth, b_wide);
        a_from += TILE_K;
        b_from += TILE_K * n;
    };
    const auto keep = [&](int buffer) {
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            float(*to)[A_PITCH] = &a_tile[buffer][a_col];
            to[0][a_row + i * A_STEP] = a_next[i].x;
            to[1][a_row + i * A_STEP] = a_next[i].y;
            to[2][a_row + i * A_STEP] = a_next[i].z;
            to[3][a_row + i * A_STEP] = a_next[i].w;
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i)
            *reinterpret_cast<float4 *>(&b_tile[buffer][b_row + i * B_STEP][b_col]) = b_next[i];
    };

    float sum[THREAD_M][THREAD_N] = {};
    WD_PUSH(load);
    load(0);
    WD_POP(load);
    WD_PUSH(wait);
    keep(0);
    __syncthreads();
    WD_POP(wait);
    const long long tiles = (k + TILE_K - 1) / TILE_K;
    WD_PUSH(compute);  // of all tiles, the waits within it: a record costs as much as a row of multiply-adds
    for (long long t = 0; t < tiles; ++t) {
        const int buffer = int(t & 1);
        if (t + 1 < tiles) load(t + 1);
#pragma unroll STEPS
        for (int kk = 0; kk < TILE_K; ++kk) {
            float a_part[THREAD_M], b_part[THREAD_N];
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
        WD_PIN(sum);
        if (t + 1 < tiles) {
            // Waits for the loads, and for the warps that still multiply the last tile but one.
            WD_PUSH(wait);
            keep(buffer ^ 1);
            __syncthreads();
            WD_POP(wait);
        }
    }
    WD_POP(compute);

    WD_PUSH(store);
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i) {
        const long long row = first_row + thread_row + i / 4 * CHUNK_M + i % 4;
        if (row >= m) continue;
#pragma unroll
        for (int j = 0; j < THREAD_N; j += 4) {
            const long long col = first_col + thread_col + j / 4 * CHUNK_N;
            float *to = c + row * n + col;
            if (b_wide) {
                if (col < n)
                    *reinterpret_cast<float4 *>(to) =
                        make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
            } else {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (col + e < n) to[e] = sum[i][j + e];
            }
        }
    }
    WD_POP(store);
    WD_TRACE_END();
}
