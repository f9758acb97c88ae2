// What a CUDA C++ kernel needs to run on the CPU, for correctness only. Precompiled, and included before the
// kernel's own text. Names of ours begin with wde_ or WDE_; kernels may not use such names.
#pragma once

#define __CUDACC__ 1
#define __CUDACC_RTC__ 1  // as NVRTC does: device code only
#define __CUDA_ARCH__ 700  // the newest one whose fallbacks need no PTX, TMA or cp.async

#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <math.h>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__ __attribute__((used))
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __maxnreg__(...)
// Read-only, as on a GPU: in sections of their own, since constants and variables can't share one, whose flags are
// ours; the rest of the assembler's line becomes a comment.
#define WDE_TEXT_OF(x) #x
#define WDE_TEXT(x) WDE_TEXT_OF(x)
#if defined(__aarch64__)
#define WDE_COMMENT "//"
#else
#define WDE_COMMENT "#"
#endif
#define __constant__ \
    __attribute__((section(".wde_constant" WDE_TEXT(__COUNTER__) ",\"a\",@progbits " WDE_COMMENT)))
#define __managed__
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static  // only where a macro hides it from the rewriter: no poison, no gaps, no races
#define __builtin_assume(x) ((void)0)
#define __nv_pure__

#include "wde/runtime.h"
#include "wde/vectors.h"
#include "wde/sync.h"
#include "wde/pipeline.h"
#include "wde/atomics.h"
#include "wde/math.h"
#include "wde/half.h"
#include "wde/groups.h"
#include "wde/entry.h"

#undef assert
#define assert(c) ((c) ? (void)0 : wde_fail("assert", "device assert failed: " #c, __LINE__))

// What NVRTC hasn't: of these only <cuda/std/cmath> brings some back.
#undef INFINITY
#undef NAN
#undef HUGE_VAL
#undef HUGE_VALF
#undef FLT_MAX
#undef FLT_MIN
#undef FLT_EPSILON
#undef DBL_MAX
#undef DBL_MIN
#undef DBL_EPSILON
#undef M_E
#undef M_LOG2E
#undef M_LN2
#undef M_PI
#undef M_PI_2
#undef M_2_SQRTPI
#undef M_SQRT2
#undef M_SQRT1_2
