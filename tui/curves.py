"""RunState to the curves of the Run screen's plots. Pure functions, and a cache of what is costly."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sessions.effects import Effect, grouped
from ..sessions.progress import best_band, expectation, latest
from ..sessions.state import RunState
from .braille import Series, Shape
from .format import ratio

MEAN_WINDOW = 50  # steps in the reward's running mean, drawn from twice as many steps on
MANY, STRIDE = 4096, 10  # steps from which on the mean is taken at every STRIDE-th
Z95 = 1.959964  # two-sided 95% of a normal distribution
GROWTH = 1.02  # the expectation over what was tried is computed again after so many times more


def reward_series(state: RunState) -> list[Series]:
    """Reward of each step, and its running mean with a 95% interval once there are many: at every STRIDE-th
    step where there are more than can be told apart."""
    points = Series.of(state.steps.step, state.steps.reward, Shape.DOTS, "step", "each")
    series = [points]
    if len(points.x) >= 2 * MEAN_WINDOW:
        stride = 1 if len(points.x) < MANY else STRIDE
        whole = len(points.y) // stride * stride
        parts = points.y[:whole].reshape(-1, stride)
        window = MEAN_WINDOW // stride
        total = np.cumsum(np.concatenate([[0.0], parts.sum(axis=1)]))
        square = np.cumsum(np.concatenate([[0.0], np.einsum("ij,ij->i", parts, parts)]))
        mean = (total[window:] - total[:-window]) / MEAN_WINDOW
        variance = (square[window:] - square[:-window]) / MEAN_WINDOW - mean**2
        half = Z95 * np.sqrt(np.maximum(variance, 0.0) / (MEAN_WINDOW - 1))
        x = points.x[MEAN_WINDOW - 1 : whole : stride].copy()
        band = Series.of(x, mean - half, Shape.BAND, "95%", "band", mean + half)
        series = [band, points, Series(x, mean, Shape.LINE, f"mean of {MEAN_WINDOW}", "mean")]
    return series


def speedup_series(state: RunState, chance: Series | None = None) -> list[Series]:
    """Speedup of each step over the baseline's 1; the vendor's and the roofline's; failures as a rug; what
    chance would have found; the best so far as stairs, in its 95% interval."""
    x, y = state.steps.step, state.steps.speedup
    if not len(x):
        return []
    failed = x[~np.isfinite(y)]
    base = state.baseline
    vendor = 1 / base.vendor_ratio if base is not None and base.vendor_ratio else None
    floor = 1 / base.floor_ratio if base is not None and base.floor_ratio else None
    low, high = best_band(state)
    series = [
        Series.of(low[0], low[1], Shape.BAND, "95%", "band", high),
        Series.of([x[0]], [1.0], Shape.DASHES, "baseline", "level"),
        _level(x, vendor, Shape.DOTTED, "vendor", "vendor"),
        Series.of(failed, np.zeros_like(failed), Shape.RUG, "failed", "failed"),
        _level(x, floor, Shape.LONG, "floor", "floor"),
        *([] if chance is None else [chance]),
        Series.of(x, y, Shape.DOTS, "step", "each"),
        Series.of(x, state.steps.best, Shape.STAIRS, "best", "best"),
    ]
    return [s for s in series if len(s.x)]


def _level(x: NDArray[np.float64], value: float | None, shape: Shape, label: str, style: str) -> Series:
    words = label if value is None else f"{label} {ratio(value)}"
    return Series.of([] if value is None else [x[0]], [] if value is None else [value], shape, words, style)


class Chance:
    """The random search's expected best over the steps of a run: computed when what it follows from changes.

    Over the whole space where the device knows it ("random"), else over the configurations that the run has
    tried ("shuffled": what the same ones in another order would have shown).
    """

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._curve: Series | None = None

    def of(self, state: RunState) -> Series | None:
        """The curve; None where there is nothing to compute it from."""
        info, base = state.info, state.baseline
        if info is None or base is None or base.score_ms is None or not len(state.steps):
            return None
        last = int(state.steps.step[-1])
        if info.known_ms:
            key = ("random", info.known_ms[0], len(info.known_ms), base.score_ms, last)
            if key != self._key:
                self._key = key
                values = base.score_ms / np.asarray(info.known_ms)
                self._curve = _chance(expectation(values, info.known_failed, last), "random")
            return self._curve
        configs = len(state.steps)
        same = self._key[:2] == ("shuffled", base.score_ms)
        if same and isinstance(self._key[2], int) and self._key[2] <= configs <= GROWTH * self._key[2]:
            return self._curve
        self._key = ("shuffled", base.score_ms, configs)
        values = latest(state)[1]
        good = np.sort(values[np.isfinite(values)])[::-1]
        self._curve = _chance(expectation(good, len(values) - len(good), last), "shuffled")
        return self._curve


def _chance(found: tuple[NDArray[np.int64], NDArray[np.float64]] | None, label: str) -> Series | None:
    return None if found is None else Series.of(*found, Shape.SPARSE, label, "chance")


def no_effects(state: RunState) -> str:
    """Why there are none, in words."""
    if state.info is not None and not state.info.knobs:
        return "this run has no knobs"
    if len(state.steps) and not np.isfinite(state.steps.config).any():
        return "the steps don't say which configurations they tried"
    return "no configurations yet"


def knob_effects(state: RunState) -> tuple[list[Effect], float | None]:
    """(each knob's effect, the most important first; median time of all) over the configurations tried, each
    by its last step. Times in ms; none before the baseline is known."""
    info, base = state.info, state.baseline
    if info is None or base is None or base.score_ms is None or not info.knobs:
        return [], None
    numbers, speedups = latest(state)
    times = base.score_ms / speedups
    good = times[np.isfinite(times)]
    if not len(good):
        return [], None
    columns: dict[str, dict[Any, NDArray[np.float64]]] = {}
    for name, values in reversed(list(info.knobs.items())):  # the last knob counts by one
        numbers, place = np.divmod(numbers, len(values))
        order = np.argsort(place, kind="stable")
        edges = np.searchsorted(place[order], np.arange(len(values) + 1))
        parts = [times[order[a:b]] for a, b in pairwise(edges.tolist())]
        columns[name] = {value: part for value, part in zip(values, parts, strict=True) if len(part)}
    return grouped(dict(reversed(list(columns.items())))), float(np.median(good))
