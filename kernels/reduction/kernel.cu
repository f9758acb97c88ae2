// The sum of a matrix, the plain CUDA C++ variant: wide loads in flight, sums in registers, one launch.
//
// Knobs: BLOCK threads a block, at most BLOCKS blocks (only the launch depends on it), UNROLL loads of VECTOR
// elements under way a thread. Blocks walk over the matrix in batches. Warps add up by shuffles, warps of a
// block through shared memory; a block leaves its sum for the block that finishes last, which adds them in a
// fixed order, so that the result is the same bits every time.

#include <warpdeck/trace.cuh>

WD_STAGES(load, wait, reduce, store)

constexpr int WARPS = BLOCK / 32;
constexpr int BATCH = BLOCK * UNROLL;  // vectors a block reads at a time

static_assert(BLOCK % 32 == 0 && WARPS <= 32, "a warp adds up what the block's warps found");

struct alignas(4 * VECTOR) Vector {
    float of[VECTOR];
};

__device__ __forceinline__ float warp_sum(float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffff, x, lanes);
    return x;
}

// The sum of a block's values, in its first warp. All threads call it.
__device__ __forceinline__ float block_sum(float x, float (&sums)[WARPS] WD_STATE_PARAM) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
    WD_PUSH(wait);
    __syncthreads();
    WD_POP(wait);
    x = threadIdx.x < WARPS ? sums[threadIdx.x] : 0.0f;
    return threadIdx.x < 32 ? warp_sum(x) : 0.0f;
}

// total[0] = the sum of x, m×n. `partials` has room for a float a block; `ticket` is 0 before and after.
extern "C" __global__ void reduction_cuda(const float *__restrict__ x, float *__restrict__ total,
                                          float *partials, int *ticket, long long m,
                                          long long n WD_TRACE_PARAM) {
    __shared__ float sums[WARPS];
    __shared__ bool last;
    WD_TRACE_BEGIN();
    const long long elements = m * n;
    const long long vectors = elements / VECTOR;
    const Vector *from = reinterpret_cast<const Vector *>(x);

    Vector mine{};
    long long first = (long long)blockIdx.x * BATCH;
    // One range for all batches: with three in each, a block that records takes a sixth longer (on an H200).
    WD_PUSH(load);
    for (; first + BATCH <= vectors; first += (long long)gridDim.x * BATCH) {
        Vector part[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) part[u] = from[first + u * BLOCK + threadIdx.x];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int j = 0; j < VECTOR; ++j) mine.of[j] += part[u].of[j];
    }
    for (long long i = first + threadIdx.x; i < vectors; i += BLOCK) {  // an incomplete batch, of one block
        const Vector part = from[i];
#pragma unroll
        for (int j = 0; j < VECTOR; ++j) mine.of[j] += part.of[j];
    }
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < VECTOR; ++j) sum += mine.of[j];
    const long long rest = vectors * VECTOR + threadIdx.x;
    if (blockIdx.x == 0 && rest < elements) sum += x[rest];
    WD_PIN(sum);
    WD_POP(load);

    WD_PUSH(reduce);
    sum = block_sum(sum, sums WD_STATE_ARG);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(ticket, 1) == int(gridDim.x) - 1;
    }
    WD_PUSH(wait);
    __syncthreads();
    WD_POP(wait);
    WD_POP(reduce);
    if (last) {
        WD_PUSH(reduce, 1);
        __threadfence();
        sum = 0.0f;
        for (int i = threadIdx.x; i < int(gridDim.x); i += BLOCK) sum += __ldcg(partials + i);
        sum = block_sum(sum, sums WD_STATE_ARG);
        WD_PIN(sum);
        WD_POP(reduce);
        if (threadIdx.x == 0) {
            WD_PUSH(store);
            total[0] = sum;
            *ticket = 0;
            WD_POP(store);
        }
    }
    WD_TRACE_END();
}
