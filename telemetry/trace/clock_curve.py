"""An SM's clock that doesn't keep one rate: time as a piecewise linear function of cycles, within bounds.

Kept for each SM is its lag D = t - R c, R being ns a cycle at the rate of an idle SM: constant when idle,
rising while the clock dips. A reading bounds the lag from above at its cycle (the timer is read after the
clock, and shows less than a step less than the time), and from below but for the delay between the reads.

Two kinds of bounds are put together. The rates that are possible at all give an envelope: between readings
the lag falls and rises by no more than `Limits`, the least that the readings allow. Within a window the lag
is nearly a straight line: the lines that the window's readings allow bound it at the window's middle. How far
the lag bends off a line is taken from the data (what makes a window infeasible, and how the lags of
neighbouring windows differ from a line), and widens what is allowed. Of all windows the one with the closest
bounds is taken that agrees with the envelope.

All parts (clock domains) lie behind each other on one axis of cycles, so that each step is a few array
operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .clock_limits import Limits, Points, envelope

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SLOPES = 17  # tried in a window
_EDGE = 24.0  # ns by which a tried line's ends differ at most from the middle one's
_SHORTEST, _LONGEST = 500.0, 16_000.0  # ns, windows
_MOST_KNOTS = 16_000
_AROUND = 12  # knots to either side
_LEEWAY = 0.2  # of the bounds' half-width, for smoothing
_SAFETY = 1.5  # on the measured bend
_MOST_LATE, _USUALLY_LATE = 64.0, 16.0  # ns, allowances for delays
_COARSE = 64.0
_FAR = 1e18


@dataclass(frozen=True)
class Curve:
    """Lags at knots, and bounds on them; `x` ascends over all SMs. `dropped`: soft readings left out."""

    x: Floats
    lag: Floats
    low: Floats
    high: Floats
    allowance: float
    dropped: int


@dataclass(frozen=True)
class _Grid:
    """Knots `step` ns apart over each part (SM) of the axis. start, stop, first, count: [parts]"""

    start: Floats
    stop: Floats
    first: Ints
    count: Ints
    step: float

    @property
    def x(self) -> Floats:
        part = np.repeat(np.arange(self.count.size), self.count)
        return self.start[part] + self.step * (np.arange(part.size) - self.first[part])


def _grid(start: Floats, stop: Floats, step: float) -> _Grid:
    count = np.ceil((stop - start) / step).astype(np.int64) + 1
    return _Grid(start, stop, np.cumsum(count) - count, count, step)


def fit(points: Points, start: Floats, stop: Floats, tick: float, allowed: Limits) -> Curve:
    """Lags between `start` and `stop` of each part (ascending, not overlapping).

    Each part must have readings; points outside of all parts belong to the nearest side of their part's and
    act on the envelope only. Parts must lie so far apart that the envelope can't reach from one to another.
    A timer that steps by more than some `_COARSE` ns shows too little of how the lag bends: envelope only.
    """
    total = float((stop - start).sum())
    step = max(_SHORTEST / 2, total / _MOST_KNOTS)
    fine = _grid(start, stop, step)
    soft, windows, low, allowance = bool(points.soft.any()), tick <= _COARSE, points.low, 0.0
    late, above = np.zeros(points.x.size, bool), np.full(fine.x.size, _FAR)
    if soft:
        allowance = _MOST_LATE if windows else 2 * tick
        for _ in range(2 if windows else 0):
            bounds = _bounded(points, points.lowered(allowance), fine, allowed, quick=True)
            allowance = _delay(points, fine, bounds, allowance)
            above = bounds[1]
        low = points.lowered(allowance)
        late = points.soft & (low > envelope(points.x, points.high, points.x, allowed.rise, allowed.fall))
        if windows:
            inside = _inside(points.x, start, stop)
            late |= points.soft & inside & (low > np.interp(points.x, fine.x, above))
        low = np.where(late, -_FAR, low)
    bounds = _bounded(points, low, fine, allowed, windows=windows)
    lowest, highest = bounds
    if soft:
        lowest = np.minimum(lowest, highest - _usual(highest - lowest))
    middle, room = (lowest + highest) / 2, _LEEWAY * (highest - lowest) / 2
    lag = np.clip(_smooth(middle, fine), middle - room, middle + room)
    return Curve(fine.x, lag, lowest, highest, allowance, int(np.count_nonzero(late)))


def _inside(x: Floats, start: Floats, stop: Floats) -> NDArray[np.bool_]:
    part = np.clip(np.searchsorted(start, x, side="right") - 1, 0, start.size - 1)
    return (x >= start[part]) & (x <= stop[part])


def _usual(width: Floats) -> Floats:
    """The median width of the bounds around each knot.

    Bounds that are much closer than those beside them are so by a late reading which is possible still.
    """
    padded = np.pad(width, _AROUND, mode="edge")
    around = np.sort(np.lib.stride_tricks.sliding_window_view(padded, 2 * _AROUND + 1), axis=1)
    return around[:, _AROUND]


def _smooth(lag: Floats, grid: _Grid, reach: int = 2) -> Floats:
    """The mean over `reach` knots to either side, fewer at a part's ends."""
    total = np.concatenate([[0.0], np.cumsum(lag - lag.mean())])
    part = np.repeat(np.arange(grid.count.size), grid.count)
    index = np.arange(lag.size)
    room = np.minimum(index - grid.first[part], grid.first[part] + grid.count[part] - 1 - index)
    room = np.minimum(room, reach)
    return (total[index + room + 1] - total[index - room]) / (2 * room + 1) + lag.mean()


def _delay(points: Points, grid: _Grid, bounds: tuple[Floats, Floats], before: float) -> float:
    """An allowance, ns, that most soft readings' delays keep within, from bounds made with the one before.

    A lower bound lies above the lag if the delay is greater than what the timer was past its step. The
    allowance is where such bounds get rare: the few late ones beyond are spread over so wide a range that
    most are seen to be impossible. The lag is taken to lie midway between upper bounds and those lower ones
    that no delay shifted, which are higher by the allowance before.
    """
    middle = np.interp(points.x, grid.x, (bounds[0] + bounds[1] + before) / 2)
    width = np.interp(points.x, grid.x, bounds[1] - bounds[0]) - before
    above = np.sort((points.low - middle)[points.soft & (width < 24.0)])
    if above.size < 50:
        return min(before, _USUALLY_LATE)
    for allowance in range(2, round(before)):
        near = np.searchsorted(above, allowance + 4.0) - np.searchsorted(above, allowance)
        if near <= 0.004 * above.size:
            return allowance + 2.0
    return before


def _bounded(
    points: Points,
    low: Floats,
    grid: _Grid,
    allowed: Limits,
    *,
    quick: bool = False,
    windows: bool = True,
) -> tuple[Floats, Floats]:
    """Bounds of the lag at the knots, from windows. `quick`: from short ones only."""
    x, fall, rise = grid.x, allowed.fall, allowed.rise
    highest = envelope(points.x, points.high, x, rise, fall)
    lowest = -envelope(points.x, -low, x, fall, rise)
    if points.soft.any():  # a late reading must not make the impossible of the possible
        hard = -envelope(points.x, -np.where(points.soft, -_FAR, low), x, fall, rise)
        lowest = np.where(lowest > highest, hard, lowest)
    if not windows:
        return lowest, highest
    best_low, best_high = lowest.copy(), highest.copy()
    bent, longest = np.zeros(x.size), 4 * _SHORTEST if quick else _LONGEST
    near = _inside(points.x, grid.start - _LONGEST, grid.stop + _LONGEST)
    room = (fall + rise) * grid.step
    lows = _closest(points.x, -low, grid.step, near, room)
    highs = _closest(points.x, points.high, grid.step, near, room)
    for straightened in (False,) if quick else (False, True):
        if straightened:
            lows = lows[_inside(points.x[lows], grid.start, grid.stop)]
            highs = highs[_inside(points.x[highs], grid.start, grid.stop)]
        middle, step = (best_low + best_high) / 2, grid.step
        while 2 * step <= max(longest, 4 * grid.step):
            if straightened:
                # Once more less a smooth curve through what was found: the rest bends less, so that wider
                # windows do. What the curve has of its own must be no finer than a window, to be seen.
                # Points beyond the knots, where there is no curve, are left out.
                bent = middle
                for _ in range(3):
                    bent = _smooth(bent, grid, round(step / grid.step))
            lower = points.x[lows], low[lows] - np.interp(points.x[lows], x, bent)
            upper = points.x[highs], points.high[highs] - np.interp(points.x[highs], x, bent)
            guess = (best_low + best_high) / 2 - bent
            found = _windows(lower, upper, grid, step, guess, straightened, allowed)
            a, b = np.maximum(found[0] + bent, lowest), np.minimum(found[1] + bent, highest)
            better = (b - a < best_high - best_low) & (a <= best_high) & (b >= best_low) & (a <= b)
            best_low, best_high = np.where(better, a, best_low), np.where(better, b, best_high)
            step *= 2
    return _tightened(best_low, best_high, x, allowed)


def _tightened(low: Floats, high: Floats, x: Floats, allowed: Limits) -> tuple[Floats, Floats]:
    """Bounds at knots by the limits from those at others, unless they disagree."""
    above = envelope(x, high, x, allowed.rise, allowed.fall)
    below = -envelope(x, -low, x, allowed.fall, allowed.rise)
    return np.where(below <= above, below, low), np.where(below <= above, above, high)


def _closest(x: Floats, high: Floats, step: float, near: NDArray[np.bool_], room: float) -> Ints:
    """The points near the knots whose bound may matter: others in the same step are closer at any rate."""
    at = np.flatnonzero(near)
    if not at.size:
        return at
    each = np.floor(x[at] / step)
    first = np.flatnonzero(np.diff(each, prepend=each[0] - 1) != 0)
    least = np.minimum.reduceat(high[at], first)
    least = np.repeat(least, np.diff(first, append=at.size))
    return at[high[at] <= least + room]


def _windows(
    lower: tuple[Floats, Floats],
    upper: tuple[Floats, Floats],
    fine: _Grid,
    step: float,
    middle: Floats,
    straightened: bool,
    limits: Limits,
) -> tuple[Floats, Floats]:
    """Bounds at the fine knots from windows of two steps around coarser ones. `lower`, `upper`: x, lag."""
    grid = _grid(fine.start, fine.stop, step)
    knots, fine_x = grid.x, fine.x
    centre, whole = (limits.rise - limits.fall) / 2, (limits.rise + limits.fall) / 2
    spread = _EDGE / step if straightened else min(whole, _EDGE / step)
    part = np.repeat(np.arange(grid.count.size), grid.count)
    if straightened:
        slope = np.zeros(knots.size)
    elif spread < whole:
        left, right = np.maximum(knots - step, grid.start[part]), np.minimum(knots + step, grid.stop[part])
        ends = np.interp(right, fine_x, middle) - np.interp(left, fine_x, middle)
        slope = np.where(right > left, ends / np.maximum(right - left, 1.0), centre)
        slope = np.clip(slope, -limits.fall, limits.rise)
    else:
        slope = np.full(knots.size, centre)
    tried = np.linspace(-spread, spread, _SLOPES)
    most = _lines(*upper, grid, knots, slope, tried)
    least = -_lines(lower[0], -lower[1], grid, knots, -slope, -tried)
    room = most - least  # [knots, slopes]
    steepness = slope[:, None] + tried
    possible = (np.abs(steepness - centre) <= whole + 1e-9) | straightened
    room = np.where(possible, room, -np.inf)
    best = room.argmax(axis=1)
    at = np.arange(knots.size)
    known = np.isfinite(least[at, best]) & np.isfinite(most[at, best])
    guess = np.where(known, least[at, best], 0.0) / 2 + np.where(known, most[at, best], 0.0) / 2
    bend = np.maximum(-room[at, best], 0.0) / 2
    bend = np.maximum(bend, _bend(np.where(known, guess, np.interp(knots, fine_x, middle)), grid))
    if step >= 4 * fine.step:  # what closer windows have found bends within this one
        found = _smooth(middle, fine, round(step / fine.step / 4))
        centres = np.clip(knots, grid.start[part] + step / 2, grid.stop[part] - step / 2)
        for reach in (step / 2, step):
            sides = (np.clip(centres + side, grid.start[part], grid.stop[part]) for side in (-reach, reach))
            second = sum(np.interp(side, fine_x, found) for side in sides) - 2 * np.interp(
                centres, fine_x, found
            )
            bend = np.maximum(bend, np.abs(second) / 4)
    known &= np.isfinite(bend)
    bend = _SAFETY * _local_most(_local_most(np.where(known, bend, 0.0), grid), grid)
    allowed = room >= -2 * bend[:, None]
    cut = (allowed[:, 0] & possible[:, 0]) | (allowed[:, -1] & possible[:, -1])
    if spread >= whole and not straightened:
        cut[:] = False  # all that is possible was tried
    known &= allowed.any(axis=1) & ~cut
    wider = allowed.copy()
    wider[:, 1:] |= allowed[:, :-1]
    wider[:, :-1] |= allowed[:, 1:]
    # Lines bound the lag at their window's ends too: a part's first and last knots have but half a window.
    lowest, highest = np.full(knots.size, -_FAR), np.full(knots.size, _FAR)
    for shift in (0, 1, -1):
        turn = steepness * (shift * step)
        high_at = np.where(wider, most + turn, -np.inf).max(axis=1) + 2 * bend
        low_at = np.where(wider, least + turn, np.inf).min(axis=1) - 2 * bend
        to = np.flatnonzero(known & np.isfinite(high_at) & np.isfinite(low_at))
        aim = to + shift
        same = (aim >= 0) & (aim < knots.size)
        to, aim = to[same], aim[same]
        end = (aim == grid.first[part[aim]]) | (aim == grid.first[part[aim]] + grid.count[part[aim]] - 1)
        same = (part[aim] == part[to]) & (end | (shift == 0))
        to, aim = to[same], aim[same]
        closer = high_at[to] - low_at[to] < highest[aim] - lowest[aim]
        to, aim = to[closer], aim[closer]
        lowest[aim], highest[aim] = low_at[to], high_at[to]
    return np.interp(fine_x, knots, lowest), np.interp(fine_x, knots, highest)


def _lines(x: Floats, high: Floats, grid: _Grid, knots: Floats, slope: Floats, tried: Floats) -> Floats:
    """[knots, tried] the most at each knot that lines may have, by slope (added to the knot's own)."""
    most = np.full((tried.size, knots.size), np.inf)
    part = np.clip(np.searchsorted(grid.start - grid.step, x, side="right") - 1, 0, grid.count.size - 1)
    bin_ = np.floor((x - grid.start[part]) / grid.step).astype(np.int64) + 1
    for parity in (0, 1):
        knot = np.where(bin_ % 2 == parity, bin_, bin_ - 1)
        use = np.flatnonzero((knot >= 0) & (knot < grid.count[part]) & (high < _FAR / 2))
        if not use.size:
            continue
        which = grid.first[part[use]] + knot[use]
        begins = np.flatnonzero(np.diff(which, prepend=-1) != 0)
        filled = which[begins]
        away = x[use] - knots[which]
        above = high[use] - slope[which] * away
        for i, more in enumerate(tried):
            most[i, filled] = np.minimum.reduceat(above - more * away, begins)
    return most.T


def _bend(lag: Floats, grid: _Grid) -> Floats:
    """How far the lag is off a line in each knot's window, from its values two knots to either side.

    For an even bend that is a sixteenth of the second difference. A kink within the window makes it twice as
    much, and the second differences nearby unequal. At a part's ends those of next knots count too, as the
    bend may be the greatest there. Infinite where there are not even three knots.
    """
    part = np.repeat(np.arange(grid.count.size), grid.count)
    first, last = grid.first[part], grid.first[part] + grid.count[part] - 1
    index = np.arange(lag.size)
    most = np.where(last - first >= 2, 0.0, np.inf)
    for reach, where in ((2, last - first >= 4), (1, np.minimum(index - first, last - index) < 2)):
        at = np.clip(index, np.minimum(first + reach, last), np.maximum(last - reach, first))
        left, right = np.maximum(at - reach, first), np.minimum(at + reach, last)
        second = np.where(where, np.abs(lag[left] - 2 * lag[at] + lag[right]), 0.0)
        unequal = np.where(where, _local_most(second, grid) + _local_most(-second, grid), 0.0)
        most = np.maximum(most, (second + 2 * unequal * (reach == 2)) / (4 * reach**2))
    return most


def _local_most(values: Floats, grid: _Grid) -> Floats:
    """The greatest of each knot's and its neighbours'."""
    part = np.repeat(np.arange(grid.count.size), grid.count)
    same = part[1:] == part[:-1]
    most = values.copy()
    most[1:] = np.where(same, np.maximum(most[1:], values[:-1]), most[1:])
    most[:-1] = np.where(same, np.maximum(most[:-1], values[1:]), most[:-1])
    return most
