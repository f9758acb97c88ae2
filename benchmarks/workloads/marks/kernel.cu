// Kernels whose traces are known beforehand: 16 events in a row, stages of a given length, handshakes of two CTAs.

#include <warpdeck/trace.cuh>

WD_STAGES(tick, busy, inner, outer, cause, effect)

static __device__ __forceinline__ unsigned long long globaltimer() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}

#if EVENTS
#define EVENT(i) WD_MARK(tick, i)
#else
#define EVENT(i)
#endif
#define STEP(i) \
    EVENT(i);   \
    _Pragma("unroll") for (int w = 0; w < WORK; ++w) x = fmaf(x, a, 0.5f)
#define FOUR(i) STEP(i); STEP(i + 1); STEP(i + 2); STEP(i + 3)

// `rounds` times 16 marks, each followed by WORK dependent multiply-adds.
extern "C" __global__ void ticks(float *out, float a, int rounds WD_TRACE_PARAM) {
    WD_TRACE_BEGIN();
    float x = threadIdx.x;
#pragma unroll 1
    for (int r = 0; r < rounds; ++r) {
        asm volatile("");  // the loop stays also where it is empty
        FOUR(0);
        FOUR(4);
        FOUR(8);
        FOUR(12);
    }
    asm volatile("" : "+f"(x)::"memory");
    WD_TRACE_END();
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

// Stages that last `shortest << i % 8` nanoseconds by globaltimer, and what it read just inside of them and
// just outside.
extern "C" __global__ void waits(float *out, float shortest, int rounds WD_TRACE_PARAM) {
    WD_TRACE_BEGIN();
#pragma unroll 1
    for (int i = 0; i < rounds; ++i) {
        const unsigned long long length = (unsigned long long)shortest << i % 8, before = globaltimer();
        WD_PUSH(busy, i);
        const unsigned long long start = globaltimer();
        unsigned long long now;
        do {
            now = globaltimer();
        } while (now - start < length);
        WD_POP(busy);
        const unsigned long long after = globaltimer();
        WD_VALUE(inner, unsigned(now - start));
        WD_VALUE(outer, unsigned(after - before));
    }
    WD_TRACE_END();
    if (threadIdx.x == 0) out[blockIdx.x] = rounds;
}

// Flags go to and fro between the two CTAs of a pair, `rounds` times: a mark before each is set, and one after
// each was seen. `stride`, coprime to the grid, decides who is a pair with whom. A flag has a line of its own.
// A CTA that waits for too long returns, so that a launch whose CTAs don't run side by side ends too.
extern "C" __global__ void handshakes(float *out, float stride, int rounds WD_TRACE_PARAM) {
    WD_TRACE_BEGIN();
    const unsigned place = blockIdx.x * (unsigned)stride % gridDim.x, pair = place / 2, answers = place % 2;
    // One word for both ways: each is a store from one SM and a load to the other, of the same place in the L2.
    unsigned *flag = reinterpret_cast<unsigned *>(out) + 64 * pair;
    for (unsigned turn = 1; turn <= 2u * rounds; ++turn) {
        if (turn % 2 != answers) {
            WD_MARK(cause, turn);
            asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(turn) : "memory");
        } else {
            unsigned seen = 0;
            for (unsigned tries = 0; seen < turn; ++tries) {
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
                if (tries > 20000000u) return;
            }
            WD_MARK(effect, turn);
        }
    }
    WD_TRACE_END();
}
