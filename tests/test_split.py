"""A traced kernel whose blocks run the untraced code where they aren't selected: two PTX texts become one."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("cuda.bindings.nvrtc", reason="needs the cuda extra")

from warpdeck.core.toolchain import (
    Compiled,
    CompileError,
    CompileRequest,
    ToolchainError,
    assembler,
    programs,
)
from warpdeck.core.toolchain.build import build
from warpdeck.core.toolchain.disassembly import disassemble
from warpdeck.core.toolchain.requests import candidate_request
from warpdeck.core.toolchain.sources import request_key
from warpdeck.core.toolchain.split import SplitError, split
from warpdeck.kernels.loader import load_workload
from warpdeck.telemetry.trace import layout

try:
    assembler.find()
except ToolchainError:
    pytest.skip("needs ptxas", allow_module_level=True)

CC = (9, 0)
FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Everything of a module that both texts must share, and what only one of them has.
SOURCE = r"""
#include <warpdeck/trace.cuh>
WD_STAGES(load, compute)
__constant__ float table[4] = {1, 2, 3, 4};
__device__ unsigned arrived;
__device__ __noinline__ float helper(float x, int n) {
    for (int i = 0; i < n; ++i) x = x * x + table[i & 3];
    return x;
}
template <int N> __device__ __forceinline__ float tile(float x WD_STATE_PARAM) {
    WD_PUSH(compute, N);
    x = helper(x, N);
    WD_PIN(x);
    WD_POP(compute);
    return x;
}
extern "C" __global__ void __launch_bounds__(128, 4) one(const float *a, float *out, int n WD_TRACE_PARAM) {
    extern __shared__ float ring[];
    __shared__ float first[128];
    __shared__ double sums[4];
    __shared__ float second[128];
    WD_TRACE_BEGIN();
    WD_PUSH(load);
    first[threadIdx.x] = a[threadIdx.x];
    ring[threadIdx.x] = a[n];
    second[threadIdx.x] = a[3];
    __syncthreads();
    WD_POP(load);
    if (threadIdx.x < 4) sums[threadIdx.x] = first[threadIdx.x * 3];
    __syncthreads();
    float x = first[127 - threadIdx.x] + ring[threadIdx.x ^ 3] + second[threadIdx.x ^ 1];
    x = tile<5>(x WD_STATE_ARG);
    if (x > 1e30f) printf("large {%f}; %s\n", x, "// {");
    if (threadIdx.x == 0) atomicAdd(&arrived, 1u);
    out[threadIdx.x] = x + float(sums[threadIdx.x & 3]);
    WD_TRACE_END();
}
extern "C" __global__ void two(const float *a, float *out, int n) {
    out[threadIdx.x] = helper(a[n], n) + arrived;
}
"""
PARAMETERS = (("float32", 1), ("float32", 1), ("int32", -1))
BLOCKS = (0, 7, 16, 128, 1, 1)


def request(text: str = SOURCE, entries: tuple[str, ...] = ("one", "two"), **more: Any) -> CompileRequest:
    base = CompileRequest("cuda", "k.cu", entries, CC, parameters=PARAMETERS, trace=True, split=BLOCKS)
    return replace(base, text=text, **more)


def mix(compiled: Compiled, pattern: str = "") -> Counter[str]:
    """How often each instruction stands in the code, without predicates and modifiers."""
    names = (re.sub(r"^@!?U?P\w+ ", "", line.text).split()[0] for line in disassemble(compiled.cubin))
    return Counter(found[0] for name in names if (found := re.match(pattern or r"\w+", name)))


# Loads, stores, barriers, atomics and matrix instructions can't be shared between the two bodies.
MEMORY = r"(LDG|STG|LDS|STS|LDGSTS|BAR|ATOM\w*|RED\w*|SYNCS|HMMA|SHFL)"


def test_a_module_with_everything() -> None:
    made = build(request())
    assert made.unsplit == "" and made.stages == ("load", "compute")
    one, two = made.kernels["one"], made.kernels["two"]
    assert one.parameters == (8, 8, 4, 32) and two.parameters == (8, 8, 4)
    assert one.max_threads == 128 and one.shared_bytes == 128 * 4 * 2 + 32
    traced, plain = (build(replace(request(), split=None, trace=trace)) for trace in (True, False))
    assert mix(made, MEMORY) == mix(traced, MEMORY) + mix(plain, MEMORY) - mix_of(two.symbol, plain)
    # One variable each, whichever body uses it.
    assert made.ptx is not None
    for name in ("table", "arrived", "ring"):
        assert len(re.findall(rf"^\.[^\n]*\b{name}\b[^\n]*;", made.ptx, re.MULTILINE)) == 1


def mix_of(symbol: str, compiled: Compiled) -> Counter[str]:
    """Of a kernel that has no markers: it is there once."""
    lines = [line for line in disassemble(compiled.cubin) if line.kernel == symbol]
    names = (re.sub(r"^@!?U?P\w+ ", "", line.text).split()[0] for line in lines)
    return Counter(found[0] for name in names if (found := re.match(MEMORY, name)))


@pytest.mark.parametrize(
    ("name", "variant"),
    [("gemm", "pipelined"), ("gemm", "classic"), ("reduction", "vector"), ("softmax", "cuda")],
)
def test_the_bundled_kernels_hold_both_bodies(name: str, variant: str) -> None:
    """As many memory instructions as the traced and the untraced kernel together, no more shared memory, and
    the registers of the larger one but for a few."""
    pytest.importorskip("numba.cuda")
    workload = load_workload(name)
    space = next(s for s in workload.spaces.values() if s.variant == variant)
    configs = [c for c in space.configs(workload.size_case(1024).params) if not c.get("reg_cap")]
    candidate = workload.candidate(space.name, configs[len(configs) // 3])
    wanted = replace(candidate_request(workload, candidate, CC, trace=True), lineinfo=False)
    both, traced, plain = (
        build(replace(wanted, trace=trace, split=halves))
        for trace, halves in ((True, BLOCKS), (True, None), (False, None))
    )
    assert both.unsplit == ""
    assert mix(both, MEMORY) == mix(traced, MEMORY) + mix(plain, MEMORY)
    (entry,) = both.kernels
    one, other, whole = (c.kernels[entry] for c in (traced, plain, both))
    assert whole.shared_bytes == one.shared_bytes == other.shared_bytes
    assert whole.spill_bytes == 0 and whole.registers <= max(one.registers, other.registers) + 8
    assert whole.parameters == one.parameters and both.stages == traced.stages
    assert Compiled.from_bytes(both.to_bytes()) == both


def test_a_template_and_a_register_cap() -> None:
    text = SOURCE.replace(
        'extern "C" __global__ void __launch_bounds__(128, 4) one', "template <int K> __global__ void one"
    )
    text = text.replace("out[threadIdx.x] = x +", "out[threadIdx.x] = K * x +")
    made = build(request(text, entries=("one<3>",), reg_cap=32))
    assert made.unsplit == "" and made.kernels["one<3>"].registers <= 32


OTHER = """#ifdef WARPDECK_TRACE
#define NUMBER 4
#else
#define NUMBER 8
#endif
"""


@pytest.mark.parametrize(
    ("change", "more", "why"),
    [
        (("double sums[4]", "double sums[NUMBER]"), {}, "shared memory differs"),
        (("unsigned arrived;", "unsigned arrived = NUMBER;"), {}, "variable arrived differs"),
        (("(128, 4)", "(128, NUMBER)"), {}, "launch bounds differ"),
        (("", ""), {"options": ("--ptxas-options=-O2",)}, "options of the assembler"),
        (("", ""), {"options": ("-maxrregcount=40",)}, "options of the assembler"),
        (("", ""), {"confined": True}, "sandbox"),
    ],
)
def test_what_cannot_be_one_stays_traced_and_says_why(
    change: tuple[str, str], more: dict[str, Any], why: str
) -> None:
    made = build(request(OTHER + SOURCE.replace(*change), **more))
    assert why in made.unsplit
    assert made.stages == ("load", "compute")


def test_without_an_assembler_it_stays_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs.sys, "path", [])
    monkeypatch.setattr(programs.sysconfig, "get_path", lambda _: "/nonexistent")
    monkeypatch.setattr(programs.shutil, "which", lambda *_, **__: None)
    made = build(request())
    assert "no ptxas here: pip install nvidia-cuda-nvcc" in made.unsplit and made.stages


def test_what_the_assembler_refuses_is_one_line() -> None:
    with pytest.raises(CompileError, match="syntax error") as caught:
        assembler.assemble(".version 8.0\n.target sm_90\n.address_size 64\nnonsense\n", CC)
    assert "\n" not in str(caught.value) and "/tmp" not in str(caught.value)


# -- made-up modules ----------------------------------------------------------------------------------

WORD = st.from_regex(r"[a-z$_][a-z0-9$_]{0,8}", fullmatch=True)
NAMES = st.lists(WORD, min_size=9, max_size=9, unique=True)
HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


@st.composite
def modules(draw: st.DrawFn) -> tuple[str, str, dict[str, str]]:
    """Traced and plain text, and their kernels' symbols."""
    names = [f"{name}_{i}" for i, name in enumerate(draw(NAMES))]
    kernel, other, flag, table, helper, ring, *arrays = names
    sizes = draw(st.lists(st.sampled_from([4, 16, 64]), min_size=1, max_size=3))
    renamed = draw(st.booleans())  # Numba numbers its arrays through
    comment = draw(st.sampled_from(["// } { ;\n", "/* } */", "", "// demoted variable\n"]))
    bounds = draw(st.sampled_from(["", ".maxntid 128, 1, 1\n.minnctapersm 2\n", ".maxnreg 64\n"]))
    descriptor = draw(st.booleans())
    common = (
        f".global .align 4 .u32 {flag};\n{comment}"
        f".const .align 4 .b8 {table}[8] = {{1, 2, 3, 4, 5, 6, 7, 8}};\n"
        f".extern .shared .align 16 .b8 {ring}[];\n"
    )

    def text(traced: bool) -> str:
        symbol = kernel if traced else other
        mine = [a if traced or not renamed else f"{a}x" for a in arrays[: len(sizes)]]
        shared = "".join(f"\t.shared .align 4 .b8 {n}[{s}];\n" for n, s in zip(mine, sizes, strict=True))
        uses = "".join(f"\tst.shared.u32 [{name}], %r1;\n\tadd.u32 %r1, %r1, 1;\n" for name in mine)
        last = [f".param .align 8 .b8 {symbol}_param_2[32]"]
        if not descriptor:  # Numba's
            last = [f".param .u64 {symbol}_param_{i}" for i in range(2, 6)]
        extra = "".join(f",\n\t{text}" for text in last) if traced else ""
        return (
            f"{HEAD}{'.global .align 1 .b8 wd_stage_names[2] = {97};' if traced else ''}{common}"
            f".func (.param .b32 back) {helper}(.param .b32 {helper}_param_0) {{ .reg .b32 %r<2>;\n"
            f"\tld.param.u32 %r1, [{helper}_param_0];\n\tst.param.b32 [back+0], %r1;\n\tret; }}\n"
            f".visible .entry {symbol}(\n\t.param .u64 {symbol}_param_0,\n"
            f"\t.param .u32 {symbol}_param_1{extra}\n)\n"
            f"{bounds}{{\n\t.reg .pred %p<2>;\n\t.reg .b32 %r<4>;\n\t.reg .b64 %rd<3>;\n{shared}{comment}"
            f"\tld.param.u64 %rd1, [{symbol}_param_0];\n\tld.param.u32 %r1, [{symbol}_param_1];\n{uses}"
            f"\tsetp.gt.u32 %p1, %r1, 9;\n\t@%p1 bra $L__BB0_1;\n\tst.shared.u32 [{ring}], %r1;\n$L__BB0_1:\n"
            f"\t{{ .param .b32 in0; st.param.b32 [in0+0], %r1;\n\t.param .b32 out0;\n"
            f"\tcall.uni (out0), {helper}, (in0);\n\tld.param.b32 %r2, [out0+0]; }}\n"
            f"\tld.const.u32 %r3, [{table}];\n\tadd.u32 %r2, %r2, %r3;\n\tst.global.u32 [{flag}], %r2;\n"
            f"\tst.global.u32 [%rd1], %r2;\n\tret;\n}}\n"
        )

    return text(True), text(False), {kernel: other}


@FEW
@given(modules(), st.sampled_from([BLOCKS, (5, 3, 4, 8, 9, 1), (1, 1, 7, 1, 2, 9)]))
def test_two_texts_become_one_that_assembles(
    made: tuple[str, str, dict[str, str]], blocks: tuple[int, int, int, int, int, int]
) -> None:
    traced, plain, symbols = made
    joined = split(traced, plain, symbols, blocks)
    ((kernel, other),) = symbols.items()
    assert f"{other}_param" not in joined and joined.count(f".entry {kernel}") == 1
    (cubin, log), (_, before) = (assembler.assemble(text, CC) for text in (joined, traced))
    assert cubin.startswith(b"\x7fELF")
    assert re.findall(r"\d+ bytes smem", log) == re.findall(r"\d+ bytes smem", before) != []


@FEW
@given(modules(), st.data())
def test_texts_that_differ_in_more_than_markers_are_refused(
    made: tuple[str, str, dict[str, str]], data: st.DataObject
) -> None:
    traced, plain, symbols = made
    changes = [
        (r"(\.global \.align) 4( \.u32)", r"\1 8\2"),
        (r"(\.shared \.align) 4( \.b8 \S+)\[", r"\1 8\2["),
        (r"\)\n(\.max\w+ [^{]*)?\{", ")\n.maxntid 32, 1, 1\n{"),
        (r"\.param \.u32 (\w|\$)+_param_1", ".param .u64 wrong_param_1"),
        (r"\{1, 2, 3, 4", "{1, 2, 3, 5"),
    ]
    pattern, by = data.draw(st.sampled_from(changes))
    changed = re.sub(pattern, by, plain, count=1)
    assert changed != plain
    with pytest.raises(SplitError):
        split(traced, changed, symbols, BLOCKS)


@settings(max_examples=200, deadline=None)
@given(modules(), st.integers(0, 10_000), st.text(max_size=8), st.booleans())
def test_damaged_text_gives_the_one_error(
    made: tuple[str, str, dict[str, str]], at: int, noise: str, cut: bool
) -> None:
    traced, plain, symbols = made
    at %= len(plain)
    damaged = plain[:at] + noise + ("" if cut else plain[at:])
    try:
        split(traced, damaged, symbols, BLOCKS)
    except SplitError as error:
        assert "\n" not in str(error)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    modules(),
    st.tuples(st.integers(1, 1 << 20), st.integers(1, 500), st.integers(1, 500)),
    st.integers(0, 2000).map(lambda n: 2 * n + 1),
    st.data(),
)
def test_the_comparison_is_true_in_the_selected_blocks_alone(
    made: tuple[str, str, dict[str, str]], grid: tuple[int, int, int], stride: int, data: st.DataObject
) -> None:
    total = grid[0] * grid[1] * grid[2]
    first = data.draw(st.integers(0, total - 1))
    count = data.draw(st.integers(0, (total - 1 - first) // stride + 1))
    index = data.draw(st.integers(0, max(count - 1, 0)) | st.integers(0, total))
    cta = (first + index * stride + data.draw(st.sampled_from([0, 0, 1, -1, 2]))) % total
    place = (cta % grid[0], cta // grid[0] % grid[1], cta // grid[0] // grid[1])
    traced, plain, symbols = made
    joined = split(traced, plain, symbols, (first, stride, count, *grid))
    chosen = run_comparison(joined, place)
    assert ("%ctaid.y" in joined) == (grid[1] > 1) and ("%ctaid.z" in joined) == (grid[2] > 1)
    steps, rest = divmod(cta - first, stride)
    assert chosen == (rest == 0 and 0 <= steps < count)


def run_comparison(ptx: str, place: tuple[int, ...]) -> bool:
    """What the lines in front of the two bodies decide, for a block's place."""
    assert ptx.index("setp.lt.u32 wd_chosen") < ptx.index("@wd_chosen bra.uni") < ptx.index("st.shared")
    values = {f"%ctaid.{axis}": number for axis, number in zip("xyz", place, strict=True)}
    lines = ptx[ptx.index(".reg .b32 wd_index") : ptx.index("{", ptx.index("wd_chosen,"))].split(";")[1:-1]
    for line in lines:
        name, to, *given = re.split(r"[\s,]+", line.strip())
        numbers = [int(text) if text.isdigit() else values.get(text, 0) for text in given]
        values[to] = {
            "mov.u32": lambda x: x[0],
            "mad.lo.u32": lambda x: x[0] * x[1] + x[2],
            "setp.lt.u32": lambda x: x[0] < x[1],
        }[name](numbers) % (1 << 32)
    return bool(values["wd_chosen"])


def test_the_blocks_are_part_of_the_request_and_its_key() -> None:
    one, other = request(), request(split=(0, 9, 16, 128, 1, 1))
    assert CompileRequest.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert request_key(one, {}) != request_key(other, {})


def test_the_comparison_is_two_instructions_before_anything_is_read_or_written() -> None:
    made = build(request())
    lines = [x.text for x in disassemble(made.cubin) if x.kernel == "one"]
    before = lines[: next(i for i, text in enumerate(lines) if re.match(r"@!?P\d BRA", text))]
    inverse = layout.stride_inverse(BLOCKS[1])
    wide = f"{inverse - (1 << 32):#x}" if inverse >> 31 else f"{inverse:#x}"
    assert sum(f", {wide}, " in text for text in before) == 1  # multiplied by a constant
    assert not any(re.match(MEMORY, re.sub(r"^@!?U?P\w+ ", "", text)) for text in before)


def test_the_assembler_of_a_toolkit_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia" / "cu13" / "bin" / "ptxas"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert assembler.find() == program
