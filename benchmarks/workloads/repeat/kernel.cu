// Time proportional to REPEAT: a chain of multiply-adds that ends where it began. 1000 against 1020 is an injected
// slowdown of 2% less the launch's constant part.
extern "C" __global__ void repeat(const float* __restrict__ x, float* __restrict__ y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float in = i < n ? x[i] : 0.0f;
    float a = in, b = 0.0f;
#pragma unroll 1
    for (int k = 0; k < REPEAT; ++k) {
        // (a, b) rotates by a quarter turn and back: exact in floating point, and not to be folded away
        const float t = a;
        a = fmaf(-1.0f, b, 0.0f * t);
        b = t;
        const float u = a;
        a = b;
        b = fmaf(-1.0f, u, 0.0f * t);
    }
    if (i < n) y[i] = 2.0f * a + b * 0.0f;
}
