// Readings of both clocks of an SM, just before and just after steps of globaltimer: what the reader of a trace
// compares SMs by. For the kernels around a traced launch: the worker's, and those of trace_host.h.

#ifndef WARPDECK_CLOCK_STEPS_CUH
#define WARPDECK_CLOCK_STEPS_CUH

namespace wd_steps {

struct Reading {  // layout.py: ANCHOR
    unsigned long long time, clock;
    unsigned sm, gap;
};

// Reads the timer eight times in a row, with the cycle counter between: readings a few cycles apart. Whether the
// timer took a step meanwhile; if so, the readings just before and just after it. All 64 bits of the counter are
// used, as in trace.cuh: for the low half alone the compiler takes another read. `lane` is 0, which the compiler
// can't know: what it is added to stays out of the uniform registers, moves to which would come in between.
__device__ __forceinline__ bool step_seen(Reading &before, Reading &after, unsigned lane) {
    unsigned long long c[9], t[8];
    asm volatile(
        "mov.u64 %0, %%clock64;\n\tmov.u64 %9, %%globaltimer;\n\tmov.u64 %1, %%clock64;\n\t"
        "mov.u64 %10, %%globaltimer;\n\tmov.u64 %2, %%clock64;\n\tmov.u64 %11, %%globaltimer;\n\t"
        "mov.u64 %3, %%clock64;\n\tmov.u64 %12, %%globaltimer;\n\tmov.u64 %4, %%clock64;\n\t"
        "mov.u64 %13, %%globaltimer;\n\tmov.u64 %5, %%clock64;\n\tmov.u64 %14, %%globaltimer;\n\t"
        "mov.u64 %6, %%clock64;\n\tmov.u64 %15, %%globaltimer;\n\tmov.u64 %7, %%clock64;\n\t"
        "mov.u64 %16, %%globaltimer;\n\tmov.u64 %8, %%clock64;"
        : "=l"(c[0]), "=l"(c[1]), "=l"(c[2]), "=l"(c[3]), "=l"(c[4]), "=l"(c[5]), "=l"(c[6]), "=l"(c[7]),
          "=l"(c[8]), "=l"(t[0]), "=l"(t[1]), "=l"(t[2]), "=l"(t[3]), "=l"(t[4]), "=l"(t[5]), "=l"(t[6]),
          "=l"(t[7])::"memory");
#pragma unroll
    for (int i = 0; i < 8; ++i) c[i] += lane, t[i] += lane;
    c[8] += lane;
    bool seen = false;
#pragma unroll
    for (int i = 7; i > 0; --i) {
        if (t[i] == t[i - 1]) continue;
        const unsigned long long gap = c[i] - c[i - 1], next = c[i + 1] - c[i];
        before.time = t[i - 1], before.clock = c[i - 1], before.gap = gap >> 32 ? 0xffffffffu : unsigned(gap);
        after.time = t[i], after.clock = c[i], after.gap = next >> 32 ? 0xffffffffu : unsigned(next);
        seen = true;
    }
    return seen;
}

__device__ __forceinline__ void wait(unsigned cycles) {
    const long long until = clock64() + cycles;
    while (clock64() < until) {
    }
}

// Waits for the next step. `tries`: 0 at first; it varies the waits between looks, so that steps meet the loops at
// different phases.
__device__ __forceinline__ void read_step(Reading *out, unsigned sm, unsigned lane, unsigned &tries) {
    Reading before{0, 0, sm, 0}, after{0, 0, sm, 0};
    while (!step_seen(before, after, lane)) wait(37 * ++tries % 64);
    out[0] = before;
    out[1] = after;
}

// By the first thread of a block, one on each SM (by shared memory): `count` steps, so 2 * count readings a block.
__device__ __forceinline__ void read_steps(Reading *out, unsigned count, unsigned spacing) {
    if (threadIdx.x) return;
    out += 2ull * count * blockIdx.x;
    unsigned sm, lane, tries = 0;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    for (unsigned step = 0; step < count; ++step) {
        read_step(out + 2 * step, sm, lane, tries);
        if (step + 1 < count) wait(spacing + 37 * step % 64);  // the last reading is the closest to the launch
    }
}

}  // namespace wd_steps

#endif  // WARPDECK_CLOCK_STEPS_CUH
