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
// can't know: what depends on it stays out of the uniform registers, moves to which would come in between.
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
    if (t[0] + lane == t[7]) return false;
    // From here on low halves do; what was read while a high one changed is left to the next try.
    unsigned last = 0, at = 0, next = 0, from = 0, to = 0, carried = unsigned((c[8] ^ c[0]) >> 32);
#pragma unroll
    for (int i = 7; i > 0; --i) {
        const bool here = unsigned(t[i]) != unsigned(t[i - 1]);
        last = here ? unsigned(c[i - 1]) : last;
        at = here ? unsigned(c[i]) : at;
        next = here ? unsigned(c[i + 1]) : next;
        from = here ? unsigned(t[i - 1]) : from;
        to = here ? unsigned(t[i]) : to;
        carried |= unsigned((c[i] ^ c[0]) >> 32) | unsigned((t[i] ^ t[0]) >> 32);
    }
    const unsigned long long cycles = c[0] >> 32 << 32, time = t[0] >> 32 << 32;
    before.time = time | from, before.clock = cycles | last, before.gap = at - last;
    after.time = time | to, after.clock = cycles | at, after.gap = next - at;
    return !carried;
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
