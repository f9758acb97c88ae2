// CUDA's mathematical functions. libm's results differ from the GPU's in the last places: compare with tolerances.
#pragma once

using std::isfinite;
using std::isinf;
using std::isnan;

#define WDE_F1(name, expression) inline float name(float x) { return expression; }
WDE_F1(rsqrtf, 1.0f / sqrtf(x))
WDE_F1(rcbrtf, 1.0f / cbrtf(x))
WDE_F1(normcdff, 0.5f * erfcf(-x * 0.70710678f))
WDE_F1(sinpif, sinf(3.14159265f * x))
WDE_F1(cospif, cosf(3.14159265f * x))
WDE_F1(__expf, expf(x))
WDE_F1(__exp10f, powf(10.0f, x))
WDE_F1(__exp2f, exp2f(x))
WDE_F1(__logf, logf(x))
WDE_F1(__log2f, log2f(x))
WDE_F1(__log10f, log10f(x))
WDE_F1(__sinf, sinf(x))
WDE_F1(__cosf, cosf(x))
WDE_F1(__tanf, tanf(x))
WDE_F1(__tanhf, tanhf(x))
WDE_F1(__frcp_rn, 1.0f / x)
WDE_F1(__frcp_rz, 1.0f / x)
WDE_F1(__fsqrt_rn, sqrtf(x))
WDE_F1(__frsqrt_rn, 1.0f / sqrtf(x))
WDE_F1(__saturatef, x != x ? 0.0f : x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x)
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline double __drcp_rn(double x) { return 1.0 / x; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
#define WDE_F2(name, expression) inline float name(float a, float b) { return expression; }
WDE_F2(__powf, powf(a, b))
WDE_F2(__fdividef, a / b)
WDE_F2(fdividef, a / b)
WDE_F2(__fadd_rn, a + b)
WDE_F2(__fsub_rn, a - b)
WDE_F2(__fmul_rn, a * b)
WDE_F2(__fdiv_rn, a / b)
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline void __sincosf(float x, float *s, float *c) { *s = sinf(x); *c = cosf(x); }
inline float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }

template <class A, class B>
inline std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>) return std::fmax(T(a), T(b));
    else return T(a) > T(b) ? T(a) : T(b);
}
template <class A, class B>
inline std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>) return std::fmin(T(a), T(b));
    else return T(a) < T(b) ? T(a) : T(b);
}
inline unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned umax(unsigned a, unsigned b) { return a > b ? a : b; }

inline int __float_as_int(float x) { return wde_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return wde_bits<unsigned>(x); }
inline float __int_as_float(int x) { return wde_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return wde_bits<float>(x); }
inline long long __double_as_longlong(double x) { return wde_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return wde_bits<double>(x); }
inline int __double2hiint(double x) { return int(wde_bits<long long>(x) >> 32); }
inline int __double2loint(double x) { return int(wde_bits<long long>(x)); }

// Conversions saturate as on a GPU; NaN gives 0.
template <class I>
inline I wde_convert(double x) {
    if (x != x) return 0;
    if (x <= double(std::numeric_limits<I>::min())) return std::numeric_limits<I>::min();
    if (x >= double(std::numeric_limits<I>::max())) return std::numeric_limits<I>::max();
    return I(x);
}
#define WDE_CONVERSIONS(name, I) \
    inline I __float2##name##_rn(float x) { return wde_convert<I>(nearbyint(double(x))); } \
    inline I __float2##name##_rd(float x) { return wde_convert<I>(floor(double(x))); } \
    inline I __float2##name##_ru(float x) { return wde_convert<I>(ceil(double(x))); } \
    inline I __float2##name##_rz(float x) { return wde_convert<I>(trunc(double(x))); } \
    inline float __##name##2float_rn(I x) { return float(x); } \
    inline double __##name##2double_rn(I x) { return double(x); }
WDE_CONVERSIONS(int, int)
WDE_CONVERSIONS(uint, unsigned)
WDE_CONVERSIONS(ll, long long)
WDE_CONVERSIONS(ull, unsigned long long)
inline float __double2float_rn(double x) { return float(x); }
inline int __double2int_rz(double x) { return wde_convert<int>(trunc(x)); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
    return r;
}
inline int __mul24(int a, int b) { return a * b; }
inline unsigned __umul24(unsigned a, unsigned b) { return a * b; }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline unsigned __sad(int a, int b, unsigned c) { return unsigned(a > b ? a - b : b - a) + c; }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
    n &= 31;
    return n ? high << n | low >> (32 - n) : high;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
    n &= 31;
    return n ? high << (32 - n) | low >> n : low;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select) {
    const unsigned long long all = (unsigned long long)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned s = select >> 4 * i & 0xf;
        unsigned byte = unsigned(all >> 8 * (s & 7)) & 0xff;
        if (s & 8) byte = byte & 0x80 ? 0xff : 0;
        r |= byte << 8 * i;
    }
    return r;
}
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += (signed char)(a >> 8 * i) * (signed char)(b >> 8 * i);
    return c;
}

#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_INF __builtin_inf()
#define CUDART_NAN __builtin_nan("")
#define CUDART_MAX_NORMAL_F 3.402823466e+38f
#define CUDART_PI_F 3.141592654f
#define CUDART_L2E_F 1.442695041f
#define CUDART_LN2_F 0.693147181f

// Of no meaning here but that it goes on.
inline long long wde_ticks() { static long long ticks; return ticks += 97; }
inline long long clock64() { return wde_ticks(); }
inline int wde_clock() { return int(wde_ticks()); }
#define clock wde_clock
