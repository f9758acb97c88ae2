// Layer norm over rows, rung 0: one thread a row, three passes.
//
// Nothing is below. Neighbouring threads read addresses a whole row apart, so that every load of a warp
// touches 32 sectors for 4 bytes each, and there are only as many threads as rows.
//
// Knob: BLOCK, threads a block.

// y = (x - mean) / sqrt(variance + eps) · weight + bias along rows; x and y are m×n. Grid: ceil(m / BLOCK).
extern "C" __global__ void layernorm_thread(const float *x, const float *weight, const float *bias, float *y,
                                            long long m, long long n, float eps) {
    const long long row = (long long)blockIdx.x * BLOCK + threadIdx.x;
    if (row >= m) return;
    x += row * n;
    y += row * n;
    float sum = 0.0f;
    for (long long i = 0; i < n; ++i) sum += x[i];
    const float mean = sum / n;
    float squares = 0.0f;
    for (long long i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const float scale = rsqrtf(squares / n + eps);
    for (long long i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}
