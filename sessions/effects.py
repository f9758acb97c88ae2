"""What each knob does to the time: the results of a run grouped by each knob's values.

These are marginal effects: what else differed between two groups is not accounted for, and an agent that
searches doesn't try values evenly. They say where to look, not what would happen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .events import Event, Kind
from .store import SessionStore

MOST_VALUES = 64  # of one knob; beyond, a knob has as many values as runs and no groups


@dataclass(frozen=True)
class Level:
    """The results with one value of a knob. Times in ms: median, quartiles and best of the `ok` ones; None
    where none was ok."""

    value: Any
    tried: int
    ok: int
    median_ms: float | None
    low_ms: float | None
    high_ms: float | None
    best_ms: float | None


@dataclass(frozen=True)
class Effect:
    """A knob with its values in order. `share`: of the variance of log time that lies between the values
    (0..1; None if it can't be told)."""

    knob: str
    levels: tuple[Level, ...]
    share: float | None


def effects_of(store: SessionStore) -> list[Effect]:
    """The effects of a session's knobs, largest share first; of those with several values tried."""
    return effects((event.data["config"], event.data.get("score_ms")) for event in _evaluations(store))


def _evaluations(store: SessionStore) -> Iterator[Event]:
    return (e for e in store.events(kinds=[Kind.EVALUATION]) if isinstance(e.data.get("config"), Mapping))


def effects(results: Iterable[tuple[Mapping[str, Any], float | None]]) -> list[Effect]:
    """The effects in `(configuration, time in ms or None)` pairs, as `effects_of`."""
    columns: dict[str, dict[Any, list[float]]] = {}
    for config, score in results:
        time = float(score) if isinstance(score, int | float) and score > 0 else math.nan
        for knob, value in config.items():
            key = value if isinstance(value, str | int | float | bool) else str(value)
            levels = columns.setdefault(knob, {})
            if key in levels or len(levels) <= MOST_VALUES:
                levels.setdefault(key, []).append(time)
    return grouped(columns)


def grouped(columns: Mapping[str, Mapping[Any, ArrayLike]]) -> list[Effect]:
    """The effects of `{knob: {value: times in ms, NaN where it failed}}`, as `effects_of`."""
    arrays = {
        knob: {value: np.asarray(times, dtype=np.float64) for value, times in levels.items()}
        for knob, levels in columns.items()
    }
    found = [
        Effect(knob, tuple(_level(value, times) for value, times in _ordered(levels)), _share(levels))
        for knob, levels in arrays.items()
        if 1 < len(levels) <= MOST_VALUES
    ]
    return sorted(found, key=lambda effect: -1.0 if effect.share is None else -1 - effect.share)


def _ordered(levels: Mapping[Any, np.ndarray]) -> list[tuple[Any, np.ndarray]]:
    numeric = all(isinstance(value, int | float) for value in levels)
    return sorted(levels.items(), key=lambda item: item[0] if numeric else str(item[0]))


def _level(value: Any, times: np.ndarray) -> Level:
    good = times[np.isfinite(times)]
    if not len(good):
        return Level(value, len(times), 0, None, None, None, None)
    low, median, high = (float(q) for q in np.quantile(good, (0.25, 0.5, 0.75)))
    return Level(value, len(times), len(good), median, low, high, float(good.min()))


def _share(levels: Mapping[Any, np.ndarray]) -> float | None:
    groups = [np.log(good) for times in levels.values() if len(good := _finite(times))]
    if sum(len(group) for group in groups) <= len(groups):  # nothing varies within the groups
        return None
    every = np.concatenate(groups)
    whole = float(((every - every.mean()) ** 2).sum())
    between = sum(len(group) * float(group.mean() - every.mean()) ** 2 for group in groups)
    return min(1.0, between / whole) if whole > 1e-12 else None


def _finite(times: np.ndarray) -> np.ndarray:
    return times[np.isfinite(times)]
