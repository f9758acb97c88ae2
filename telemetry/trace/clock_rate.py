"""Cycles to nanoseconds: one rate for the launch and one offset an SM, with a bound on what may be wrong.

A reading of both clocks says: somewhere between cycle `clock` and `clock + gap` the true time was at least
`time` and less than `time + tick`. Each is an upper and a lower bound on its SM's offset at a given rate; the
rates at which all bounds of all SMs can hold are an interval, and so are, over these rates, the offsets. The
middle is taken, half the widest interval is the uncertainty. No rate that satisfies all: the clock changed.

Where most readings took the same shortest gap, the timer was read at one and the same place within it (three
instructions in a row); that place shifts all SMs alike, so it cancels, and only what a gap has beyond the
shortest is a slack. Where gaps vary throughout, all of a gap is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .conversion import Conversion
from .readings import NOMINAL
from .timeline import Clock

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_SLOWEST, _FASTEST = 0.1, 20.0  # GHz; no SM runs outside
DIP = 0.06  # of the rate; a busy GPU's clock slows down by up to so much for some microseconds
_UNSEEN = 0.1  # of the timer's step: a dip that cost no more may not contradict one rate
_WIDE = 3.0  # an interval of rates from its least to this many times that says too little
_NONE = (1.0, 0.0)  # an empty interval
_ROUNDING = 1e-3  # ns; float64 on differences below 2^53


@dataclass(frozen=True)
class _Readings:
    """Anchors sorted by SM; `first` are the SMs' first ones, `times` relative to the first of all.

    `lower` and `upper` are the cycles, from the SM's pivot, of the bounds time ≤ t and t < time + tick.
    """

    times: Floats
    lower: Floats
    upper: Floats
    first: Ints
    tick: float

    def edges(self, rate: float) -> tuple[Floats, Floats, Floats, Floats]:
        """[SMs] lowest and highest offset at a rate (ns a cycle), and the cycles that set them."""
        low, high = self.times - rate * self.lower, self.times + self.tick - rate * self.upper
        lowest, highest = np.maximum.reduceat(low, self.first), np.minimum.reduceat(high, self.first)
        each = np.diff(self.first, append=low.size)
        at_low = np.where(low == np.repeat(lowest, each), self.lower, np.inf)
        at_high = np.where(high == np.repeat(highest, each), self.upper, np.inf)
        return (
            lowest,
            highest,
            np.minimum.reduceat(at_low, self.first),
            np.minimum.reduceat(at_high, self.first),
        )

    def rates(self) -> tuple[float, float]:
        """The interval of feasible rates, ns a cycle; first > second if there are none.

        The room between an SM's bounds is a minimum of lines over the rate: from outside, Newton's steps are
        each a line's zero, hence a bound, and they end at the interval's edge.
        """
        slow, fast = 1 / _FASTEST, 1 / _SLOWEST
        for _ in range(200):
            lowest, highest, at_low, at_high = self.edges(fast)
            room, slope = highest - lowest, at_low - at_high
            short = room < -_ROUNDING
            if not short.any():
                break
            if (slope[short] >= 0).any():
                return _NONE  # a line that only a greater rate would satisfy
            fast = min(fast, float((fast - (room[short] + _ROUNDING / 2) / slope[short]).min()))
        if fast < slow:
            return _NONE
        for _ in range(200):
            lowest, highest, at_low, at_high = self.edges(slow)
            room, slope = highest - lowest, at_low - at_high
            short = room < -_ROUNDING
            if not short.any():
                break
            if (slope[short] <= 0).any():
                return _NONE
            slow = max(slow, float((slow - (room[short] + _ROUNDING / 2) / slope[short]).max()))
        return (slow, fast) if slow <= fast else _NONE

    def offsets(self, slow: float, middle: float, fast: float) -> tuple[Floats, Floats]:
        """[SMs] bounds on the offsets over all rates of an interval.

        The highest offset is a concave function of the rate, the lowest a convex one: no point lies beyond
        where the tangents of two others meet.
        """
        edges = [(rate, *self.edges(rate)) for rate in (slow, middle, fast)]
        lowest, highest = edges[0][1], edges[0][2]
        for (a, low_a, high_a, at_low_a, at_high_a), (b, low_b, high_b, at_low_b, at_high_b) in pairwise(
            edges
        ):
            highest = np.maximum(highest, _peak(a, b, high_a, high_b, -at_high_a, -at_high_b))
            lowest = np.minimum(lowest, -_peak(a, b, -low_a, -low_b, at_low_a, at_low_b))
        return lowest, highest


def _peak(a: float, b: float, ya: Floats, yb: Floats, ma: Floats, mb: Floats) -> Floats:
    """A bound on a concave function between a and b, from its values and slopes there."""
    ends = np.maximum(ya, yb)
    inside = (ma > 0) & (mb < 0)
    x = np.where(inside, (yb - ya + ma * a - mb * b) / np.where(inside, ma - mb, 1.0), a)
    return np.where(inside, np.maximum(ends, ya + ma * (np.clip(x, a, b) - a)), ends)


def one_rate(
    headers: NDArray[Any],
    own: NDArray[Any],
    anchors: NDArray[Any],
    last: Ints,
    tick: float,
    meta: Mapping[str, Any],
) -> Conversion | None:
    """One rate and an offset an SM; None if that can't be. `own`: the headers' readings."""
    for used, left_out in _choices(own, anchors):
        for slack in _slacks(used["gap"]):
            made = _fit(headers, used, last, tick, slack, left_out, meta)
            if made:
                return made
    return None


def _choices(own: NDArray[Any], anchors: NDArray[Any]) -> Iterator[tuple[NDArray[Any], str]]:
    """Which readings to try together: all; if they disagree, without the calibration after or before."""
    changed = "the clock changed between the launch and the calibration {} it, which is left out"
    if anchors.size:
        yield np.concatenate([anchors, own]), ""
        beside = (anchors["time"] > own["time"].min()) & (anchors["time"] <= own["time"].max())
        own, anchors = np.concatenate([anchors[beside], own]), anchors[~beside]
        before = anchors["time"] <= own["time"].min()
        if before.any() and not before.all():
            yield np.concatenate([anchors[before], own]), changed.format("after")
            yield np.concatenate([anchors[~before], own]), changed.format("before")
        yield own, changed.format("around" if before.any() and not before.all() else "beside")
    else:
        yield own, ""


def _slacks(gap: NDArray[Any]) -> list[float]:
    """What to take off the gaps: the shortest one if most readings have it (to 2 cycles); else nothing."""
    shortest = int(gap.min())
    regular = np.count_nonzero(gap <= shortest + 2) * 2 > gap.size
    return [float(shortest), 0.0] if regular and shortest else [0.0]


def _fit(
    headers: NDArray[Any],
    used: NDArray[Any],
    last: Ints,
    tick: float,
    slack: float,
    reason: str,
    meta: Mapping[str, Any],
) -> Conversion | None:
    """None if no rate fits."""
    used = used[np.argsort(used["sm"], kind="stable")]
    sms, first, sm_of = np.unique(used["sm"], return_index=True, return_inverse=True)
    epoch = used["time"].min()
    times = (used["time"] - epoch).astype(np.float64)
    pivot = _pivots(headers, used, times, first, sm_of, epoch)
    upper = _since(used["clock"], pivot[sm_of])
    readings = _Readings(times, upper + used["gap"] - slack, upper, first, tick)
    slow, fast = readings.rates()
    if slow > fast:
        return None
    rate = likely_rate(slow, fast, meta)
    lowest, highest = readings.offsets(slow, rate, fast)
    sm = np.searchsorted(sms, headers["sm"])
    cycles = _since(headers["clock_begin"], pivot[sm])
    start = (lowest[sm] + highest[sm]) / 2 + rate * cycles
    reach = float(np.maximum(np.abs(cycles), np.abs(cycles + last)).max())
    uncertainty = float((highest[sm] - lowest[sm]).max()) / 2 + max(fast - rate, rate - slow) * reach
    uncertainty = max(uncertainty, tick * _UNSEEN)
    clock = Clock("fit", 1 / rate, tick, uncertainty, int(used.size), reason)
    return Conversion(clock, np.full(start.shape, rate), start - start.min())


def _since(clock: NDArray[Any], pivot: NDArray[Any]) -> Floats:
    """Cycles from a pivot, exact although both are above 2^53."""
    return (clock - pivot).view(np.int64).astype(np.float64)


def _pivots(
    headers: NDArray[Any], used: NDArray[Any], times: Floats, first: Ints, sm_of: Ints, epoch: Any
) -> NDArray[np.uint64]:
    """[SMs] about the cycle that each SM counts at the middle of the trace: one instant for all.

    Offsets are looked for there: then a wrong rate shifts all SMs alike, not against each other.
    """
    last_of = np.append(first[1:], used.size) - 1
    earliest = np.minimum.reduceat(used["clock"], first)
    since = (used["clock"] - earliest[sm_of]).astype(np.float64)
    longest = np.maximum.reduceat(since, first)
    spans = np.maximum.reduceat(times, first) - np.minimum.reduceat(times, first)
    rate = float(spans.sum() / longest.sum()) if longest.sum() > 0 else 1.0
    rate = min(max(rate, 1 / _FASTEST), 1 / _SLOWEST)
    ends = np.maximum(headers["time_end"], headers["time_begin"])
    middle = (float(headers["time_begin"].min() - epoch) + float(ends.max() - epoch)) / 2
    ahead = np.rint((middle - times[last_of]) / rate).astype(np.int64)
    return used["clock"][last_of] + ahead.view(np.uint64)


def likely_rate(slow: float, fast: float, meta: Mapping[str, Any]) -> float:
    """The middle of the interval; if that says little, the device's own rate, or a usual one, if possible."""
    if fast <= slow * 1.02:
        return (slow + fast) / 2
    device = meta.get("device")
    mhz = device.get("sm_clock_max_mhz") if isinstance(device, Mapping) else None
    if isinstance(mhz, (int, float)) and mhz > 0 and slow <= 1000 / mhz <= fast:
        return 1000 / mhz
    return min(max(NOMINAL, slow), fast) if fast > slow * _WIDE else (slow + fast) / 2


def per_warp(
    headers: NDArray[Any],
    closed: NDArray[np.bool_],
    last: Ints,
    tick: float,
    anchors: int,
    meta: Mapping[str, Any],
) -> Conversion:
    """Each warp by its two own readings; no bound holds between them, so rates seen elsewhere set one."""
    epoch = headers["time_begin"].min()
    begin = (headers["time_begin"] - epoch).astype(np.float64)
    length = np.where(closed, (headers["clock_end"] - headers["clock_begin"]).astype(np.float64), 0.0)
    time = np.where(closed, (headers["time_end"] - headers["time_begin"]).astype(np.float64), 0.0)
    early, late = (
        headers["gap_begin"].astype(np.float64),
        np.where(closed, headers["gap_end"], 0).astype(float),
    )
    if length.sum() > 0 and time.sum() > 0:
        usual = min(max(float(time.sum() / length.sum()), 1 / _FASTEST), 1 / _SLOWEST)
    else:
        usual = likely_rate(1 / _FASTEST, 1 / _SLOWEST, meta)
    # The rate nearest to the usual one that both readings of a warp allow: a short warp's own quotient is
    # mostly the timer's step.
    slow = np.where(closed, (time - tick) / np.maximum(length + late, 1), 0)
    fast = np.where(closed, (time + tick) / np.maximum(length - early, 1), np.inf)
    scale = np.clip(np.clip(usual, slow, np.maximum(slow, fast)), 1 / _FASTEST, 1 / _SLOWEST)
    lowest = np.maximum(
        begin - scale * early, np.where(closed, begin + time - scale * (length + late), -np.inf)
    )
    highest = np.minimum(begin + tick, np.where(closed, begin + time + tick - scale * length, np.inf))
    start = (lowest + highest) / 2
    # True times at both readings lie between the bounds there; between them the rate may have been any seen.
    at_begin = np.maximum(begin + tick - start, start - begin + scale * early)
    end = start + scale * length
    at_end = np.maximum(begin + time + tick - end, end - begin - time + scale * late)
    off = np.where(closed, np.maximum(at_begin, at_end), at_begin)
    # Or that a dip may bring about: warps that all lived through one have like mean rates.
    bend = max(float(scale.max() - scale.min()), DIP * usual) * np.maximum(length, last) / 4
    clock = Clock(
        "per warp",
        1 / usual,
        tick,
        float((off + bend).max()),
        anchors,
        "the clock changed during the trace: no one rate fits; each warp is placed by its own two readings",
    )
    return Conversion(clock, scale, start - start.min())
