// C = A·B, rung 8: tensor cores. Not float32 any more: each factor is rounded to TF32, the sums stay float32.
//
// Over rung 7: a warp multiplies 16×8 by 8×16 tiles in one operation of its tensor core, several times the
// multiply-adds of the float32 units. Factors are rounded once, on their way to shared memory; the next tile waits
// in registers, as in rung 6. The rows' pitches keep a fragment's reads in different banks.
//
// The price is precision. TF32 keeps 11 significant bits, so that rounding to the nearest changes a factor by at
// most 2^-11 of itself and a product by 2^-10 (1 + 2^-12); summed, |C - AB| <= 9.8e-4 · |A||B| elementwise, plus
// float32's own errors. The bound is reached where k is 1; with k products of random signs the error is about
// 1e-3 / sqrt(k). The variant's tolerance is this bound, 1e-3: 500 times float32's, so that it is labelled with its
// precision and never ranked with the strict rungs.

#include <mma.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "unsupported: TF32 on tensor cores needs compute capability 8.0 or newer"
#endif

using namespace nvcuda;

constexpr int FRAGMENT = 16, DEPTH = 8;  // a fragment of C, and its depth
constexpr int WARPS_N = TILE_N / WARP_N;
constexpr int THREADS = TILE_M / WARP_M * WARPS_N * 32;
constexpr int A_PITCH = TILE_K + 4, B_PITCH = TILE_N + 8;
constexpr int A_ACROSS = TILE_K / 4, B_ACROSS = TILE_N / 4;  // vectors a row
constexpr int A_LOADS = TILE_M * A_ACROSS / THREADS, B_LOADS = TILE_K * B_ACROSS / THREADS;

static_assert(TILE_M % WARP_M == 0 && TILE_N % WARP_N == 0, "whole warps");
static_assert(WARP_M % FRAGMENT == 0 && WARP_N % FRAGMENT == 0 && TILE_K % DEPTH == 0, "whole fragments");
static_assert(TILE_M * A_ACROSS % THREADS == 0 && TILE_K * B_ACROSS % THREADS == 0, "whole loads");
static_assert(THREADS / 32 * FRAGMENT * FRAGMENT <= TILE_M * A_PITCH, "room for a fragment of C a warp");

// Four elements of a row that has `left` more; zeros beyond it. `aligned`: rows are whole vectors long.
__device__ __forceinline__ float4 fetch(const float *from, long long left, bool aligned) {
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (aligned) {
        if (left > 0) v = *reinterpret_cast<const float4 *>(from);
        return v;
    }
    if (left > 0) v.x = from[0];
    if (left > 1) v.y = from[1];
    if (left > 2) v.z = from[2];
    if (left > 3) v.w = from[3];
    return v;
}

__device__ __forceinline__ float4 rounded(float4 v) {
    return make_float4(wmma::__float_to_tf32(v.x), wmma::__float_to_tf32(v.y), wmma::__float_to_tf32(v.z),
                       wmma::__float_to_tf32(v.w));
}

// a is m×k, b k×n, c m×n, row by row. Block: THREADS; grid: ceil(n / TILE_N) × ceil(m / TILE_M).
extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_tensor_cores(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, long long m,
                      long long n, long long k) {
    __shared__ alignas(32) float a_tile[TILE_M * A_PITCH];
    __shared__ alignas(32) float b_tile[TILE_K * B_PITCH];
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const int warp_row = warp / WARPS_N * WARP_M, warp_col = warp % WARPS_N * WARP_N;
    const long long first_row = (long long)blockIdx.y * TILE_M, first_col = (long long)blockIdx.x * TILE_N;

    float4 a_next[A_LOADS], b_next[B_LOADS];
    const auto load = [&](long long k0) {
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            const int e = tid + i * THREADS, row = e / A_ACROSS, col = e % A_ACROSS * 4;
            const long long left = first_row + row < m ? k - k0 - col : 0;
            a_next[i] = fetch(a + (first_row + row) * k + k0 + col, left, k % 4 == 0);
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            const int e = tid + i * THREADS, row = e / B_ACROSS, col = e % B_ACROSS * 4;
            const long long left = k0 + row < k ? n - first_col - col : 0;
            b_next[i] = fetch(b + (k0 + row) * n + first_col + col, left, n % 4 == 0);
        }
    };

    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum[WARP_M / FRAGMENT][WARP_N / FRAGMENT];
#pragma unroll
    for (auto &row : sum)
#pragma unroll
        for (auto &fragment : row) wmma::fill_fragment(fragment, 0.0f);
    load(0);
    for (long long k0 = 0; k0 < k; k0 += TILE_K) {
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            const int e = tid + i * THREADS, row = e / A_ACROSS, col = e % A_ACROSS * 4;
            *reinterpret_cast<float4 *>(&a_tile[row * A_PITCH + col]) = rounded(a_next[i]);
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            const int e = tid + i * THREADS, row = e / B_ACROSS, col = e % B_ACROSS * 4;
            *reinterpret_cast<float4 *>(&b_tile[row * B_PITCH + col]) = rounded(b_next[i]);
        }
        __syncthreads();
        if (k0 + TILE_K < k) load(k0 + TILE_K);
#pragma unroll
        for (int kk = 0; kk < TILE_K; kk += DEPTH) {
            wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> a_part;
            wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major>
                b_part[WARP_N / FRAGMENT];
#pragma unroll
            for (int j = 0; j < WARP_N / FRAGMENT; ++j)
                wmma::load_matrix_sync(b_part[j], &b_tile[kk * B_PITCH + warp_col + j * FRAGMENT], B_PITCH);
#pragma unroll
            for (int i = 0; i < WARP_M / FRAGMENT; ++i) {
                wmma::load_matrix_sync(a_part, &a_tile[(warp_row + i * FRAGMENT) * A_PITCH + kk], A_PITCH);
#pragma unroll
                for (int j = 0; j < WARP_N / FRAGMENT; ++j) wmma::mma_sync(sum[i][j], a_part, b_part[j], sum[i][j]);
            }
        }
        __syncthreads();
    }

    // Which thread holds which element of a fragment is unspecified: each goes through shared memory.
    float *staged = a_tile + warp * FRAGMENT * FRAGMENT;
#pragma unroll
    for (int i = 0; i < WARP_M / FRAGMENT; ++i)
#pragma unroll
        for (int j = 0; j < WARP_N / FRAGMENT; ++j) {
            wmma::store_matrix_sync(staged, sum[i][j], FRAGMENT, wmma::mem_row_major);
            __syncwarp();
            for (int e = lane; e < FRAGMENT * FRAGMENT; e += 32) {
                const long long row = first_row + warp_row + i * FRAGMENT + e / FRAGMENT;
                const long long col = first_col + warp_col + j * FRAGMENT + e % FRAGMENT;
                if (row < m && col < n) c[row * n + col] = staged[e];
            }
            __syncwarp();
        }
}
