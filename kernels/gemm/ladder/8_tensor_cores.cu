// C = A·B, rung 8: tensor cores. Not float32 any more: each factor is rounded to TF32, the sums stay float32.
//
// Over rung 7: a warp multiplies a 16×8 by an 8×8 tile in one instruction of its tensor core, several times the
// multiply-adds of the float32 units. Each thread holds a few elements of every fragment, which PTX lays down for
// mma.m16n8k8: "group" and "member" below. Factors are rounded once, on their way to shared memory, while the next
// tile waits in registers as in rung 6. The rows' pitches put the 32 elements of a fragment's load in 32 banks.
//
// The price is precision. TF32 keeps 11 significant bits, so that rounding to the nearest changes a factor by at
// most 2^-11 of itself and a product by 2^-10 (1 + 2^-12); summed, |C - AB| <= 9.8e-4 · |A||B| elementwise, plus
// float32's own errors. The bound is reached where k is 1; with k products of random signs the error is about
// 1e-3 / sqrt(k). The variant's tolerance is this bound, 1e-3: 500 times float32's, so that it is labelled with its
// precision and never ranked with the strict rungs.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "unsupported: TF32 on tensor cores needs compute capability 8.0 or newer"
#endif

constexpr int FRAGMENT_M = 16, FRAGMENT_N = 8, DEPTH = 8;
constexpr int ROWS = WARP_M / FRAGMENT_M, COLS = WARP_N / FRAGMENT_N;  // fragments a warp
constexpr int WARPS_N = TILE_N / WARP_N;
constexpr int THREADS = TILE_M / WARP_M * WARPS_N * 32;
constexpr int A_PITCH = TILE_K + 4, B_PITCH = TILE_N + 8;
constexpr int A_ACROSS = TILE_K / 4, B_ACROSS = TILE_N / 4;              // vectors a row
constexpr int A_STEP = THREADS / A_ACROSS, B_STEP = THREADS / B_ACROSS;  // rows from a thread's load to its next
constexpr int A_LOADS = TILE_M / A_STEP, B_LOADS = TILE_K / B_STEP;

static_assert(TILE_M % WARP_M == 0 && TILE_N % WARP_N == 0, "whole warps");
static_assert(WARP_M % FRAGMENT_M == 0 && WARP_N % FRAGMENT_N == 0 && TILE_K % DEPTH == 0, "whole fragments");
static_assert(THREADS % A_ACROSS == 0 && TILE_M % A_STEP == 0, "whole loads of A");
static_assert(THREADS % B_ACROSS == 0 && TILE_K % B_STEP == 0, "whole loads of B");

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

__device__ __forceinline__ unsigned rounded(float x) {  // to TF32, ties away from zero
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// a is m×k, b k×n, c m×n, row by row. Block: THREADS; grid: ceil(n / TILE_N) × ceil(m / TILE_M).
extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_tensor_cores(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, long long m,
                      long long n, long long k) {
    __shared__ alignas(16) unsigned a_tile[TILE_M][A_PITCH];
    __shared__ alignas(16) unsigned b_tile[TILE_K][B_PITCH];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int group = lane / 4, member = lane % 4;  // of a fragment: a row of A or C, a column of B; and along it
    const int warp_row = warp / WARPS_N * WARP_M, warp_col = warp % WARPS_N * WARP_N;
    const long long first_row = (long long)blockIdx.y * TILE_M, first_col = (long long)blockIdx.x * TILE_N;

    const int a_row = threadIdx.x / A_ACROSS, a_col = threadIdx.x % A_ACROSS * 4;
    const int b_row = threadIdx.x / B_ACROSS, b_col = threadIdx.x % B_ACROSS * 4;
    const bool a_aligned = k % 4 == 0, b_aligned = n % 4 == 0;
    const float *a_from = a + (first_row + a_row) * k + a_col;
    const float *b_from = b + b_row * n + first_col + b_col;
    float4 a_next[A_LOADS], b_next[B_LOADS];
    const auto load = [&](long long k0) {
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            const long long left = first_row + a_row + i * A_STEP < m ? k - k0 - a_col : 0;
            a_next[i] = fetch(a_from + i * A_STEP * k, left, a_aligned);
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            const long long left = k0 + b_row + i * B_STEP < k ? n - first_col - b_col : 0;
            b_next[i] = fetch(b_from + i * B_STEP * n, left, b_aligned);
        }
        a_from += TILE_K;
        b_from += TILE_K * n;
    };
    const auto keep = [](unsigned *to, float4 v) {
        *reinterpret_cast<uint4 *>(to) = make_uint4(rounded(v.x), rounded(v.y), rounded(v.z), rounded(v.w));
    };

    float sum[ROWS][COLS][4] = {};
    load(0);
    for (long long k0 = 0; k0 < k; k0 += TILE_K) {
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) keep(&a_tile[a_row + i * A_STEP][a_col], a_next[i]);
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) keep(&b_tile[b_row + i * B_STEP][b_col], b_next[i]);
        __syncthreads();
        if (k0 + TILE_K < k) load(k0 + TILE_K);
#pragma unroll
        for (int kk = 0; kk < TILE_K; kk += DEPTH) {
            unsigned a_part[ROWS][4], b_part[COLS][2];
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    a_part[i][e] = a_tile[warp_row + i * FRAGMENT_M + group + e % 2 * 8][kk + member + e / 2 * 4];
#pragma unroll
            for (int j = 0; j < COLS; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    b_part[j][e] = b_tile[kk + member + e * 4][warp_col + j * FRAGMENT_N + group];
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int j = 0; j < COLS; ++j) multiply(sum[i][j], a_part[i], b_part[j]);
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < COLS; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const long long row = first_row + warp_row + i * FRAGMENT_M + group + e / 2 * 8;
                const long long col = first_col + warp_col + j * FRAGMENT_N + member * 2 + e % 2;
                if (row < m && col < n) c[row * n + col] = sum[i][j][e];
            }
}
