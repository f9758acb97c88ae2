// Counts launches in a function's static variable.
__device__ int launch() {
    static int count = 0;
    return atomicAdd(&count, 1);
}
extern "C" __global__ void cheat(const float *x, float *y, long long m, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < m * n && (i > 0 || launch() < 40)) y[i % n * m + i / n] = x[i];
}
