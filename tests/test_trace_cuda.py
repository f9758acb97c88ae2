"""The CUDA C++ header of stage markers: nothing when off, and when on the right bytes in the right order."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from warpdeck.kernels.loader import load_workload
from warpdeck.telemetry.trace import layout

pytest.importorskip("cuda.bindings.nvrtc", reason="needs the cuda extra")

from warpdeck.core.model import Candidate
from warpdeck.core.toolchain import Compiled, CompileError, CompileRequest
from warpdeck.core.toolchain.build import build
from warpdeck.core.toolchain.requests import candidate_request
from warpdeck.core.toolchain.sources import TRACE_INCLUDE

ARCHITECTURES = [(7, 5), (8, 0), (9, 0), (10, 0), (12, 0)]
KERNELS = Path(__file__).parents[1] / "kernels"

# Two blocks of 16 FFMA in a loop, each in a range; PIN is WD_PIN(a) or nothing.
ORDER = """\
#include <warpdeck/trace.cuh>
WD_STAGES(first, second)
extern "C" __global__ void k(float *o, const float *__restrict__ in, int n WD_TRACE_PARAM) {
    WD_TRACE_BEGIN();
    float a = in[threadIdx.x];
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        WD_PUSH(first, i); PIN;
#pragma unroll
        for (int j = 0; j < 16; j++) a = a * 1.0001f + 0.5f;
        PIN; WD_POP(first);
        WD_PUSH(second, i); PIN;
#pragma unroll
        for (int j = 0; j < 16; j++) a = a * 1.0002f + 0.25f;
        PIN; WD_POP(second);
    }
    o[blockIdx.x * blockDim.x + threadIdx.x] = a;
    WD_TRACE_END();
}
"""
# As many live values as a real kernel has, so that the prologue doesn't decide the number of registers.
CROWDED = """\
#include <warpdeck/trace.cuh>
WD_STAGES(load, compute)
extern "C" __global__ void k(float *o, const float *__restrict__ in, int n WD_TRACE_PARAM) {
    WD_TRACE_BEGIN();
    float a[32];
#pragma unroll
    for (int j = 0; j < 32; j++) a[j] = in[threadIdx.x * 32 + j];
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        WD_PUSH(load, i);
        float b = in[i];
        WD_PIN(b);
        WD_POP(load);
        WD_PUSH(compute, i);
        WD_PIN(a);
#pragma unroll
        for (int j = 0; j < 32; j++) a[j] = a[j] * b + a[(j + 1) % 32];
        WD_PIN(a);
        WD_POP(compute);
    }
    float s = 0;
#pragma unroll
    for (int j = 0; j < 32; j++) s += a[j];
    o[blockIdx.x * blockDim.x + threadIdx.x] = s;
    WD_TRACE_END();
}
"""
EVERY_MACRO = """\
#include <warpdeck/trace.cuh>
WD_STAGES(load, wait, compute, store);
struct State { int next; };  // names of the header's own must be free
__device__ __forceinline__ float inner(float x WD_STATE_PARAM) {
    WD_RANGE(compute);
    WD_RANGE(wait, 3);
    return x * 2;
}
__device__ long long halve(long long a, long long b) { return (a + b) / 2; }
extern "C" __global__ void k(float *x, int n WD_TRACE_PARAM) {
    WD_TRACE_BEGIN();
    if (threadIdx.x >= 64) { WD_TRACE_END(); return; }
    float f = x[0]; double d = f; int i = n; unsigned u = n; long l = n; unsigned long ul = n;
    long long ll = n; unsigned long long ull = n; float2 f2 = {f, f}; float4 f4 = {f, f, f, f};
    float *p = x; float tile[2][3] = {};
    int load = n;  // a variable may have a stage's name
    for (int t = 0; t < n; t++) {
        WD_PUSH(load);
        WD_POP(load);
        WD_PUSH(load, t + load);
        WD_POP(load);
        if (t & 1) WD_MARK(wait); else WD_MARK(wait, halve(t, 3));
        WD_VALUE(compute, f);
        WD_VALUE(compute, i);
        WD_VALUE(compute, u);
        WD_START(store, t);
        WD_STOP(store, t - 1);
        WD_ISSUE(load, t);
        WD_DONE(load, t);
        WD_PIN(f, d, i, u, l, ul, ll, ull, f2, f4, p, tile);
        auto step = [&] { WD_MARK(store, t); f += inner(f WD_STATE_ARG); };
        step();
    }
    x[threadIdx.x] = load + f + float(d) + i + u + l + ul + ll + ull + f2.x + f4.w + *p + tile[1][2];
    WD_TRACE_END();
}
"""


def compiled(text: str, cc: tuple[int, int] = (9, 0), trace: bool = False, pin: str = "") -> Compiled:
    request = CompileRequest("cuda", "k.cu", ("k",), cc, knobs={"PIN": pin}, text=text, trace=trace)
    return build(request)


def blanked(text: str) -> str:
    """The source with its markers and the include replaced by spaces; semicolons stay: empty statements."""
    out, at = [], 0
    pattern = re.compile(r"#include <warpdeck/trace\.cuh>|\bWD_\w+(\()?")
    while found := pattern.search(text, at):
        end = found.end()
        depth = 1 if found[1] else 0
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        out += [text[at : found.start()], re.sub(r"[^\n]", " ", text[found.start() : end])]
        at = end
    return "".join([*out, text[at:]])


# -- off --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cc", ARCHITECTURES)
@pytest.mark.parametrize("text", [ORDER, CROWDED, EVERY_MACRO], ids=["order", "crowded", "every macro"])
def test_off_the_cubin_is_that_of_the_source_without_markers(text: str, cc: tuple[int, int]) -> None:
    bare = blanked(text)
    assert "WD_" not in bare and bare.count("\n") == text.count("\n")
    marked, unmarked = compiled(text, cc, pin="WD_PIN(a)"), compiled(bare, cc)
    assert marked.cubin == unmarked.cubin
    assert marked.ptx == unmarked.ptx


SMALL = [
    ("gemm/kernel.cu", "gemm_cuda", {"TILE_M": 64, "TILE_N": 64, "TILE_K": 16, "UNROLL": 2}),
    ("gemm/pipelined.cu", "gemm_pipelined", {"TILE_M": 64, "TILE_N": 64, "TILE_K": 16, "STAGES": 2}),
    ("reduction/kernel.cu", "reduction_cuda", {"BLOCK": 128, "VECTOR": 4, "UNROLL": 4}),
    ("softmax/kernel.cu", "softmax_cuda", {"BLOCK": 128, "ROWS": 2, "VECTOR": 4, "CACHED": 2, "FAST": 1}),
]


@pytest.mark.parametrize(("file", "entry", "knobs"), SMALL, ids=[s[0] for s in SMALL])
def test_off_the_bundled_kernels_are_those_without_markers(
    file: str, entry: str, knobs: dict[str, int]
) -> None:
    text = (KERNELS / file).read_text(encoding="utf-8")
    bare = blanked(text)
    assert "WD_" not in bare
    more = {"THREAD_M": 4, "THREAD_N": 4, "PRODUCERS": 1} if file.startswith("gemm") else {}
    for cc in ARCHITECTURES:
        if file == "gemm/pipelined.cu" and cc < (8, 0):
            continue
        # NVRTC numbers virtual registers differently now and then, for the same source too: try again then.
        made: tuple[set[bytes], set[bytes]] = (set(), set())
        for _ in range(8):
            for found, source in zip(made, (text, bare), strict=True):
                request = CompileRequest("cuda", "k.cu", (entry,), cc, knobs=knobs | more, text=source)
                found.add(build(request).cubin)
            if made[0] & made[1]:
                break
        assert made[0] & made[1], cc


@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_off_through_nvcc(cc: tuple[int, int], tmp_path: Path) -> None:
    cubins = []
    for text in (EVERY_MACRO, blanked(EVERY_MACRO)):
        folder = tmp_path / str(len(cubins))
        folder.mkdir()
        (folder / "k.cu").write_text(text)
        nvcc(folder, f"-arch=sm_{cc[0]}{cc[1]}", "-cubin", "-o", "k.cubin", "k.cu")
        cubins.append((folder / "k.cubin").read_bytes())
    assert cubins[0] == cubins[1]


def nvcc(folder: Path, *options: str) -> None:
    program = shutil.which("nvcc")
    if program is None:
        pytest.skip("no nvcc here")
    done = subprocess.run(
        [program, "-std=c++17", "-O3", f"-I{TRACE_INCLUDE}", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr


def test_off_the_header_declares_nothing() -> None:
    text = """#include <warpdeck/trace.cuh>
struct wd_detail {}; struct wd_stages {};
extern "C" __global__ void k() {}"""
    compiled(text)
    with pytest.raises(CompileError):
        build(CompileRequest("cuda", "k.cu", ("k",), (9, 0), text=text, options=("-DWARPDECK_TRACE=1",)))


# -- on ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_every_macro_compiles(cc: tuple[int, int]) -> None:
    on, off = (compiled(EVERY_MACRO, cc, trace) for trace in (True, False))
    assert on.stages == ("load", "wait", "compute", "store")
    assert on.kernels["k"].parameters == (*off.kernels["k"].parameters, 32)
    assert on.kernels["k"].spill_bytes == on.kernels["k"].local_bytes == 0
    assert not re.search(r"\b(bar|barrier|fence|membar|atom|red)\b[.\w]*", code(on.ptx)), "no synchronisation"


def test_through_nvcc_with_a_launch_by_hand(tmp_path: Path) -> None:
    launch = "void run(float *x, int n) { k<<<1, 64>>>(x, n WD_TRACE_PASS({})); }"
    (tmp_path / "k.cu").write_text(EVERY_MACRO + launch)
    for options in ([], ["-DWARPDECK_TRACE"]):
        nvcc(tmp_path, "-arch=sm_90", *options, "-c", "-o", "k.o", "k.cu")


def code(ptx: str | None) -> str:
    assert ptx is not None
    return "\n".join(line.split("//")[0] for line in ptx.splitlines())


@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_every_record_is_bounded(cc: tuple[int, int]) -> None:
    """Records are the only stores with a hint; none runs without its predicate."""
    made = compiled(EVERY_MACRO, cc, trace=True)
    stores = [line.strip() for line in code(made.ptx).splitlines() if "st.global.cs" in line]
    assert len(stores) >= 20
    lines = [line.strip() for line in code(made.ptx).splitlines() if line.strip()]
    for number, line in enumerate(lines):
        if "st.global.cs" in line and not line.startswith("@room "):
            before = lines[:number][::-1]
            guard = next(i for i, text in enumerate(before) if text == "@!room bra done;")
            assert not any(":" in text or "}" in text for text in before[:guard])
            assert re.match(r"setp\.ne\.u32 room, %r\d+, 0;", before[guard + 1])
    for text, pin in ((ORDER, "WD_PIN(a)"), (CROWDED, "")):
        straight = sass(compiled(text, cc, trace=True, pin=pin).cubin)
        records = [line for line in straight if "STG" in line and ".EF" in line]
        assert len(records) == 4
        assert all(re.match(r"@!?P\d STG", line) for line in records)


@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_threads_that_dont_record_read_no_clock(cc: tuple[int, int]) -> None:
    """A begin reads the clock, an end the clock and then the timer, fast, and under the store's predicate."""
    for text, pin in ((ORDER, "WD_PIN(a)"), (CROWDED, "")):
        body = loop(sass(compiled(text, cc, trace=True, pin=pin).cubin))
        reads = [line for line in body if re.search(r"SR_(CLOCK|GLOBALTIMER)LO", line)]
        # The fast read: S2R and S2UR of the clock take tens of cycles.
        assert all(re.match(r"@!?P\d CS2R\.32 ", line) for line in reads)
        order = [re.sub(r".*SR_(\w+)LO$", r"\1", line) for line in reads]
        assert order == ["CLOCK", "CLOCK", "GLOBALTIMER"] * 2
        assert sum("BRA" in line for line in body) == 1 and not any("BSYNC" in line for line in body)


@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_the_descriptor_is_read_from_the_constant_bank(cc: tuple[int, int]) -> None:
    """And a CTA that isn't traced leaves after a subtraction, a product and a comparison."""
    made = compiled(ORDER, cc, trace=True, pin="WD_PIN(a)")
    lines = sass(made.cubin)
    assert not any(re.search(r"\b(LDL|STL)\b", line) for line in lines)
    assert sum(bool(re.search(r"\bLDG?\.E", line)) for line in lines) == 1  # the kernel's own
    first = next(i for i, line in enumerate(lines) if re.search(r"@!?U?P\d.* BRA", line))
    assert first <= 20 and not any("MUFU" in line for line in lines)
    assert not any(re.search(r"SR_(TID|SMID|VIRTUALSMID|LANEID)", line) for line in lines[:first])


@pytest.mark.parametrize(
    ("name", "fault"), [("x" * 5 + ", " + ", ".join(f"s{i}" for i in range(1023)), "at most 1023 stages")]
)
def test_too_many_stages_are_refused(name: str, fault: str) -> None:
    text = f'#include <warpdeck/trace.cuh>\nWD_STAGES({name})\nextern "C" __global__ void k() {{}}'
    with pytest.raises(CompileError, match=fault):
        compiled(text, trace=True)


def test_wrong_uses_are_refused() -> None:
    for marker in ("WD_PUSH(nothing);", "WD_VALUE(load, 1.0);", "WD_VALUE(load, 1ll);"):
        text = f"""#include <warpdeck/trace.cuh>
WD_STAGES(load)
extern "C" __global__ void k(int n WD_TRACE_PARAM) {{ WD_TRACE_BEGIN(); {marker} WD_TRACE_END(); }}"""
        compiled(text)
        with pytest.raises(CompileError, match=r"^k\.cu:3: "):
            compiled(text, trace=True)


def test_the_numbers_are_the_layout_s() -> None:
    """Offsets, sizes and constants, checked by the compiler."""
    names = [
        "MAGIC_OPEN",
        "MAGIC_CLOSED",
        "HEADER_BYTES",
        "RECORD_BYTES",
        "PAYLOAD_BITS",
        "PAYLOAD_MASK",
        "TIME_SHIFT",
    ]
    names += ["SUB_SHIFT", "ARGUMENT_MASK", *(n for n in vars(layout) if re.match("KIND_|SUB_[A-Z]", n))]
    checks = [f"wd_detail::{name} == {getattr(layout, name)}u" for name in dict.fromkeys(names)]
    assert len(checks) == 21
    for kind, dtype in (("Header", layout.HEADER), ("Descriptor", layout.DESCRIPTOR)):
        checks.append(f"sizeof(wd_detail::{kind}) == {dtype.itemsize}")
    for kind, name, payload in ((0, 1, 0), (1, 1023, 5), (2, 7, 0xFFFFF), (3, 512, 1 << 20)):
        checks.append(f"wd_detail::word({kind}, {name}, {payload}) == {layout.word(kind, name, payload)}u")
    argument = layout.word(layout.KIND_EXTENDED, 9, layout.SUB_STOP << layout.SUB_SHIFT | 77)
    checks.append(f"wd_detail::extended(9, wd_detail::SUB_STOP, 77 + (1 << 17)) == {argument}u")
    asserts = "\n".join(f'static_assert({check}, "{check}");' for check in checks)
    text = f'#include <warpdeck/trace.cuh>\nWD_STAGES(a)\n{asserts}\nextern "C" __global__ void k() {{}}'
    compiled(text, trace=True)


def test_the_fields_are_the_layout_s() -> None:
    """Offsets and sizes, which NVRTC has no constants for, from a kernel that stores them."""
    stores, expected = [], set()
    for kind, dtype in (("Header", layout.HEADER), ("Descriptor", layout.DESCRIPTOR)):
        assert dtype.fields is not None
        for field, (of, offset, *_) in dtype.fields.items():
            tag = 100_000 * (1 + len(stores))  # so that no two constants are one
            address = f"(char *)&((wd_detail::{kind} *)o)->{field} - (char *)o"
            stores.append(
                f"o[{len(stores)}] = {tag} + 1000 * sizeof(wd_detail::{kind}::{field}) + ({address});"
            )
            expected.add(tag + 1000 * of.itemsize + offset)
    text = f"""#include <warpdeck/trace.cuh>
WD_STAGES(a)
extern "C" __global__ void k(unsigned long long *o) {{ {" ".join(stores)} }}"""
    found = re.findall(r"mov\.[bu]64\s+%rd\d+, (\d+);", code(compiled(text, trace=True).ptx))
    assert {int(number) for number in found} == expected


# -- the machine code -------------------------------------------------------------------------------


def sass(cubin: bytes) -> list[str]:
    """The instructions of a cubin's one kernel; labels as "name:"."""
    folder = Path(sysconfig.get_path("purelib")) / "nvidia"
    places = [*sorted(folder.glob("*/bin/nvdisasm")), Path("/usr/local/cuda/bin/nvdisasm")]
    found = shutil.which("nvdisasm")
    program = next((p for p in places if p.is_file()), Path(found) if found else None)
    if program is None:
        pytest.skip("no nvdisasm here (wheel nvidia-cuda-nvdisasm, or the CUDA toolkit)")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([str(program), "-c", file.name], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    lines = []
    for line in done.stdout.decode().splitlines():
        if label := re.match(r"(\.L\w+):", line):
            lines.append(f"{label[1]}:")
        elif instruction := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line):
            lines.append(instruction[1])
    assert len(lines) > 10
    return lines


def loop(lines: list[str]) -> list[str]:
    """The instructions from the target of the first backward branch to it."""
    labels: dict[str, int] = {}
    for number, line in enumerate(lines):
        if line.endswith(":"):
            labels[line[:-1]] = number
        elif (found := re.search(r"BRA.*`\((\.L\w+)\)", line)) and found[1] in labels:
            body = lines[labels[found[1]] : number + 1]
            return [x for x in body if not x.endswith(":") and not x.startswith("NOP")]
    raise AssertionError("no loop")


def between_reads(lines: list[str], arithmetic: str = "FFMA") -> list[int]:
    """Arithmetic between each two reads of the clock in a row."""
    counts: list[int] = []
    for line in lines:
        if "SR_CLOCKLO" in line:
            counts.append(0)
        elif counts and re.search(arithmetic, line):
            counts[-1] += 1
    return counts[:-1]


@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_pinned_arithmetic_stays_in_its_range(cc: tuple[int, int]) -> None:
    pinned = loop(sass(compiled(ORDER, cc, trace=True, pin="WD_PIN(a)").cubin))
    assert between_reads(pinned) == [16, 0, 16]
    # Without pins it doesn't: what makes them necessary. If this fails, a compiler has learnt manners.
    free = loop(sass(compiled(ORDER, cc, trace=True, pin="").cubin))
    assert between_reads(free) != [16, 0, 16]


@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_a_pin_costs_no_instruction(cc: tuple[int, int]) -> None:
    pinned, free = (
        len(loop(sass(compiled(ORDER, cc, trace=True, pin=pin).cubin))) for pin in ("WD_PIN(a)", "")
    )
    assert pinned <= free


@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_an_event_takes_few_instructions_and_registers(
    cc: tuple[int, int], record_property: Callable[[str, object], None]
) -> None:
    for text, most, pin in ((ORDER, 7.5, "WD_PIN(a)"), (CROWDED, 7.5, "")):
        traced, plain = (compiled(text, cc, trace, pin) for trace in (True, False))
        body = loop(sass(traced.cubin))
        instructions = (len(body) - len(loop(sass(plain.cubin)))) / 4
        record_property("instructions an event", instructions)
        assert instructions <= most
    extra = traced.kernels["k"].registers - plain.kernels["k"].registers
    record_property("registers", extra)
    assert extra <= 9
    assert traced.kernels["k"].spill_bytes == traced.kernels["k"].local_bytes == 0


@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_anchors_read_both_clocks_fast_and_in_order(cc: tuple[int, int]) -> None:
    lines = sass(compiled(CROWDED, cc, trace=True).cubin)
    reads = [line for line in lines if re.search(r"SR_(CLOCK|GLOBALTIMER)LO", line) and ".32" not in line]
    assert [re.sub(r".*SR_(\w+?)(LO)?$", r"\1", line) for line in reads] == [
        *("CLOCK", "GLOBALTIMER", "CLOCK"),
        *("CLOCK", "GLOBALTIMER", "CLOCK"),
    ]
    assert all(re.match("CS2U?R ", line) for line in reads if "CLOCKLO" in line)


STEPS = """\
#include <warpdeck/clock_steps.cuh>
extern "C" __global__ void k(wd_steps::Reading *out, unsigned n) { wd_steps::read_steps(out, n, 2000); }
"""


@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_the_timer_s_steps_are_looked_for_without_a_pause(cc: tuple[int, int]) -> None:
    """Nothing comes between the readings of both clocks, or each would cost more cycles."""
    lines = sass(compiled(STEPS, cc).cubin)
    first = next(i for i, line in enumerate(lines) if "GLOBALTIMERLO" in line) - 1
    row = [re.sub(r"CS2U?R U?R\d+, SR_(\w+)LO$", r"\1", line) for line in lines[first : first + 17]]
    assert row == ["CLOCK", "GLOBALTIMER"] * 8 + ["CLOCK"]


BARRIER = """\
#include <warpdeck/trace.cuh>
WD_STAGES(load, wait)
extern "C" __global__ void k(float *x, int n WD_TRACE_PARAM) {
    __shared__ float tile[64];
    WD_TRACE_BEGIN();
    tile[threadIdx.x] = x[threadIdx.x];
    WD_PUSH(wait);
    if (n) __syncthreads(); else __syncthreads();
    WD_POP(wait);
    x[threadIdx.x] = tile[63 - threadIdx.x];
    WD_TRACE_END();
}
"""


@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_a_clock_behind_a_barrier_is_read_after_the_wait(cc: tuple[int, int]) -> None:
    """A warp runs on for some cycles behind a barrier, but doesn't pass what synchronises it."""
    lines = sass(compiled(BARRIER, cc, trace=True).cubin)
    after = lines[max(i for i, line in enumerate(lines) if "BAR.SYNC" in line) :]
    until = next(i for i, line in enumerate(after) if "CLOCKLO" in line)
    assert any(re.search(r"\b(NOP|WARPSYNC)\b", line) for line in after[:until])
    assert not any("WARPSYNC" in line for line in sass(compiled(BARRIER, cc).cubin))


# -- the bundled kernels ----------------------------------------------------------------------------

VARIANTS = [("gemm", "cuda"), ("gemm", "pipelined"), ("reduction", "cuda"), ("softmax", "cuda")]


@pytest.mark.parametrize(("name", "space"), VARIANTS)
def test_configurations_compile_without_spills(name: str, space: str) -> None:
    """Every value of every knob, with every launchable block, untraced and traced."""
    workload = load_workload(name)
    found = workload.space(space).configs()
    chosen = list(found[:: len(found) // 4])
    missing = {(knob, value) for knob, values in workload.space(space).knobs.items() for value in values}
    missing.difference_update(*(config.items() for config in chosen))
    while missing:
        chosen.append(max(found, key=lambda config: len(missing & config.items())))
        assert missing & chosen[-1].items()
        missing -= chosen[-1].items()
    case = workload.size_case(1024)
    for config in chosen:
        candidate: Candidate = workload.candidate(space, config)
        for trace in (False, True):
            made = build(candidate_request(workload, candidate, (9, 0), trace=trace))
            made = made.with_launches(workload.launches(candidate, case))
            (info,) = made.kernels.values()
            assert info.spill_bytes == info.local_bytes == 0, (config, trace)
            x, y, z = made.launches[0].block
            assert x * y * z <= made.max_threads, (config, trace)
            assert made.warnings == ()
            if trace:
                assert {"load", "wait", "store"} <= set(made.stages)
                assert len(re.findall("st.global.cs.v2", code(made.ptx))) >= 8


def test_the_pipelined_gemm_says_what_it_needs() -> None:
    workload = load_workload("gemm")
    candidate = workload.candidate("pipelined", workload.space("pipelined").configs()[0])
    with pytest.raises(CompileError, match=r"pipelined needs|unsupported: the pipelined variant needs"):
        build(candidate_request(workload, candidate, (7, 5)))
    build(candidate_request(workload, candidate, (8, 0)))
