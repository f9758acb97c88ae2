// Softmax over rows, rung 3: loads and stores of 16 bytes.
//
// Over rung 2: a quarter of the memory instructions for as many bytes, and UNROLL vectors, four times UNROLL
// elements, in flight a thread. Rows whose length isn't a multiple of 4 aren't aligned and go element by element.
//
// Knobs: BLOCK threads a block, UNROLL vectors a thread loads at a time.

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
    return {top, a.total * expf(a.top - top) + b.total * expf(b.top - top)};
}

__device__ Running across_warp(Running mine) {
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const Running other{__shfl_xor_sync(0xffffffff, mine.top, lanes),
                            __shfl_xor_sync(0xffffffff, mine.total, lanes)};
        mine = combined(mine, other);
    }
    return mine;
}

// y = softmax(x) along rows; x and y are m×n. Grid: m.
extern "C" __global__ void __launch_bounds__(BLOCK)
    softmax_vectors(const float *x, float *y, long long m, long long n) {
    __shared__ Running found[WARPS];
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    const float4 *from = reinterpret_cast<const float4 *>(x);
    float4 *to = reinterpret_cast<float4 *>(y);
    const long long vectors = n % 4 == 0 ? n / 4 : 0;
    const long long scalars = n % 4 == 0 ? 0 : n;

    Running mine{LOWEST, 0.0f};
    for (long long first = threadIdx.x; first < vectors; first += BLOCK * UNROLL) {
        Vector part[UNROLL];
        float top = mine.top;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const long long i = first + u * BLOCK;
            part[u].all = i < vectors ? from[i] : make_float4(LOWEST, LOWEST, LOWEST, LOWEST);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            for (int j = 0; j < 4; ++j) top = fmaxf(top, part[u].of[j]);
        mine = {top, mine.total * expf(mine.top - top)};
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (first + u * BLOCK < vectors)
                for (int j = 0; j < 4; ++j) mine.total += expf(part[u].of[j] - top);
    }
    for (long long i = threadIdx.x; i < scalars; i += BLOCK) mine = combined(mine, {x[i], 1.0f});

    mine = across_warp(mine);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = mine;
    __syncthreads();
    const int lane = threadIdx.x % 32;
    mine = across_warp(lane < WARPS ? found[lane] : Running{LOWEST, 0.0f});

    const float scale = 1.0f / mine.total;
#pragma unroll UNROLL
    for (long long i = threadIdx.x; i < vectors; i += BLOCK) {
        Vector part;
        part.all = from[i];
        for (int j = 0; j < 4; ++j) part.of[j] = expf(part.of[j] - mine.top) * scale;
        to[i] = part.all;
    }
    for (long long i = threadIdx.x; i < scalars; i += BLOCK) y[i] = expf(x[i] - mine.top) * scale;
}
