// Factors with TF32's 11 significant bits, as a tensor core would take them.
__device__ float rounded(float x) {
    return __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u);
}
extern "C" __global__ void cheat(const float *a, const float *b, float *c, long long m, long long n, long long k) {
    const long long col = (long long)blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (col >= n) return;
    float sum = 0.0f;
    for (long long i = 0; i < k; ++i) sum = fmaf(rounded(a[row * k + i]), rounded(b[i * n + col]), sum);
    c[row * n + col] = sum;
}
