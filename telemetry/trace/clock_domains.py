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
_SURE = 8  # SMs, of which the spread is taken for that of a measurement
_WIDER = 1.75  # of half the bounds, as what SMs have in common during calibration is not known exactly
_DENSE, _MANY = 8.0, 64  # readings a microsecond, and in all; so many show whether SMs keep together
_CALM = 10_000.0  # ns after a launch
_LONGEST = 1e6  # ns that calibration takes; what took longer isn't one
_PIECE = 2000.0  # ns of calibration within which an idle clock's lag is taken for a line


@dataclass(frozen=True)
class Domains:
    """SMs in ascending order, one entry each.

    `pivot`: a cycle of each; `before`: ns from the epoch, where calibration before the launch places it;
    `elapsed`: ns by which that afterwards places it later; `half`: half the widths of both places' bounds,
    on average. `offset` follows from these, and `error`, ns by which it may be wrong against the others of
    its `domain`: SMs that don't quite keep together are placed midway.
    """

    sms: NDArray[np.uint32]
    pivot: NDArray[np.uint64]
    before: Floats
    elapsed: Floats
    half: Floats
    domain: Ints

    @cached_property
    def _off(self) -> Floats:
        """By how much an SM took longer than its domain."""
        mean = np.bincount(self.domain, self.elapsed) / np.bincount(self.domain)
        return self.elapsed - mean[self.domain]

    @cached_property
    def offset(self) -> Floats:
        """[SMs] ns."""
        return self.before + self._off / 2

    @cached_property
    def error(self) -> Floats:
        """[SMs] ns; 0 for an SM alone."""
        count = np.bincount(self.domain)
        usual = np.sqrt(np.bincount(self.domain, self._off**2) / np.maximum(count - 1, 1))
        most = np.where(count >= _SURE, 4 * usual / 2, np.inf)  # of the mean of two: four standard deviations
        found = np.minimum(np.abs(self._off) / 2 + _WIDER * self.half, most[self.domain])
        return np.where(count[self.domain] == 1, 0.0, found)

    def apart(self, which: NDArray[np.bool_]) -> Domains:
        """With these SMs in domains of their own."""
        key = np.where(which, np.arange(which.size) + which.size, self.domain)
        return replace(self, domain=np.unique(key, return_inverse=True)[1])

    def parted(self, domains: Ints) -> Domains:
        """With these domains split in pairs of SMs, or pairs in single SMs."""
        key = self.domain * (1 << 33)
        for domain in domains.tolist():
            mine = self.domain == domain
            pairs = self.sms[mine] // 2
            whole = pairs.min() == pairs.max()
            key[mine] += 1 + self.sms[mine].astype(np.int64) // (1 if whole else 2)
        return replace(self, domain=np.unique(key, return_inverse=True)[1])


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
    if ends is None:
        return found.parted(np.flatnonzero(np.bincount(group) > _LARGEST))
    sm = np.searchsorted(sms, headers["sm"][ends.row])
    piece = (ends.time - ends.time.min()).astype(np.int64) // 1000
    size = np.bincount(group)
    traced = np.unique(np.searchsorted(sms, headers["sm"]))
    watched = np.bincount(group[np.searchsorted(sms, beside["sm"])], minlength=size.size) >= _MANY
    few = (_density(sm, piece, sms.size) < _DENSE) | (np.bincount(sm, minlength=sms.size) < _MANY)
    single = np.bincount(group[traced], few[traced], size.size) == 0  # what needs no other SM's readings
    several = (size > _LARGEST) & (_density(group[sm], piece, size.size) < _DENSE)
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
