// The sum of a matrix, rung 2: warps add up by shuffles.
//
// Over rung 1: the lanes of a warp read each other's registers, so that a block needs one barrier, not one a step,
// and one float of shared memory a warp. Blocks still live for EACH elements a thread: while they start, meet at
// the barrier and end, they have no loads under way.
//
// Knobs: BLOCK threads a block, EACH elements a thread.

constexpr int WARPS = BLOCK / 32;

__device__ float warp_sum(float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffff, x, lanes);
    return x;
}

// First launch, one thread: an atomic sum has to start from zero, and `total` holds anything.
extern "C" __global__ void zero_total(const float *x, float *total, float *partials, int *ticket,
                                      long long m, long long n) {
    *total = 0.0f;
}

// total[0] += the elements of x, m×n. Grid: ceil(m·n / (BLOCK·EACH)).
extern "C" __global__ void sum_shuffles(const float *x, float *total, float *partials, int *ticket,
                                        long long m, long long n) {
    __shared__ float sums[WARPS];
    const long long first = (long long)blockIdx.x * BLOCK * EACH + threadIdx.x;
    float sum = 0.0f;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const long long i = first + e * BLOCK;
        sum += i < m * n ? x[i] : 0.0f;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < WARPS ? sums[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) atomicAdd(total, sum);
    }
}
