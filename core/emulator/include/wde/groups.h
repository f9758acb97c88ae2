// Cooperative groups: blocks and tiles of a warp.
#pragma once

namespace cooperative_groups {

struct thread_block {
    void sync(WDE_LINE) const { wde_barrier(0, 0, wde_line); }
    static unsigned size() { return wde_block_size.x * wde_block_size.y * wde_block_size.z; }
    static unsigned num_threads() { return size(); }
    static unsigned thread_rank() { return unsigned(wde_current->index); }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 group_dim() { return blockDim; }
    static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

template <unsigned N, class Parent = void>
struct thread_block_tile {
    static_assert(N >= 1 && N <= 32 && (N & (N - 1)) == 0, "unsupported: tiles of more than a warp");
    static unsigned mask() { return N == 32 ? ~0u : ((1u << (N % 32)) - 1) << first(); }
    static unsigned first() { return wde_current->index & 31 & ~(N - 1); }
    static constexpr unsigned size() { return N; }
    static constexpr unsigned num_threads() { return N; }
    static unsigned thread_rank() { return wde_current->index & (N - 1); }
    static unsigned meta_group_rank() { return wde_current->index / N; }
    static unsigned meta_group_size() { return (thread_block::size() + N - 1) / N; }
    void sync(WDE_LINE) const { __syncwarp(mask(), wde_line); }
    template <class T> T shfl(T v, int s, WDE_LINE) const { return __shfl_sync(mask(), v, s, N, wde_line); }
    template <class T> T shfl_up(T v, unsigned d, WDE_LINE) const { return __shfl_up_sync(mask(), v, d, N, wde_line); }
    template <class T> T shfl_down(T v, unsigned d, WDE_LINE) const { return __shfl_down_sync(mask(), v, d, N, wde_line); }
    template <class T> T shfl_xor(T v, int x, WDE_LINE) const { return __shfl_xor_sync(mask(), v, x, N, wde_line); }
    int any(int p, WDE_LINE) const { return __any_sync(mask(), p, wde_line); }
    int all(int p, WDE_LINE) const { return __all_sync(mask(), p, wde_line); }
    unsigned ballot(int p, WDE_LINE) const { return (__ballot_sync(mask(), p, wde_line) & mask()) >> first(); }
};
template <unsigned N, class P>
inline thread_block_tile<N, P> tiled_partition(const P &) { return {}; }
template <class G>
inline void sync(const G &group, WDE_LINE) { group.sync(wde_line); }

template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T> struct greater { T operator()(T a, T b) const { return a > b ? a : b; } };
template <class T> struct less { T operator()(T a, T b) const { return a < b ? a : b; } };
template <class T> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T> struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };

template <class G, class T, class F>
inline T reduce(const G &group, T v, F f, WDE_LINE) {
    for (unsigned lanes = group.size() / 2; lanes; lanes /= 2) v = f(v, group.shfl_xor(v, int(lanes), wde_line));
    return v;
}

}  // namespace cooperative_groups

namespace cuda {
namespace std {
using namespace ::std;
}
}
