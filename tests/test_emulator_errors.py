"""What the emulator finds wrong with kernels, and where it says it is."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from emulation import Ran, built, launch, run, serve

from warpdeck.core.emulator import Build, Built, CandidateFault
from warpdeck.core.model import Status

N = 101
HEAD = 'extern "C" __global__ void k(const float* a, float* b, int n) {\n'  # line 1; bodies begin in line 2

DEFECTS = {
    "write past the end": (
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  b[i] = a[i < n ? i : 0];\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:3: block \(0,0,0\), thread \(101,0,0\): write of 4 bytes at byte 404 of 404 of arg",
    ),
    "write far past the end": (
        "  if (threadIdx.x == 3)\n    b[n + 5000000] = 1;\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:3: .*thread \(3,0,0\): .*byte 20000404 of 404 of argument b",
    ),
    "write before the start": (
        "  if (threadIdx.x == 3)\n    b[-2] = 1;\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:3: .*byte -8 of 404 of argument b",
    ),
    "read past the end": (
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) b[i] = a[i + 1];\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:3: .*thread \(100,0,0\): read of 4 bytes at byte 404 of 404 of argument a",
    ),
    "shared index beyond its dimension": (
        "  __shared__ float s[8][16];\n"
        "  s[threadIdx.x / 16 % 8][threadIdx.x % 16 + (threadIdx.x == 5 ? 16 : 0)] = 1; __syncthreads();\n"
        "  if (threadIdx.x < n) b[threadIdx.x] = s[0][0];\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:3: .*thread \(5,0,0\): index 21 out of bounds",
    ),
    "shared index through a pointer": (
        "  __shared__ float s[64]; __shared__ float u[64];\n  float* p = s; p[threadIdx.x] = 1;\n"
        "  __syncthreads(); u[0] = 1; b[0] = p[0] + u[0];\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:3: .*thread \(64,0,0\): write of 4 bytes at byte 256 of 256 of shared s",
    ),
    "dynamic shared memory past the launch's": (
        "  extern __shared__ float s[];\n  s[threadIdx.x] = 1; __syncthreads();\n  b[0] = s[0];\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:3: .*thread \(64,0,0\): .*byte 256 of 256 of shared dynamic memory",
    ),
    "local array": (
        "  float r[4] = {};\n  for (int i = 0; i <= 4; i++) r[i] += a[i];\n  b[0] = r[threadIdx.x & 3];\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:3: .*(index 4 out of bounds|insufficient space for an object of type 'float')",
    ),
    "misaligned float4": (
        "  if (threadIdx.x == 0)\n    *reinterpret_cast<float4*>(b + 1) = make_float4(1, 2, 3, 4);\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:3: .*misaligned address .* requires 16 byte alignment",
    ),
    "barrier after a return": (
        "  if (threadIdx.x == 77) return;\n  __shared__ float s[128]; s[threadIdx.x] = 1;\n"
        "  __syncthreads(); b[0] = s[0];\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:4: .*reached by 127 of the block's 128 threads: thread \(77,0,0\) has returned",
    ),
    "barrier in a branch": (
        "  __shared__ float s[128]; s[threadIdx.x] = 1;\n  if (threadIdx.x < 64)\n    __syncthreads();\n"
        "  b[0] = s[0];\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:4: .*reached by 64 of the block's 128 threads: thread \(64,0,0\) has returned",
    ),
    "two barriers": (
        "  if (threadIdx.x < 64)\n    __syncthreads();\n  else\n    __syncthreads();\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:5: .*thread \(64,0,0\): .*thread \(0,0,0\) waits at the one of kernel\.cu:3",
    ),
    "different trip counts": (
        "  for (int i = 0; i < (threadIdx.x ? 3 : 4); i++) {\n    __syncthreads();\n  }\n  b[0] = 1;\n"
        "  __syncthreads();\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:3: .*thread \(0,0,0\): .*waits at the one of kernel\.cu:6",
    ),
    "lanes missing from a shuffle": (
        "  float v = 1;\n  if ((threadIdx.x & 31) < 16)\n    v = __shfl_down_sync(0xffffffff, v, 1);\n"
        "  __syncthreads(); b[0] = v;\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:4: .*deadlock: 64 threads wait in __shfl_down_sync with mask 0xffffffff at kernel\.cu:4"
        r".*wait at the barrier of kernel\.cu:5",
    ),
    "caller not in the mask": (
        "  float v = 1;\n  if ((threadIdx.x & 31) >= 16)\n    v = __shfl_down_sync(0xffff, v, 1);\n"
        "  b[0] = v;\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:4: .*thread \(16,0,0\): __shfl_down_sync: the calling lane isn't in the mask",
    ),
    "two operations of one mask": (
        "  float v = 1;\n  if (threadIdx.x & 1)\n    v = __shfl_sync(~0u, v, 0);\n  else\n    __syncwarp();\n"
        "  b[0] = v;\n}",
        Status.RUNTIME_ERROR,
        r"different operations: __shfl_sync here, __syncwarp at kernel\.cu:6",
    ),
    "endless loop": (
        "  while (b[0] == 0 || b[0] != 0) {\n    b[0] = 0;\n  }\n}",
        Status.TIMEOUT,
        r"kernel\.cu:[234]: .*still running after 0\.2 s",
    ),
    "waiting for a flag": (
        "  volatile float* f = b; if (threadIdx.x == 0) { f[0] = 0; while (f[0] == 0); } else f[0] = 1;\n}",
        Status.TIMEOUT,
        r"kernel\.cu:2: .*still running after 0\.2 s",
    ),
    "too much declared shared memory": (
        "  __shared__ float s[20000]; s[threadIdx.x] = 1; b[0] = s[0];\n}",
        Status.RESTRICTED,
        r"kernel\.cu:2: more than 48 KB of declared shared memory",
    ),
    "stack overflow": (
        "  volatile float big[120000]; for (int i = 0; i < 120000; i += 100) big[i] = 1; b[0] = big[5];\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:[12]: .*access to the stack of a thread, over its 256 KB",
    ),
    "division by zero": (
        "  int z = n - 101;\n  b[0] = 5 / z;\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:3: .*division by zero",
    ),
    "write to an input": (
        "  if (threadIdx.x == 1)\n    const_cast<float*>(a)[2] = 5;\n}",
        Status.INCORRECT,
        r"kernel\.cu:3: .*thread \(1,0,0\): the kernel changed its input a, first at byte 10",
    ),
    "trap": ("  if (threadIdx.x == 1) __trap();\n}", Status.RUNTIME_ERROR, r"__trap\(\) was called"),
    "assert": (
        "  assert(threadIdx.x != 1);\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:2: .*thread \(1,0,0\): device assert failed: threadIdx\.x != 1",
    ),
    "asynchronous copy of three bytes": (
        "  __shared__ float s[4]; __pipeline_memcpy_async(s, a, 3);\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:2: .*copies 4, 8 or 16 bytes",
    ),
    "asynchronous copy past the end": (
        "  __shared__ float s[4];\n  if (threadIdx.x == 0)\n    __pipeline_memcpy_async(s, a + 100, 16);\n}",
        Status.RUNTIME_ERROR,
        r"kernel\.cu:4: .*argument a",
    ),
}

WRONG_SOURCES = {
    "syntax": ("  floaty x = 1;\n}", Status.COMPILE_ERROR, r"kernel\.cu:2: 'floaty' was not declared"),
    "initialised shared memory": (
        "  int x;\n  __shared__ float s[2] = {1, 2};\n}",
        Status.COMPILE_ERROR,
        r"kernel\.cu:3: .*can't be initialised",
    ),
    "host function": (
        '  system("true");\n}',
        Status.COMPILE_ERROR,
        r"kernel\.cu:2: system is a function of the host",
    ),
    **{
        f"{name}, which NVRTC hasn't": (
            f"  b[0] = {name};\n}}",
            Status.COMPILE_ERROR,
            rf"kernel\.cu:2: '{name}' was not declared",
        )
        for name in ("INFINITY", "FLT_MAX", "M_PI")
    },
}

# Declared by the kernel itself, which a linker would take for granted.
HOST_NAMES = {
    "a function": (
        'extern "C" int open(const char *, int, ...);',
        'b[0] = open("/", 0);',
        "open isn't defined",
    ),
    "a variable": ('extern "C" int optind;', "b[0] = ++optind;", "optind isn't defined"),
    "C's memory of its own": (
        'extern "C" int *__errno_location();',
        "b[0] = ++*__errno_location();",
        "__errno_location isn't defined",
    ),
    "what the runtime calls": (
        'extern "C" long write(int, const void *, unsigned long n) { return n; }',
        "b[0] = 1;",
        "defines write, a name of the host's library",
    ),
    "the same, to be merged": (
        'extern "C" __noinline__ inline void *malloc(unsigned long n) { return (void *)n; }',
        "b[0] = (long long)malloc(n);",
        "defines malloc, a name of the host's library",
    ),
}

UNSUPPORTED = {
    "PTX": (
        '  int x;\n  asm volatile("mov.u32 %0, %laneid;" : "=r"(x)); b[0] = x;\n}',
        "",
        r":\d+: inline PTX",
    ),
    "wmma": ("  nvcuda::wmma::fragment<int> f;\n}", "", r":\d+: tensor-core code"),
    "mma.h": ("}", "#include <mma.h>\n", r"kernel\.cu:1: <mma\.h> is not available"),
    "cuda/barrier": ("}", "#include <cuda/barrier>\n", r"<cuda/barrier> is not available"),
    "libcu++": ("  cuda::barrier<int> x;\n}", "", r"libcu\+\+ \(cuda::barrier\)"),
    "TMA": ("  const CUtensorMap* map = nullptr;\n}", "", r"TMA"),
    "grid": ("  cooperative_groups::this_grid().sync();\n}", "", r"the whole grid"),
    "textures": ("  b[0] = tex2D<float>(0, 0, 0);\n}", "", r"texture"),
    "own words": ("}", '#error "unsupported: this needs tensor cores"\n', r"this needs tensor cores"),
}


RACES = {
    "read after a write": (
        "  __shared__ float s[128];\n  s[threadIdx.x] = a[threadIdx.x % 101] + threadIdx.x;\n"
        "  if (threadIdx.x < n)\n    b[threadIdx.x] = s[(threadIdx.x + 64) & 127];\n}",
        (3, 5),
    ),
    "write after a read": (
        "  __shared__ float s[128]; float v = 0;\n  for (int i = 0; i < 3; i++) {\n    s[threadIdx.x] = i;\n"
        "    __syncthreads();\n    v += s[(threadIdx.x + 1) & 127];\n  }\n"
        "  if (threadIdx.x < n) b[threadIdx.x] = v;\n}",
        (4, 6),
    ),
    "warp without a sync": (
        "  __shared__ float s[128]; volatile float* p = s; p[threadIdx.x] = threadIdx.x;\n"
        "  __syncthreads();\n"
        "  if (threadIdx.x < 32) { p[threadIdx.x] += p[threadIdx.x + 32];\n"
        "    p[threadIdx.x] += p[threadIdx.x + 16];\n    if (threadIdx.x == 0) b[0] = p[0]; }\n}",
        (4, 5),
    ),
    "increment without an atomic": (
        "  __shared__ float s[1]; if (threadIdx.x == 0) s[0] = 0;\n  __syncthreads();\n  s[0] += 1;\n"
        "  __syncthreads(); b[0] = s[0];\n}",
        (4,),
    ),
    "copy into what is read": (
        "  __shared__ float s[128]; s[threadIdx.x] = threadIdx.x;\n  __syncthreads();\n"
        "  float v = s[threadIdx.x ^ 1];\n  __pipeline_memcpy_async(&s[threadIdx.x], a, 4);\n"
        "  __pipeline_commit(); __pipeline_wait_prior(0); b[0] = v;\n}",
        (4, 5),
    ),
}


GOOD = {
    "atomic": (
        "  __shared__ int s[1]; if (threadIdx.x == 0) s[0] = 0;\n  __syncthreads();\n  atomicAdd(s, 1);\n"
        "  __syncthreads(); b[0] = s[0];\n}",
        128,
    ),
    "the same value": ("  __shared__ int s; s = 7;\n  __syncthreads(); b[0] = s;\n}", 7),
    "file scope": ("  if (threadIdx.x < 64) b[0] = fs[threadIdx.x] = 1;\n}", 1),
    "spin lock": (
        "  __shared__ int lock, sum; if (threadIdx.x == 0) lock = 0, sum = 0;\n"
        "  __syncthreads(); bool d = false;\n"
        "  while (!d) { if (atomicCAS(&lock, 0, 1) == 0) { atomicAdd(&sum, 1); __threadfence();\n"
        "    atomicExch(&lock, 0); d = true; } }\n  __syncthreads(); b[0] = sum;\n}",
        128,
    ),
    "forms of declarations": (
        "  static __shared__ volatile float v1[1 << 5]; __shared__ struct { int p; float q[4]; } st;\n"
        "  __shared__ union { float f; int i; } un; __shared__ Pair<int, 3> pr, pq[2];\n  __shared__ float\n"
        "    ml[2][3]; __shared__ float4 f4s[4]; __shared__ int done; float __shared__ late[2];\n"
        "  alignas(float4) __shared__ char raw[32]; __shared__ float *p1, *p2[2];\n"
        "  if (threadIdx.x == 0) { v1[31] = 1; st.q[3] = 2; un.i = 3; pr.v[2] = 4; pq[1].v[0] = 5;\n"
        "    ml[1][2] = 6;\n"
        "    f4s[3].w = 7; done = 8; late[1] = 9; raw[31] = 10; p1 = b; p2[1] = b;\n"
        "    p1[1] = 1; fixed[1] = 11; }\n"
        "  __syncthreads();\n"
        "  if (threadIdx.x == 1) b[0] = v1[31] + st.q[3] + un.i + pr.v[2] + pq[1].v[0] + ml[1][2]\n"
        "    + f4s[3].w + done + late[1] + raw[31] + fixed[1] + ((unsigned long long)raw % 16 == 0);\n}",
        67,
    ),
}
OTHERS = {
    "branches by architecture": '#if __CUDA_ARCH__ >= 800\n  asm("");\n#else\n  b[0] = 7;\n#endif\n}',
    "unwritten": (
        "  __shared__ float s[128];\n  if (threadIdx.x < 100) s[threadIdx.x] = 1;\n  __syncthreads();\n"
        "  if (threadIdx.x < n) b[threadIdx.x] = s[127 - threadIdx.x];\n}"
    ),
    "early read of a copy": (
        "  __shared__ float s[1];\n  if (threadIdx.x == 0) {\n    __pipeline_memcpy_async(s, a, 4);\n"
        "    b[0] = s[0];\n"
        "    __pipeline_commit(); b[1] = s[0]; __pipeline_wait_prior(0); b[2] = s[0]; }\n}"
    ),
    "overflow": "  int x = n * 2147483647;\n  b[0] = x;\n}",
}
BODIES = {name: one[0] for part in (DEFECTS, RACES, GOOD) for name, one in part.items()} | OTHERS
BEFORE = (
    "extern __shared__ float fs[]; template<class T, int N> struct Pair { T v[N]; };"
    " namespace { __shared__ int fixed[3]; }\n"
)


def refusal(text: str) -> CandidateFault:
    """Why a source can't be built."""
    with pytest.raises(CandidateFault) as caught:
        built(text, ["k"])
    return caught.value


@functools.cache
def program(build: Build) -> Built:
    """All kernels of this file in one, kernel number i (k<i>) beginning in line 100 * i + 1."""
    text = ""
    for number, body in enumerate(BODIES.values()):
        text += "\n" * (100 * (number + 1) - text.count("\n"))
        text += HEAD.replace(" k(", f" k{number}(") + body + "\n"
    return built(BEFORE + text[1:], entries(), build)


def entries() -> list[str]:
    return [f"k{number}" for number in range(len(BODIES))]


def ran(name: str, *, build: Build = Build.CHECKED, schedule: int = 0) -> Ran:
    """Run one of the kernels with 128 threads and 256 bytes of dynamic shared memory."""
    arguments = {"a": np.ones(N, "f4"), "b": ("out", np.zeros(N, "f4")), "n": np.int32(N)}
    kernel = launch(f"k{list(BODIES).index(name)}", 1, 128, 256)
    return serve(program(build), entries(), [kernel], arguments, schedule=schedule, kernel_s=0.2)


def told(text: str) -> str:
    """A message with lines as they are within the kernel."""
    return re.sub(r"kernel\.cu:(\d+)", lambda found: f"kernel.cu:{int(found[1]) % 100}", text)


@pytest.mark.parametrize("name", DEFECTS)
def test_defect_is_told_with_its_place(name: str) -> None:
    _, status, pattern = DEFECTS[name]
    with pytest.raises(CandidateFault) as caught:
        ran(name)
    assert caught.value.status is status, caught.value.message
    assert re.search(pattern, told(caught.value.message)), caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", WRONG_SOURCES)
def test_what_does_not_compile_is_told_with_its_line(name: str) -> None:
    body, status, pattern = WRONG_SOURCES[name]
    found = refusal(HEAD + body)
    assert found.status is status, found.message
    assert re.search(pattern, found.message), found.message


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_this_device_lacks_is_named(name: str) -> None:
    body, before, pattern = UNSUPPORTED[name]
    found = refusal(before + HEAD + body)
    assert found.status is Status.UNSUPPORTED, found.message
    assert re.search(pattern, found.message), found.message


def test_a_crash_before_the_kernel_is_the_candidates() -> None:
    text = "struct A { A() { *(volatile int *)8 = 1; } } a;\n" + HEAD + "}"
    with pytest.raises(CandidateFault, match="before any kernel was launched: ") as caught:
        run(text, launch("k"), {"a": np.ones(N, "f4"), "b": ("out", np.zeros(N, "f4")), "n": np.int32(N)})
    assert caught.value.status is Status.RUNTIME_ERROR


def test_the_kernel_must_be_there_and_have_its_plain_name() -> None:
    assert "there is no kernel k in it" in refusal(HEAD.replace(" k(", " other(") + "}").message
    assert 'kernel k must be extern "C"' in refusal(HEAD.replace('extern "C" ', "") + "}").message


def test_another_architectures_branch_may_hold_ptx() -> None:
    assert ran("branches by architecture").outputs["b"][0] == 7


@pytest.mark.parametrize("name", RACES)
def test_race_is_found_in_one_run(name: str) -> None:
    races = [r for r in ran(name, build=Build.RACES).reports if r.kind == "race"]
    assert races
    first = told(races[0].text)
    assert any(first.startswith(f"kernel.cu:{line}: block (0,0,0), thread (") for line in RACES[name][1]), (
        first
    )
    assert "of shared s" in races[0].text and "without a barrier between" in races[0].text


@pytest.mark.parametrize("build", Build)
@pytest.mark.parametrize("name", GOOD)
def test_right_kernels_pass_both_builds(name: str, build: Build) -> None:
    for schedule in (0, 1, 2):
        done = ran(name, build=build, schedule=schedule)
        assert done.outputs["b"][0] == GOOD[name][1]
        assert [r.text for r in done.reports] == []


def test_reading_unwritten_shared_memory_gives_nan_and_is_told_by_the_second_build() -> None:
    assert np.isnan(ran("unwritten").outputs["b"]).sum() == 28
    found = [r for r in ran("unwritten", build=Build.RACES).reports if r.kind == "uninitialised"]
    assert "kernel.cu:5: " in told(found[0].text) and "hasn't written" in found[0].text


def test_an_early_read_of_an_asynchronous_copy_sees_poison() -> None:
    found = ran("early read of a copy").outputs["b"]
    assert np.isnan(found[0]) and np.isnan(found[1]) and found[2] == 1


def test_overflow_of_an_index_is_a_warning() -> None:
    reports = ran("overflow").reports
    assert [r.kind for r in reports] == ["warning"]
    assert "kernel.cu:2: " in told(reports[0].text) and "signed integer overflow" in reports[0].text


@pytest.mark.parametrize("name", HOST_NAMES)
def test_names_of_the_hosts_library_are_neither_called_nor_taken(name: str) -> None:
    declaration, statement, words = HOST_NAMES[name]
    with pytest.raises(CandidateFault, match=words) as caught:
        built(f"{declaration}\n{HEAD}{statement}\n}}", ["k"])
    assert caught.value.status is Status.COMPILE_ERROR


def test_constant_memory_is_read_only() -> None:
    text = f"__constant__ int kept[2] = {{1, 2}};\n__constant__ const float c = 3;\n{HEAD}"
    zeros = np.zeros(N, np.float32)
    inputs = {"a": zeros, "b": ("out", zeros), "n": np.int32(N)}
    reading = run(f"{text}  b[0] = kept[1] + c;\n}}", launch("k"), inputs)
    assert reading.outputs["b"][0] == 5
    with pytest.raises(CandidateFault, match=r"kernel\.cu:4: .*in no buffer"):
        run(f"{text}  ((int *)kept)[0] += 1;\n}}", launch("k"), inputs)
    with pytest.raises(CandidateFault, match=r"kernel\.cu:4: "):
        run(f"{text}  b[0] = kept[n];\n}}", launch("k"), inputs)


def test_infinity_comes_with_its_header() -> None:
    text = f"#include <cuda/std/cmath>\n{HEAD}  b[0] = -INFINITY;\n}}"
    zeros = np.zeros(N, np.float32)
    assert (
        run(text, launch("k"), {"a": zeros, "b": ("out", zeros), "n": np.int32(N)}).outputs["b"][0] == -np.inf
    )


def test_a_text_of_errors_ends_soon() -> None:
    text = "".join(f"int a{i} = undefined_{i};\n" for i in range(20_000))
    with pytest.raises(CandidateFault, match=r"kernel\.cu:1: 'undefined_0' was not declared"):
        built(f"{text}{HEAD}}}", ["k"])
