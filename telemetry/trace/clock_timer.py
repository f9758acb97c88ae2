"""When the timer really takes its steps.

A timer that counts another clock's beats steps at the first of them after it is due: late by an amount that
changes by as much from step to step, and begins anew. On an H200 beats are 9.26 ns apart, so that steps of
32 ns come up to as much late. All SMs see it alike: it shows in the calibration beside a launch, and can be
taken off all readings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_RUN = 16  # steps of an SM between which an idle clock's lag is taken for a line
_NEAR = 16  # cycles between two readings that a step lies between, to tell when it was
_FEW, _MOST = 400, 1 << 20  # of such pairs; steps from the first to the last
_UNSURE = 0.04  # of a beat: which of two a step came with
_SURE = 0.9  # of a beat, in which it can't be another's
_WORTH = 0.8  # what is left of the spread, at most
_USUAL = 3.0  # ns, of an idle SM's steps about a line
_SIMPLE, _CLOSE = (
    9,
    0.002,
)  # so close to a fraction of up to ninths the few places that steps come at tell too little


@dataclass(frozen=True)
class Timer:
    """Steps of `tick` ns, each up to half a `beat` early or late: by `ratio` of it less than the last."""

    tick: float
    first: int = 0  # of the steps that it was learnt from, ns
    beat: float = 0.0  # negative: by more than the last; 0: all steps come in time
    ratio: float = 0.0
    phase: float = 0.0

    def early(self, time: NDArray[np.uint64]) -> Floats:
        """At the least, how far off from its even place the step to `time` came, ns."""
        return self._off(time, -1)

    def late(self, time: NDArray[np.uint64]) -> Floats:
        """And the step after it, at the most."""
        return self._off(time + np.uint64(self.tick), 1)

    def _off(self, time: NDArray[np.uint64], side: int) -> Floats:
        if not self.beat:
            return np.zeros(time.shape)
        part = self._part(time)
        unsure = np.minimum(part, 1 - part) < _UNSURE
        return np.where(unsure, side * abs(self.beat) / 2, self.beat * (0.5 - part))

    def _part(self, time: NDArray[np.uint64]) -> Floats:
        number = (time - np.uint64(self.first)).view(np.int64) / self.tick
        return (number * self.ratio - self.phase) % 1.0


def timer(anchors: NDArray[Any], quiet: NDArray[np.bool_], rate: float, tick: float) -> Timer:
    """The timer, by readings of SMs just before and after its steps; even steps if that is not seen.

    `anchors`: in the order in which they were made, SM by SM; `quiet`: those of idle SMs; `rate`: ns a cycle.
    The others bridge the time between: over a long break without readings, ratios that differ by a whole turn
    are nearly as good.
    """
    plain = Timer(tick)
    a, b = anchors[:-1], anchors[1:]
    pair = (a["sm"] == b["sm"]) & (b["time"] == a["time"] + np.uint64(tick)) & (b["clock"] > a["clock"])
    pair &= b["clock"] - a["clock"] <= _NEAR
    before, after, calm = a[pair], b[pair], quiet[1:][pair]
    if np.count_nonzero(calm) < _FEW or tick != np.floor(tick):
        return plain
    first = after["time"].min()
    number = ((after["time"] - first) // np.uint64(tick)).astype(np.int64)
    if number.max() >= _MOST:
        return plain
    # Each SM's readings in short runs: its steps less a line through them.
    fresh = (np.diff(after["sm"], prepend=after["sm"][:1]) != 0) | (np.diff(number, prepend=0) < 0)
    fresh |= np.diff(number, prepend=0) > 1000
    start = np.flatnonzero(fresh | (np.arange(number.size) == 0))
    within = np.arange(number.size) - np.repeat(start, np.diff(start, append=number.size))
    run = np.cumsum(within % _RUN == 0) - 1
    start = np.flatnonzero(within % _RUN == 0)
    since = (before["clock"] - before["clock"][start][run]).astype(np.float64)
    middle = (since + (after["clock"] - before["clock"]) / 2) * rate
    off = (number - number[start][run]) * tick - middle
    off = _detrended(run, since, off)
    spread = np.bincount(run, off * off) / np.bincount(run)  # large where a clock changed meanwhile
    ratio = _ratio(number, off / (1 + spread[run] / _USUAL**2))
    if simple(ratio):
        return plain
    number, run, since, off = number[calm], run[calm], since[calm], off[calm]
    part = number * ratio % 1.0
    best, width = (np.inf, 0.0, 0.0), 0.5
    for count in (64, 8):
        for phase in best[2] + width * np.linspace(-1, 1, count, endpoint=False):
            saw = (part - phase) % 1.0 - 0.5
            inner = np.abs(saw) < _SURE / 2
            beat = float((off * saw)[inner].sum()) / max(float((saw * saw)[inner].sum()), 1e-9)
            best = min(best, (float(np.abs(off - beat * saw).mean()), beat, float(phase)))
        width /= 64
    left, beat, phase = best
    if not left < _WORTH * float(np.abs(off).mean()):
        return plain
    # A step takes a whole number of beats and `ratio` of one. The lines took a part of both off.
    saw, sign = (part - phase) % 1.0 - 0.5, 1 if beat > 0 else -1
    inner = np.abs(saw) < _SURE / 2
    saw = _detrended(run, since, saw)[inner]
    seen = abs(float(off[inner] @ saw))
    if seen * _MOST < tick:
        return plain
    whole = max(1, round(tick * float(saw @ saw) / seen - sign * ratio))
    return Timer(tick, int(first), sign * tick / (whole + sign * ratio), ratio, phase)


def simple(ratio: float) -> bool:
    """Whether steps come at so few places of a beat, over and over, that these can't be told from others."""
    return any(abs(ratio - round(ratio * n) / n) < _CLOSE for n in range(1, _SIMPLE + 1))


def _detrended(run: NDArray[np.int64], x: Floats, y: Floats) -> Floats:
    """y less a line through each run's."""
    count = np.maximum(np.bincount(run), 1)
    x = x - (np.bincount(run, x) / count)[run]
    y = y - (np.bincount(run, y) / count)[run]
    slope = np.bincount(run, x * y) / np.maximum(np.bincount(run, x * x), 1e-9)
    return y - slope[run] * x


def _ratio(number: NDArray[np.int64], off: Floats) -> float:
    """The frequency, a step, that `off` has most of: in (0, 0.5)."""
    number, step = np.unique(number, return_inverse=True)  # all SMs see the same steps
    off = np.bincount(step, off).astype(np.float64)
    size = 1 << int(number.max()).bit_length() + 2
    found = np.abs(np.fft.rfft(np.bincount(number, off), size))
    found[: size // 64] = 0
    ratio, width = float(found.argmax()) / size, 1 / size
    for _ in range(3):
        tried = ratio + width * np.linspace(-1, 1, 17)
        height = [abs(np.exp(2j * np.pi * (number * f % 1.0)) @ off) for f in tried]
        ratio, width = float(tried[int(np.argmax(height))]), width / 8
    return ratio
