// Softmax over rows, rung 5: one barrier a row, fast exponentials.
//
// Over rung 4: a thread takes exponentials against its own maximum, so that one reduction across the block
// finds the row's maximum and sum together, and a factor a thread corrects the difference. While a block waits
// at its barrier it has no loads in flight; with one wait in place of two, the other blocks of the
// multiprocessor fill the gap. __expf is one instruction on the special function unit.
//
// Knobs: BLOCK threads a block, KEEP vectors a thread keeps, STREAM: 1 marks what is read and written as used
// once, to be evicted first.

constexpr int WARPS = BLOCK / 32;
constexpr float LOWEST = -3.402823466e38f;

union Vector {
    float4 all;
    float of[4];
};

// A maximum, and the sum of exponentials against it.
struct Running {
    float top, total;
};

__device__ Running combined(Running a, Running b) {
    const float top = fmaxf(a.top, b.top);
    return {top, a.total * __expf(a.top - top) + b.total * __expf(b.top - top)};
}

__device__ Running across_warp(Running mine) {
    float top = mine.top;
    for (int lanes = 16; lanes > 0; lanes /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, lanes));
    float total = mine.total * __expf(mine.top - top);
    for (int lanes = 16; lanes > 0; lanes /= 2) total += __shfl_xor_sync(0xffffffff, total, lanes);
    return {top, total};
}

// y = softmax(x) along rows; x and y are m×n. Grid: m.
extern "C" __global__ void __launch_bounds__(BLOCK)
    softmax_one_barrier(const float *__restrict__ x, float *__restrict__ y, long long m, long long n) {
    __shared__ Running found[WARPS];
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    const float4 *from = reinterpret_cast<const float4 *>(x);
    float4 *to = reinterpret_cast<float4 *>(y);
    const int vectors = n % 4 == 0 ? int(min(n / 4, (long long)BLOCK * KEEP)) : 0;  // in registers
    const long long held = 4LL * vectors;

    Vector kept[KEEP];
#pragma unroll
    for (int k = 0; k < KEEP; ++k) {
        const int i = threadIdx.x + k * BLOCK;
        kept[k].all = make_float4(LOWEST, LOWEST, LOWEST, LOWEST);
        if (i < vectors) kept[k].all = STREAM ? __ldcs(from + i) : from[i];
    }

    float own = LOWEST;
#pragma unroll
    for (int k = 0; k < KEEP; ++k)
        for (int j = 0; j < 4; ++j) own = fmaxf(own, kept[k].of[j]);
    Running mine{own, 0.0f};
#pragma unroll
    for (int k = 0; k < KEEP; ++k)
        if (int(threadIdx.x) + k * BLOCK < vectors)
            for (int j = 0; j < 4; ++j) mine.total += kept[k].of[j] = __expf(kept[k].of[j] - own);
    for (long long i = held + threadIdx.x; i < n; i += BLOCK) mine = combined(mine, {x[i], 1.0f});

    mine = across_warp(mine);
    const int lane = threadIdx.x % 32;
    if (lane == 0) found[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = across_warp(lane < WARPS ? found[lane] : Running{LOWEST, 0.0f});

    const float scale = 1.0f / mine.total;
    const float own_scale = __expf(own - mine.top) * scale;
#pragma unroll
    for (int k = 0; k < KEEP; ++k) {
        const int i = threadIdx.x + k * BLOCK;
        for (int j = 0; j < 4; ++j) kept[k].of[j] *= own_scale;
        if (i < vectors) {
            if (STREAM)
                __stcs(to + i, kept[k].all);
            else
                to[i] = kept[k].all;
        }
    }
    for (long long i = held + threadIdx.x; i < n; i += BLOCK) y[i] = __expf(x[i] - mine.top) * scale;
}
