// A copy with wide loads, several in flight a thread: what DRAM gives to a kernel that reads and writes. The
// copy changes every sign, so that the check can tell it from its input.
//
// Knobs: BLOCK threads a block, UNROLL vectors a thread moves, STREAM: 1 marks both sides as used once.

// y = -x, n elements. Grid: ceil(n / (4·BLOCK·UNROLL)).
extern "C" __global__ void __launch_bounds__(BLOCK)
    copy(const float *__restrict__ x, float *__restrict__ y, long long n) {
    const float4 *from = reinterpret_cast<const float4 *>(x);
    float4 *to = reinterpret_cast<float4 *>(y);
    const long long first = (long long)blockIdx.x * BLOCK * UNROLL + threadIdx.x;
    float4 part[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const long long i = first + u * BLOCK;
        if (i < n / 4) part[u] = STREAM ? __ldcs(from + i) : from[i];
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const long long i = first + u * BLOCK;
        const float4 out = make_float4(-part[u].x, -part[u].y, -part[u].z, -part[u].w);
        if (i < n / 4) {
            if (STREAM)
                __stcs(to + i, out);
            else
                to[i] = out;
        }
    }
    const long long rest = n / 4 * 4 + threadIdx.x;
    if (blockIdx.x == 0 && rest < n) y[rest] = -x[rest];
}
