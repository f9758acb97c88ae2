// Softmax over rows, rung 0: one thread a row, three passes.
//
// Nothing is below. Neighbouring threads read addresses a whole row apart, so that every load of a warp
// touches 32 sectors for 4 bytes each, and there are only as many threads as rows.
//
// Knob: BLOCK, threads a block.

// y = softmax(x) along rows; x and y are m×n. Grid: ceil(m / BLOCK).
extern "C" __global__ void softmax_thread(const float *x, float *y, long long m, long long n) {
    const long long row = (long long)blockIdx.x * BLOCK + threadIdx.x;
    if (row >= m) return;
    x += row * n;
    y += row * n;
    float top = x[0];
    for (long long i = 1; i < n; ++i) top = fmaxf(top, x[i]);
    float total = 0.0f;
    for (long long i = 0; i < n; ++i) total += expf(x[i] - top);
    for (long long i = 0; i < n; ++i) y[i] = expf(x[i] - top) / total;
}
