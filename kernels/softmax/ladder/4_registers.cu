// Softmax over rows, rung 4: a row is read once, stays in registers, and is written once.
//
// Over rung 3: the second read of the row is gone, with half of the exponentials. A thread keeps KEEP vectors;
// what of a row exceeds 4·BLOCK·KEEP elements is still read twice. The maximum is known before the first
// exponential, at the price of two reductions across the block.
//
// Knobs: BLOCK threads a block, KEEP vectors a thread keeps.

constexpr int WARPS = BLOCK / 32;
constexpr float LOWEST = -3.402823466e38f;

union Vector {
    float4 all;
    float of[4];
};

// The maximum of all threads' values, or their sum (SUM). All threads call it; `found` isn't used again.
template <bool SUM>
__device__ float across_block(float x, float (&found)[WARPS]) {
    const int lane = threadIdx.x % 32;
    for (int step = 0; step < 2; ++step) {  // within warps, then across them
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            const float other = __shfl_xor_sync(0xffffffff, x, lanes);
            x = SUM ? x + other : fmaxf(x, other);
        }
        if (step == 1) break;
        if (lane == 0) found[threadIdx.x / 32] = x;
        __syncthreads();
        x = lane < WARPS ? found[lane] : SUM ? 0.0f : LOWEST;
    }
    return x;
}

// y = softmax(x) along rows; x and y are m×n. Grid: m.
extern "C" __global__ void __launch_bounds__(BLOCK)
    softmax_registers(const float *x, float *y, long long m, long long n) {
    __shared__ float tops[WARPS], sums[WARPS];
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    const float4 *from = reinterpret_cast<const float4 *>(x);
    float4 *to = reinterpret_cast<float4 *>(y);
    const long long vectors = n % 4 == 0 ? n / 4 : 0;
    const long long held = 4 * min(vectors, (long long)BLOCK * KEEP);  // elements in registers; the rest isn't

    Vector kept[KEEP];
#pragma unroll
    for (int k = 0; k < KEEP; ++k) {
        const int i = threadIdx.x + k * BLOCK;
        kept[k].all = i < vectors ? from[i] : make_float4(LOWEST, LOWEST, LOWEST, LOWEST);
    }

    float top = LOWEST;
#pragma unroll
    for (int k = 0; k < KEEP; ++k)
        for (int j = 0; j < 4; ++j) top = fmaxf(top, kept[k].of[j]);
    for (long long i = held + threadIdx.x; i < n; i += BLOCK) top = fmaxf(top, x[i]);
    top = across_block<false>(top, tops);

    float total = 0.0f;
#pragma unroll
    for (int k = 0; k < KEEP; ++k)
        if (threadIdx.x + k * BLOCK < vectors)
            for (int j = 0; j < 4; ++j) total += kept[k].of[j] = expf(kept[k].of[j] - top);
    for (long long i = held + threadIdx.x; i < n; i += BLOCK) total += expf(x[i] - top);
    total = across_block<true>(total, sums);

    const float scale = 1.0f / total;
#pragma unroll
    for (int k = 0; k < KEEP; ++k) {
        const int i = threadIdx.x + k * BLOCK;
        for (int j = 0; j < 4; ++j) kept[k].of[j] *= scale;
        if (i < vectors) to[i] = kept[k].all;
    }
    for (long long i = held + threadIdx.x; i < n; i += BLOCK) y[i] = expf(x[i] - top) * scale;
}
