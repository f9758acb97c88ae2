// Softmax over rows, rung 1: one block a row, three passes, reductions in shared memory.
//
// Over rung 0: neighbouring threads read neighbouring elements, so that a warp's load is 128 bytes in one
// piece, and the row's maximum and sum come together in shared memory, a tree with a barrier a step.
//
// Knob: BLOCK, threads a block, a power of two.

constexpr float LOWEST = -3.402823466e38f;

// Leaves the maximum of all threads' values (SUM: their sum) in found[0]. All threads call it.
template <bool SUM>
__device__ float across_block(float value, float *found) {
    __syncthreads();  // everybody has read the last result
    found[threadIdx.x] = value;
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            const float other = found[threadIdx.x + half];
            found[threadIdx.x] = SUM ? found[threadIdx.x] + other : fmaxf(found[threadIdx.x], other);
        }
    }
    __syncthreads();
    return found[0];
}

// y = softmax(x) along rows; x and y are m×n. Grid: m.
extern "C" __global__ void softmax_block(const float *x, float *y, long long m, long long n) {
    __shared__ float found[BLOCK];
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    float top = LOWEST;
    for (long long i = threadIdx.x; i < n; i += BLOCK) top = fmaxf(top, x[i]);
    top = across_block<false>(top, found);
    float total = 0.0f;
    for (long long i = threadIdx.x; i < n; i += BLOCK) total += expf(x[i] - top);
    total = across_block<true>(total, found);
    for (long long i = threadIdx.x; i < n; i += BLOCK) y[i] = expf(x[i] - top) / total;
}
