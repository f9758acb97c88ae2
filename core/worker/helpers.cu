// Kernels the worker itself needs. Compiled once per architecture; loaded beside every candidate.

#include <warpdeck/clock_steps.cuh>

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

// Readings of both clocks just before and just after `edges` steps of globaltimer. A block an SM (by shared memory);
// `out` has 2 * edges readings a block.
extern "C" __global__ void wd_anchors(wd_steps::Reading* out, u32 edges, u32 spacing) {
    wd_steps::read_steps(out, edges, spacing);
}

// The same beside another launch, for as long as that runs: up to `most` steps an SM, to out + 2 * most * SM, until
// *stop isn't 0 or `limit` ns are over. One block an SM goes on, the others find it `claimed`. Each SM reads once in
// `period` ns, after 16 of them in twice that, and later in a 64th to a 128th of the time that is over: powers of two.
// SMs take turns: pairs are 15/128 of that apart and the two of a pair 36/128, by which those of one clock domain of an
// H200 cover the time evenly. It waits by loads, which take few of the issue slots that the launch needs (nanosleep
// wakes all SMs together, once in 1024 ns): of *stop from the L2, near the time of its own word from the L1.
extern "C" __global__ void wd_watch(wd_steps::Reading* out, u32 most, u32 sms, u32 period, u32 limit, u32* claimed,
                                    const volatile u32* stop) {
    if (threadIdx.x) return;
    u32 sm, lane, tries = 0, one = 1;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    if (sm >= sms || atomicExch(claimed + sm, one)) return;
    out += 2ull * most * sm;
    const u32 turn = (sm / 2 * 15 + sm % 2 * 36) % 128;
    const u32 start = (u32)globaltimer();
    for (u32 step = 0; step < most; ++step) {
        const u32 stopped = *stop;
        wd_steps::read_step(out + 2 * step, sm, lane, tries);
        const u32 now = (u32)globaltimer(), over = now - start | 1;
        if (stopped || over > limit) break;
        const u32 each = max(over < 16 * period ? period : 2 * period, 1u << 31 >> __clz(over) >> 6);
        const u32 phase = (each >> 7) * turn;
        u32 next = ((now - phase) & ~(each - 1)) + each + phase;
        while (true) {
            const int left = (int)(next - (u32)globaltimer());
            if (left <= 0) break;
            if (left > 500) {
                if (*stop) break;
            } else {
                asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(one) : "l"(claimed + sm) : "memory");
                next += one - 1;  // that is 0: what comes next waits for the load
            }
        }
    }
}
