"""What limits a launch, in words that carry their evidence.

Every rule reads counters, and says nothing where one of them is missing: no claim without evidence. The
thresholds are the constants below; where NVIDIA's guide names one (60% and 80% of a peak) it is that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import hotspots, roofline
from .counters import Counters
from .metrics import ISSUED, PIPE, SETS, label

BUSY_PCT = 60.0  # of a peak: from here on a unit is what limits
NEAR_PCT = 80.0  # of a peak: little is left to gain from this unit
ISSUE_PCT = 50.0  # of issue slots: below, schedulers are mostly idle
PIPE_SHARE = 0.95  # of the busiest part of computing: below, something else than this pipe is that
STALL_SHARE = 0.15  # of all stalls: smaller reasons are not worth a sentence
STALLS_TOLD = 3
OCCUPANCY_PCT = 50.0  # of the most warps: below, latency is hard to hide
OCCUPANCY_GAP = 0.80  # achieved over theoretical: below, warps are missing while blocks run
CONFLICT_PCT = 10.0  # of the passes through shared memory
EFFICIENCY_PCT = 80.0  # bytes used of a sector
SECTORS = 1.5  # of a request: below, its threads share one
WASTED_PCT = 10.0  # of global memory's sectors: below, uncoalesced access hardly matters, and is told last
LOCAL_PCT = 1.0  # of L1 sectors: below, spills hardly matter, and are told last
TAIL_SHARE = 0.10  # of SM time lost in the last, incomplete wave
SM_ACTIVE_PCT = 80.0  # of cycles
THREADS = 24.0  # of 32 in an instruction


@dataclass(frozen=True)
class Diagnosis:
    """One sentence. `evidence`: the values it rests on, by quantity or place. `weight`: 0..100, for order."""

    kind: str
    text: str
    evidence: Mapping[str, float | str] = field(default_factory=dict)
    weight: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """An entry of `diagnosis`."""
        return {"kind": self.kind, "text": self.text, "evidence": dict(self.evidence)}


def diagnose(counters: Counters) -> list[Diagnosis]:
    """What the counters say, most important first; the last entry tells what was not collected."""
    said = [sentence for rule in _RULES for sentence in rule(counters)]
    said.sort(key=lambda sentence: -sentence.weight)  # stable: equal weights in the rules' order
    return [*said, *_lacking(counters)]


def _values(counters: Counters, *names: str) -> dict[str, float] | None:
    """These quantities; None if one is missing."""
    found = {name: value for name in names if (value := counters.value(name)) is not None}
    return found if len(found) == len(names) else None


def _pct(value: float) -> str:
    return f"{value:.0f}%" if value >= 1 or value == 0 else "under 1%"


def _many(value: float) -> str:
    """A count in at most four digits: 115.7 M."""
    for size, letter in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _bound(counters: Counters) -> Iterator[Diagnosis]:
    """Which side is near its peak: memory, computing, or neither (latency)."""
    memory = {name: value for name, _ in _PARTS if (value := counters.value(name)) is not None}
    whole = counters.value("memory_throughput_pct")
    compute = counters.value("sm_throughput_pct")
    if not memory:
        return
    top = max(*memory.values(), whole or 0.0)
    evidence: dict[str, float | str] = dict(memory)
    evidence.update({} if whole is None else {"memory_throughput_pct": whole})
    evidence.update({} if compute is None else {"sm_throughput_pct": compute})
    if top >= BUSY_PCT and (compute is None or top >= compute):
        busy = [(words, memory[name]) for name, words in _PARTS if memory.get(name, 0.0) >= BUSY_PCT]
        said = " and ".join(f"{words} at {_pct(value)}" for words, value in busy)
        # Without the other side's figure only a unit near its peak shows what limits.
        verdict = "memory bound" if compute is not None or top >= NEAR_PCT else "memory is busy"
        text = f"{verdict}: {said or f'the memory system at {_pct(top)}'} of peak"
        hit = counters.value("l2_hit_rate")
        if hit is not None and any(words in ("DRAM", "L2") for words, _ in busy):
            text += f", L2 hit {_pct(hit)}"
            evidence["l2_hit_rate"] = hit
        if compute is not None and compute >= BUSY_PCT:
            text += f"; computing is at {_pct(compute)} too"
        yield Diagnosis(verdict.replace(" ", "_"), text, evidence, 100.0)
    elif compute is not None and compute >= BUSY_PCT:
        text = f"compute bound: {_computing(counters, compute, evidence)}, memory at {_pct(top)}"
        yield Diagnosis("compute_bound", text, evidence, 100.0)
    elif compute is not None and whole is not None:
        text = f"latency bound: neither computing ({_pct(compute)} of peak) nor memory ({_pct(top)}) is busy"
        yield Diagnosis("latency_bound", text, evidence, 100.0)


def _computing(counters: Counters, compute: float, evidence: dict[str, float | str]) -> str:
    """What of computing is busy, where that was read: one pipe, or issuing instructions to all of them."""
    pipes = {m[1]: value.value for n, value in counters.metrics.items() if (m := PIPE.fullmatch(n))}
    if not pipes:
        return f"the SMs at {_pct(compute)} of peak"
    pipe = max(pipes, key=lambda name: pipes[name])
    words, busy, issued = _PIPES.get(pipe, pipe), pipes[pipe], counters.value(ISSUED)
    evidence[f"pipe {pipe}"] = busy
    if busy >= PIPE_SHARE * compute:
        return f"the {words} pipe at {_pct(busy)} of peak"
    text = f"the SMs at {_pct(compute)} of peak"
    if issued is not None and issued >= PIPE_SHARE * compute:
        text = f"issuing instructions at {_pct(issued)} of peak"
        evidence[ISSUED] = issued
    return f"{text} (the busiest pipe, {words}, at {_pct(busy)})"


_PIPES = {
    "alu": "integer and logic (ALU)",
    "fma": "float32 (FMA)",
    "fp64": "float64 (FP64)",
    "fp16": "half-precision (FP16)",
    "lsu": "load and store (LSU)",
    "tensor": "tensor-core",
    "xu": "special-function (XU)",
}

# Memory's parts, outermost first, and their names in a sentence.
_PARTS = (
    ("dram_bw_pct", "DRAM"),
    ("l2_throughput_pct", "L2"),
    ("l1_throughput_pct", "L1 and shared memory"),
)


def _stalls(counters: Counters) -> Iterator[Diagnosis]:
    """Why warps wait and where; silent where the schedulers issue almost always anyway."""
    issue = counters.value("issue_active_pct")
    if issue is not None and issue >= NEAR_PCT:
        return
    # A warp that was ready while another one issued is no fault.
    waiting = [stall for stall in hotspots.stalls(counters) if stall.reason != "not_selected"]
    for stall in waiting[:STALLS_TOLD]:
        if stall.share < STALL_SHARE:
            return
        words = f" ({stall.words})" if stall.words else ""
        name = stall.reason.replace("_", " ")
        evidence: dict[str, float | str] = {stall.counter: stall.value, "share": round(stall.share, 4)}
        text = f"{_pct(100 * stall.share)} of stalls are {name}{words}"
        if (found := hotspots.where(counters, stall.reason)) is not None:
            line, part = found
            text += f" at {line.place}" if part > 0.995 else f", {_pct(100 * part)} of them at {line.place}"
            evidence[line.place] = line.stalls[stall.reason]
        yield Diagnosis("stall", text, evidence, 30.0 + 60.0 * stall.share)


# Limit -> (what limits, how much of it is used, the words after that number)
_LIMITS = {
    "limit_registers": ("registers", "registers", " a thread"),
    "limit_shared": ("shared memory", "shared_bytes", "B a block"),
    "limit_warps": ("the block size", "block_size", " threads"),
    "limit_blocks": ("the number of blocks an SM holds", "", ""),
    "limit_barriers": ("barriers", "", ""),
}


def _occupancy(counters: Counters) -> Iterator[Diagnosis]:
    """Achieved against theoretical occupancy, and what limits the latter."""
    known = _values(counters, "achieved_occupancy", "theoretical_occupancy")
    if known is None or known["theoretical_occupancy"] <= 0:
        return
    achieved, possible = known["achieved_occupancy"], known["theoretical_occupancy"]
    waves = counters.value("waves")
    # With less than a wave the blocks are few, and no resource of the SM is what lacks.
    gap = achieved / possible < OCCUPANCY_GAP and (waves is None or waves >= 1.0)
    if possible >= 99.5 and not gap:
        return
    evidence: dict[str, float | str] = dict(known)
    text = f"occupancy {_pct(achieved)}, at most {_pct(possible)}"
    limits = {name: value for name in _LIMITS if (value := counters.value(name)) is not None}
    if waves is not None and 0 < waves <= 1.0 - TAIL_SHARE:
        text += f", which {waves:.2f} waves of blocks don't fill"
        evidence["waves"] = waves
    elif possible < 99.5 and limits:
        least = min(limits.values())
        reasons = []
        for name in (name for name, value in limits.items() if value == least):
            words, quantity, each = _LIMITS[name]
            evidence[name] = least
            reasons.append(words)
            if quantity and (used := counters.value(quantity)) is not None:
                reasons[-1] += f" ({_many(used)}{each})"
                evidence[quantity] = used
        text += f", limited by {' and '.join(reasons)}"
    if gap:
        text += "; warps are missing while blocks run: they end at different times or start late"
    yield Diagnosis("occupancy", text, evidence, 55.0 if achieved < OCCUPANCY_PCT else 25.0)


def _blocks(counters: Counters) -> Iterator[Diagnosis]:
    """Too few blocks for the GPU, or a last wave that leaves most of it idle."""
    known = _values(counters, "grid_size", "sm_count")
    waves = counters.value("waves")
    if known is not None and 0 < known["grid_size"] < known["sm_count"]:
        idle = 1.0 - known["grid_size"] / known["sm_count"]
        text = (
            f"too few blocks: {known['grid_size']:.0f} for {known['sm_count']:.0f} SMs, "
            f"{_pct(100 * idle)} of them stay idle"
        )
        yield Diagnosis("few_blocks", text, known, 40.0 + 55.0 * idle)
    elif waves is not None and waves > 0:
        lost = 1.0 - waves / math.ceil(waves)
        if waves < 1.0 and lost >= TAIL_SHARE:
            text = f"few blocks: they fill {_pct(100 * waves)} of what the SMs can hold at once"
            yield Diagnosis("few_blocks", text, {"waves": waves}, 20.0 + 30.0 * lost)
        elif waves > 1.0 and lost >= TAIL_SHARE:
            text = (
                f"tail effect: {waves:.2f} waves of blocks; the last, incomplete one may leave SMs idle for "
                f"up to {_pct(100 * lost)} of the time"
            )
            yield Diagnosis("tail", text, {"waves": waves}, 15.0 + 60.0 * lost)


def _idle_sms(counters: Counters) -> Iterator[Diagnosis]:
    active = counters.value("sm_active_pct")
    if active is not None and active < SM_ACTIVE_PCT:
        text = f"SMs have no warp in {_pct(100 - active)} of the cycles: blocks are few, short or uneven"
        yield Diagnosis("idle_sms", text, {"sm_active_pct": active}, 30.0 + 0.5 * (SM_ACTIVE_PCT - active))


def _spills(counters: Counters) -> Iterator[Diagnosis]:
    """Local memory: spilled registers, or arrays that are indexed at run time."""
    known = _values(counters, "local_load_sectors", "local_store_sectors")
    if known is None or sum(known.values()) <= 0:
        return
    evidence: dict[str, float | str] = dict(known)
    text = f"spills: {_many(32 * sum(known.values()))}B of local memory moved"
    weight = 35.0
    if (part := counters.value("local_sector_pct")) is not None:
        text += f", {_pct(part)} of the traffic at L1"
        evidence["local_sector_pct"] = part
        weight = 40.0 + 0.5 * part if part >= LOCAL_PCT else 10.0
    text += " (registers over the cap, or arrays indexed at run time)"
    local = [line for line in hotspots.by_line(counters) if line.place and _touches_local(line)]
    if local:
        text += f", first at {local[0].place}"
        evidence[local[0].place] = local[0].samples
    yield Diagnosis("spills", text, evidence, weight)


def _touches_local(line: hotspots.Line) -> bool:
    return any(opcode.startswith(("LDL", "STL")) for s in line.spots for opcode in s.sass.split())


def _conflicts(counters: Counters) -> Iterator[Diagnosis]:
    """Passes through shared memory that only bank conflicts made necessary."""
    known = _values(counters, "shared_bank_conflicts")
    share = counters.value("bank_conflict_pct")
    if known is None or share is None or share < CONFLICT_PCT:
        return
    evidence = {**known, "bank_conflict_pct": share}
    text = f"bank conflicts: {_pct(share)} of the passes through shared memory are repeats"
    if (passes := counters.value("shared_wavefronts")) is not None:
        text += f" ({_many(known['shared_bank_conflicts'])} of {_many(passes)})"
        evidence["shared_wavefronts"] = passes
    yield Diagnosis("bank_conflicts", text, evidence, 30.0 + 0.6 * share)


def _coalescing(counters: Counters) -> Iterator[Diagnosis]:
    """Sectors of which little is used; told last where they are few among all, as far as that is known."""
    sectors = _values(counters, *_GLOBAL_SECTORS.values())
    for what, counter in _GLOBAL_SECTORS.items():
        used = counters.value(f"global_{what}_efficiency")
        requests = counters.value(f"global_{what}_sectors_per_request")
        # One sector a request: few threads, or all at one address. There is nothing to bring together.
        if used is None or used >= EFFICIENCY_PCT or (requests is not None and requests < SECTORS):
            continue
        evidence = {f"global_{what}_efficiency": used}
        text = f"uncoalesced global {what}s: {_pct(used)} of the bytes in their sectors are used"
        if requests is not None:
            text += f", {requests:.1f} sectors a request"
            evidence[f"global_{what}_sectors_per_request"] = requests
        wasted = 100.0 - used
        if sectors is not None and (whole := sum(sectors.values())) > 0:
            text += f"; {_pct(100 * sectors[counter] / whole)} of the sectors of global memory are theirs"
            evidence.update(sectors)
            wasted *= sectors[counter] / whole
        yield Diagnosis("uncoalesced", text, evidence, 30.0 + 0.6 * wasted if wasted >= WASTED_PCT else 10.0)


_GLOBAL_SECTORS = {
    "load": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "store": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
}


def _issue(counters: Counters) -> Iterator[Diagnosis]:
    """Schedulers that are mostly idle."""
    known = _values(counters, "issue_active_pct")
    if known is None or known["issue_active_pct"] >= ISSUE_PCT:
        return
    text = f"low issue rate: schedulers issue in {_pct(known['issue_active_pct'])} of the cycles"
    if (ready := counters.value("eligible_warps")) is not None:
        text += f", with {ready:.2f} warps ready on average"
        known["eligible_warps"] = ready
    yield Diagnosis("low_issue", text, known, 20.0 + 0.3 * (ISSUE_PCT - known["issue_active_pct"]))


def _divergence(counters: Counters) -> Iterator[Diagnosis]:
    threads = counters.value("active_threads_per_inst")
    if threads is not None and 0 < threads < THREADS:
        text = f"divergence: {threads:.1f} of 32 threads take part in an instruction"
        yield Diagnosis(
            "divergence", text, {"active_threads_per_inst": threads}, 20.0 + 1.5 * (32.0 - threads)
        )


def _tensor(counters: Counters) -> Iterator[Diagnosis]:
    active = roofline.tensor_cores(counters)
    if active is not None:
        text = f"tensor cores work in {_pct(active)} of the cycles"
        yield Diagnosis("tensor", text, {"tensor_active_pct": active}, 12.0)


def _roof(counters: Counters) -> Iterator[Diagnosis]:
    at = roofline.point(counters)
    if (
        at is None
        or at.of_roof is None
        or at.intensity is None
        or at.roof is None
        or "tensor_operations" in at.missing
    ):
        return
    assert at.kind is not None and at.flops_per_s is not None and at.bytes_per_s is not None
    text = (
        f"roofline: {at.intensity:.3g} flop/byte lies under the {at.roof} roof; "
        f"{_many(at.flops_per_s)}flop/s of {at.kind} are {_pct(100 * at.of_roof)} of what it allows"
    )
    evidence: dict[str, float | str] = {
        "intensity": at.intensity,
        "flops_per_s": at.flops_per_s,
        "bytes_per_s": at.bytes_per_s,
        "of_roof": at.of_roof,
        "peaks": at.peaks_from,
    }
    yield Diagnosis("roofline", text, evidence, 14.0)


_RULES: tuple[Callable[[Counters], Iterator[Diagnosis]], ...] = (
    _bound,
    _blocks,
    _idle_sms,
    _stalls,
    _conflicts,
    _coalescing,
    _spills,
    _occupancy,
    _issue,
    _divergence,
    _roof,
    _tensor,
)

# What a question needs: (question, quantities of which one must be there, the set that has them).
_QUESTIONS = (
    ("which unit limits", ("sm_throughput_pct",), "roofline"),
    ("why warps wait", ("stall_long_scoreboard",), "stalls"),
    (
        "coalescing, bank conflicts and spills",
        ("global_load_sectors_per_request", "bank_conflict_pct"),
        "memory",
    ),
)


def _lacking(counters: Counters) -> Iterator[Diagnosis]:
    """The questions that these counters can't answer, and the set to collect for them."""
    open_questions = []
    evidence: dict[str, float | str] = {}
    for question, names, collect in _QUESTIONS:
        stalls_known = collect == "stalls" and bool(hotspots.stalls(counters))
        # A set that was collected has its answer, or the reason why there is none.
        asked = counters.meta.get("set") in (collect, "full")
        if stalls_known or asked or any(counters.value(name) is not None for name in names):
            continue
        open_questions.append(f"{question} (metric set {collect})")
        evidence.update({name: counters.missing.get(name, "not collected") for name in names})
    for name in SETS["seed"].quantities[1:5]:
        if name in counters.missing:
            open_questions.append(f"{label(name)} ({counters.missing[name]})")
            evidence[name] = counters.missing[name]
    if open_questions:
        yield Diagnosis(
            "not_collected", f"not known from these counters: {', '.join(open_questions)}", evidence
        )
