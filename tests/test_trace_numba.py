"""Traced Numba kernels: what their records' assembly does, and what they compile to."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import numpy as np
import ptx_emulator as ptx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba.cuda", reason="needs the cuda extra")
pytest.importorskip("cuda.bindings.nvjitlink", reason="needs the cuda extra")

from warpdeck.core.model import Candidate
from warpdeck.core.toolchain import CompileError, CompilePool, CompileRequest, sources
from warpdeck.core.toolchain.build import build
from warpdeck.core.toolchain.cache import CompileCache
from warpdeck.core.toolchain.requests import candidate_request
from warpdeck.kernels import load_workload
from warpdeck.telemetry.trace import layout, numba_device

IMPORT = "from warpdeck.kernels.stages import mark, pin, stage, value\n"

# -- the assembly, executed -------------------------------------------------------------------------


SHAPES = st.tuples(st.integers(1, 40), st.integers(1, 6), st.integers(1, 4))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_thread_finds_its_row_and_writes_only_there(data):
    block = data.draw(SHAPES, "block")
    grid = data.draw(SHAPES, "grid")
    thread = tuple(data.draw(st.integers(0, n - 1)) for n in block)
    cta = tuple(data.draw(st.integers(0, n - 1)) for n in grid)
    linear = thread[0] + block[0] * (thread[1] + block[1] * thread[2])
    number = cta[0] + grid[0] * (cta[1] + grid[1] * cta[2])
    capacity, records = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 6))
    first, stride = data.draw(st.integers(0, 8)), 2 * data.draw(st.integers(0, 3)) + 1
    count, mask = data.draw(st.integers(0, 40)), data.draw(st.integers(0, 2**32 - 1))
    row_bytes = (layout.HEADER_BYTES + layout.RECORD_BYTES * capacity + 15) // 16 * 16
    memory = ptx.Memory(count * mask.bit_count() * row_bytes)
    described = np.zeros(1, layout.DESCRIPTOR)
    for name, value in {
        "rows": data.draw(st.sampled_from([memory.base, memory.base, memory.base, 0]), "rows"),
        "capacity": capacity,
        "row_bytes": row_bytes,
        "cta_first": first,
        "cta_inverse": layout.stride_inverse(stride),
        "cta_count": count,
        "warp_mask": mask,
    }.items():
        described[name] = value
    special = {"%clock64": 2**33, "%globaltimer": 2**60 + 5, "%smid": 77}
    special["%globaltimer_lo"] = timer = data.draw(st.integers(0, 2**32 - 1), "timer")
    for axis, name in enumerate("xyz"):
        special |= {f"%tid.{name}": thread[axis], f"%ntid.{name}": block[axis]}
        special |= {f"%ctaid.{name}": cta[axis], f"%nctaid.{name}": grid[axis]}

    words = described.view("<u8").tolist()
    following, left = ptx.run(numba_device._BEGIN, words, 2, special, memory)

    def write(text, word):
        nonlocal following, left
        room = int(0 < left < 2**31)
        ptx.run(text, [room, following, word], 0, special, memory)
        following, left = (following + 8) % 2**64, (left - 1) % 2**32

    for i in range(records):
        write(numba_device._RECORD, 1000 + i)
    ended = layout.word(layout.KIND_END, 9)
    write(numba_device._RECORD_END, ended)
    write(numba_device._RECORD, 2000)
    write(numba_device._RECORD_RAW, 0x3F800000)
    ptx.run(numba_device._FINISH, [words[1], following, left], 0, special, memory)

    index, warp = divmod(number - first, stride)[0], linear // 32
    chosen = words[0] and number >= first and (number - first) % stride == 0 and index < count
    if not chosen or not mask >> warp & 1 or linear % 32:
        assert not memory.written
        return
    row = index * mask.bit_count() + (mask & ((1 << warp) - 1)).bit_count()
    begin = memory.base + row * row_bytes
    assert all(begin <= at and at + size <= begin + row_bytes for at, size in memory.written)
    at = row * row_bytes
    header = np.frombuffer(memory.data, layout.HEADER, 1, at)[0]
    assert header["magic"] == layout.MAGIC_CLOSED
    assert (header["sm"], header["cta"], header["warp"]) == (77, number, warp)
    assert header["warps"] == -(-block[0] * block[1] * block[2] // 32)
    assert (header["time_begin"], header["time_end"]) == (2**60 + 5, 2**60 + 5)
    assert (header["gap_begin"], header["gap_end"]) == (10, 10)
    assert header["clock_begin"] == header["clock_end"] == 2**33 + 10
    assert header["count"] == records + 3
    kept = np.frombuffer(memory.data, layout.RECORD, capacity, at + layout.HEADER_BYTES)
    raw = layout.word(layout.KIND_EXTENDED, 0, layout.SUB_RAW << layout.SUB_SHIFT)
    expected = [*(1000 + i for i in range(records)), ended | timer >> 5 & 0xFFFFF, 2000, raw][:capacity]
    assert kept["word"][: len(expected)].tolist() == expected
    clocks = [*[10] * (records + 2), 0x3F800000][:capacity]  # 2**33 has no low bits
    assert kept["clock"][: len(expected)].tolist() == clocks


@given(st.data())
def test_the_inverse_of_a_stride_finds_the_traced_ctas(data):
    last = 2**32 - 1
    stride = 2 * data.draw(st.integers(0, 2**31 - 1) | st.integers(0, 50), "half the stride") + 1
    first = data.draw(st.integers(0, last) | st.integers(0, 50), "first")
    count = data.draw(st.integers(1, (last - first) // stride + 1), "count")
    traced = first + stride * data.draw(st.integers(0, count - 1), "i")
    inverse = layout.stride_inverse(stride)
    for cta in (traced, data.draw(st.integers(0, last), "any"), first + stride * count, first - 1):
        index = (cta - first) * inverse % 2**32
        inside = 0 <= cta - first < stride * count and (cta - first) % stride == 0
        if 0 <= cta <= last:
            assert (index < count) == inside and (not inside or index == (cta - first) // stride)


# -- compiled ---------------------------------------------------------------------------------------

ORDER = """
from numba import cuda, float32
from warpdeck.kernels.stages import pin, stage

def make():
    def k(x, n):
        a = x[cuda.threadIdx.x]
        for i in range(n):
            with stage("one", i):
                for _ in range(16):
                    a = a * float32(1.0001) + float32(0.5)
                PIN
            with stage("two", i):
                for _ in range(16):
                    a = a * float32(1.0002) + float32(0.25)
                PIN
        x[cuda.threadIdx.x] = a
    return k
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compiles a module's kernel `k(x: float32[:], n: int32)` in this process."""

    def compile_(text, trace=True, **more):
        file = tmp_path_factory.mktemp("kernel") / "kernel.py"
        file.write_text(text)
        parameters = (("float32", 1), ("int32", -1))
        return build(CompileRequest("numba", str(file), ("k",), (9, 0), parameters, trace=trace, **more))

    return compile_


def sass(cubin: bytes) -> list[str]:
    """A cubin's instructions, in order."""
    spec = importlib.util.find_spec("nvidia")
    places = list(spec.submodule_search_locations or []) if spec else []
    tool = next((p for place in places for p in Path(place).glob("*/bin/nvdisasm")), None)
    tool = tool or shutil.which("nvdisasm")
    if tool is None:
        pytest.skip("needs nvdisasm: pip install nvidia-cuda-nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([str(tool), "-c", file.name], capture_output=True, text=True, check=True).stdout
    return [m[1] for m in re.finditer(r"/\*[0-9a-f]{4,}\*/\s+([^;/]+?)\s*;", text)]


def clock_reads(code: list[str]) -> list[int]:
    return [i for i, line in enumerate(code) if "CS2R.32" in line and "SR_CLOCKLO" in line]


def test_pinned_arithmetic_stays_between_its_markers(compiled):
    code = sass(compiled(ORDER.replace("PIN", "a = pin(a)")).cubin)
    reads = clock_reads(code)
    between = [sum("FFMA" in line for line in code[i:j]) for i, j in pairwise(reads)]
    assert set(between) == {0, 16}


def test_without_a_pin_arithmetic_leaves_its_stage(compiled):
    code = sass(compiled(ORDER.replace("PIN", "pass")).cubin)
    between = [sum("FFMA" in line for line in code[i:j]) for i, j in pairwise(clock_reads(code))]
    assert not set(between) <= {0, 16}


def test_a_vector_is_pinned_part_by_part(compiled):
    text = dedent(
        """
        from numba import cuda, float32
        from warpdeck.kernels.stages import pin, stage
        def make():
            def k(x, n):
                a = cuda.float32x2(x[0], x[1])
                for i in range(n):
                    with stage("one", i):
                        for _ in range(16):
                            a = cuda.float32x2(a.x * float32(1.01) + float32(0.5), a.y * float32(1.02) + a.x)
                        PIN
                    with stage("two", i):
                        a = cuda.float32x2(a.x * float32(3), a.y * float32(5) + float32(7))
                x[0], x[1] = a.x, a.y
            return k
        """
    )
    pinned, free = (sass(compiled(text.replace("PIN", pin)).cubin) for pin in ("a = pin(a)", "pass"))
    between = [sum("FFMA" in line for line in pinned[i:j]) for i, j in pairwise(clock_reads(pinned))]
    assert 32 in between and len(pinned) <= len(free)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "int16", "complex64"])
def test_other_numbers_can_be_pinned(compiled, kind):
    """Half-precision arithmetic is CUDA C++ that Numba has compiled, and links untraced too."""
    text = dedent(
        f"""
        from numba import cuda, complex64, float32, int16
        from numba.cuda.bf16 import bfloat16
        from numba.cuda.types import float16
        {IMPORT}
        def make():
            def k(x, n):
                a = {kind}(x[0])
                mark("here")
                a = a + a
                a = pin(a)
                x[1] = abs(a) if n < 0 else x[2]
            return k
        """
    ).replace("abs(a)", "a.real" if kind == "complex64" else "float32(a)")
    for trace in (False, True, False):
        (info,) = compiled(text, trace).kernels.values()
        assert info.local_bytes == 0


@pytest.mark.parametrize(
    ("marker", "fewest", "most"),
    [
        ('mark("here", n)', 3, 5),  # a comparison; under its predicate the clock and the store
        ('stage("here", n)', 8, 13),  # a begin and an end, which reads the timer too
    ],
)
def test_an_event_takes_few_instructions(compiled, record_property, marker, fewest, most):
    def code(times: int) -> list[str]:
        loop = "        while n > 0:\n            n = int32(x[n])\n"  # no count known, so not unrolled
        one = f"with {marker}: cuda.syncwarp()" if "stage" in marker else f"{marker}; cuda.syncwarp()"
        head = f"from numba import cuda, int32\n{IMPORT}def make():\n    def k(x, n):\n"
        body = f"            {one}\n" * times
        return [
            line for line in sass(compiled(f"{head}{loop}{body}    return k\n").cubin) if "NOP" not in line
        ]

    few, many = code(1), code(21)
    each = (len(many) - len(few)) / 20  # a syncwarp takes none
    record_property("instructions", each)
    assert fewest <= each <= most
    inner = [line for line in many if re.search(r"CS2R\.32|STG\.E\.EF", line)]
    assert len(inner) >= 21 * 2
    assert all(re.match(r"@!?P\d ", line) for line in inner)  # so that other warps don't read the clock
    assert not any("BSYNC" in line for line in many[many.index(inner[0]) :])


def test_records_have_the_words_of_the_layout(compiled):
    text = dedent(
        """
        from numba import float32, uint32
        from warpdeck.kernels.stages import done, issue, mark, stage, start, stop, value
        def make():
            def k(x, n):
                with stage("a", 5):
                    mark("b", 6)
                start("c", 7)
                stop("c", 8)
                issue("d", 9)
                done("d", 1 << 17 | 10)
                value("e", x[0])
                value("e", n)
                value("e", uint32(n))
            return k
        """
    )
    made = compiled(text, ptx=True)
    assert made.stages == ("a", "b", "c", "d", "e")
    extended = [
        (3, layout.SUB_START, 7),
        (3, layout.SUB_STOP, 8),
        (4, layout.SUB_ISSUE, 9),
        (4, layout.SUB_DONE, 10),
    ]
    extended += [(5, sub, 0) for sub in (layout.SUB_VALUE_F32, layout.SUB_VALUE_I32, layout.SUB_VALUE_U32)]
    words = [
        layout.word(layout.KIND_BEGIN, 1, 5),
        layout.word(layout.KIND_MARK, 2, 6),
        layout.word(layout.KIND_END, 1),
        *(
            layout.word(layout.KIND_EXTENDED, name, sub << layout.SUB_SHIFT | number)
            for name, sub, number in extended
        ),
    ]
    registers = dict(re.findall(r"mov\.[bu]32\s+(%r\d+), (-?\d+);", made.ptx))
    stored = re.findall(r"(?:\{now, |lop3\.b32 time, time, \d+, )(%r\d+)", made.ptx)
    assert [int(registers[r]) % 2**32 for r in stored] == words


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('mark("a", 1.5)', "a stage's payload is a whole number, not float64"),
        ('value("a", x)', "value() records an integer or a float, not array"),
        ("x = pin(x)", "pin() takes numbers of 16, 32 or 64 bits and vectors of these, not array"),
    ],
)
def test_what_a_record_cant_hold_is_refused(compiled, body, message):

    with pytest.raises(CompileError) as error:
        compiled(f"{IMPORT}def make():\n    def k(x, n):\n        mark('b')\n        {body}\n    return k\n")
    assert message in str(error.value) and "kernel.py:5: k: " in str(error.value)


@pytest.mark.parametrize(
    ("decorator", "message"),
    [
        ("@cuda.jit(device=True)", "kernel.py:5: helper is a device function; markers belong in the kernel"),
        (
            "@cuda.jit",
            "kernel.py:9: k: it calls a function that has stage markers; they belong in the kernel",
        ),
    ],
)
def test_markers_in_what_a_kernel_calls_are_refused(compiled, decorator, message):
    text = f"""from numba import cuda
{IMPORT}{decorator}
def helper(x):
    mark("a")
def make():
    def k(x, n):
        mark("b")
        helper(x)
    return k
"""
    with pytest.raises(CompileError) as error:
        compiled(text)
    assert message in str(error.value)


def test_tracing_a_kernel_without_markers_says_how_to_add_them(compiled):

    with pytest.raises(
        CompileError, match=r"nothing to trace: k has no stage markers; import them with `from"
    ):
        compiled("def make():\n    def k(x, n):\n        x[0] = 1\n    return k\n")


def test_markers_in_another_module_are_refused(tmp_path):

    (tmp_path / "more.py").write_text(f"{IMPORT}def k(x):\n    mark('a')\n")
    (tmp_path / "kernel.py").write_text("from more import k\n")
    request = CompileRequest("numba", str(tmp_path / "kernel.py"), ("k",), (9, 0), (("float32", 1),))
    with pytest.raises(
        CompileError, match=r"more\.py: stage markers belong in the kernel's own module, kernel\.py"
    ):
        build(request, sources.source_files(request))


def test_off_the_cubin_is_that_of_the_source_without_markers(tmp_path, monkeypatch):
    """Byte for byte, line information and all: in a fresh process each, at the same path and lines."""

    marked = ORDER.replace("PIN", "a = pin(a)")
    lines = marked.splitlines()
    unmarked, shift = [], 0
    for line in lines:
        if "with stage" in line:
            shift = 4
            unmarked.append("")
        elif "pin" in line:
            unmarked.append("")
        else:
            shift = shift if line.startswith(" " * 16) else 0
            unmarked.append(line[shift:])
    file = tmp_path / "kernel.py"
    found = []
    for number, text in enumerate((marked, "\n".join(unmarked))):
        file.write_text(text.ljust(len(marked), "\n"))  # line information has the file's size and time, too
        os.utime(file, (1e9, 1e9))
        monkeypatch.setattr(sources, "_scans", {})  # which goes by size and time
        with CompilePool(1, cache=CompileCache(tmp_path / str(number))) as pool:
            request = CompileRequest("numba", str(file), ("k",), (9, 0), (("float32", 1), ("int32", -1)))
            found.append(pool.submit_request(request).result())
    assert "stage" not in file.read_text()
    assert found[0].cubin == found[1].cubin
    assert found[0].code_hash == found[1].code_hash and not found[0].stages


# Each variant's best configuration at its largest recorded size.
BEST = {
    ("gemm", "classic"): {"block_size": 256, "reg_cap": 0},
    ("gemm", "tiled"): {
        "tile_m": 64,
        "tile_n": 128,
        "tile_k": 8,
        "thread_m": 8,
        "thread_n": 16,
        "vector": 4,
        "pad": 4,
        "buffers": 1,
        "unroll": 8,
        "reg_cap": 0,
    },
    ("reduction", "classic"): {"block_size": 256, "reg_cap": 0},
    ("reduction", "vector"): {
        "block_size": 512,
        "blocks": 528,
        "vector": 4,
        "unroll": 8,
        "streaming": 1,
        "finish": "atomic",
        "reg_cap": 32,
    },
    ("softmax", "classic"): {"block_size": 128, "reg_cap": 64},
    ("softmax", "cached"): {
        "row_threads": 256,
        "rows": 1,
        "vector": 2,
        "cached": 16,
        "streaming": 0,
        "fastmath": 1,
        "reg_cap": 64,
    },
}


@pytest.mark.parametrize(("name", "variant"), BEST)
def test_tracing_the_bundled_kernels_spills_nothing(name, variant):

    workload = load_workload(name)
    candidate = Candidate(variant, BEST[name, variant], "")
    plain, traced = (
        build(candidate_request(workload, candidate, (9, 0), trace=trace)) for trace in (False, True)
    )
    before, after = (next(iter(made.kernels.values())) for made in (plain, traced))
    assert after.parameters == (*before.parameters, 8, 8, 8, 8)
    assert after.spill_bytes <= before.spill_bytes and after.local_bytes <= before.local_bytes
    assert set(traced.stages) <= {"load", "wait", "compute", "reduce", "store"}
    assert {"load", "wait", "store"} <= set(traced.stages) and not plain.stages


def test_the_pool_keeps_a_traced_kernels_stages(tmp_path):

    workload = load_workload("reduction")
    case = workload.cases[0]
    with CompilePool(1, cache=CompileCache(tmp_path)) as pool:

        def submit(reg_cap, trace):
            candidate = Candidate("classic", {"block_size": 64, "reg_cap": reg_cap}, "")
            return pool.submit(workload, candidate, case, trace=trace).result()

        first, second, third = submit(0, True), submit(64, True), submit(0, True)
        plain = submit(0, False)
    assert first.stages == second.stages == third.stages == ("load", "wait", "reduce", "store")
    assert third.cached and third.cubin == first.cubin
    assert not plain.cached and not plain.stages and plain.cubin != first.cubin
