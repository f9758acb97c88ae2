// Layer norm over rows, rung 3: a row is read once with wide loads, stays in registers, and is written once.
//
// Over rung 2: the second read is gone, loads and stores take 16 bytes, and a thread has KEEP independent ones
// in flight. With the row at hand two plain sums give mean and variance, at the price of two reductions across
// the block. What of a row exceeds 4·BLOCK·KEEP elements, or isn't aligned (n no multiple of 4), is read again.
//
// Knobs: BLOCK threads a block, KEEP vectors a thread keeps.

constexpr int WARPS = BLOCK / 32;

union Vector {
    float4 all;
    float of[4];
};

// The sum of all threads' values, for all of them. All threads call it; `sums` isn't used again.
__device__ float block_sum(float x, float (&sums)[WARPS]) {
    const int lane = threadIdx.x % 32;
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffff, x, lanes);
    if (lane == 0) sums[threadIdx.x / 32] = x;
    __syncthreads();
    x = lane < WARPS ? sums[lane] : 0.0f;
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffff, x, lanes);
    return x;
}

// y = (x - mean) / sqrt(variance + eps) · weight + bias along rows; x and y are m×n. Grid: m.
extern "C" __global__ void __launch_bounds__(BLOCK)
    layernorm_registers(const float *x, const float *weight, const float *bias, float *y, long long m,
                        long long n, float eps) {
    __shared__ float sums[WARPS], more[WARPS];
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    const float4 *from = reinterpret_cast<const float4 *>(x);
    const float4 *weights = reinterpret_cast<const float4 *>(weight);
    const float4 *biases = reinterpret_cast<const float4 *>(bias);
    float4 *to = reinterpret_cast<float4 *>(y);
    const int vectors = n % 4 == 0 ? int(min(n / 4, (long long)BLOCK * KEEP)) : 0;  // in registers
    const long long held = 4LL * vectors;

    Vector kept[KEEP];
#pragma unroll
    for (int k = 0; k < KEEP; ++k) {
        const int i = threadIdx.x + k * BLOCK;
        kept[k].all = i < vectors ? from[i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }

    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < KEEP; ++k)
        for (int j = 0; j < 4; ++j) sum += kept[k].of[j];
    for (long long i = held + threadIdx.x; i < n; i += BLOCK) sum += x[i];
    const float mean = block_sum(sum, sums) / n;

    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < KEEP; ++k)
        if (int(threadIdx.x) + k * BLOCK < vectors)
            for (int j = 0; j < 4; ++j) squares += (kept[k].of[j] - mean) * (kept[k].of[j] - mean);
    for (long long i = held + threadIdx.x; i < n; i += BLOCK) squares += (x[i] - mean) * (x[i] - mean);
    const float scale = rsqrtf(block_sum(squares, more) / n + eps);

#pragma unroll
    for (int k = 0; k < KEEP; ++k) {
        const int i = threadIdx.x + k * BLOCK;
        if (i < vectors) {
            Vector w, b;
            w.all = weights[i];
            b.all = biases[i];
            for (int j = 0; j < 4; ++j)
                kept[k].of[j] = (kept[k].of[j] - mean) * scale * w.of[j] + b.of[j];
            to[i] = kept[k].all;
        }
    }
    for (long long i = held + threadIdx.x; i < n; i += BLOCK)
        y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}
