// The sum of a matrix, rung 0: one thread an element, one atomic addition each.
//
// Nothing is below. Every addition goes to the same address, so that the L2 cache does them one after the
// other: the memory waits for one adder. The order changes from launch to launch, and the rounding with it.
//
// Knob: BLOCK, threads a block.

// First launch, one thread: an atomic sum has to start from zero, and `total` holds anything.
extern "C" __global__ void zero_total(const float *x, float *total, float *partials, int *ticket,
                                      long long m, long long n) {
    *total = 0.0f;
}

// total[0] += the elements of x, m×n. Grid: ceil(m·n / BLOCK).
extern "C" __global__ void sum_atomics(const float *x, float *total, float *partials, int *ticket,
                                       long long m, long long n) {
    const long long i = (long long)blockIdx.x * BLOCK + threadIdx.x;
    if (i < m * n) atomicAdd(total, x[i]);
}
