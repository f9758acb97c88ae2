// The sum of a matrix, rung 1: a block adds up its elements in shared memory, then adds once.
//
// Over rung 0: one atomic addition a block in place of one a thread. Half of the threads add the other half's
// values to their own, then half of these, until one sum is left. Each step costs a barrier.
//
// Knob: BLOCK, threads a block, a power of two.

// First launch, one thread: an atomic sum has to start from zero, and `total` holds anything.
extern "C" __global__ void zero_total(const float *x, float *total, float *partials, int *ticket,
                                      long long m, long long n) {
    *total = 0.0f;
}

// total[0] += the elements of x, m×n. Grid: ceil(m·n / BLOCK).
extern "C" __global__ void sum_tree(const float *x, float *total, float *partials, int *ticket, long long m,
                                    long long n) {
    __shared__ float sums[BLOCK];
    const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
    sums[threadIdx.x] = i < m * n ? x[i] : 0.0f;
    for (int half = BLOCK / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) atomicAdd(total, sums[0]);
}
