// The sum of a matrix, rung 1: a block adds up its threads' sums in shared memory, then adds once.
//
// Over rung 0: one atomic addition a block in place of one a thread. Half of the threads add the other half's
// sums to their own, then half of these, until one is left. Each step costs a barrier. EACH must be large enough
// for the atomic additions, still one after the other, not to be the limit, and small enough for all multiprocessors
// to have blocks.
//
// Knobs: BLOCK threads a block, a power of two; EACH elements a thread.

// First launch, one thread: an atomic sum has to start from zero, and `total` holds anything.
extern "C" __global__ void zero_total(const float *x, float *total, float *partials, int *ticket,
                                      long long m, long long n) {
    *total = 0.0f;
}

// total[0] += the elements of x, m×n. Grid: ceil(m·n / (BLOCK·EACH)).
extern "C" __global__ void sum_tree(const float *x, float *total, float *partials, int *ticket, long long m,
                                    long long n) {
    __shared__ float sums[BLOCK];
    const long long first = (long long)blockIdx.x * BLOCK * EACH + threadIdx.x;
    float sum = 0.0f;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        const long long i = first + e * BLOCK;
        sum += i < m * n ? x[i] : 0.0f;
    }
    sums[threadIdx.x] = sum;
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) atomicAdd(total, sums[0]);
}
