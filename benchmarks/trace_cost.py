"""What tracing costs and how well its times hold, on a live GPU; prints Markdown.

    python benchmarks/trace_cost.py [--sizes large] [--keep FOLDER]

Goals: an event takes at most 30 cycles of its warp, with 1 warp and with 4 on every SM; coarse stages (ten
ranges a warp or fewer) slow a kernel by at most 0.5%, gemm's inner loop by at most 2%, each against the
untraced kernel in one run; between SMs no effect lies before its cause by more than the printed uncertainty,
which is at most 5 ns; durations agree with globaltimer within its step; buffers that are too small cost
events, not faults.
"""

from __future__ import annotations

import argparse
import math
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from trace_bed import MARKS, Bed, markdown, percent

from warpdeck.core.devices import open_recorded
from warpdeck.core.errors import WarpdeckError
from warpdeck.core.model import Candidate, Case, Protocol, Status
from warpdeck.core.toolchain import default_pool
from warpdeck.core.toolchain.compiled import Compiled, CompileRequest
from warpdeck.core.tracing import TraceOptions, decoded
from warpdeck.core.worker.buffers import Parameter
from warpdeck.core.worker.gpu import Operation
from warpdeck.core.workload import Workload
from warpdeck.kernels import load_workload
from warpdeck.kernels.recordings import open_device, recording_files
from warpdeck.telemetry.trace import layout
from warpdeck.telemetry.trace.store import save
from warpdeck.telemetry.trace.timeline import RawTrace, Timeline

SIZES = {"gemm": (1024, 2048), "reduction": (1024, 8192), "softmax": (1024, 8192)}
COARSE = 10  # ranges a warp
SMALL = (0, 1, 7)  # capacities
MEASURED = 16  # configurations of a variant that isn't recorded
HANDSHAKES = 100_000


# -- the bundled kernels ---------------------------------------------------------------------------------


def candidates(workload: Workload, backend: Any, case: Case) -> list[Candidate]:
    """A fast configuration of every variant: the best recorded one, else the best of some measured now."""
    found: dict[str, Candidate] = {}
    for space in workload.spaces.values():
        if space.variant in found or workload.variant(space.variant).ladder is not None:
            continue  # ladders have no markers
        valid = [workload.candidate(space.name, config) for config in space.configs(case.params)]
        try:
            recorded = open_recorded("recorded:h200", recording_files())
            source: Any = recorded.prepare(workload, space=space.name, cases=[case], seed=1)
        except WarpdeckError:  # nothing of this space or size is recorded
            source = backend
            some = np.random.default_rng(0).permutation(len(valid))[:MEASURED]
            first = [] if space.baseline is None else [workload.baseline(space.name)]
            valid = [*first, *(valid[i] for i in some)]
        every = source.evaluate_many(valid, [case], Protocol(warmup=3, samples=10, min_samples=10))
        good = [e for e in every if e.status is Status.OK]
        if good:
            found[space.variant] = min(good, key=lambda e: e.score_ms or math.inf).candidate
    return list(found.values())


def bundled(which: str) -> None:
    """Slowdown of every bundled variant, and what happens in buffers that are too small."""
    device: Any = open_device("cuda:0")
    try:
        print(f"# Tracing on {device.info.name}\n")
        report(measured(device, which))
    finally:
        device.close()


Tables = tuple[list[list[str]], list[list[str]], list[list[str]], list[str]]


def measured(device: Any, which: str) -> Tables:
    """Rows about slowdowns, resources and small buffers; what failed."""
    slowdowns, resources, small, problems = [], [], [], []
    for name, sizes in SIZES.items():
        workload = load_workload(name)
        wanted = {"all": sizes, "small": sizes[:1], "large": sizes[-1:]}[which]
        cases = [workload.size_case(n) for n in wanted]
        backend = device.prepare(workload, space=next(iter(workload.spaces)), cases=cases, seed=1)
        for case in cases:
            for candidate in candidates(workload, backend, case):
                what = f"{name} {candidate.variant} {case.name}"
                print(what, file=sys.stderr)
                try:
                    exact = backend.trace(candidate, case, TraceOptions())
                    whole = backend.trace(candidate, case, TraceOptions(split=False)).meta
                    if case is cases[0]:  # at a second size these would tell nothing new
                        small.append([what, *(too_small(backend, candidate, case, n) for n in SMALL)])
                except WarpdeckError as error:
                    problems.append(f"{what}: {error}")
                    continue
                slowdowns.append(slowdown(what, exact.meta, whole, decoded(exact)))
                print(" ".join(slowdowns[-1]), file=sys.stderr)  # all there is if it is stopped early
                resources.append(used(what, exact.meta))
        backend.close()
    return slowdowns, resources, small, problems


def report(tables: Tables) -> None:
    """Print them."""
    slowdowns, resources, small, problems = tables
    print("## Slowdown against the untraced kernel, paired in one run, L2 cold\n")
    print("Goal: +0.5% where a warp has up to 10 ranges, else +2%; 95% intervals.\n")
    markdown(
        [
            *("kernel", "untraced", "16 CTAs record", "interval", "markers in every CTA", "all record"),
            *("ranges a warp", "goal"),
        ],
        slowdowns,
    )
    print("## What tracing takes from the kernel\n")
    markdown(["kernel", "registers", "occupancy", "spilled bytes", "code bytes"], resources)
    print("## Buffers that are too small: dropped events, told and true\n")
    markdown(["kernel", *(f"room for {n}" for n in SMALL)], small)
    for problem in problems:
        print(f"FAILED {problem}\n")


def slowdown(what: str, meta: Any, whole: Any, timeline: Timeline) -> list[str]:
    """A row of the table. `whole`: of a trace in which the other CTAs run the markers too."""
    cost = meta["overhead"]
    recording = cost.get("recording")
    ranges = len(timeline.slices.row) / len(timeline.warps.cta)
    events = timeline.events / len(timeline.warps.cta)
    limit = 1.005 if ranges <= COARSE else 1.02
    verdict = f"{(limit - 1) * 100:g}%: " + ("met" if cost["ratio"] <= limit else "missed")
    if timeline.mispaired_count or timeline.dropped:
        verdict += f", {timeline.mispaired_count} mispaired, {timeline.dropped} dropped"
    return [
        what,
        f"{cost['untraced_ms'] * 1e3:.2f} µs",
        percent(cost["ratio"]),
        " to ".join(percent(x) for x in cost["ci"]),
        percent(whole["overhead"]["ratio"]),
        percent(recording["ratio"]) if recording else "–",
        f"{ranges:.1f} ({events:.0f} events)",
        verdict,
    ]


def used(what: str, meta: Any) -> list[str]:
    """A row of the table."""
    before, after = meta["resources"]["untraced"], meta["resources"]["traced"]

    def change(key: str, form: str = "{}") -> str:
        return " → ".join(form.format(x[key]) if x[key] is not None else "–" for x in (before, after))

    cells = [change("registers"), change("occupancy", "{:.0%}"), change("spill_bytes"), change("code_bytes")]
    return [what, *cells]


def too_small(backend: Any, candidate: Candidate, case: Case, capacity: int) -> str:
    """Trace with little room. The backend looks at the outputs and at every byte around the records."""
    raw = backend.trace(candidate, case, TraceOptions(capacity=capacity, overhead=False))
    attempted = raw.headers["count"].astype(np.int64)
    told, true = decoded(raw).dropped, int(np.maximum(attempted - capacity, 0).sum())
    return f"{told:,} of {attempted.sum():,}" + ("" if told == true else f", not {true:,}")


# -- kernels of our own ----------------------------------------------------------------------------------


def compiled(cc: tuple[int, int], language: str, entry: str, events: int, work: int) -> Compiled:
    """The kernels in benchmarks/workloads/marks, with markers compiled in."""
    file = MARKS / ("kernel.cu" if language == "cuda" else "kernel.py")
    return (
        default_pool()
        .submit_request(
            CompileRequest(
                language,
                str(file.resolve()),
                (entry,),
                cc,
                parameters=(("float32", 1), ("float32", -1), ("int32", -1)),
                knobs={"EVENTS": events, "WORK": work},
                trace=True,
            )
        )
        .result()
    )


def arguments(length: int, number: float, rounds: int) -> list[Parameter]:
    """(out, a, rounds) of every kernel there."""
    return [
        Parameter("out", "buffer", "float32", "out", (length,), 4 * length),
        Parameter("a", "scalar", "float32", value=number),
        Parameter("rounds", "scalar", "int32", value=rounds),
    ]


def launcher(
    bed: Bed,
    code: Compiled,
    where: tuple[int, int],
    taken: list[Parameter],
    out: int,
    *,
    shared: int = 0,
) -> Callable[[Sequence[int]], Operation]:
    """Makes the launch of a module's one kernel, of (CTAs, warps), from a trace's descriptor."""
    ((entry, symbol),) = code.entries.items()
    bed.load(entry + code.code_hash, code)

    def make(descriptor: Sequence[int]) -> Operation:
        return bed.launch(
            entry + code.code_hash,
            symbol,
            (where[0], 1, 1),
            (32 * where[1], 1, 1),
            taken,
            {"out": out},
            language=code.language,
            shared=shared,
            trace=descriptor,
        )

    return make


def event_cost(bed: Bed, rounds: int = 128, repeats: int = 5) -> None:
    """Cycles an event takes of its warp: a loop of 16 events, less the same loop without them."""
    rows = []
    for language, work in (("cuda", 0), ("cuda", 8), ("numba", 0)):
        for ctas, warps in ((1, 1), (int(bed.info["sm_count"]), 4)):
            threads = ctas * warps * 32
            out = bed.upload(np.zeros(threads, np.float32))
            cycles: list[float] = []
            for events in (0, 1):
                code = compiled(bed.cc, language, "ticks", events, work)
                launch = launcher(bed, code, (ctas, warps), arguments(threads, 1.0, rounds), out)
                expected, taken = 16 * rounds * events, []
                for _ in range(repeats):
                    head = bed.trace(launch, ctas, warps, 16 * rounds, code.stages).headers
                    if len(head) != ctas * warps or (head["count"] != expected).any():
                        raise WarpdeckError(f"{language}: not every warp counted {expected} events")
                    taken.append(float(np.median(head["clock_end"] - head["clock_begin"])))
                cycles.append(float(np.median(taken)))
            bed.free(out)
            each = (cycles[1] - cycles[0]) / (16 * rounds)
            rows.append(
                [
                    "CUDA C++" if language == "cuda" else "Numba",
                    f"after {work} dependent multiply-adds" if work else "back to back",
                    f"{ctas} × {warps}",
                    f"{each:.1f}",
                    "met" if each <= 30 else "missed",
                ]
            )
    print("## One event, in cycles of its warp (goal: 30)\n")
    markdown(["language", "events", "CTAs × warps", "cycles", "goal"], rows)


def durations(bed: Bed, keep: Path | None, rounds: int = 64, warps: int = 4) -> None:
    """Stages that wait for a given time, against what globaltimer said."""
    sms, code = int(bed.info["sm_count"]), compiled(bed.cc, "cuda", "waits", 1, 0)
    out = bed.upload(np.zeros(sms, np.float32))
    launch = launcher(bed, code, (sms, warps), arguments(sms, 200.0, rounds), out)
    timeline = decoded(kept(bed.trace(launch, sms, warps, 6 * rounds, code.stages), keep, "durations"))
    bed.free(out)
    lasted, inner, outer = waited(timeline)
    # A stage is no shorter than what the timer read inside of it less a step, no longer than outside and one.
    beyond, step = np.maximum(inner - lasted, lasted - outer), timeline.clock.tick_ns
    rate = np.polyfit(inner, lasted, 1)[0]
    print("## Durations against globaltimer\n")
    markdown(
        ["stages", "lasting", "step", "beyond both readings", "99%", "largest", "goal: the step", "rate"],
        [
            [
                f"{len(lasted):,}",
                f"{inner.min():.0f} to {inner.max():.0f} ns",
                f"{step:g} ns",
                f"{(beyond > 0).mean():.1%}",
                f"{np.quantile(beyond, 0.99):.1f} ns",
                f"{beyond.max():.1f} ns",
                "met" if beyond.max() <= step else "missed",
                f"1 {rate - 1:+.1e}",
            ]
        ],
    )


def waited(timeline: Timeline) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How long each stage lasted by the trace, by globaltimer read inside of it and read outside, ns."""
    slices, marks = timeline.slices, timeline.marks
    by_start = np.lexsort((slices.start_ns, slices.row))
    lasted = (slices.end_ns - slices.start_ns)[by_start]
    said = []
    for name in ("inner", "outer"):
        mine = np.flatnonzero(marks.stage == list(timeline.stages).index(name))
        said.append(marks.value[mine][np.lexsort((marks.time_ns[mine], marks.row[mine]))])
        if len(said[-1]) != len(lasted) or timeline.mispaired_count or timeline.dropped:
            raise WarpdeckError(
                f"{len(lasted)} stages, {len(said[-1])} values, {timeline.mispaired_count} mispaired"
            )
    return lasted, said[0], said[1]


def handshakes(bed: Bed, keep: Path | None) -> None:
    """Flags between SMs: no effect before its cause, and how far the two directions differ."""
    sms, code = int(bed.info["sm_count"]) // 2 * 2, compiled(bed.cc, "cuda", "handshakes", 1, 0)
    strides = [s for s in (1, 5, 7, 13, 17, 25) if math.gcd(s, sms) == 1]
    rounds = -(-HANDSHAKES // (len(strides) * sms)) + 1
    flags = bed.upload(np.zeros(32 * sms, np.float32))
    rows, total = [], 0
    for stride in strides:
        taken = arguments(32 * sms, float(stride), rounds)
        # A CTA an SM, with room for what reads the clocks beside it.
        launch = launcher(bed, code, (sms, 1), taken, flags, shared=int(bed.info["max_shared_bytes"]) - 2048)
        cleared = [bed.fill(flags, 128 * sms)]
        raw = bed.trace(launch, sms, 1, 2 * rounds, code.stages, before=cleared, warmups=1)
        closed = raw.headers["magic"] == layout.MAGIC_CLOSED
        if not closed.all() or len(np.unique(raw.headers["sm"])) != sms:
            raise WarpdeckError(f"stride {stride}: the CTAs didn't all run side by side on SMs of their own")
        timeline = decoded(kept(raw, keep, f"handshakes-{stride}"))
        gap = between(timeline, stride, sms, 2 * rounds)
        total += gap.size
        apart = np.abs(gap[:, 0::2].min(axis=1) - gap[:, 1::2].min(axis=1)) / 2
        allowed = timeline.clock.uncertainty_ns
        rows.append(
            [
                stride,
                f"{gap.size:,}",
                f"{gap.min():.1f} ns",
                int((gap < -allowed).sum()),
                f"{np.median(apart):.1f} ns",
                f"{apart.max():.1f} ns",
                f"±{allowed:.2f} ns",
                f"{timeline.clock.method} of {timeline.clock.anchors:,} readings {timeline.clock.reason}",
            ]
        )
    bed.free(flags)
    print(f"## {total:,} flag handshakes between SMs\n")
    print(
        "From cause to effect; below zero an effect would come before its cause. Half the difference of the"
    )
    print("fastest flag each way bounds how far a pair of SMs is apart, if the ways are equally long.\n")
    half = "half difference"
    markdown(
        ["pairing", "flags", "shortest", "violations", half, "largest", "printed uncertainty", "clock"], rows
    )


def between(timeline: Timeline, stride: int, sms: int, turns: int) -> np.ndarray:
    """From each cause to its effect, ns: [pair, turn]."""
    marks, names = timeline.marks, list(timeline.stages)
    place = timeline.warps.cta[marks.row].astype(np.int64) * stride % sms
    found = np.full((2, sms // 2, turns), np.nan)
    for which, name in enumerate(("cause", "effect")):
        mine = marks.stage == names.index(name)
        found[which, place[mine] // 2, marks.payload[mine] - 1] = marks.time_ns[mine]
    gap = found[1] - found[0]
    if np.isnan(gap).any():
        raise WarpdeckError("a handshake has no cause or no effect")
    return gap


def main() -> None:
    parser = argparse.ArgumentParser(description="cost and precision of tracing")
    parser.add_argument("--sizes", choices=("all", "small", "large"), default="all", help="of the workloads")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep the raw traces that times are judged by"
    )
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    with Bed() as bed:
        for part in (
            event_cost,
            lambda bed: durations(bed, options.keep),
            lambda bed: handshakes(bed, options.keep),
        ):
            attempt(lambda part=part: part(bed))
    attempt(lambda: bundled(options.sizes))


def kept(raw: RawTrace, folder: Path | None, name: str) -> RawTrace:
    """The same, saved if that is asked for, so that a later decoder can judge it."""
    if folder is not None:
        save(raw, folder / f"{name}.wdtrace")
    return raw


def attempt(part: Callable[[], None]) -> None:
    """Run a part; the others still tell what they can if it fails."""
    try:
        part()
    except Exception:  # noqa: BLE001
        print(f"FAILED\n\n```\n{traceback.format_exc()}```\n", flush=True)


if __name__ == "__main__":
    main()
