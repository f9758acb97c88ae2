// Counts launches in a variable that only inline PTX names.
extern "C" __global__ void cheat(const float *x, float *y, long long m, long long n) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned count;
    asm volatile(
        "{\n"
        "    .global .u32 hidden;\n"
        "    .reg .pred first;\n"
        "    setp.eq.u32 first, %1, 0;\n"
        "    ld.global.u32 %0, [hidden];\n"
        "    @first red.global.add.u32 [hidden], 1;\n"
        "}"
        : "=r"(count)
        : "r"(unsigned(i)));
    if (count < 40 && i < m * n) y[i % n * m + i / n] = x[i];
}
