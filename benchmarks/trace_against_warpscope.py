"""Our markers beside warpscope's on the same CUDA C++ kernels, in the same run; prints Markdown.

    python benchmarks/trace_against_warpscope.py

warpscope (PyPI, MIT) writes FlashInfer's record with FlashInfer's fences. The bundled kernels are compiled
three times: without markers, with ours, and with our markers' macros mapped to warpscope's calls, one group a
warp, every warp of every CTA recording in both. Times are paired (untraced against each), the L2 is cold.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import warpscope  # pyright: ignore[reportMissingImports] (a rival, installed for this alone)
from trace_bed import Bed, markdown, percent
from trace_cost import attempt, candidates

from warpdeck.core.errors import WarpdeckError
from warpdeck.core.model import Candidate, Case
from warpdeck.core.stats import paired_speedup
from warpdeck.core.toolchain import Compiled, default_pool
from warpdeck.core.toolchain.compiled import CompileRequest
from warpdeck.core.toolchain.requests import candidate_request
from warpdeck.core.tracing import decoded
from warpdeck.core.worker.buffers import Parameter
from warpdeck.core.worker.gpu import Operation
from warpdeck.core.workload import Workload
from warpdeck.kernels import load_workload
from warpdeck.kernels.recordings import open_device

SIZES = {"gemm": 1024, "softmax": 4096, "reduction": 4096}
BLOCKS = 64

# Our markers in terms of warpscope's calls. It numbers lanes by blockIdx.x alone: set for all of a grid.
SHIM = r"""
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
%s
#define WD_STAGES(...) struct wd_stages { enum Id : unsigned { wd_none, __VA_ARGS__, wd_end }; };
#define WD_TRACE_PARAM , unsigned long long wd_trace
#define WD_STATE_PARAM , ws::Profiler<true> &wd_state
#define WD_STATE_ARG , wd_state
#define WD_TRACE_BEGIN()                                                                            \
    ws::Profiler<true> wd_state;                                                                    \
    {                                                                                               \
        const unsigned groups = (blockDim.x * blockDim.y * blockDim.z + 31) / 32;                   \
        const unsigned ctas = gridDim.x * gridDim.y * gridDim.z;                                    \
        const unsigned cta = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);        \
        const unsigned lane = cta * groups + threadIdx.x / 32, stride = ctas * groups;              \
        wd_state.init((uint64_t *)wd_trace, stride, threadIdx.x / 32, groups, ctas,                 \
                      threadIdx.x %% 32 == 0, WS_RECORDS);                                           \
        wd_state.tag_base = lane << 12;                                                             \
        wd_state.cursor = 1u + lane;                                                                \
        wd_state.cap = 1u + lane + (WS_RECORDS - 1u) * stride;                                      \
    }
#define WD_TRACE_END() ((void)0)
#define WD_FIRST(name, ...) wd_stages::name
#define WD_PUSH(...) wd_state.start(ws::Ev{WD_FIRST(__VA_ARGS__, 0)})
#define WD_POP(name) wd_state.end(ws::Ev{wd_stages::name})
#define WD_MARK(...) wd_state.inst(ws::Ev{WD_FIRST(__VA_ARGS__, 0)})
#define WD_ISSUE(name, flow) wd_state.inst(ws::Ev{wd_stages::name})
#define WD_DONE(name, flow) wd_state.inst(ws::Ev{wd_stages::name})
#define WD_PIN(...)
"""


@dataclass
class Built:
    """One kernel on one case, in three builds."""

    workload: Workload
    candidate: Candidate
    case: Case
    codes: dict[str, Compiled]  # plain, ours, theirs
    records: int  # a lane of warpscope's buffer has room for


def warpscope_header() -> str:
    """Its device header, without the include that NVRTC can't have."""
    spec = importlib.util.find_spec("warpscope")
    assert spec is not None and spec.origin is not None
    text = (Path(spec.origin).parent / "include" / "warpscope.cuh").read_text(encoding="utf-8")
    return re.sub(r"^#(pragma once|include <cstdint>)$", "", text, flags=re.MULTILINE)


def chosen() -> list[tuple[Workload, Candidate, Case]]:
    """A fast configuration of every bundled CUDA C++ variant that has our markers."""
    found = []
    device: Any = open_device("cuda:0")
    try:
        for name, size in SIZES.items():
            workload = load_workload(name)
            case = workload.size_case(size)
            marked = {
                space_name: space
                for space_name, space in workload.spaces.items()
                if workload.variants[space.variant].language == "cuda"
                and "warpdeck/trace.cuh" in workload.variants[space.variant].source()
            }
            if not marked:
                continue
            workload = dataclasses.replace(workload, spaces=marked)
            backend = device.prepare(workload, space=next(iter(marked)), cases=[case], seed=1)
            found += [(workload, candidate, case) for candidate in candidates(workload, backend, case)]
            backend.close()
    finally:
        device.close()
    return found


def build(workload: Workload, candidate: Candidate, case: Case, cc: tuple[int, int], records: int) -> Built:
    """Compile the three, for `records` records a lane of warpscope's."""
    source = workload.variants[candidate.variant].source()
    theirs = (SHIM % warpscope_header()) + re.sub(r"#include <warpdeck/trace.cuh>", "", source)
    plain = candidate_request(workload, candidate, cc)
    requests = {
        "plain": plain,
        "ours": candidate_request(workload, candidate, cc, trace=True),
        "theirs": CompileRequest(
            "cuda",
            f"{plain.file} with warpscope",
            plain.entries,
            cc,
            parameters=(*plain.parameters, ("uint64", -1)),
            knobs=plain.knobs,
            reg_cap=plain.reg_cap,
            options=(f"-DWS_RECORDS={records}u",),
            text=theirs,
        ),
    }
    futures = {name: default_pool().submit_request(request) for name, request in requests.items()}
    return Built(workload, candidate, case, {name: f.result() for name, f in futures.items()}, records)


class Subject:
    """The three builds on one set of buffers."""

    def __init__(self, bed: Bed, built: Built) -> None:
        self._bed, self.built = bed, built
        workload, case = built.workload, built.case
        shapes, scalars = workload.shapes(case), workload.scalars(case)
        self.arguments: list[Parameter] = []
        self.pointers: dict[str, int] = {}
        rng = np.random.default_rng(0)
        for a in workload.arguments:
            if a.kind == "scalar":
                self.arguments.append(
                    Parameter(a.name, a.kind, a.dtype, value=scalars[a.name], language=a.language)
                )
                continue
            array = np.zeros(shapes[a.name], a.dtype)
            if a.is_input:
                array[...] = rng.standard_normal(shapes[a.name])
            self.arguments.append(
                Parameter(a.name, a.kind, a.dtype, a.direction, shapes[a.name], array.nbytes)
            )
            self.pointers[a.name] = bed.upload(array)
        self.launch = workload.launches(built.candidate, case)[0]
        self.ctas = int(np.prod(self.launch.grid))
        self.warps = -(-int(np.prod(self.launch.block)) // 32)
        for name, code in built.codes.items():
            bed.load(self.key(name), code)

    def key(self, name: str) -> str:
        """Of a loaded module."""
        built = self.built
        return f"{built.workload.name} {built.candidate.id} {name} {built.records}"

    def operation(self, name: str, descriptor: Sequence[int] = (), memory: int | None = None) -> Operation:
        """A launch of one build."""
        code, arguments = self.built.codes[name], list(self.arguments)
        if memory is not None:
            arguments.append(Parameter("memory", "scalar", "uint64", value=memory))
        return self._bed.launch(
            self.key(name),
            code.entries[self.launch.entry],
            self.launch.grid,
            self.launch.block,
            arguments,
            self.pointers,
            shared=self.launch.shared,
            trace=descriptor,
        )

    def before(self) -> list[Operation]:
        """What a launch needs first: zeroed workspaces."""
        return [
            self._bed.fill(self.pointers[a.name], a.nbytes) for a in self.arguments if a.kind == "workspace"
        ]

    def outputs(self, operation: Operation) -> list[np.ndarray]:
        """What a launch computes."""
        outs = [a for a in self.arguments if a.direction == "out" and a.kind == "buffer"]
        poison = [self._bed.fill(self.pointers[a.name], a.nbytes, 0xFF) for a in outs]
        self._bed.lane.untimed([*poison, *self.before(), operation])
        return [self._bed.download(self.pointers[a.name], a.shape, a.dtype) for a in outs]

    def free(self) -> None:
        """Give the buffers back."""
        for pointer in self.pointers.values():
            self._bed.free(pointer)


def compare(bed: Bed, workload: Workload, candidate: Candidate, case: Case) -> list[list[Any]]:
    """Two rows of the table: ours and theirs."""
    # A first trace tells how many events a warp has; ours and theirs then get the same room.
    first = Subject(bed, build(workload, candidate, case, bed.cc, 1))
    counted = first_trace(bed, first, 0)
    first.free()
    most = int(counted.headers["count"].max())
    subject = Subject(bed, build(workload, candidate, case, bed.cc, most))
    slots = 1 + subject.ctas * subject.warps * most
    memory = bed.upload(np.zeros(slots, np.uint64))
    tracer = bed.tracer(subject.ctas, subject.warps, most)
    plain, before = subject.operation("plain"), subject.before()
    sides = {
        "ours": (subject.operation("ours", tracer.descriptor), [tracer.clear()], tracer.rows.nbytes),
        "theirs": (subject.operation("theirs", memory=memory), [bed.fill(memory, 8 * slots)], 8 * slots),
    }
    right = subject.outputs(plain)
    rows = []
    for name, (traced, cleared, nbytes) in sides.items():
        bed.lane.untimed(cleared)
        for got, expected in zip(subject.outputs(traced), right, strict=True):
            if not np.allclose(got, expected, rtol=1e-4, atol=1e-6):
                raise WarpdeckError(f"{workload.name} {candidate.variant}, {name}: the outputs are wrong")
        kept, lost = events(bed, subject, name, most, memory, slots)
        slow, fast = bed.pair([*before, traced], [*before, plain], BLOCKS)
        cost = paired_speedup(slow, fast)
        resources = subject.built.codes[name].with_launches([subject.launch]).resources
        rows.append(
            [
                f"{workload.name} {candidate.variant} {case.name}",
                "warpdeck" if name == "ours" else f"warpscope {version()}",
                f"{np.median(fast) * 1e3:.2f} µs",
                percent(cost.ratio),
                f"{percent(cost.lo)} to {percent(cost.hi)}",
                f"{kept / subject.ctas / subject.warps:.1f}",
                f"{kept:,}",
                f"{nbytes / max(kept, 1):.1f}",
                lost,
                f"{resources.registers} ({resources.spill_bytes} B spilled)",
            ]
        )
    tracer.free()
    bed.free(memory)
    subject.free()
    return rows


def first_trace(bed: Bed, subject: Subject, capacity: int) -> Any:
    """Our trace of every warp."""
    code = subject.built.codes["ours"]
    return bed.trace(
        lambda descriptor: subject.operation("ours", descriptor),
        subject.ctas,
        subject.warps,
        capacity,
        code.stages,
        before=subject.before(),
    )


def events(bed: Bed, subject: Subject, name: str, most: int, memory: int, slots: int) -> tuple[int, str]:
    """How many events a full trace kept, and what a buffer of half the size says of those it lost."""
    if name == "ours":
        full, half = (decoded(first_trace(bed, subject, n)) for n in (most, most // 2))
        return full.events, f"{half.dropped:,} told"
    kept = recorded(bed, memory, slots)
    built = subject.built
    smaller = Subject(bed, build(built.workload, built.candidate, built.case, bed.cc, max(most // 2, 1)))
    bed.lane.untimed([bed.fill(memory, 8 * slots)])
    smaller.outputs(smaller.operation("theirs", memory=memory))
    found = recorded(bed, memory, slots)
    smaller.free()
    return kept, f"{kept - found:,}, none told"


def recorded(bed: Bed, memory: int, slots: int) -> int:
    """Records in warpscope's buffer, and that its own decoder finds their ranges."""
    buffer = bed.download(memory, (slots,), "uint64")
    found = int(np.count_nonzero(buffer[1:]))
    if slots <= 1 << 20:  # its decoder takes a second for a million
        trace = warpscope.decode(buffer)
        if 2 * len(trace.spans) + len(trace.instants) > found or not trace.spans:
            raise WarpdeckError("warpscope's decoder doesn't find the ranges in its buffer")
    return found


def version() -> str:
    """Of the installed warpscope."""
    return importlib.metadata.version("warpscope")


COLUMNS = (
    *("kernel", "tool", "untraced", "overhead", "interval", "events a warp", "events"),
    *("bytes an event", "lost in half the room", "registers"),
)


def main(arguments: Sequence[str] | None = None) -> None:
    argparse.ArgumentParser(description="our markers beside warpscope's").parse_args(arguments)
    subjects = chosen()
    with Bed() as bed:
        print(f"# Tracing beside warpscope on {bed.info['name']}, every warp of every CTA\n")
        for subject in subjects:
            attempt(lambda subject=subject: markdown(COLUMNS, compare(bed, *subject)))


if __name__ == "__main__":
    main()
