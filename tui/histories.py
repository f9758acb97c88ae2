"""NVML samples as histories: shares of each value's scale, drawn as lines of characters, and what held the
clock down."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sessions.drawing import Drawing
from .braille import BRAILLE, Series, Shape
from .charts import Chart, Sheet

# Clock event reasons that are as they were asked for; any other holds the clock down.
QUIET = frozenset({"idle", "applications clocks", "display clock setting"})


STEPS_S = (
    1,
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    15,
    20,
    30,
    60,
    120,
    300,
    600,
)  # seconds that a column of a history may stand for
SPARKS = "▁▂▃▄▅▆▇█"
LEFT, RIGHT = (0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08)  # dots of a braille character, upwards
# Each gauge's field of a sample, and the one (or the number) that it is a share of.
GPU_UTIL = ("gpu_util", 100.0)
MEMORY = ("mem_used", "mem_total")
TEMPERATURE = ("temp_c", 100.0)
POWER = ("power_w", "power_limit_w")
SM_CLOCK = ("sm_mhz", "sm_max_mhz")
MEMORY_CLOCK = ("mem_mhz", "mem_max_mhz")
SHARES = (GPU_UTIL, MEMORY, TEMPERATURE, POWER, SM_CLOCK, MEMORY_CLOCK)


@dataclass(frozen=True, eq=False)
class History:
    """Samples, oldest first, as columns: seconds before the newest (≤ 0), and each gauge's share of its scale
    (NaN where it isn't known); `held`: whether anything held the clock down, and `reasons` what."""

    seconds: NDArray[np.float64]
    shares: Mapping[str, NDArray[np.float64]]
    held: NDArray[np.bool_]
    reasons: tuple[tuple[str, ...], ...]

    @property
    def span_s(self) -> float:
        """Seconds from the oldest to the newest."""
        return float(-self.seconds[0]) if len(self.seconds) else 0.0


def others(samples: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The latest readings of the machine's other GPUs; they come less often than samples."""
    return next((s["others"] for s in reversed(samples) if s.get("others")), ())


def other_key(index: int) -> str:
    """The key of another GPU's utilisation among a history's shares."""
    return f"gpu{index}_util"


def history(samples: Sequence[Mapping[str, Any]]) -> History | None:
    """The history of `sample` events' data; None of fewer than two with a time."""
    timed = [s for s in samples if s.get("t") is not None]
    if len(timed) < 2:
        return None
    t = np.array([s["t"] for s in timed], dtype=np.float64)
    reasons = tuple(tuple(r for r in s.get("throttle") or () if r not in QUIET) for s in timed)

    def column(key: str | float) -> NDArray[np.float64]:
        if not isinstance(key, str):
            return np.full(len(timed), key)
        return np.array([s.get(key) for s in timed], dtype=np.float64)  # None becomes NaN

    with np.errstate(divide="ignore", invalid="ignore"):
        shares = {key: column(key) / column(whole) for key, whole in SHARES}
    for index in {other["index"] for other in others(timed)}:
        own = [
            next((o["gpu_util"] for o in s.get("others") or () if o["index"] == index), None) for s in timed
        ]
        shares[other_key(index)] = np.array(own, dtype=np.float64) / 100
    return History(t - t[-1], shares, np.array([bool(r) for r in reasons]), reasons)


def spark(levels: Sequence[float | None]) -> str:
    """Shares of a scale as one row of braille, two a character; blank where there is none, so that a pause
    shows."""
    dots = [0 if v is None else 1 + round(min(max(v, 0.0), 1.0) * 3) for v in levels]
    pairs = zip(dots[::2], dots[1::2], strict=True)
    return "".join(chr(BRAILLE + sum(LEFT[:left]) + sum(RIGHT[:right])) for left, right in pairs)


def throttled(past: History) -> str:
    """What held the clock down, and in which share of the samples, most often first; "" if nothing did."""
    if not past.held.any():
        return ""
    counts = Counter(reason for reasons in past.reasons for reason in reasons)
    parts = [f"{100 * n / len(past.reasons):.0f}% {reason}" for reason, n in counts.most_common()]
    return ", ".join(parts)


def step_s(past: History, width: int) -> float:
    """Seconds a column of a history stands for: the first of `STEPS_S` with which all of it fits."""
    return next(
        (float(step) for step in STEPS_S if past.span_s < step * width), past.span_s / max(1, width - 1)
    )


def spark_levels(
    shares: NDArray[np.float64], seconds: NDArray[np.float64], width: int, step: float
) -> list[float | None]:
    """The mean of each of `width` columns, the newest at the right; None without samples."""
    column = width - 1 + np.ceil(seconds / step - 1e-9).astype(np.int64)
    shown = (column >= 0) & np.isfinite(shares)
    count = np.bincount(column[shown], minlength=width)
    total = np.bincount(column[shown], weights=shares[shown], minlength=width)
    return [t / n if n else None for t, n in zip(total.tolist(), count.tolist(), strict=True)]


def area_row(levels: Sequence[float | None], row: int, tall: int) -> str:
    """One row, from the bottom, of an area `tall` rows high."""
    parts = []
    for level in levels:
        if level is None:
            parts.append(" ")
            continue
        eighths = round(min(max(level, 0.0), 1.0) * tall * 8) - row * 8
        parts.append(" " if eighths < 0 or (eighths == 0 and row) else SPARKS[min(max(eighths - 1, 0), 7)])
    return "".join(parts)


@dataclass(frozen=True, eq=False)
class Telemetry:
    """Samples to save: each gauge's history as a curve, and every number that was sampled."""

    title: str
    past: History
    samples: Sequence[Mapping[str, Any]]

    def csv(self) -> str:
        """A row a sample; what NVML didn't report is empty, reasons are joined by "; "."""
        return Sheet(self.title, (), (), values=[_flat(sample) for sample in self.samples]).csv()

    def drawing(self) -> Drawing:
        """Shares of each value's scale over the seconds before the newest sample."""
        styles = itertools.chain(
            ("each", "best", "vendor", "floor", "chance", "level"), itertools.repeat("failed")
        )
        curves = [
            Series.of(self.past.seconds, 100 * shares, Shape.LINE, key, style)
            for (key, shares), style in zip(self.past.shares.items(), styles, strict=False)
        ]
        known = [curve for curve in curves if len(curve.x)]
        return Chart(self.title, "seconds before the newest sample", "%", known).drawing()


def _flat(sample: Mapping[str, Any]) -> dict[str, Any]:
    plain = {k: "; ".join(map(str, v)) if k == "throttle" and v is not None else v for k, v in sample.items()}
    for other in sample.get("others") or ():
        plain |= {
            f"gpu{other['index']}_{k}": v for k, v in _flat(other).items() if k not in ("index", "name")
        }
    return {k: v for k, v in plain.items() if v is None or isinstance(v, str | int | float)}
