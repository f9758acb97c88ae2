"""Cycles to nanoseconds, with a bound on what may be wrong.

Where one rate fits all readings of a launch, it is taken (`clock_rate`). A GPU's clock often dips when a
heavy kernel starts, by a different amount in each clock domain (on an H200 a cluster of 16 or 18 SMs). Then
time is a piecewise linear function of cycles (`clock_curve`), one for all SMs of a domain, if calibration
says how fast an idle SM is and which SMs keep together (`clock_domains`). How fast the clock may have run at
most and at least between readings is what the readings themselves leave possible (`clock_limits`). Failing
that, each warp is placed by its own two readings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import clock_curve, clock_domains, clock_limits, clock_timer, layout
from .clock_rate import one_rate, per_warp
from .conversion import Conversion
from .readings import EndReadings, during, of_headers
from .timeline import Clock

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_DIP = 0.008  # of the rate; less is not worth a word
_SURE = 0.75  # of a rise: what the bounds leave no doubt of, to tell of it
_OVER = (2000.0, 4000.0, 8000.0, 16_000.0)  # ns over which a slope is taken
_UNSEEN = 0.2  # of the timer's step
_COARSEST = 1024.0  # ns; no GPU's timer takes larger steps
_ROUNDING = 1e-3
_UNEVEN = 12.0  # ns that a timer's steps may be apart from where they should be; more is a clock that changed
_TOLERATED = 8.0  # ns by which readings may contradict the rates' limits; they are then loosened by as much
_UNLIKE, _FEW = (
    0.2,
    10,
)  # of an SM's readings, its least readings: so many may not come too late for its domain
_NEARLY = 0.01  # of the rate: a calibration so close to the device's highest rate ran at that, or dipped


def convert(
    headers: NDArray[Any],
    anchors: NDArray[Any],
    last: Ints,
    meta: Mapping[str, Any] | None = None,
    ends: EndReadings | None = None,
) -> Conversion:
    """Fit the clocks of a launch.

    `headers` [warps] of the warps that began, `anchors` [n] from calibration, `last` [warps] each warp's last
    cycle since its clock_begin. `meta`'s device gives the rate that is assumed where readings don't say it.
    """
    if not headers.size:
        return Conversion(Clock("fit", 0.0, 0.0, 0.0, 0), np.zeros(0), np.zeros(0))
    own = of_headers(headers)
    tick = timer_step(np.concatenate([own["time"], anchors["time"]]))
    made = one_rate(headers, own, anchors, last, tick, meta or {})
    more = ends is not None and ends.row.size > 0
    holds = (
        made and not made.clock.reason and not (ends and more and _contradicted(made, headers, ends, tick))
    )
    whole = made if holds else None
    if whole and not more:
        return whole
    curve = _curve(headers, own, anchors, last, tick, meta or {}, ends if more else None)
    if whole:  # a busy GPU's clock dips, and one rate may hide a dip that cost so little
        least = max(whole.clock.uncertainty_ns, _UNSEEN * tick, 2.0)
        if curve and curve.clock.uncertainty_ns < least:
            return curve
        return replace(whole, clock=replace(whole.clock, uncertainty_ns=least))
    closed = headers["magic"] == layout.MAGIC_CLOSED
    single = per_warp(headers, closed, last, tick, len(own) + len(anchors), meta or {})
    if made and made.clock.reason and not (curve or more):
        return made  # the readings left out contradict even what a curve allows
    if curve and curve.clock.uncertainty_ns <= single.clock.uncertainty_ns:
        return curve
    return single


def timer_step(times: NDArray[Any]) -> float:
    """The timer's step in ns, from readings of it: what all differences are multiples of.

    Some GPUs' timers jump by far more than their unit. If there are many readings for each distinct time, the
    times lie as dense as they can, and the smallest difference is the step. Few readings may have differences
    whose common divisor is far larger: they don't say more than that a step is at most the coarsest.
    """
    distinct = np.unique(times)
    if distinct.size < 2:
        return _COARSEST  # unknown; a coarse step only makes the uncertainty large
    steps = np.diff(distinct)
    if distinct.size * 4 <= times.size:
        return min(float(steps.min()), _COARSEST)
    return min(float(np.gcd.reduce(steps)), _COARSEST)


def _end_step(tick: float) -> float:
    """How far beyond its floored reading the timer may have been: its step, and what flooring took off."""
    floor = 1 << layout.TIME_SHIFT
    return tick if tick % floor == 0 else tick + floor


def _contradicted(made: Conversion, headers: NDArray[Any], ends: EndReadings, tick: float) -> bool:
    """Whether end records read the timer earlier than one rate, for all its uncertainty, has them."""
    epoch = headers["time_begin"].min()
    row = np.arange(headers.size)
    reached = (headers["time_begin"] - epoch).astype(np.float64) - made.ns(row, headers["gap_begin"])
    within = (ends.time - epoch).view(np.int64) + _end_step(tick) - made.ns(ends.row, ends.cycle)
    return bool(within.min() < reached.max() - 2 * made.clock.uncertainty_ns - _ROUNDING)


def idle_rate(anchors: NDArray[Any], middle: Any, meta: Mapping[str, Any]) -> float | None:
    """ns a cycle of an SM that does nothing: the faster one of the calibrations before and after.

    Without calibration the device's highest rate; None if that is unknown too.
    """
    found = []
    for part in (anchors[anchors["time"] <= middle], anchors[anchors["time"] > middle]):
        if part.size < 8:
            continue
        part = part[np.argsort(part["sm"], kind="stable")]
        _, first, sm = np.unique(part["sm"], return_index=True, return_inverse=True)
        x = (part["clock"] - part["clock"][first][sm]).view(np.int64).astype(np.float64)
        y = (part["time"] - part["time"].min()).astype(np.float64)
        count = np.bincount(sm)
        x -= (np.bincount(sm, x) / count)[sm]
        y -= (np.bincount(sm, y) / count)[sm]
        spread = np.bincount(sm, x * x)
        long = (count >= 8) & (spread / count > 500.0**2)
        if long.any():
            found.append(float(np.median(np.bincount(sm, x * y)[long] / spread[long])))
    device = meta.get("device")
    mhz = device.get("sm_clock_max_mhz") if isinstance(device, Mapping) else None
    highest = 1000 / mhz if isinstance(mhz, (int, float)) and mhz > 0 else None
    if not found:
        return highest
    fastest = min(found)
    if highest is not None and fastest * (1 - _NEARLY) < highest < fastest:
        return highest
    return fastest


def _curve(
    headers: NDArray[Any],
    own: NDArray[Any],
    anchors: NDArray[Any],
    last: Ints,
    tick: float,
    meta: Mapping[str, Any],
    ends: EndReadings | None,
) -> Conversion | None:
    """By a curve a clock domain; None if there is no idle rate, or no limits to it allow the readings."""
    epoch = headers["time_begin"].min()
    inside = during(anchors, headers)
    quiet = anchors[~inside]
    rate = idle_rate(quiet, epoch, meta)
    if rate is None:
        return None
    calm = quiet[quiet["time"] <= epoch]  # after the launch clocks have still to calm down
    timer = clock_timer.timer(anchors, ~inside, rate, tick)
    for fewer in (quiet, calm):
        if not timer.beat:
            timer = clock_timer.timer(fewer, np.ones(fewer.size, bool), rate, tick)
    found = clock_domains.domains(headers, anchors, rate, timer, ends)
    traced = np.searchsorted(found.sms, headers["sm"])
    single = found.apart(np.ones(found.sms.size, bool))
    alone, idle = None, _Axis(single, single.domain, rate, epoch)
    calm = calm if calm.size else quiet
    jitter = clock_limits.contradiction(_points(idle, own[:0], calm, None, headers, timer)[0])
    if jitter > _UNEVEN:
        return None
    while True:  # whole domains, pairs of SMs, SMs
        kept = np.unique(found.domain[traced])
        part_of = np.full(int(found.domain.max()) + 1, -1)
        part_of[kept] = np.arange(kept.size)
        part = part_of[found.domain]
        axis = _Axis(found, part, rate, epoch)
        near = anchors[part[np.searchsorted(found.sms, anchors["sm"])] >= 0]
        points, sm = _points(axis, own, near, ends, headers, timer, jitter)
        part_at = part[sm]
        allowed, off = clock_limits.limits(points)
        together = clock_limits.agree(points, part_at, kept.size, clock_limits.CLOSEST)
        if alone is None and (ends is not None or not together.all()):
            alone = _points(idle, own, near, ends, headers, timer, jitter)
        if alone and not together.all():  # perhaps the clock just changed faster than that
            together = clock_limits.agree(points, part_at, kept.size, clock_limits.limits(alone[0])[0])
        if alone and ends is not None:
            apart = _late_share(*alone, allowed, traced) < _late_share(points, sm, allowed, traced) - _UNLIKE
            together[np.unique(part[traced[apart]])] = False
        split = kept[~together & (np.bincount(part[part >= 0], minlength=kept.size) > 1)]
        if not split.size:
            break
        found = found.parted(split)
    if off.max() > _TOLERATED:
        return None
    worst = np.zeros(kept.size)
    np.maximum.at(worst, part_at, off)
    points = points.loosened((worst / 2 + _ROUNDING)[part_at])
    begin = axis.place(headers["clock_begin"], traced)
    stop = begin + last * rate
    starts, stops = np.full(kept.size, np.inf), np.full(kept.size, -np.inf)
    np.minimum.at(starts, part[traced], begin)
    np.maximum.at(stops, part[traced], stop)
    curve = clock_curve.fit(points, starts, stops, tick, allowed)
    at = np.searchsorted(starts - axis.apart / 2, curve.x, side="right") - 1
    time = np.asarray(np.maximum.accumulate(curve.x + curve.lag) - at * axis.apart, np.float64)
    zero = float(np.interp(begin, curve.x, time).min())
    covered = _covered(curve.x, begin, stop)
    error = np.zeros(kept.size)
    np.maximum.at(error, part[traced], found.error[traced])
    off = (np.maximum(curve.high - curve.lag, curve.lag - curve.low) + error[at])[covered]
    took = float((np.interp(stop, curve.x, time) - np.interp(begin, curve.x, time)).sum())
    clock = Clock(
        "fit, piecewise",
        float(last.sum()) / took if took > 0 else 1 / rate,
        tick,
        float(off.max()),
        int(points.x.size),
        _dip(curve, at, covered, time - zero),
        float(np.median(off)),
    )
    return Conversion(clock, np.full(traced.shape, rate), begin, curve.x, time - zero, curve.dropped)


def _late_share(points: clock_limits.Points, sm: Ints, allowed: clock_limits.Limits, which: Ints) -> Floats:
    """[which] of some SMs' readings, how many the others on the axis make too late to be true."""
    each = np.bincount(sm[points.soft], minlength=int(which.max()) + 1)
    late = np.bincount(sm[clock_limits.late(points, allowed)], minlength=each.size)
    return late[which] / np.maximum(each[which], _FEW)


@dataclass(frozen=True)
class _Axis:
    """Cycles of all SMs on one axis, ns: domains lie `apart` behind each other, SMs of one on top of each."""

    found: clock_domains.Domains
    part: Ints
    rate: float
    epoch: Any
    apart: float = 1e11

    def place(self, clock: NDArray[Any], sm: Ints) -> Floats:
        """Where cycles of SMs (by number in `found`) are."""
        since = (clock - self.found.pivot[sm]).view(np.int64).astype(np.float64)
        return since * self.rate + self.found.offset[sm] + self.part[sm] * self.apart


def _points(
    axis: _Axis,
    own: NDArray[Any],
    anchors: NDArray[Any],
    ends: EndReadings | None,
    headers: NDArray[Any],
    timer: clock_timer.Timer,
    jitter: float = 0.0,
) -> tuple[clock_limits.Points, Ints]:
    """All readings' bounds on the lag, sorted, and their SMs. `jitter`: within how many ns steps come."""
    used = np.concatenate([anchors, own])
    sm = np.searchsorted(axis.found.sms, used["sm"])
    clock, time, gap = used["clock"], used["time"], used["gap"] * axis.rate
    width = np.full(used.size, timer.tick)
    soft = np.zeros(used.size, bool)
    if ends is not None:
        sm = np.concatenate([sm, np.searchsorted(axis.found.sms, headers["sm"])[ends.row]])
        clock = np.concatenate([clock, headers["clock_begin"][ends.row] + ends.cycle.astype(np.uint64)])
        time = np.concatenate([time, ends.time])
        gap = np.concatenate([gap, np.zeros(ends.row.size)])
        width = np.concatenate([width, np.full(ends.row.size, _end_step(timer.tick))])
        soft = np.concatenate([soft, np.ones(ends.row.size, bool)])
    x = axis.place(clock, sm)
    part = axis.part[sm]
    lag = (time - axis.epoch).view(np.int64) - (x - part * axis.apart)
    error = axis.found.error[sm] + jitter / 2
    order = np.argsort(x)
    low, high = lag - gap - error + timer.early(time), lag + width + error + timer.late(time)
    points = clock_limits.Points(x, low, high, soft)
    return clock_limits.Points(*(getattr(points, f)[order] for f in ("x", "low", "high", "soft"))), sm[order]


def _covered(x: Floats, begin: Floats, stop: Floats) -> NDArray[np.bool_]:
    """Which knots matter to rows from `begin` to `stop`: those within and one to either side."""
    first = np.searchsorted(x, begin, side="right") - 1
    last = np.searchsorted(x, stop, side="left")
    change = np.bincount(np.maximum(first, 0), minlength=x.size + 1)
    change = change - np.bincount(np.minimum(last, x.size - 1) + 1, minlength=x.size + 1)
    return np.cumsum(change)[: x.size] > 0


def _dip(curve: clock_curve.Curve, part: Ints, covered: NDArray[np.bool_], time: Floats) -> str:
    """A word on how much the clock slowed down, and for how long, if the bounds leave little doubt of it."""
    for over in _OVER:  # the shortest slope that is sure
        reach = max(1, round(over / float(curve.x[1] - curve.x[0]))) if curve.x.size > 1 else 1
        if curve.x.size <= reach:
            break
        same = (part[reach:] == part[:-reach]) & covered[reach:] & covered[:-reach]
        rise = curve.lag[reach:] - curve.lag[:-reach]
        least = curve.low[reach:] - curve.high[:-reach]
        slower = np.where(same & (least > rise / 2), rise / (curve.x[reach:] - curve.x[:-reach]), 0.0)
        most = float(slower[least > rise * _SURE].max(initial=0.0))
        if most >= _DIP:
            until = float(time[reach:][slower > max(_DIP, most / 10)].max())
            return f"the clock ran up to {most:.1%} slower in the first {until / 1e3:.0f} µs"
    return ""
