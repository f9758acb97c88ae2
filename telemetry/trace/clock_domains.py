"""Which SMs run on one clock, and how far apart their cycle counters are.

SMs of one clock domain take equally many cycles from the calibration before a launch to that after it, no
matter how much the clock dips between. Where readings show that, they may be put on one axis: an SM's place
on it is `rate * (clock - pivot) + offset`, and the lag of the timer behind it is one function for all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .clock_timer import Timer
from .readings import EndReadings, during

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FEW = 16  # readings an SM before and after; with fewer it stays alone
_APART = 1.5  # ns between the elapsed times of two pairs of SMs that may be of one domain, one to the next
_SPREAD, _PAIR = (
    5.5,
    4.0,
)  # ns that elapsed times of pairs in one domain, of an SM and its pair, may differ by
_LARGEST = 20  # SMs that share a clock; more that took equally long are several domains
_SMALLEST = 12  # that such are split into by their lags
_SURE = 8  # SMs, of which the spread is taken for that of a measurement
_WIDER = 1.75  # of half the bounds, as what SMs have in common during calibration is not known exactly
_DENSE, _MANY = 8.0, 64  # readings a microsecond, and in all; so many show whether SMs keep together
_CALM = 10_000.0  # ns after a launch
_LONGEST = 1e6  # ns that calibration takes; what took longer isn't one
_PIECE = 2000.0  # ns of calibration within which an idle clock's lag is taken for a line
_NEAR = 16  # cycles between two readings that a step lies between, to tell when it was
_STEPS, _ALIKE = 6, 4.0  # of a pair of SMs beside a launch, at least; ns within which lags are of one clock
_PLACES = 96  # at which lags are compared


@dataclass(frozen=True)
class Domains:
    """SMs in ascending order, one entry each.

    `pivot`: a cycle of each; `before`: ns from the epoch, where calibration before the launch places it;
    `elapsed`: ns by which that afterwards places it later; `half`: half the widths of both places' bounds,
    on average. `offset` follows from these, and `error`, ns by which it may be wrong against the others of
    its `domain`: SMs that don't quite keep together are placed midway. Where readings beside the launch say
    more, an SM is `moved`, and may be wrong by `close`: four standard deviations.
    """

    sms: NDArray[np.uint32]
    pivot: NDArray[np.uint64]
    before: Floats
    elapsed: Floats
    half: Floats
    domain: Ints
    moved: Floats | float = 0.0
    close: Floats | float = np.inf

    @cached_property
    def _off(self) -> Floats:
        """By how much an SM took longer than its domain."""
        mean = np.bincount(self.domain, self.elapsed) / np.bincount(self.domain)
        return self.elapsed - mean[self.domain]

    @cached_property
    def offset(self) -> Floats:
        """[SMs] ns."""
        return self.before + self._off / 2 + self.moved

    @cached_property
    def error(self) -> Floats:
        """[SMs] ns; 0 for an SM alone."""
        count = np.bincount(self.domain)
        usual = np.sqrt(np.bincount(self.domain, self._off**2) / np.maximum(count - 1, 1))
        most = np.where(count >= _SURE, 4 * usual / 2, np.inf)  # of the mean of two: four standard deviations
        found = np.minimum(np.abs(self._off) / 2 + _WIDER * self.half, most[self.domain])
        found = np.minimum(found, self.close)
        return np.where(count[self.domain] == 1, 0.0, found)

    def apart(self, which: NDArray[np.bool_]) -> Domains:
        """With these SMs in domains of their own."""
        key = np.where(which, np.arange(which.size) + which.size, self.domain)
        return replace(self, domain=np.unique(key, return_inverse=True)[1])

    def by_lags(
        self, beside: NDArray[Any], headers: NDArray[Any], rate: float, timer: Timer
    ) -> tuple[Domains, NDArray[np.bool_]]:
        """Which domains the pairs' lags beside the launch show, if these are fewer, and where in them each SM
        lies; and which SMs have enough of them."""
        a, b = beside[:-1], beside[1:]
        near = (a["sm"] == b["sm"]) & (b["time"] == a["time"] + np.uint64(timer.tick))
        near &= (b["clock"] > a["clock"]) & (b["clock"] - a["clock"] <= _NEAR)
        near &= timer.early(b["time"]) == timer.late(a["time"])
        a, b = a[near], b[near]
        sm = np.searchsorted(self.sms, a["sm"])
        middle = (a["clock"] - self.pivot[sm]).view(np.int64) + (b["clock"] - a["clock"]) / 2
        x = middle * rate + self.before[sm]
        epoch, last = headers["time_begin"].min(), max(headers["time_begin"].max(), headers["time_end"].max())
        lag = (b["time"] - epoch).view(np.int64) + timer.early(b["time"]) - x
        order = np.argsort(x)
        sm, x, lag = sm[order], x[order], lag[order]
        pair = self.sms // 2
        pairs = np.unique(pair)
        of_pair = [np.flatnonzero(pair[sm] == number) for number in pairs]
        seen = np.array([which.size >= _STEPS for which in of_pair])
        if not seen.any():
            return self, np.zeros(self.sms.size, bool)
        places = np.linspace(0, max(float(last - epoch), 1.0), _PLACES)
        lags = np.array([np.interp(places, x[w], lag[w]) for w, s in zip(of_pair, seen, strict=True) if s])
        known = seen[np.searchsorted(pairs, pair)]
        row = np.searchsorted(pairs[seen], pair)
        alike = self.domain * (1 << 33)
        for domain in np.flatnonzero(np.bincount(self.domain) > _LARGEST).tolist():
            mine = known & (self.domain == domain)
            here = np.unique(row[mine])
            parts = _alike(lags[here])[np.searchsorted(here, row[mine])]
            if parts.size and np.bincount(parts)[1:].min() >= _SMALLEST:  # fewer are unlikely, and of no use
                alike[mine] += parts
        everywhere = _alike(lags)
        if everywhere.max() < np.unique(alike[known]).size:
            alike[known] = everywhere[row[known]] - (1 << 33)
        found = replace(self, domain=np.unique(alike, return_inverse=True)[1])
        moved, close = np.zeros(self.sms.size), np.full(self.sms.size, np.inf)
        for number in np.unique(found.domain[known]).tolist():
            mine = np.flatnonzero((found.domain == number)[sm] & known[sm])
            curve = np.median(lags[np.unique(row[known & (found.domain == number)])], axis=0)
            off = lag[mine] - np.interp(x[mine], places, curve)
            count = np.maximum(np.bincount(sm[mine], minlength=self.sms.size), 1)
            mean = np.bincount(sm[mine], off, self.sms.size) / count
            spread = np.bincount(sm[mine], (off - mean[sm[mine]]) ** 2, self.sms.size)
            deviation = 4 * np.sqrt(spread) / count
            better = (count >= _STEPS) & (deviation < found.error) & (found.domain == number)
            moved[better], close[better] = (mean - found._off / 2)[better], deviation[better]
        return replace(found, moved=moved, close=close), known

    def parted(self, domains: Ints) -> Domains:
        """With these domains split in pairs of SMs, or pairs in single SMs."""
        key = self.domain * (1 << 33)
        for domain in domains.tolist():
            mine = self.domain == domain
            pairs = self.sms[mine] // 2
            whole = pairs.min() == pairs.max()
            key[mine] += 1 + self.sms[mine].astype(np.int64) // (1 if whole else 2)
        return replace(self, domain=np.unique(key, return_inverse=True)[1])


def _alike(lags: Floats) -> Ints:
    """[n] numbers of those of `lags` [n, places] that are nearly the same everywhere."""
    found, left = np.zeros(len(lags), np.int64), np.arange(len(lags))
    while left.size:
        mine = left == left[0]
        for _ in range(2):
            middle = np.median(lags[left[mine]], axis=0)
            off = np.abs(lags[left] - middle)
            mine = (np.quantile(off, 0.9, axis=1) <= _ALIKE) & (off.mean(axis=1) <= _ALIKE / 2)
            mine[0] = True
        found[left[mine]] = found.max() + 1
        left = left[~mine]
    return found


def domains(
    headers: NDArray[Any], anchors: NDArray[Any], rate: float, timer: Timer, ends: EndReadings | None
) -> Domains:
    """The clock domains of all SMs that ran a warp or were calibrated.

    `rate`: ns a cycle; `ends`: the readings in end records. Where they are many on each SM, SMs are best left
    alone; where few, SMs that took equally long for no reason, as the clock hardly dipped, may be of several
    domains.
    """
    epoch = headers["time_begin"].min()
    both = np.concatenate([anchors["sm"], headers["sm"]])
    clocks = np.concatenate([anchors["clock"], headers["clock_begin"]])
    times = (np.concatenate([anchors["time"], headers["time_begin"]]) - epoch).view(np.int64)
    sms, first = np.unique(both, return_index=True)
    start, none = times[first].astype(np.float64), np.zeros(sms.size)
    made = Domains(sms, clocks[first], start, none, none, np.arange(sms.size))
    beside = anchors[during(anchors, headers)]
    anchors = anchors[~during(anchors, headers)]
    sm = np.searchsorted(sms, anchors["sm"])
    since = (anchors["time"] - epoch).view(np.int64).astype(np.float64)
    early = since <= 0
    if not early.all():  # at first a clock has still to calm down
        calm = early | (since >= since[~early].min() + _CALM)
        anchors, sm, since, early = anchors[calm], sm[calm], since[calm], early[calm]
    each = (np.bincount(sm[side], minlength=sms.size) for side in (early, ~early))
    enough = np.logical_and(*(count >= _FEW for count in each))
    if not early.any() or early.all() or max(np.ptp(since[early]), np.ptp(since[~early])) > _LONGEST:
        return made
    if np.count_nonzero(enough) < 2:
        return made
    use = enough[sm]
    sm, since, early = sm[use], since[use], early[use]
    used = anchors[use]
    lag = since - (used["clock"] - made.pivot[sm]).view(np.int64) * rate
    low = lag - rate * used["gap"] + timer.early(used["time"])
    high = lag + timer.tick + timer.late(used["time"])
    group, every = np.zeros(sms.size, np.int64), np.arange(sms.size)
    before = after = (every, every)
    for means in (True, True, True, False):  # the more is known of what an idle clock did, the closer
        before = _offsets(sm[early], since[early], low[early], high[early], group, means)
        after = _offsets(sm[~early], since[~early], low[~early], high[~early], group, means)
        elapsed = np.where(enough, after[0] - before[0], 0.0)
        group = _grouped(sms, elapsed, enough)
    found = Domains(
        sms,
        made.pivot,
        np.where(enough, before[0], start),
        elapsed,
        np.where(enough, (before[1] + after[1]) / 2, 0.0),
        group,
    )
    found, known = found.by_lags(beside, headers, rate, timer)
    group = found.domain
    alike = np.bincount(group, known) == np.bincount(group)
    if ends is None:
        return found.parted(np.flatnonzero((np.bincount(group) > _LARGEST) & ~alike))
    sm = np.searchsorted(sms, headers["sm"][ends.row])
    piece = (ends.time - ends.time.min()).astype(np.int64) // 1000
    size = np.bincount(group)
    traced = np.unique(np.searchsorted(sms, headers["sm"]))
    watched = np.bincount(group[np.searchsorted(sms, beside["sm"])], minlength=size.size) >= _MANY
    few = (_density(sm, piece, sms.size) < _DENSE) | (np.bincount(sm, minlength=sms.size) < _MANY)
    single = np.bincount(group[traced], few[traced], size.size) == 0  # what needs no other SM's readings
    several = (size > _LARGEST) & (_density(group[sm], piece, size.size) < _DENSE) & ~alike
    return found.parted(np.flatnonzero(several)).apart((single & ~watched)[group])


def _density(where: Ints, piece: Ints, count: int) -> Floats:
    """[count] readings a piece of time in which there are any."""
    width = int(np.ptp(piece)) + 1 if piece.size else 1
    cells = np.unique(where * width + (piece)) // width
    return np.bincount(where, minlength=count) / np.maximum(np.bincount(cells, minlength=count), 1)


def _offsets(
    sm: Ints, time: Floats, low: Floats, high: Floats, group: Ints, means: bool
) -> tuple[Floats, Floats]:
    """[SMs] the middle of each one's bounds, less what all of its group have in common; half their width.

    What they have in common is a line from the mean in one piece to that in the next. `means`: not the middle
    of the bounds but the mean.
    """
    since = time - time.min()
    piece = np.floor(since / _PIECE).astype(np.int64)
    pieces, groups = int(piece.max()) + 1, int(group.max()) + 1
    cell = group[sm] * pieces + piece
    axis = group[sm] * (2 * pieces * _PIECE) + since
    shape = groups, pieces
    cells = np.bincount(cell, minlength=groups * pieces).reshape(shape)
    found, cells = cells > 0, np.maximum(cells, 1)
    x = np.bincount(cell, axis, groups * pieces).reshape(shape) / cells
    regular = (np.arange(groups)[:, None] * 2 * pieces + np.arange(pieces) + 0.5) * _PIECE
    x = np.where(found, x, regular)
    each = np.maximum(np.bincount(sm, minlength=group.size), 1)
    middle, common = (low + high) / 2, np.zeros(time.size)
    for _ in range(4):
        offset = np.bincount(sm, middle - common, group.size) / each
        y = np.bincount(cell, middle - offset[sm], groups * pieces).reshape(shape) / cells
        common = _lines(axis, x, np.where(found, y, np.interp(x, x[found], y[found])))
    if means:
        return np.bincount(sm, middle - common, group.size) / each, np.zeros(group.size)
    lowest, highest = np.full(group.size, -np.inf), np.full(group.size, np.inf)
    np.maximum.at(lowest, sm, low - common)
    np.minimum.at(highest, sm, high - common)
    lowest, highest = np.where(each > 1, lowest, 0.0), np.where(each > 1, highest, 0.0)
    mean = np.bincount(sm, middle - common, group.size) / each
    # Where jitter leaves nothing between the bounds, the mean is no worse than their middle: both are taken.
    centre = np.where(lowest <= highest, np.clip(mean, lowest, highest), mean)
    return (lowest + highest + 2 * centre) / 4, np.abs(highest - lowest) / 2


def _lines(at: Floats, x: Floats, y: Floats) -> Floats:
    """Lines through y [groups, pieces] at x, the first and last ones continued to either side."""
    if x.shape[1] > 1:
        first, last = (x[:, side : side + 1] for side in (0, x.shape[1] - 1))
        slope = np.diff(y, axis=1) / np.diff(x, axis=1)
        before, after = y[:, :1] - slope[:, :1] * _PIECE, y[:, -1:] + slope[:, -1:] * _PIECE
        x, y = np.hstack([first - _PIECE, x, last + _PIECE]), np.hstack([before, y, after])
    return np.interp(at, x.reshape(-1), y.reshape(-1))


def _grouped(sms: NDArray[np.uint32], elapsed: Floats, known: NDArray[np.bool_]) -> Ints:
    """[SMs] group numbers: pairs of SMs whose elapsed times lie close together, and each unknown SM alone."""
    pair = np.unique(sms // 2, return_inverse=True)[1]
    count = np.bincount(pair, known)
    mean = np.bincount(pair, np.where(known, elapsed, 0.0)) / np.maximum(count, 1)
    order = np.argsort(np.where(count > 0, mean, np.inf))
    of_pair = np.zeros(mean.size, np.int64)
    of_pair[order] = _cut(mean[order])
    split = np.flatnonzero(~known | (np.abs(elapsed - mean[pair]) > _PAIR))
    group = of_pair[pair]
    group[split] = of_pair.size + split
    return np.unique(group, return_inverse=True)[1]


def _cut(values: Floats) -> Ints:
    """Numbers of the runs of ascending values: cut at wide gaps, and where a run spreads too far."""
    gaps = np.diff(values)
    cuts = gaps > _APART
    while True:
        run = np.concatenate([[0], np.cumsum(cuts)])
        firsts = np.flatnonzero(np.diff(run, prepend=-1))
        lasts = np.append(firsts[1:], values.size) - 1
        wide = np.flatnonzero(values[lasts] - values[firsts] > _SPREAD)
        if not wide.size:
            return run
        for w in wide:
            cuts[firsts[w] + int(gaps[firsts[w] : lasts[w]].argmax())] = True
