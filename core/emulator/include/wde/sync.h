// Barriers, fences, shuffles, votes.
#pragma once

inline void __syncthreads(WDE_LINE) { wde_barrier(0, 0, wde_line); }
inline int __syncthreads_count(int p, WDE_LINE) { return wde_barrier(p, 1, wde_line); }
inline int __syncthreads_or(int p, WDE_LINE) { return wde_barrier(p, 2, wde_line) != 0; }
inline int __syncthreads_and(int p, WDE_LINE) { return wde_barrier(!p, 3, wde_line) == 0; }

inline void __threadfence() { wde_spin(); }
inline void __threadfence_system() { wde_spin(); }
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) { wde_yield(); }
inline void __trap() { wde_fail("trap", "__trap() was called", wde_current->line); }

enum { WDE_SYNCWARP = 1, WDE_SHFL, WDE_SHFL_UP, WDE_SHFL_DOWN, WDE_SHFL_XOR, WDE_VOTE, WDE_MATCH, WDE_REDUCE };

inline void __syncwarp(unsigned mask = ~0u, WDE_LINE) {
    const unsigned long long *values;
    unsigned lanes;
    wde_warp(mask, 0, WDE_SYNCWARP, wde_line, &values, &lanes);
}

template <class T>
inline T wde_shuffle(unsigned mask, T value, int source, int kind, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
    unsigned long long mine = 0;
    memcpy(&mine, &value, sizeof value);
    const unsigned long long *values;
    unsigned lanes;
    wde_warp(mask, mine, kind, line, &values, &lanes);
    // What a lane that takes no part gives is undefined: make it stand out.
    const unsigned long long got = lanes >> source & 1 ? values[source] : 0x7fc0dead7fc0deadull;
    memcpy(&value, &got, sizeof value);
    return value;
}

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, WDE_LINE) {
    const int lane = wde_current->index & 31;
    return wde_shuffle(mask, value, (lane & ~(width - 1)) + (source & (width - 1)), WDE_SHFL, wde_line);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, WDE_LINE) {
    const int lane = wde_current->index & 31, first = lane & ~(width - 1), from = lane - int(delta & 31);
    return wde_shuffle(mask, value, from < first ? lane : from, WDE_SHFL_UP, wde_line);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, WDE_LINE) {
    const int lane = wde_current->index & 31, last = lane | (width - 1), from = lane + int(delta & 31);
    return wde_shuffle(mask, value, from > last ? lane : from, WDE_SHFL_DOWN, wde_line);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, WDE_LINE) {
    const int lane = wde_current->index & 31, last = lane | (width - 1), from = lane ^ (lanes & 31);
    return wde_shuffle(mask, value, from > last ? lane : from, WDE_SHFL_XOR, wde_line);
}

inline unsigned __ballot_sync(unsigned mask, int p, WDE_LINE) {
    const unsigned long long *values;
    unsigned lanes, found = 0;
    wde_warp(mask, p != 0, WDE_VOTE, wde_line, &values, &lanes);
    for (int i = 0; i < 32; i++)
        if (lanes >> i & 1) found |= unsigned(values[i]) << i;
    return found;
}
inline int __any_sync(unsigned mask, int p, WDE_LINE) { return __ballot_sync(mask, p, wde_line) != 0; }
inline int __all_sync(unsigned mask, int p, WDE_LINE) { return __ballot_sync(mask, !p, wde_line) == 0; }
inline unsigned __activemask() { return wde_active_lanes(); }

template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, WDE_LINE) {
    unsigned long long mine = 0;
    memcpy(&mine, &value, sizeof value);
    const unsigned long long *values;
    unsigned lanes, found = 0;
    wde_warp(mask, mine, WDE_MATCH, wde_line, &values, &lanes);
    for (int i = 0; i < 32; i++)
        if ((lanes >> i & 1) && values[i] == mine) found |= 1u << i;
    return found;
}
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int *p, WDE_LINE) {
    const unsigned same = __match_any_sync(mask, value, wde_line);
    const bool all = __all_sync(mask, same == mask, wde_line);
    *p = all;
    return all ? mask : 0;
}

template <class T, class F>
inline T wde_warp_reduce(unsigned mask, T value, F f, int line) {
    static_assert(std::is_integral_v<T> && sizeof(T) == 4, "__reduce_*_sync takes int and unsigned");
    const unsigned long long *values;
    unsigned lanes;
    wde_warp(mask, (unsigned)value, WDE_REDUCE, line, &values, &lanes);
    T result{};
    bool first = true;
    for (int i = 0; i < 32; i++)
        if (lanes >> i & 1) {
            result = first ? T(values[i]) : f(result, T(values[i]));
            first = false;
        }
    return result;
}
#define WDE_REDUCTION(name, expression) \
    template <class T> inline T name(unsigned mask, T value, WDE_LINE) { \
        return wde_warp_reduce(mask, value, [](T a, T b) { return T(expression); }, wde_line); \
    }
WDE_REDUCTION(__reduce_add_sync, unsigned(a) + unsigned(b))
WDE_REDUCTION(__reduce_max_sync, a > b ? a : b)
WDE_REDUCTION(__reduce_min_sync, a < b ? a : b)
WDE_REDUCTION(__reduce_and_sync, a & b)
WDE_REDUCTION(__reduce_or_sync, a | b)
WDE_REDUCTION(__reduce_xor_sync, a ^ b)
