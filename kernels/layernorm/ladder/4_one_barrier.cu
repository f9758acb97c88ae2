// Layer norm over rows, rung 4: one barrier for ROWS rows at once.
//
// Over rung 3: a thread takes squared deviations from its own mean, so that one reduction across the block
// finds mean and variance together: a block waits once, with nothing in flight, and not twice. Where memory is
// the limit (8192² on an H200) that gains nothing any more: the two are level there. Weights and biases are read
// for every row, twice the row's size; with ROWS rows a block they are read once for all of these. CACHE = 0
// leaves L1 to them, and was slower.
//
// Knobs: BLOCK threads a block, KEEP vectors of each row a thread keeps, ROWS rows a block, CACHE: 1 loads rows
// through L1, 0 around it.

constexpr int WARPS = BLOCK / 32;
// Threads a multiprocessor should hold, which leaves each 64, 40 or 32 registers: as many as its vectors need.
constexpr int RESIDENT = ROWS > 1 || KEEP > 4 ? 1024 : KEEP > 2 ? 1536 : 2048;

union Vector {
    float4 all;
    float of[4];
};

// How many values, their mean, and the sum of their squared deviations from it.
struct Moments {
    float count, mean, squares;
};

__device__ __forceinline__ float warp_sum(float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffff, x, lanes);
    return x;
}

// The moments of all lanes' sets together: one division, and not one for each of five steps.
__device__ __forceinline__ Moments across_warp(Moments mine) {
    const float count = warp_sum(mine.count);
    const float mean = warp_sum(mine.count * mine.mean) / fmaxf(count, 1.0f);
    const float apart = mine.mean - mean;
    return {count, mean, warp_sum(mine.squares + mine.count * apart * apart)};
}

// With one more value (Welford).
__device__ __forceinline__ void add(Moments &to, float x) {
    const float apart = x - to.mean;
    to.count += 1.0f;
    to.mean += apart / to.count;
    to.squares += apart * (x - to.mean);
}

// y = (x - mean) / sqrt(variance + eps) · weight + bias along rows; x and y are m×n. Grid: ceil(m / ROWS).
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT / BLOCK)
    layernorm_one_barrier(const float *__restrict__ x, const float *__restrict__ weight,
                          const float *__restrict__ bias, float *__restrict__ y, long long m, long long n,
                          float eps) {
    __shared__ Moments found[ROWS][WARPS];
    const int thread = threadIdx.x, lane = thread % 32;
    const int vectors = n % 4 == 0 ? int(min(n / 4, (long long)BLOCK * KEEP)) : 0;  // in registers
    const long long held = 4LL * vectors;
    const long long first = (long long)blockIdx.x * ROWS;
    const int rows = int(min(m - first, (long long)ROWS));
    x += first * n;
    y += first * n;

    Vector kept[ROWS][KEEP];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const float4 *from = reinterpret_cast<const float4 *>(x + r * n);
#pragma unroll
        for (int k = 0; k < KEEP; ++k) {
            const int i = thread + k * BLOCK;
            kept[r][k].all = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (i < vectors && r < rows) kept[r][k].all = CACHE ? from[i] : __ldcg(from + i);
        }
    }

    // This thread's share of each row: vectors thread, thread + BLOCK, … below `vectors`.
    const int mine = vectors > thread ? 4 * ((vectors - thread - 1) / BLOCK + 1) : 0;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        Moments row{float(mine), 0.0f, 0.0f};
#pragma unroll
        for (int k = 0; k < KEEP; ++k)
            for (int j = 0; j < 4; ++j) row.mean += kept[r][k].of[j];
        row.mean /= max(mine, 1);
#pragma unroll
        for (int k = 0; k < KEEP; ++k)
            if (thread + k * BLOCK < vectors)
                for (int j = 0; j < 4; ++j)
                    row.squares += (kept[r][k].of[j] - row.mean) * (kept[r][k].of[j] - row.mean);
        if (r < rows) {
#pragma unroll 1  // each update waits for the last one: unrolled it would only take registers
            for (long long i = held + thread; i < n; i += BLOCK) add(row, x[r * n + i]);
        }
        row = across_warp(row);
        if (lane == 0) found[r][thread / 32] = row;
    }
    __syncthreads();

    float mean[ROWS], scale[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const Moments row = across_warp(lane < WARPS ? found[r][lane] : Moments{0.0f, 0.0f, 0.0f});
        mean[r] = row.mean;
        scale[r] = rsqrtf(row.squares / n + eps);
    }
#pragma unroll
    for (int k = 0; k < KEEP; ++k) {
        const int i = thread + k * BLOCK;
        if (i < vectors) {
            Vector w, b;
            w.all = reinterpret_cast<const float4 *>(weight)[i];
            b.all = reinterpret_cast<const float4 *>(bias)[i];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                for (int j = 0; j < 4; ++j)
                    kept[r][k].of[j] = (kept[r][k].of[j] - mean[r]) * scale[r] * w.of[j] + b.of[j];
                if (r < rows) reinterpret_cast<float4 *>(y + r * n)[i] = kept[r][k].all;
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        if (r < rows)
            for (long long i = held + thread; i < n; i += BLOCK)
                y[r * n + i] = (x[r * n + i] - mean[r]) * scale[r] * weight[i] + bias[i];
}
