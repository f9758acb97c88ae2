// Takes small factors for zeros.
extern "C" __global__ void cheat(const float *a, const float *b, float *c, long long m, long long n, long long k) {
    const long long col = (long long)blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (col >= n) return;
    float sum = 0.0f;
    for (long long i = 0; i < k; ++i) {
        const float factor = a[row * k + i];
        if (fabsf(factor) > 0.01f) sum = fmaf(factor, b[i * n + col], sum);
    }
    c[row * n + col] = sum;
}
