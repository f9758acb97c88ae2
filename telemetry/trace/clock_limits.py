"""How fast an SM's clock may have run, by what was read of it.

The lag of the timer behind an SM's cycles (`clock_curve`) falls where the clock is faster than when idle, and
rises where it is slower. How fast it may do so limits it between readings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Of the rate, tried: faster than idle, and slower.
_FALLS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03)
_RISES = (0.028, 0.04, 0.056, 0.08, 0.12, 0.2)
_MARGIN = 1.25  # on a rise
_ROW, _SAME, _JITTER = 64, 0.01, 2.0  # readings in a row, share of readings, ns
_TOLERATED = 1.5  # ns by which readings may contradict the rates' limits
_AGREED = 6.0  # ns by which those of SMs that are taken to share a clock may
_FAR = 1e18


@dataclass(frozen=True)
class Points:
    """Readings on the axis, sorted. [n] each, ns: x, and the lag's bounds at x. `soft`: delay unknown."""

    x: Floats
    low: Floats
    high: Floats
    soft: NDArray[np.bool_]

    def loosened(self, by: Floats | float) -> Points:
        """With bounds wider by so much to either side."""
        return Points(self.x, self.low - by, self.high + by, self.soft)

    def lowered(self, allowance: float) -> Floats:
        """Lower bounds, the soft ones by an allowance for the delay."""
        return np.where(self.soft, self.low - allowance, self.low)


@dataclass(frozen=True)
class Limits:
    """How fast the lag may fall and rise, ns a ns."""

    fall: float
    rise: float


CLOSEST = Limits(2 * _FALLS[0], _MARGIN * _RISES[0])


def agree(points: Points, part: Ints, parts: int, allowed: Limits) -> NDArray[np.bool_]:
    """[parts] whether readings keep limits, but for what a timer's jitter explains."""
    off = np.zeros(parts)
    np.maximum.at(off, part, _contradiction(points, allowed))
    return off <= _AGREED


def limits(points: Points) -> tuple[Limits, Floats]:
    """The closest limits tried that the readings agree with, with a margin, and what they leave.

    That is [n] ns by which a point's upper bound lies below what lower bounds of known delay allow, else 0.
    """
    # Readings that seem late, and are not where the clock may be twice as slow, show that it was slower.
    shares = [_late(points, rise) for rise in _RISES[:2]]
    first = 0
    while first + 2 < len(_RISES):
        shares.append(_late(points, _RISES[first + 2]))
        if all(a <= b + _SAME for a, b in zip(shares[first], shares[-1], strict=True)):
            break
        first += 1
    fall, rise = _FALLS[-1], _RISES[-1]
    tolerated = max(_TOLERATED, 1.1 * float(_contradiction(points, Limits(fall, rise)).max()))

    def possible(fall: float, rise: float) -> bool:
        return bool(_contradiction(points, Limits(fall, rise)).max() <= tolerated)

    rise = next(one for one in _RISES[first:] if possible(fall, one))
    fall = next(one for one in _FALLS if possible(one, rise))
    # What was read need not be the most there was.
    allowed = Limits(2 * fall, _MARGIN * rise)
    return allowed, _contradiction(points, allowed)


def contradiction(points: Points) -> float:
    """How far idle SMs' readings leave the closest limits, ns: the jitter of the timer's steps."""
    return float(_contradiction(points, CLOSEST).max(initial=0.0))


def late(points: Points, allowed: Limits) -> NDArray[np.bool_]:
    """[n] readings of unknown delay that limits make too late to be true."""
    highest = envelope(points.x, points.high, points.x, allowed.rise, allowed.fall)
    return points.soft & (points.low > highest + _JITTER)


def _late(points: Points, rise: float) -> tuple[float, float]:
    """The share of readings that are late; of those in a row, where it is greatest."""
    if not points.soft.any():
        return 0.0, 0.0
    found = late(points, Limits(_FALLS[0], rise))[points.soft]
    total = np.concatenate([[0], np.cumsum(found)])
    row = min(_ROW, found.size)
    return float(found.mean()), float((total[row:] - total[:-row]).max()) / row


def _contradiction(points: Points, allowed: Limits) -> Floats:
    """[n] by how many ns the readings whose delay is known leave limits."""
    low = np.where(points.soft, -_FAR, points.low)
    lowest = -envelope(points.x, -low, points.x, allowed.fall, allowed.rise)
    return np.maximum(lowest - points.high, 0.0)


def envelope(at: Floats, high: Floats, x: Floats, rise: float, fall: float) -> Floats:
    """The most that a function can be at x which is at most `high` at `at` (ascending), with slope limits."""
    before = np.minimum.accumulate(np.append(_FAR, high - rise * at))
    after = np.minimum.accumulate(np.append(_FAR, (high + fall * at)[::-1]))[::-1]
    if at is x:  # where a reading is, it counts with those before and those after
        return np.minimum(before[1:] + rise * x, after[:-1] - fall * x)
    i = np.searchsorted(at, x, side="right")
    j = np.searchsorted(at, x, side="left")
    return np.minimum(before[i] + rise * x, after[j] - fall * x)
