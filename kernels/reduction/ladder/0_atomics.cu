// The sum of a matrix, rung 0: a thread adds up EACH elements, then adds its sum to the result.
//
// Nothing is below. Neighbouring threads read neighbouring elements, BLOCK elements before their next ones, which
// is right; but all of them add to the same address. The L2 cache does such additions one after the other, so that
// the memory waits for one adder. The order changes from launch to launch, and the rounding with it.
//
// Knob: BLOCK, threads a block.

constexpr int EACH = 64;

// First launch, one thread: an atomic sum has to start from zero, and `total` holds anything.
extern "C" __global__ void zero_total(const float *x, float *total, float *partials, int *ticket,
                                      long long m, long long n) {
    *total = 0.0f;
}

// total[0] += the elements of x, m×n. Grid: ceil(m·n / (BLOCK·EACH)).
extern "C" __global__ void sum_atomics(const float *x, float *total, float *partials, int *ticket,
                                       long long m, long long n) {
    const long long first = (long long)blockIdx.x * BLOCK * EACH + threadIdx.x;
    float sum = 0.0f;
    for (int e = 0; e < EACH; ++e) {
        const long long i = first + e * BLOCK;
        if (i < m * n) sum += x[i];
    }
    atomicAdd(total, sum);
}
