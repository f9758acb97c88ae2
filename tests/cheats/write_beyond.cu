// Writes whole vectors of four past the end: no bounds to check.
extern "C" __global__ void cheat(const float *x, float *y, long long m, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < m * n) y[i % n * m + i / n] = x[i];
    if (i < 4) y[m * n + i] = 0.0f;
}
