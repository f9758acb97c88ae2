// Layer norm over rows, rung 1: one block a row, three passes, reductions in shared memory.
//
// Over rung 0: neighbouring threads read neighbouring elements, so that a warp's load is 128 bytes in one
// piece, and the row's sums come together in shared memory, a tree with a barrier a step.
//
// Knob: BLOCK, threads a block, a power of two.

// The sum of all threads' values, for all of them. All threads call it.
__device__ float block_sum(float value, float *sums) {
    __syncthreads();  // everybody has read the last result
    sums[threadIdx.x] = value;
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    return sums[0];
}

// y = (x - mean) / sqrt(variance + eps) · weight + bias along rows; x and y are m×n. Grid: m.
extern "C" __global__ void layernorm_block(const float *x, const float *weight, const float *bias, float *y,
                                           long long m, long long n, float eps) {
    __shared__ float sums[BLOCK];
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    float sum = 0.0f;
    for (long long i = threadIdx.x; i < n; i += BLOCK) sum += x[i];
    const float mean = block_sum(sum, sums) / n;
    float squares = 0.0f;
    for (long long i = threadIdx.x; i < n; i += BLOCK) squares += (x[i] - mean) * (x[i] - mean);
    const float scale = rsqrtf(block_sum(squares, sums) / n + eps);
    for (long long i = threadIdx.x; i < n; i += BLOCK) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}
