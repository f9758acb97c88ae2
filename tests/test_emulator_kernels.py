"""Right kernels of many kinds give the right results in both builds and in every order of threads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from emulation import KERNELS, Ran, built, launch, run, serve

from warpdeck.core.emulator import Build, Built
from warpdeck.core.model import Launch, Trust

f4, i4 = np.float32, np.int32
Case = tuple[Launch, dict[str, Any], Callable[[Ran], bool]]


def _gemm(name: str, grid: Any, block: Any, m: int, n: int, k: int) -> Case:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((m, k)).astype(f4), rng.standard_normal((k, n)).astype(f4)
    arguments = {"a": a, "b": b, "c": ("out", np.empty((m, n), f4)), "m": i4(m), "n": i4(n), "k": i4(k)}
    return launch(name, grid, block), arguments, lambda r: np.allclose(r.outputs["c"], a @ b, atol=1e-3)


def _cases() -> dict[str, Case]:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(f4)

    found: dict[str, Case] = {
        "gemm_naive": _gemm("gemm_naive", (3, 4), (16, 16), 50, 40, 33),
        "gemm_tiled": _gemm("gemm_tiled", (3, 4), (16, 16), 50, 40, 33),
        "gemm_reg": _gemm("gemm_reg", (2, 2), 256, 128, 128, 64),
    }
    n = 10001
    x = normal(n)
    found["reduce_shfl"] = (
        launch("reduce_shfl", 10, 256),
        {"x": x, "out": ("inout", np.zeros(1, f4)), "n": i4(n)},
        lambda r: np.allclose(r.outputs["out"], x.sum(dtype="f8"), atol=0.5),
    )
    found["reduce_tree"] = (
        launch("reduce_tree", 20, 256, 1024),
        {"x": x, "out": ("out", np.empty(20, f4)), "n": i4(n)},
        lambda r: np.allclose(r.outputs["out"].sum(), x.sum(dtype="f8"), atol=0.5),
    )
    rows = normal(5, 1000)
    e = np.exp(rows - rows.max(1, keepdims=True))
    found["softmax"] = (
        launch("softmax", 5, 256),
        {"x": rows, "y": ("out", np.empty_like(rows)), "cols": i4(1000)},
        lambda r: np.allclose(r.outputs["y"], e / e.sum(1, keepdims=True), atol=1e-6),
    )
    lx, g, b = normal(4, 512), normal(512), normal(512)
    normed = (lx - lx.mean(1, keepdims=True)) / np.sqrt(lx.var(1, keepdims=True) + 1e-5) * g + b
    found["layernorm"] = (
        launch("layernorm", 4, 128),
        {"x": lx, "g": g, "b": b, "y": ("out", np.empty_like(lx)), "cols": i4(512), "eps": f4(1e-5)},
        lambda r: np.allclose(r.outputs["y"], normed, atol=1e-4),
    )
    t = normal(70, 45)
    found["transpose"] = (
        launch("transpose", (2, 3), (32, 8)),
        {"in": t, "out": ("out", np.empty((45, 70), f4)), "rows": i4(70), "cols": i4(45)},
        lambda r: bool((r.outputs["out"] == t.T).all()),
    )
    d = rng.integers(0, 256, 20000).astype(np.uint8)
    found["histogram"] = (
        launch("histogram", 4, 128),
        {"d": d, "h": ("inout", np.zeros(256, "u4")), "t": ("inout", np.zeros(2, "u8")), "n": i4(20000)},
        lambda r: (
            bool((r.outputs["h"] == np.bincount(d, minlength=256)).all())
            and list(r.outputs["t"]) == [20000, 128]
        ),
    )
    s = rng.integers(-9, 9, (3, 250)).astype(i4)
    found["scan"] = (
        launch("scan", 3, 256, 64),
        {"in": s, "out": ("out", np.empty_like(s)), "n": i4(250)},
        lambda r: bool((r.outputs["out"] == np.cumsum(s, 1)).all()),
    )
    v = normal(1000)
    p = np.pad(v, 1)
    found["stencil"] = (
        launch("stencil", 8, 128),
        {"in": v, "out": ("out", np.empty_like(v)), "n": i4(1000)},
        lambda r: np.allclose(r.outputs["out"], 0.25 * p[:-2] + 0.5 * p[1:-1] + 0.25 * p[2:], atol=1e-6),
    )
    c, h = normal(4096), normal(2048).astype(np.float16)
    found["copy4"] = (
        launch("copy4", 4, 128),
        {
            "in": c,
            "out": ("out", np.empty_like(c)),
            "hin": h,
            "hout": ("out", np.empty_like(h)),
            "n4": i4(1024),
        },
        lambda r: (
            bool((r.outputs["out"] == c).all() and (r.outputs["hout"][::2] == h[::2] * np.float16(2)).all())
            and np.allclose(r.outputs["hout"][1::2], h[1::2].astype(f4) + 1, atol=2e-3)
        ),
    )
    return found


CASES = _cases()


@functools.cache
def together(build: Build) -> Built:
    """All kernels in one program: their names don't collide, but for two, which get a namespace."""
    text = ""
    for name in CASES:
        body = (KERNELS / f"{name}.cu").read_text(encoding="utf-8")
        includes = "".join(f"{line}\n" for line in body.splitlines() if line.startswith("#include"))
        rest = "\n".join(line for line in body.splitlines() if not line.startswith("#include"))
        text += f"{includes}namespace of_{name} {{\n{rest}\n}}\n"
    return built(text, list(_entries()), build)


def _entries() -> dict[str, str]:
    return {f"of_{name}::{name}": name for name in CASES}


@pytest.mark.parametrize("build", Build)
@pytest.mark.parametrize("name", CASES)
def test_kernel(name: str, build: Build) -> None:
    plain, arguments, right = CASES[name]
    entry = f"of_{name}::{name}"
    kernel = Launch(entry, plain.grid, plain.block, plain.shared)
    for schedule in (0, 1, 2):
        done = serve(together(build), list(_entries()), [kernel], arguments, schedule=schedule)
        assert right(done)
        assert [r.text for r in done.reports if r.kind != "uninitialised"] == []


def test_launches_in_order_share_workspace_and_globals() -> None:
    text = """
    __device__ int calls;
    template <int STEP> __global__ void fill(const int* x, int* y, int* work, int n) {
        if (threadIdx.x == 0) ++calls;
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) work[i] += x[i] * STEP;
    }
    extern "C" __global__ void take(const int* x, int* y, int* work, int n) {
        extern __shared__ int s[];
        s[threadIdx.x] = calls;
        __syncthreads();
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = work[i] + s[(threadIdx.x + 1) % blockDim.x];
    }
    """
    x = np.arange(50, dtype=i4)
    launches = [launch("fill<3>", 2, 32), launch("fill<4>", 2, 32), launch("take", 2, 32, 128)]
    arguments = {"x": x, "y": ("out", x), "work": ("workspace", x), "n": i4(50)}
    assert (run(text, launches, arguments).outputs["y"] == 7 * x + 4).all()


def test_deferred_copies_land_at_their_wait() -> None:
    text = """
    #include <cuda_pipeline_primitives.h>
    extern "C" __global__ void k(const float* x, float* y, int n) {
        __shared__ alignas(16) float ring[2][32];
        const int t = threadIdx.x;
        float sum = 0;
        auto copy = [&](int i) {
            if (i < n) __pipeline_memcpy_async(&ring[i & 1][t], x + i * 32 + t, 4, t < 4 ? 4 : 0);
            __pipeline_commit();
        };
        copy(0);
        for (int i = 0; i < n; ++i) {
            copy(i + 1);
            __pipeline_wait_prior(1);
            __syncthreads();
            sum += ring[i & 1][t ^ 1];
            __syncthreads();
        }
        y[t] = sum;
    }
    """
    x = np.random.default_rng(2).integers(-9, 9, (7, 32)).astype(f4)
    expected = np.where(np.arange(32) < 4, 0, x).sum(0)[np.arange(32) ^ 1]
    for build in Build:
        done = run(text, launch("k"), {"x": x, "y": ("out", np.empty(32, f4)), "n": i4(7)}, build=build)
        assert (done.outputs["y"] == expected).all()
        assert done.reports == []


def test_knobs_markers_headers_and_intrinsics() -> None:
    text = """
    #include <cuda_runtime.h>
    #include <cuda/std/limits>
    #include <warpdeck/trace.cuh>
    WD_STAGES(load, store)
    static_assert(BLOCK == 64 && FAST == 1 && __CUDACC__, "knobs");
    extern "C" __global__ void __launch_bounds__(BLOCK, 2)
    k(const float4* __restrict__ x, float* y, unsigned* z, long long n WD_TRACE_PARAM) {
        WD_TRACE_BEGIN();
        WD_PUSH(load);
        const float4 v = __ldg(x + threadIdx.x);
        WD_POP(load);
        const float low = cuda::std::numeric_limits<float>::lowest();
        __stcs(y + threadIdx.x, fmaxf(v.x + v.y + v.z + v.w, low) + rsqrtf(4.0f) + min(3, 4LL) - exp2f(1.0f));
        z[threadIdx.x] = __reduce_add_sync(~0u, threadIdx.x) + __popc(__ballot_sync(~0u, threadIdx.x & 1))
            + __byte_perm(0x03020100, 0x07060504, 0x7531) + __float2int_rn(2.5f) + __ffs(8) + __clz(1)
            + __match_any_sync(~0u, threadIdx.x / 16) + __any_sync(~0u, threadIdx.x == 40) + warpSize;
        WD_TRACE_END();
    }
    """
    x = np.arange(256, dtype=f4).reshape(64, 4)
    arguments = {"x": x, "y": ("out", np.empty(64, f4)), "z": ("out", np.empty(64, "u4")), "n": np.int64(1)}
    done = run(text, launch("k", 1, 64), arguments, knobs={"BLOCK": 64, "FAST": True, "reg_cap": 32})
    assert (done.outputs["y"] == x.sum(1) + 0.5 + 3 - 2).all()
    t = np.arange(64)
    sums = np.where(t < 32, sum(range(32)), sum(range(32, 64)))
    match = np.where(t % 32 < 16, 0xFFFF, 0xFFFF0000)
    expected = sums + 16 + 0x07050301 + 2 + 4 + 31 + match + (t >= 32) + 32
    assert (done.outputs["z"] == (expected % 2**32).astype("u4")).all()


def test_narrow_types_round_as_hardware_does() -> None:
    text = """
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void k(const __half* a, const __half* b, __half* sum, __half* product,
                                 __half* fused, const float* f, unsigned short* narrow) {
        int i = threadIdx.x;
        sum[i] = a[i] + b[i];
        product[i] = __hmul(a[i], b[i]);
        fused[i] = __hfma(a[i], b[i], a[i]);
        __nv_bfloat16 n = __float2bfloat16(f[i]);
        narrow[i] = *reinterpret_cast<unsigned short*>(&n);
    }
    """
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 64)).astype(np.float16)
    f = rng.standard_normal(64).astype(f4)
    empty = ("out", np.empty(64, np.float16))
    arguments = {"a": a, "b": b, "sum": empty, "product": empty, "fused": empty, "f": f}
    done = run(text, launch("k", 1, 64), {**arguments, "narrow": ("out", np.empty(64, "u2"))}).outputs
    assert (done["sum"] == a + b).all() and (done["product"] == a * b).all()
    assert (done["fused"] == (a.astype("f8") * b + a).astype(np.float16)).all()
    bits = f.view("u4").astype("u8")
    assert (done["narrow"] == ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)).all()


def test_code_of_others_runs_in_the_sandbox() -> None:
    text = 'extern "C" __global__ void k(int* y) { y[threadIdx.x] = threadIdx.x; }'
    done = run(text, launch("k"), {"y": ("out", np.empty(32, i4))}, trust=Trust.GENERATED)
    assert (done.outputs["y"] == np.arange(32)).all()
