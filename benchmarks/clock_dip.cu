// How the SMs' clocks hold still: both clocks, read over and over while a kernel spins, multiplies or streams.
//
//   nvcc -O3 -std=c++17 -arch=sm_90 clock_dip.cu -o clock_dip && OUT=. ./clock_dip
//
// Writes clk0.bin to clk2.bin, a run each: [12 kernels][132 blocks][120 readings] of Reading. The kernels' modes
// are in `order`. A quarter of a second on an H200.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#define CHECK(x)                                                                       \
    do {                                                                               \
        cudaError_t error = (x);                                                       \
        if (error) {                                                                   \
            printf("%s, line %d\n", cudaGetErrorString(error), __LINE__);              \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

struct Reading {
    uint64_t time, clock;  // globaltimer, ns, and the cycle counter just before it
    uint32_t sm, gap;      // gap: cycles from that counter's reading to the one after the timer's
};

enum Mode { SPIN, FFMA, STREAM, SHARED };

__device__ __forceinline__ Reading reading() {
    Reading r;
    uint64_t after;
    asm volatile("mov.u64 %0,%%clock64; mov.u64 %1,%%globaltimer; mov.u64 %2,%%clock64;"
                 : "=l"(r.clock), "=l"(r.time), "=l"(after)::"memory");
    r.gap = uint32_t(after - r.clock);
    asm volatile("mov.u32 %0,%%smid;" : "=r"(r.sm));
    return r;
}

__global__ void __launch_bounds__(1024) load(Reading *out, int readings, int mode, const float4 *memory, size_t words,
                                             float *sink, int inner) {
    __shared__ float s[1024];
    s[threadIdx.x] = threadIdx.x;
    float a[8];
    for (int i = 0; i < 8; i++) a[i] = threadIdx.x + i;
    float4 sum{0, 0, 0, 0};
    size_t at = size_t(blockIdx.x) * 1024 + threadIdx.x;
    for (int r = 0; r < readings; r++) {
        if (threadIdx.x == 0) out[size_t(blockIdx.x) * readings + r] = reading();
        if (mode == SPIN) {
            uint64_t from = clock64();
            while (clock64() - from < 1500) {
            }
        }
        if (mode == FFMA)
            for (int i = 0; i < inner; i++) {
#pragma unroll
                for (int j = 0; j < 8; j++) a[j] = a[j] * 1.0001f + 0.5f;
            }
        if (mode == STREAM)
            for (int i = 0; i < inner / 16; i++) {
                float4 v = __ldcs(memory + at);
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
                at += size_t(gridDim.x) * 1024;
                if (at >= words) at -= words;
            }
        if (mode == SHARED)
            for (int i = 0; i < inner / 2; i++) {
#pragma unroll
                for (int j = 0; j < 8; j++) a[j] = a[j] * s[(threadIdx.x + j * 32) & 1023] + 0.5f;
            }
    }
    float all = sum.x + sum.y + sum.z + sum.w;
    for (int i = 0; i < 8; i++) all += a[i];
    if (all == 12345.f) *sink = 1;  // so that nothing is optimised away
}

int main() {
    const int order[] = {SPIN, FFMA, SPIN, STREAM, SPIN, SHARED, SPIN, FFMA, FFMA, STREAM, SHARED, SPIN};
    const int kernels = 12, blocks = 132, readings = 120;
    const size_t words = size_t(1) << 26, each = size_t(blocks) * readings;
    const char *folder = getenv("OUT");
    Reading *out;
    float4 *memory;
    float *sink;
    CHECK(cudaMalloc(&out, sizeof(Reading) * each * kernels));
    CHECK(cudaMalloc(&memory, words * sizeof(float4)));
    CHECK(cudaMemset(memory, 0, words * sizeof(float4)));
    CHECK(cudaMalloc(&sink, sizeof(float)));
    std::vector<Reading> host(each * kernels);
    for (int run = 0; run < 3; run++) {
        for (int i = 0; i < kernels; i++)
            load<<<blocks, 1024>>>(out + i * each, readings, order[i], memory, words, sink, 64);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(host.data(), out, host.size() * sizeof(Reading), cudaMemcpyDeviceToHost));
        char name[256];
        snprintf(name, sizeof name, "%s/clk%d.bin", folder ? folder : ".", run);
        FILE *file = fopen(name, "wb");
        if (!file || fwrite(host.data(), sizeof(Reading), host.size(), file) != host.size() || fclose(file)) {
            printf("%s: can't be written\n", name);
            return 1;
        }
    }
}
