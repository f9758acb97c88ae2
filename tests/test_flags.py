"""Static flags: what they find in PTX, text and object files, and what they leave alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from emulation import built
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.core.check.flags import notes, object_flags, ptx_flags, refusal, source_flags
from warpdeck.core.emulator.source import collect
from warpdeck.core.toolchain import compile_candidate, compile_cuda
from warpdeck.kernels import load_workload

KERNEL = 'extern "C" __global__ void k(float *y, int n) {{ int i = threadIdx.x; {} }}'
needs_gxx = pytest.mark.skipif(shutil.which("g++") is None, reason="device cpu needs g++")
BUNDLED = ("gemm", "reduction", "softmax", "layernorm", "transpose")


def flagged(declarations: str, body: str) -> str | None:
    """The refusal of a kernel's PTX."""
    pytest.importorskip("cuda.bindings.nvrtc")
    compiled = compile_cuda(f"{declarations}\n{KERNEL.format(body)}", "k.cu", (9, 0))
    assert compiled.ptx is not None
    return refusal(ptx_flags(compiled.ptx))


WRITTEN = {
    "plain": ("__device__ int count;", "count += 1; y[i] = count;"),
    "atomic": ("__device__ int count;", "y[i] = atomicAdd(&count, 1);"),
    "managed": ("__managed__ int count;", "y[i] = count++;"),
    "array": ("__device__ float kept[64];", "y[i] = kept[i]; kept[i] = i;"),
    "computed index": (
        "__device__ float kept[64];",
        "float *p = n > 3 ? kept + i : y; *p = 1; y[i] = kept[n];",
    ),
    "through a pointer": ("__device__ int kept; __device__ int *at = &kept;", "*at = i; y[i] = *at;"),
    "static": ("__device__ int f() { static int calls; return ++calls; }", "y[i] = f();"),
    "constant cast away": (
        "__device__ const int table[2] = {1, 2};",
        "((int *)table)[i & 1] = n; y[i] = table[n & 1];",
    ),
    "passed on": (
        "__device__ int kept; __device__ __noinline__ void set(int *p, int v) { *p += v; }",
        "set(&kept, i); y[i] = kept;",
    ),
    "stored away": ("__device__ int kept; ", "*(int **)y = &kept; **(int **)y = 3;"),
    "inline assembly": (
        "",
        'asm volatile("{ .global .u32 kept; st.global.u32 [kept], %0; }" ::"r"(i));',
    ),
    "assembly, by address": (
        "__device__ int kept;",
        'asm volatile("{ .reg .u64 at; mov.u64 at, kept; st.global.u32 [at], %0; }" ::"r"(i)); y[i] = kept;',
    ),
    "exchanged between threads": (
        "__device__ int kept;",
        "long long p = __shfl_sync(~0u, (long long)&kept, 0); *(int *)p = i; y[i] = kept;",
    ),
    "returned": (
        "__device__ int kept; "
        '__device__ __noinline__ int *where(int i) { printf("%d", i); return &kept + i; }',
        "*where(i) = 3; y[i] = kept;",
    ),
    "vector": ("__device__ float4 kept;", "kept = make_float4(i, 0, 0, 0); y[i] = kept.x;"),
    "asynchronous copy": (
        "__device__ __align__(16) float kept[4];",
        'asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16;"'
        ' ::"l"(kept), "r"(0)); y[i] = 1;',
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_variables_are_found(name: str) -> None:
    found = flagged(*WRITTEN[name])
    assert found is not None and "keeps memory of its own between launches" in found


def test_an_address_that_is_given_to_printf_and_taken_back_is_written_to() -> None:
    body = "st.param.b64 [param0+0], kept;\n{} call.uni (retval0), vprintf, (param0);"
    ptx = ".global .u32 kept;\n.visible .entry k()\n{{\n{}\n}}"
    assert refusal(ptx_flags(ptx.format(body.format("")))) is None
    assert refusal(ptx_flags(ptx.format(body.format("ld.param.b64 %rd1, [param0]; st.u32 [%rd1], 1;"))))


# On device cpu, where nobody reads PTX: (declarations, what is kept).
KEPT = {
    "plain": ("__device__ int kept;", "kept"),
    "of a thread": ("thread_local int kept;", "kept"),
    "named as the sanitizers name theirs": ("__device__ int __odr_asan;", "__odr_asan"),
    "named as tables of C++": ("__device__ int _ZTVk;", "_ZTVk"),
    "named as the emulator names its own": (
        "#define JOIN(a, b) a##b\n__device__ int JOIN(wd, e_kept);",
        "JOIN(wd, e_kept)",
    ),
    "beside a constant of its name": (
        "namespace a { __constant__ int kept = 1; } namespace b { __device__ int kept; }",
        "b::kept",
    ),
    "of a template": (
        "template <int N> struct S { static int kept; }; template <int N> int S<N>::kept = 0;",
        "S<3>::kept",
    ),
    "behind a constant pointer": ("__device__ int kept; __device__ int *const at = &kept;", "(*at)"),
}


@needs_gxx
@pytest.mark.parametrize("name", KEPT)
def test_memory_of_its_own_is_found_in_what_the_emulator_compiles(name: str) -> None:
    declarations, kept = KEPT[name]
    text = f"{declarations}\n{KERNEL.format(f'y[i] = {kept}++;')}"
    found = refusal(object_flags(built(text, ["k"]).kernel, [text]))
    assert found is not None and "keeps memory of its own between launches" in found


@needs_gxx
def test_so_is_the_heap() -> None:
    text = KERNEL.format("float *p = new float[n]; y[i] = p[0] = i; delete[] p;")
    assert "allocates device memory" in (refusal(object_flags(built(text, ["k"]).kernel, [text])) or "")


@needs_gxx
def test_what_an_honest_kernel_has_is_left_alone_there(tmp_path: Path) -> None:
    text = (
        "__shared__ float tile[64]; __constant__ int table[2] = {1, 2}; __device__ const float half = 0.5f;"
        " struct A { __device__ virtual float f() { return 1; } };"
        " struct B : A { __device__ float f() override { return 2; } };\n"
    ) + KERNEL.format(
        "__shared__ int s[64]; s[i] = table[i & 1]; tile[i] = half; B two; A one, *a = n > 3 ? &one : &two;"
        " __syncthreads(); y[i] = s[i] + tile[i] + a->f() + expf(i) + tgammaf(i + 1);"
    )
    file = tmp_path / "kernel.cu"
    file.write_text(text, encoding="utf-8")
    texts = collect(file, ("k",), {}).texts.values()
    assert object_flags(built(file, ["k"]).kernel, texts) == ()


CONSTANT = {
    "table": ("__device__ const float table[4] = {1, 2, 3, 4};", "y[i] = table[n & 3];"),
    "table, not declared const": ("__device__ float table[4] = {1, 2, 3, 4};", "y[i] = table[n & 3];"),
    "constant memory": ("__constant__ float table[4] = {1, 2, 3, 4};", "y[i] = table[n & 3];"),
    "constexpr": ("constexpr int SIZES[] = {1, 2, 3};", "y[i] = SIZES[n % 3];"),
    "output of the same register name": (
        "__device__ const float t[2] = {1, 2}; __device__ __noinline__ void f(float *p, float v) { *p = v; }",
        "f(y + i, t[n & 1]);",
    ),
    "assertion": ("", "assert(n > 0); y[i] = 1;"),
    "shared memory": ("__shared__ float tile[64];", "tile[i] = n; __syncthreads(); y[i] = tile[63 - i];"),
    "atomics on arguments": ("", "atomicAdd(y, 1.0f);"),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_constants_are_left_alone(name: str) -> None:
    assert flagged(*CONSTANT[name]) is None


TOLD = {
    "clock": "y[i] = clock();",
    "clock64": "y[i] = clock64();",
    "globaltimer": 'unsigned long long t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); y[i] = t;',
    "globaltimer, lower half": 'unsigned t; asm("mov.u32 %0, %%globaltimer_lo;" : "=r"(t)); y[i] = t;',
    "performance monitor": 'unsigned t; asm volatile("mov.u32 %0, %%pm0;" : "=r"(t)); y[i] = t;',
    "grid id": 'unsigned long long g; asm("mov.u64 %0, %%gridid;" : "=l"(g)); y[i] = g;',
    "heap": "float *p = (float *)malloc(8); p[0] = i; y[i] = p[0]; free(p);",
}


@pytest.mark.parametrize("name", TOLD)
def test_clocks_launch_numbers_and_the_heap_are_found_in_ptx_and_text(name: str) -> None:
    assert refusal(source_flags(KERNEL.format(TOLD[name]))) is not None
    assert flagged("", TOLD[name]) is not None


def test_a_macro_hides_nothing() -> None:
    text = f"#define NOW clock64()\n#define WHEN \\\n  NOW\n{KERNEL.format('y[i] = WHEN;')}"
    assert "reads a clock" in (refusal(source_flags(text)) or "")
    assert "reads a clock" in (flagged("#define NOW clock64()\n#define WHEN NOW", "y[i] = WHEN;") or "")


def test_names_that_only_look_alike_are_left_alone() -> None:
    text = (
        "// clock64() in a comment\n/* malloc(3) */ struct S { float free; };\n"
        'extern "C" __global__ void k(float *y, S *s, int clock) { y[0] = clock + (1) + s->free; }'
    )
    assert source_flags(text) == ()
    assert refusal(source_flags("__global__ void k(float *y) { y[0] = y[1] < y[2] ? 1 << 3 : 2; }")) is None


def test_printing_is_a_note() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    compiled = compile_cuda(KERNEL.format('printf("%d\\n", i); y[i] = 1;'), "k.cu", (9, 0))
    flags = ptx_flags(compiled.ptx or "")
    assert refusal(flags) is None
    assert notes(flags) == ("the kernel prints: that costs time",)
    assert notes(source_flags(KERNEL.format('printf("x");'))) == notes(flags)


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_kernels_have_no_flags(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    workload = load_workload(name)
    case = workload.size_case(256)
    for variant in workload.ladder():
        space = workload.space_of(variant.name)
        candidate = workload.candidate(space.name, space.configs(case.params)[0])
        compiled = compile_candidate(workload, candidate, case)
        assert ptx_flags(compiled.ptx or "") == ()
        assert source_flags(variant.source()) == ()


@given(st.text(alphabet="%{}[];,.@ \n\"'#<>()ab_stldmovglobal0", max_size=200))
def test_no_text_breaks_them(text: str) -> None:
    for flag in (*ptx_flags(text), *ptx_flags(f".global .u32 a;\n{text}"), *source_flags(text)):
        assert flag.reason


@given(st.binary(max_size=300))
def test_what_is_no_program_is_said(data: bytes) -> None:
    for program in (data, b"\x7fELF\x02\x01" + data):
        with pytest.raises(ValueError, match="ELF"):
            object_flags(program, [])
