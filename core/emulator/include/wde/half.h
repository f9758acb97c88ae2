// half and bfloat16: every operation rounds to nearest even, as the hardware's does.
#pragma once

#if defined(__aarch64__)
typedef __fp16 wde_f16;
#else
typedef _Float16 wde_f16;
#endif

template <class T>
using wde_arithmetic = std::enable_if_t<std::is_arithmetic_v<T>>;

struct alignas(2) __half {
    wde_f16 value;
    __half() = default;
    template <class T, class = wde_arithmetic<T>>
    __half(T x) : value(wde_f16(x)) {}
    operator float() const { return float(value); }
};

struct alignas(2) __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    template <class T, class = wde_arithmetic<T>>
    __nv_bfloat16(T x) {
        const float f = float(x);
        const unsigned u = __float_as_uint(f);
        bits = f != f ? 0x7fff : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    operator float() const { return __uint_as_float(unsigned(bits) << 16); }
};

struct alignas(4) __half2 { __half x, y; };
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };

#define WDE_OPERATOR(T, op) \
    inline T operator op(T a, T b) { return T(float(a) op float(b)); } \
    inline T &operator op##=(T &a, T b) { return a = a op b; } \
    inline T##2 operator op(T##2 a, T##2 b) { return {a.x op b.x, a.y op b.y}; } \
    inline T##2 &operator op##=(T##2 &a, T##2 b) { return a = a op b; }
#define WDE_COMPARISON(T, op, name) \
    inline bool operator op(T a, T b) { return float(a) op float(b); } \
    inline bool name(T a, T b) { return float(a) op float(b); }
// A product of two floats is exact in double, so that these round once, as a fused operation does.
#define WDE_NARROW(T) \
    WDE_OPERATOR(T, +) WDE_OPERATOR(T, -) WDE_OPERATOR(T, *) WDE_OPERATOR(T, /) \
    WDE_COMPARISON(T, <, __hlt) WDE_COMPARISON(T, >, __hgt) WDE_COMPARISON(T, <=, __hle) \
    WDE_COMPARISON(T, >=, __hge) WDE_COMPARISON(T, ==, __heq) WDE_COMPARISON(T, !=, __hne) \
    inline T operator-(T a) { return T(-float(a)); } \
    inline T __hadd(T a, T b) { return a + b; } \
    inline T __hsub(T a, T b) { return a - b; } \
    inline T __hmul(T a, T b) { return a * b; } \
    inline T __hdiv(T a, T b) { return a / b; } \
    inline T __hneg(T a) { return -a; } \
    inline T __habs(T a) { return T(fabsf(float(a))); } \
    inline T __hmax(T a, T b) { return T(fmaxf(float(a), float(b))); } \
    inline T __hmin(T a, T b) { return T(fminf(float(a), float(b))); } \
    inline bool __hisnan(T a) { return float(a) != float(a); } \
    inline T __hfma(T a, T b, T c) { return T(fma(double(float(a)), double(float(b)), double(float(c)))); } \
    inline T##2 __hadd2(T##2 a, T##2 b) { return a + b; } \
    inline T##2 __hsub2(T##2 a, T##2 b) { return a - b; } \
    inline T##2 __hmul2(T##2 a, T##2 b) { return a * b; } \
    inline T##2 __hfma2(T##2 a, T##2 b, T##2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; } \
    inline T##2 __hmax2(T##2 a, T##2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; } \
    inline T##2 __hmin2(T##2 a, T##2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; } \
    inline T hexp(T a) { return T(expf(float(a))); } \
    inline T hlog(T a) { return T(logf(float(a))); } \
    inline T hsqrt(T a) { return T(sqrtf(float(a))); } \
    inline T hrsqrt(T a) { return T(1.0f / sqrtf(float(a))); } \
    inline T hrcp(T a) { return T(1.0f / float(a)); }
WDE_NARROW(__half)
WDE_NARROW(__nv_bfloat16)

inline float __half2float(__half a) { return float(a); }
inline __half __float2half(float a) { return __half(a); }
inline __half __float2half_rn(float a) { return __half(a); }
inline __half __double2half(double a) { return __half(a); }
inline __half __int2half_rn(int a) { return __half(a); }
inline int __half2int_rz(__half a) { return __float2int_rz(float(a)); }
inline float2 __half22float2(__half2 a) { return {float(a.x), float(a.y)}; }
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline __half2 __float22half2_rn(float2 a) { return {__half(a.x), __half(a.y)}; }
inline __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 make_half2(__half a, __half b) { return {a, b}; }
inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline float __low2float(__half2 a) { return float(a.x); }
inline float __high2float(__half2 a) { return float(a.y); }
inline __half __ushort_as_half(unsigned short a) { return wde_bits<__half>(a); }
inline unsigned short __half_as_ushort(__half a) { return wde_bits<unsigned short>(a); }

inline float __bfloat162float(__nv_bfloat16 a) { return float(a); }
inline __nv_bfloat16 __float2bfloat16(float a) { return __nv_bfloat16(a); }
inline __nv_bfloat16 __float2bfloat16_rn(float a) { return __nv_bfloat16(a); }
inline float2 __bfloat1622float2(__nv_bfloat162 a) { return {float(a.x), float(a.y)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {__nv_bfloat16(a), __nv_bfloat16(b)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) { return {__nv_bfloat16(a.x), __nv_bfloat16(a.y)}; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return {a, a}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return {a, b}; }
