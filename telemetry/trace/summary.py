"""A timeline summed up: where the warps' time goes, stage by stage, and which waits are the longest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .timeline import Slices, Timeline

_WAITS = ("wait", "sync", "barrier", "stall")


@dataclass(frozen=True)
class Stage:
    """Ranges of one name. `total_ns` and percentiles are inclusive: what is nested in them counts too.

    Percentiles leave out ranges without their own end, whose length isn't known, if there are others.
    `self_ns`: without what is nested in these ranges. `share`: of `self_ns` in all traced warps' lifetimes,
    so that the shares of nested stages add up. `imbalance_*`: the largest total over the mean one, among
    the warps (CTAs) that run the stage; 1 is even.
    """

    name: str
    count: int
    total_ns: float
    self_ns: float
    p50_ns: float
    p95_ns: float
    share: float
    imbalance_warps: float
    imbalance_ctas: float


@dataclass(frozen=True)
class Range:
    """One range. `start_ns` is from the first warp's begin."""

    stage: str
    cta: int
    warp: int
    start_ns: float
    duration_ns: float
    payload: int


@dataclass(frozen=True)
class Instant:
    """Marks of one name; `mean` and its neighbours are of those with a value, None if there are none."""

    name: str
    count: int
    values: int
    minimum: float | None
    mean: float | None
    maximum: float | None


@dataclass(frozen=True)
class Summary:
    """What `trace` prints. Stages in the order of their ids, those without a range left out."""

    events: int
    dropped: int
    mispaired: int
    uncertainty_ns: float
    method: str
    span_ns: float
    warps: int
    ctas: int
    stages: tuple[Stage, ...]
    longest: tuple[Range, ...]
    marks: tuple[Instant, ...]
    overhead: Any
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON form: the keys of `trace --json` that come from the timeline."""
        return {**asdict(self), "notes": list(self.notes)}


def summarise(timeline: Timeline, *, longest: int = 10) -> Summary:
    """Sum up. `longest` waits are those in stages named like one (wait, sync, barrier), else in any stage; of
    ranges with their own end, if there are any."""
    notes = timeline.notes
    if timeline.clock.reason:
        notes = (timeline.clock.reason, *notes)
    return Summary(
        timeline.events,
        timeline.dropped,
        timeline.mispaired_count,
        timeline.clock.uncertainty_ns,
        timeline.clock.method,
        timeline.span_ns,
        int(timeline.warps.cta.size),
        int(np.unique(timeline.warps.cta).size),
        tuple(_stages(timeline)),
        tuple(_longest(timeline, longest)),
        tuple(_instants(timeline)),
        timeline.meta.get("overhead"),
        notes,
    )


def table(summary: Summary) -> list[tuple[str, ...]]:
    """Rows of text: a head, then a row a stage. Times in the unit that the head says."""
    longest = max((s.p95_ns for s in summary.stages), default=0.0)
    unit, scale = ("ms", 1e6) if longest >= 1e6 else ("µs", 1e3) if longest >= 1e4 else ("ns", 1.0)
    digits = 0 if unit == "ns" else 2
    head = ("stage", "count", f"p50 {unit}", f"p95 {unit}", "total µs", "self µs", "share", "warps", "CTAs")
    rows = [
        (
            s.name,
            f"{s.count}",
            f"{s.p50_ns / scale:.{digits}f}",
            f"{s.p95_ns / scale:.{digits}f}",
            f"{s.total_ns / 1e3:.1f}",
            f"{s.self_ns / 1e3:.1f}",
            f"{s.share:.1%}",
            f"{s.imbalance_warps:.2f}×",
            f"{s.imbalance_ctas:.2f}×",
        )
        for s in summary.stages
    ]
    return [head, *rows]


def _by_stage(stage: NDArray[np.int16], stages: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """(stage, its positions) for each that occurs."""
    order = np.argsort(stage.astype(np.uint16), kind="stable")
    stops = np.cumsum(np.bincount(stage, minlength=stages))
    for i, stop in enumerate(stops.tolist()):
        first = int(stops[i - 1]) if i else 0
        if stop > first:
            yield i, order[first:stop]


def _stages(timeline: Timeline) -> Iterator[Stage]:
    slices, warps = timeline.slices, timeline.warps
    duration = slices.end_ns - slices.start_ns
    own = duration - _nested(slices, duration)
    lifetime = float((warps.end_ns - warps.start_ns).sum())
    _, cta_of = np.unique(warps.cta, return_inverse=True)
    for i, at in _by_stage(slices.stage, len(timeline.stages)):
        mine, row = duration[at], slices.row[at]
        alone = float(own[at].sum())
        p50, p95 = np.percentile(mine[_ended(slices, at)], (50, 95))
        yield Stage(
            timeline.stages[i],
            at.size,
            float(mine.sum()),
            alone,
            float(p50),
            float(p95),
            alone / lifetime if lifetime > 0 else 0.0,
            _imbalance(mine, row),
            _imbalance(mine, cta_of[row]),
        )


def _ended(slices: Slices, at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of these ranges have their own end; all, if none has."""
    ended = slices.flags[at] & 1 == 0
    return ended if ended.any() else ~ended


def _nested(slices: Slices, duration: NDArray[np.float64]) -> NDArray[np.float64]:
    """What the ranges directly within each nested range last together, ns."""
    inside = np.zeros(duration.size)
    nested = slices.kind == 0
    outer = np.flatnonzero(nested & (slices.depth == 0))
    for level in range(1, int(slices.depth[nested].max(initial=0)) + 1):
        inner = np.flatnonzero(nested & (slices.depth == level))
        if not outer.size:
            break
        # Sorted by warp and start: a range's parent is the last one before it a level further out.
        parent = outer[np.searchsorted(outer, inner) - 1]
        whole = (parent < inner) & (slices.row[parent] == slices.row[inner])
        np.add.at(inside, parent[whole], duration[inner[whole]])
        outer = inner
    return inside


def _imbalance(duration: NDArray[np.float64], group: NDArray[Any]) -> float:
    totals = np.bincount(group, weights=duration)[np.bincount(group) > 0]
    mean = float(totals.mean())
    return float(totals.max()) / mean if mean > 0 else 1.0


def _longest(timeline: Timeline, count: int) -> Iterator[Range]:
    slices, warps = timeline.slices, timeline.warps
    waits = np.array([any(w in s.lower() for w in _WAITS) for s in timeline.stages], bool)
    at = np.flatnonzero(waits[slices.stage]) if waits.any() else np.arange(slices.stage.size)
    if not at.size:
        at = np.arange(slices.stage.size)
    at = at[_ended(slices, at)]
    duration = (slices.end_ns - slices.start_ns)[at]
    if at.size > count:
        top = np.argpartition(-duration, count)[:count]
        at, duration = at[top], duration[top]
    for i in np.lexsort((at, -duration))[:count]:
        row, position = int(slices.row[at[i]]), at[i]
        yield Range(
            timeline.stages[slices.stage[position]],
            int(warps.cta[row]),
            int(warps.warp[row]),
            float(slices.start_ns[position]),
            float(duration[i]),
            int(slices.payload[position]),
        )


def _instants(timeline: Timeline) -> Iterator[Instant]:
    marks = timeline.marks
    for i, at in _by_stage(marks.stage, len(timeline.stages)):
        value = marks.value[at]
        value = value[np.isfinite(value)]
        if value.size:
            statistics = float(value.min()), float(value.mean()), float(value.max())
        else:
            statistics = None, None, None
        yield Instant(timeline.stages[i], at.size, value.size, *statistics)
