// C = A·B, rung 5: loads and stores of 16 bytes, from global and from shared memory.
//
// Over rung 4: every access moves a float4, so that a quarter as many load instructions do the same work. For A
// that takes a transposed tile: the THREAD_M elements that a thread needs at a step of k then lie side by side.
// A row pitch that is 4 floats longer keeps the transposing stores out of each other's banks. Rows whose length
// isn't a multiple of 4 aren't aligned to 16 bytes; they are loaded element by element.
//
// What limits it: a block still copies, waits, multiplies and waits in turn; a thread's neighbours read vectors
// of B's tile that lie THREAD_N floats apart, in the same banks; and a warp, two rows of threads high, reads more
// of B's tile than a squarer one would.

constexpr int ACROSS = TILE_N / THREAD_N;  // threads along n
constexpr int THREADS = TILE_M / THREAD_M * ACROSS;
constexpr int A_PITCH = TILE_M + 4;
constexpr int A_ACROSS = TILE_K / 4, B_ACROSS = TILE_N / 4;  // vectors a row

static_assert(TILE_M % THREAD_M == 0 && TILE_N % THREAD_N == 0, "whole rectangles");
static_assert(THREAD_M % 4 == 0 && THREAD_N % 4 == 0 && TILE_K % 4 == 0, "whole vectors");

// Four elements of a row that has `left` more; zeros beyond it. `aligned`: rows are whole vectors long.
__device__ __forceinline__ float4 fetch(const float *from, long long left, bool aligned) {
    if (aligned && left > 0) return *reinterpret_cast<const float4 *>(from);
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (left > 0) v.x = from[0];
    if (left > 1) v.y = from[1];
    if (left > 2) v.z = from[2];
    if (left > 3) v.w = from[3];
    return v;
}

// a is m×k, b k×n, c m×n, row by row. Block: THREADS; grid: ceil(n / TILE_N) × ceil(m / TILE_M).
extern "C" __global__ void __launch_bounds__(THREADS)
    gemm_vectorised(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, long long m,
                    long long n, long long k) {
    __shared__ alignas(16) float a_tile[TILE_K][A_PITCH];  // transposed
    __shared__ alignas(16) float b_tile[TILE_K][TILE_N];
    const long long first_row = (long long)blockIdx.y * TILE_M, first_col = (long long)blockIdx.x * TILE_N;
    const int tid = threadIdx.x;
    const int thread_row = tid / ACROSS * THREAD_M, thread_col = tid % ACROSS * THREAD_N;

    float sum[THREAD_M][THREAD_N] = {};
    for (long long k0 = 0; k0 < k; k0 += TILE_K) {
#pragma unroll
        for (int e = tid; e < TILE_M * A_ACROSS; e += THREADS) {
            const int row = e / A_ACROSS, col = e % A_ACROSS * 4;
            const long long left = first_row + row < m ? k - k0 - col : 0;
            const float4 v = fetch(a + (first_row + row) * k + k0 + col, left, k % 4 == 0);
            a_tile[col][row] = v.x;
            a_tile[col + 1][row] = v.y;
            a_tile[col + 2][row] = v.z;
            a_tile[col + 3][row] = v.w;
        }
#pragma unroll
        for (int e = tid; e < TILE_K * B_ACROSS; e += THREADS) {
            const int row = e / B_ACROSS, col = e % B_ACROSS * 4;
            const long long left = k0 + row < k ? n - first_col - col : 0;
            *reinterpret_cast<float4 *>(&b_tile[row][col]) =
                fetch(b + (k0 + row) * n + first_col + col, left, n % 4 == 0);
        }
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < TILE_K; ++kk) {
            alignas(16) float a_part[THREAD_M], b_part[THREAD_N];
#pragma unroll
            for (int i = 0; i < THREAD_M; i += 4)
                *reinterpret_cast<float4 *>(a_part + i) =
                    *reinterpret_cast<const float4 *>(&a_tile[kk][thread_row + i]);
#pragma unroll
            for (int j = 0; j < THREAD_N; j += 4)
                *reinterpret_cast<float4 *>(b_part + j) =
                    *reinterpret_cast<const float4 *>(&b_tile[kk][thread_col + j]);
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
        for (int j = 0; j < THREAD_N; j += 4) {
            const long long row = first_row + thread_row + i, col = first_col + thread_col + j;
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
