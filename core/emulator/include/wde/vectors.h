// CUDA's vector types, with their alignments, and the built-in variables.
#pragma once

#define WDE_VECTOR_1(T, N, A) struct alignas(A) N##1 { T x; }; inline N##1 make_##N##1(T x) { return N##1{x}; }
#define WDE_VECTOR_2(T, N, A) struct alignas(A) N##2 { T x, y; }; inline N##2 make_##N##2(T x, T y) { return N##2{x, y}; }
#define WDE_VECTOR_3(T, N, A) struct alignas(A) N##3 { T x, y, z; }; inline N##3 make_##N##3(T x, T y, T z) { return N##3{x, y, z}; }
#define WDE_VECTOR_4(T, N, A) struct alignas(A) N##4 { T x, y, z, w; }; inline N##4 make_##N##4(T x, T y, T z, T w) { return N##4{x, y, z, w}; }
#define WDE_VECTORS(T, N, size, size4) \
    WDE_VECTOR_1(T, N, size) WDE_VECTOR_2(T, N, 2 * size) WDE_VECTOR_3(T, N, size) WDE_VECTOR_4(T, N, size4)

WDE_VECTORS(signed char, char, 1, 4)
WDE_VECTORS(unsigned char, uchar, 1, 4)
WDE_VECTORS(short, short, 2, 8)
WDE_VECTORS(unsigned short, ushort, 2, 8)
WDE_VECTORS(int, int, 4, 16)
WDE_VECTORS(unsigned, uint, 4, 16)
WDE_VECTORS(long, long, 8, 16)
WDE_VECTORS(unsigned long, ulong, 8, 16)
WDE_VECTORS(long long, longlong, 8, 16)
WDE_VECTORS(unsigned long long, ulonglong, 8, 16)
WDE_VECTORS(float, float, 4, 16)
WDE_VECTORS(double, double, 8, 16)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};

static_assert(sizeof(uint3) == sizeof(wde_uint3) && sizeof(dim3) == sizeof(wde_uint3), "one layout");
#define threadIdx (*reinterpret_cast<const uint3 *>(&wde_current->tid))
#define blockIdx (*reinterpret_cast<const uint3 *>(&wde_block_index))
#define blockDim (*reinterpret_cast<const dim3 *>(&wde_block_size))
#define gridDim (*reinterpret_cast<const dim3 *>(&wde_grid_size))
static const int warpSize = 32;
typedef void *cudaStream_t;
