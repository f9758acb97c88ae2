// Softmax over rows, the plain CUDA C++ variant: a row is read once, kept in registers and written once.
//
// Knobs: BLOCK threads a block share ROWS rows; a thread keeps CACHED vectors of VECTOR elements; FAST takes
// the hardware's exponential. A thread takes exponentials against its own maximum, so that one pass over its
// registers and one barrier yield the row's maximum and sum together; a factor a thread corrects the
// difference at the end. What of a row exceeds the registers is read twice, and a row whose length isn't a
// multiple of VECTOR element by element.

#include <warpdeck/trace.cuh>

WD_STAGES(load, wait, compute, reduce, store)

constexpr int ROW_THREADS = BLOCK / ROWS;
constexpr int ROW_WARPS = ROW_THREADS / 32;
constexpr float LOWEST = -3.402823466e38f;

static_assert(BLOCK % (32 * ROWS) == 0, "whole warps share a row");
static_assert(ROW_WARPS <= 32, "a warp adds up what the row's warps found");

struct alignas(4 * VECTOR) Vector {
    float of[VECTOR];
};

__device__ __forceinline__ float exponential(float x) { return FAST ? __expf(x) : expf(x); }

__device__ __forceinline__ float warp_max(float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, lanes));
    return x;
}

__device__ __forceinline__ float warp_sum(float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffff, x, lanes);
    return x;
}

// A maximum and a sum of exponentials against it.
struct Running {
    float top, total;

    __device__ __forceinline__ void add(float x) {
        const float higher = fmaxf(top, x);
        total = total * exponential(top - higher) + exponential(x - higher);
        top = higher;
    }
    __device__ __forceinline__ void across_warp() {
        const float higher = warp_max(top);
        total = warp_sum(total * exponential(top - higher));
        top = higher;
    }
};

// y = softmax(x) along rows; x and y are m×n. Grid: ceil(m / ROWS).
extern "C" __global__ void softmax_cuda(const float *__restrict__ x, float *__restrict__ y, long long m,
                                        long long n WD_TRACE_PARAM) {
    __shared__ Running found[ROWS][ROW_WARPS];
    WD_TRACE_BEGIN();
    const int slot = threadIdx.x / ROW_THREADS;
    const int thread = threadIdx.x % ROW_THREADS;
    const long long row = (long long)blockIdx.x * ROWS + slot;
    const bool wide = n % VECTOR == 0;
    const long long vectors = row < m && wide ? n / VECTOR : 0;
    const long long scalars = row < m && !wide ? n : 0;
    const int held = int(min(vectors, (long long)CACHED * ROW_THREADS));  // vectors that registers keep
    const long long start = row < m ? row * n : 0;
    const Vector *from = reinterpret_cast<const Vector *>(x + start);
    Vector *to = reinterpret_cast<Vector *>(y + start);

    WD_PUSH(load);
    Vector kept[CACHED];
#pragma unroll
    for (int c = 0; c < CACHED; ++c) {
        const int i = thread + c * ROW_THREADS;
        if (i < held) {
            kept[c] = from[i];
        } else {
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) kept[c].of[j] = LOWEST;
        }
    }
    WD_POP(load);

    // The first use of what was loaded waits for it.
    WD_PUSH(wait);
    Running mine{LOWEST, 0.0f};
#pragma unroll
    for (int c = 0; c < CACHED; ++c)
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) mine.top = fmaxf(mine.top, kept[c].of[j]);
    WD_PIN(mine.top);
    WD_POP(wait);

    WD_PUSH(compute);
#pragma unroll
    for (int c = 0; c < CACHED; ++c) {
        if (thread + c * ROW_THREADS < held) {
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) {
                kept[c].of[j] = exponential(kept[c].of[j] - mine.top);
                mine.total += kept[c].of[j];
            }
        }
    }
    const float kept_top = mine.top;
    for (long long i = thread + CACHED * ROW_THREADS; i < vectors; i += ROW_THREADS) {
        const Vector part = from[i];
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) mine.add(part.of[j]);
    }
    for (long long i = thread; i < scalars; i += ROW_THREADS) mine.add(x[start + i]);
    WD_PIN(mine.top, mine.total);
    WD_POP(compute);

    WD_PUSH(reduce);
    mine.across_warp();
    if (ROW_WARPS > 1) {
        if (thread % 32 == 0) found[slot][thread / 32] = mine;
        WD_PUSH(wait);
        __syncthreads();
        WD_POP(wait);
        mine = thread % 32 < ROW_WARPS ? found[slot][thread % 32] : Running{LOWEST, 0.0f};
        mine.across_warp();
    }
    WD_PIN(mine.top, mine.total);
    WD_POP(reduce);

    WD_PUSH(store);
    const float scale = 1.0f / mine.total;
    const float kept_scale = exponential(kept_top - mine.top) * scale;
#pragma unroll
    for (int c = 0; c < CACHED; ++c) {
        const int i = thread + c * ROW_THREADS;
        if (i < held) {
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) kept[c].of[j] *= kept_scale;
            to[i] = kept[c];
        }
    }
    for (long long i = thread + CACHED * ROW_THREADS; i < vectors; i += ROW_THREADS) {
        Vector part = from[i];
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) part.of[j] = exponential(part.of[j] - mine.top) * scale;
        to[i] = part;
    }
    for (long long i = thread; i < scalars; i += ROW_THREADS)
        y[start + i] = exponential(x[start + i] - mine.top) * scale;
    WD_POP(store);
    WD_TRACE_END();
}
