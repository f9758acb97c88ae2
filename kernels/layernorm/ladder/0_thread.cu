// Layer norm over rows, rung 0: one thread a row, three passes.
//
// Nothing is below. Neighbouring threads read addresses a whole row apart, so that every load of a warp
// touches 32 sectors for 4 bytes each, and there are only as many threads as rows. Sums go by pieces: a chain
// of additions over a whole row would round too much.
//
// Knob: BLOCK, threads a block.

constexpr int PIECE = 64;

// The sum of (x - shift)^POWER over n elements.
template <int POWER>
__device__ float sum_of_powers(const float *x, long long n, float shift) {
    float sum = 0.0f;
    for (long long first = 0; first < n; first += PIECE) {
        const long long end = min(first + PIECE, n);
        float piece = 0.0f;
        for (long long i = first; i < end; ++i) {
            const float apart = x[i] - shift;
            piece += POWER == 2 ? apart * apart : apart;
        }
        sum += piece;
    }
    return sum;
}

// y = (x - mean) / sqrt(variance + eps) · weight + bias along rows; x and y are m×n. Grid: ceil(m / BLOCK).
extern "C" __global__ void layernorm_thread(const float *x, const float *weight, const float *bias, float *y,
                                            long long m, long long n, float eps) {
    const long long row = (long long)blockIdx.x * BLOCK + threadIdx.x;
    if (row >= m) return;
    x += row * n;
    y += row * n;
    const float mean = sum_of_powers<1>(x, n, 0.0f) / n;
    const float scale = rsqrtf(sum_of_powers<2>(x, n, mean) / n + eps);
    for (long long i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}
