// Products are exact, but every eighth partial sum is kept in half precision.
#include <cuda_fp16.h>
extern "C" __global__ void cheat(const float *a, const float *b, float *c, long long m, long long n, long long k) {
    const long long col = (long long)blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (col >= n) return;
    float sum = 0.0f;
    for (long long i = 0; i < k; ++i) {
        sum = fmaf(a[row * k + i], b[i * n + col], sum);
        if (i % 8 == 7) sum = __half2float(__float2half(sum));
    }
    c[row * n + col] = sum;
}
