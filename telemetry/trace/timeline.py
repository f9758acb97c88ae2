"""A decoded trace: columns of slices, marks and values on a common time axis.

Times are nanoseconds from the first traced warp's begin, float64. All columns are NumPy arrays of one length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class RawTrace:
    """What came back from the GPU, undecoded; what recordings keep.

    `headers` [rows] (`layout.HEADER`), `records` [rows, capacity] (`layout.RECORD`; only the first
    min(count, capacity) of a row mean anything), `anchors` [n] (`layout.ANCHOR`; may be empty) from a
    calibration kernel before and after. `stages`: name of id i + 1. `meta`: see `Timeline.meta`.
    """

    headers: NDArray[Any]
    records: NDArray[Any]
    anchors: NDArray[Any]
    stages: tuple[str, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Warps:
    """The traced warps, one entry a row, sorted by CTA and warp."""

    cta: NDArray[np.int32]
    warp: NDArray[np.int32]
    sm: NDArray[np.int32]
    start_ns: NDArray[np.float64]
    end_ns: NDArray[np.float64]
    events: NDArray[np.int64]  # recorded ones
    dropped: NDArray[np.int64]  # attempted beyond the capacity
    closed: NDArray[np.bool_]  # False: the warp never reached its end marker


@dataclass(frozen=True)
class Slices:
    """Ranges. `row` indexes `Warps`, `stage` names; sorted by row, then start, then depth.

    `kind`: 0 nested range, 1 token range, 2 async stage (from its issue to its completion; `row` is the
    issuer's, `end_row` the completer's). `depth`: nesting depth of a nested range from 0. `flags`: 1 its
    own end is missing, and the end given here is where nothing more is known (see `decode`).
    """

    row: NDArray[np.int32]
    stage: NDArray[np.int16]
    start_ns: NDArray[np.float64]
    end_ns: NDArray[np.float64]
    depth: NDArray[np.int16]
    payload: NDArray[np.int32]
    kind: NDArray[np.uint8]
    flags: NDArray[np.uint8]
    end_row: NDArray[np.int32]


@dataclass(frozen=True)
class Marks:
    """Instants. `value` is NaN for a plain mark; `payload` its loop index."""

    row: NDArray[np.int32]
    stage: NDArray[np.int16]
    time_ns: NDArray[np.float64]
    payload: NDArray[np.int32]
    value: NDArray[np.float64]


@dataclass(frozen=True)
class Mispaired:
    """A begin or end without its partner, located."""

    cta: int
    warp: int
    stage: str
    time_ns: float
    problem: str  # "end without begin", "begin without end", "ends LOAD inside WAIT", …

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class Clock:
    """How cycles became nanoseconds.

    `method`: "fit" (one rate, an offset an SM), "fit, piecewise" (the clock's rate changed: a curve for all
    SMs that share a clock, where readings show which do) or "per warp" (too few readings for that: each warp
    by its own two), with `reason`. Every time is within ±`uncertainty_ns` of one true axis: two events whose
    times differ by more than twice that happened in that order, wherever they ran; `median_ns` is the
    half-width that half of the launch keeps within (0: not known, or the same). Within an SM, times differ by
    whole cycles exactly ("fit"). `ghz` is the mean rate.
    """

    method: str
    ghz: float
    tick_ns: float
    uncertainty_ns: float
    anchors: int
    reason: str = ""
    median_ns: float = 0.0


@dataclass(frozen=True)
class Timeline:
    """A decoded trace of one launch.

    `meta` has, as far as known: workload, variant, config, case, params, kernel, grid, block, device
    (`DeviceInfo.to_json()`), date, command, capacity, ctas {traced, of}, resources {traced, untraced},
    overhead {untraced_ms, traced_ms, ratio, ci [lo, hi], recording}, instance (which launch). The overhead's
    `recording` holds the same of a launch in which every CTA recorded, where only some did.
    """

    stages: tuple[str, ...]
    warps: Warps
    slices: Slices
    marks: Marks
    mispaired: tuple[Mispaired, ...]  # the first 100
    mispaired_count: int
    clock: Clock
    meta: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # what else to know: warps that never ended, clocks out of order

    @property
    def events(self) -> int:
        """Recorded events of all warps (a value counts once)."""
        return int(self.warps.events.sum())

    @property
    def dropped(self) -> int:
        """Events that found no room."""
        return int(self.warps.dropped.sum())

    @property
    def span_ns(self) -> float:
        """From the first warp's begin to the last one's end."""
        return float(self.warps.end_ns.max()) if self.warps.end_ns.size else 0.0
