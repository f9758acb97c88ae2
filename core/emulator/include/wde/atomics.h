// Atomics, and loads and stores with a cache hint.
#pragma once

#ifdef WDE_RACES
#define WDE_ATOMIC template <class T, class F> __attribute__((no_sanitize("thread"), noinline))
#else
#define WDE_ATOMIC template <class T, class F> inline
#endif

WDE_ATOMIC T wde_atomic(T *p, F f) {
#ifdef WDE_RACES
    wde_atomic_access(p, sizeof *p);
#endif
    static_assert(sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "atomics of 2, 4 and 8 bytes");
    const T old = *p;
    *p = f(old);
    wde_spin();
    return old;
}

// Wraps around as a GPU does, where C++ leaves a signed overflow undefined.
template <class T>
inline T wde_add(T a, T b) {
    if constexpr (std::is_integral_v<T>)
        return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
    else
        return a + b;
}

#define WDE_ATOMIC_OPERATION(name, expression)                             \
    template <class T>                                                    \
    inline T name(T *p, wde_same_t<T> v) {                                \
        return wde_atomic(p, [v](T a) -> T { return expression; });       \
    }                                                                     \
    template <class T>                                                    \
    inline T name##_block(T *p, wde_same_t<T> v) { return name(p, v); }   \
    template <class T>                                                    \
    inline T name##_system(T *p, wde_same_t<T> v) { return name(p, v); }
WDE_ATOMIC_OPERATION(atomicAdd, wde_add<T>(a, v))
WDE_ATOMIC_OPERATION(atomicSub, wde_add<T>(a, T(0) - v))
WDE_ATOMIC_OPERATION(atomicMax, a > v ? a : v)
WDE_ATOMIC_OPERATION(atomicMin, a < v ? a : v)
WDE_ATOMIC_OPERATION(atomicExch, v)
WDE_ATOMIC_OPERATION(atomicAnd, a & v)
WDE_ATOMIC_OPERATION(atomicOr, a | v)
WDE_ATOMIC_OPERATION(atomicXor, a ^ v)
WDE_ATOMIC_OPERATION(atomicInc, a >= v ? T(0) : T(a + 1))
WDE_ATOMIC_OPERATION(atomicDec, (a == 0 || a > v) ? v : T(a - 1))

template <class T>
inline T atomicCAS(T *p, wde_same_t<T> compare, wde_same_t<T> v) {
    return wde_atomic(p, [=](T a) { return memcmp(&a, &compare, sizeof a) == 0 ? v : a; });
}
template <class T>
inline T atomicCAS_block(T *p, wde_same_t<T> compare, wde_same_t<T> v) { return atomicCAS(p, compare, v); }

#define WDE_LOAD(name) template <class T> inline T name(const T *p) { return *p; }
WDE_LOAD(__ldg) WDE_LOAD(__ldca) WDE_LOAD(__ldcg) WDE_LOAD(__ldcs) WDE_LOAD(__ldcv) WDE_LOAD(__ldlu)
#define WDE_STORE(name) template <class T> inline void name(T *p, wde_same_t<T> v) { *p = v; }
WDE_STORE(__stwb) WDE_STORE(__stcg) WDE_STORE(__stcs) WDE_STORE(__stwt)
