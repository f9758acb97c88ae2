// Kernels the worker itself needs. Compiled once per architecture; loaded beside every candidate.

typedef unsigned long long u64;
typedef unsigned int u32;

static __device__ __forceinline__ u64 globaltimer() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
    return t;
}

// Holds the stream until the host sets *flag to `ticket` (or a later one), so that everything behind it is queued
// before the first of it runs. Expires by itself: a host that died or stalled must not block the GPU.
extern "C" __global__ void wd_hold(volatile u32* flag, volatile u32* expired, u32 ticket, u64 limit_ns) {
    const u64 start = globaltimer();
    while ((int)(*flag - ticket) < 0) {
        if (globaltimer() - start > limit_ns) {
            *expired = ticket;
            __threadfence_system();
            return;
        }
#if __CUDA_ARCH__ >= 700
        __nanosleep(200);
#endif
    }
}

// SM clock: cycles and nanoseconds over `span_ns`, both read at steps of globaltimer (32 ns on Hopper, 1 us elsewhere).
extern "C" __global__ void wd_clock(volatile u64* out, u64 span_ns) {
    u64 t0 = globaltimer(), t1;
    while ((t1 = globaltimer()) == t0) {
    }
    const long long c1 = clock64();
    u64 t2, last = t1;
    do {
        t2 = globaltimer();
        if (t2 != last) {
            last = t2;
            if (t2 - t1 >= span_ns) break;
        }
    } while (true);
    const long long c2 = clock64();
    out[0] = (u64)(c2 - c1);
    out[1] = t2 - t1;
    __threadfence_system();
}

extern "C" __global__ void wd_empty() {}

// Reads n 16-byte words; what it reads can't be optimised away.
extern "C" __global__ void wd_sweep(const uint4* __restrict__ data, u64 n, u32* sink) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u32 sum = 0;
    for (; i + 3 * stride < n; i += 4 * stride) {
        const uint4 a = data[i], b = data[i + stride], c = data[i + 2 * stride], d = data[i + 3 * stride];
        sum ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
    }
    for (; i < n; i += stride) {
        const uint4 a = data[i];
        sum ^= a.x ^ a.y ^ a.z ^ a.w;
    }
    if (sum == 0x9e3779b9u) *sink = sum;
}

// Reads the same n words `passes` times from the L2 (ld.cg skips the L1).
extern "C" __global__ void wd_l2(const uint4* data, u64 n, u32 passes, u32* sink) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u32 sum = 0;
    for (u32 pass = 0; pass < passes; ++pass) {
        u64 i = first;
        for (; i + 3 * stride < n; i += 4 * stride) {
            const uint4 a = __ldcg(data + i), b = __ldcg(data + i + stride), c = __ldcg(data + i + 2 * stride),
                        d = __ldcg(data + i + 3 * stride);
            sum += a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
        }
        for (; i < n; i += stride) {
            const uint4 a = __ldcg(data + i);
            sum += a.x ^ a.y ^ a.z ^ a.w;
        }
        asm volatile("" : "+r"(sum)::"memory");  // keeps the passes apart
    }
    if (sum == 0x9e3779b9u) *sink = sum;
}

extern "C" __global__ void wd_copy(const uint4* __restrict__ from, uint4* __restrict__ to, u64 n) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * stride < n; i += 4 * stride) {
        const uint4 a = from[i], b = from[i + stride], c = from[i + 2 * stride], d = from[i + 3 * stride];
        to[i] = a;
        to[i + stride] = b;
        to[i + 2 * stride] = c;
        to[i + 3 * stride] = d;
    }
    for (; i < n; i += stride) to[i] = from[i];
}

// 256 float32 multiply-adds a thread and round, from registers. With another `scale` than 0.5 they diverge.
extern "C" __global__ void wd_fma(u32 rounds, float scale, u32* sink) {
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = (float)(threadIdx.x + i);
#pragma unroll 1
    for (u32 round = 0; round < rounds; ++round) {
#pragma unroll
        for (int k = 0; k < 16; ++k) {
#pragma unroll
            for (int i = 0; i < 16; ++i) x[i] = x[i] * scale + 1.0f;
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 16; ++i) sum += x[i];
    if (sum < 0.0f) *sink = 1;
}

struct Range {
    u64 address;
    u64 bytes;
};

static __device__ __forceinline__ u64 mix(u64 x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// A 64-bit digest of each range (blockIdx.y), the sum of mixed words: equal bytes give equal digests in any order of
// threads. `out` must be zero.
extern "C" __global__ void wd_digest(const Range* ranges, u64* out) {
    const Range range = ranges[blockIdx.y];
    const u64 gap = (8 - range.address % 8) % 8, head = gap < range.bytes ? gap : range.bytes;
    const u64* data = (const u64*)(range.address + head);
    const u64 words = (range.bytes - head) / 8;
    const u64 stride = (u64)gridDim.x * blockDim.x;
    u64 sum = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += stride)
        sum += mix(data[i] ^ (i * 0x9e3779b97f4a7c15ull + 1));
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        const unsigned char* bytes = (const unsigned char*)range.address;
        for (u64 i = 0; i < range.bytes; ++i) {
            if (i == head) i += 8 * words;
            if (i < range.bytes) sum += mix(bytes[i] + (i << 8) + 0x5851f42d4c957f2dull);
        }
    }
    for (int lane = 16; lane; lane >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, lane);
    if ((threadIdx.x & 31) == 0 && sum) atomicAdd(out + blockIdx.y, sum);
}

struct Anchor {  // telemetry/trace/layout.py: ANCHOR
    u64 time, clock;
    u32 sm, gap;
};

// Reads the timer eight times in a row, with the cycle counter between: readings a few cycles apart. Whether the
// timer took a step meanwhile; if so, the readings just before and just after it. All 64 bits of the counter are
// used, as in trace.cuh: for the low half alone the compiler takes another read. `lane` is 0, which the compiler
// can't know: what it is added to stays out of the uniform registers, moves to which would come in between.
static __device__ __forceinline__ bool step_seen(Anchor& before, Anchor& after, u32 lane) {
    u64 c[9], t[8];
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
        const u64 gap = c[i] - c[i - 1], next = c[i + 1] - c[i];
        before.time = t[i - 1], before.clock = c[i - 1], before.gap = gap >> 32 ? 0xffffffffu : (u32)gap;
        after.time = t[i], after.clock = c[i], after.gap = next >> 32 ? 0xffffffffu : (u32)next;
        seen = true;
    }
    return seen;
}

static __device__ __forceinline__ void wait(u32 cycles) {
    const long long until = clock64() + cycles;
    while (clock64() < until) {
    }
}

// Readings of both clocks just before and just after `edges` steps of globaltimer. A block an SM (by shared memory);
// `out` has 2 * edges readings a block. All waits vary, so that steps meet the loops at different phases.
extern "C" __global__ void wd_anchors(Anchor* out, u32 edges, u32 spacing) {
    if (threadIdx.x) return;
    out += 2ull * edges * blockIdx.x;
    u32 sm, lane, tries = 0;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    for (u32 edge = 0; edge < edges; ++edge) {
        Anchor before{0, 0, sm, 0}, after{0, 0, sm, 0};
        while (!step_seen(before, after, lane)) wait(37 * ++tries % 64);
        out[2 * edge] = before;
        out[2 * edge + 1] = after;
        if (edge + 1 < edges) wait(spacing + 37 * edge % 64);  // the last reading is the closest to the launch
    }
}

// The same beside another launch, for as long as that runs: up to `most` steps an SM, to out + 2 * most * SM, until
// *stop isn't 0. One block an SM goes on, the others find it `claimed`. Waits grow: clocks change most at first.
extern "C" __global__ void wd_watch(Anchor* out, u32 most, u32 sms, u32 pause, u32* claimed, const volatile u32* stop) {
    if (threadIdx.x) return;
    u32 sm, lane, tries = 0;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    if (sm >= sms || atomicExch(claimed + sm, 1)) return;
    out += 2ull * most * sm;
    for (u32 step = 0; step < most && !*stop; ++step) {
        Anchor before{0, 0, sm, 0}, after{0, 0, sm, 0};
        while (!step_seen(before, after, lane)) wait(37 * ++tries % 64);
        out[2 * step] = before;
        out[2 * step + 1] = after;
        __nanosleep(pause + pause * step / 64);
    }
}
