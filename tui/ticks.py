"""Round values for axes, and their labels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most `most` round values (1, 2 or 5 times a power of ten apart) within [low, high]."""
    span = high - low
    if most < 1 or not math.isfinite(span) or span <= 0:
        return []
    magnitude = 10.0 ** math.floor(math.log10(span / most))
    for factor in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0):
        step = factor * magnitude
        first = math.ceil(low / step - 1e-9)
        last = math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [k * step + 0.0 for k in range(first, last + 1)]
    return []


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """As `ticks`, for decimal logarithms: of 1, 2 or 5 times powers of ten, or of powers alone."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [power + math.log10(factor) for power in powers for factor in factors]
        found = [value for value in found if low <= value <= high]
        if len(found) <= most:
            return found
    return ticks(low, high, most)


def tick_labels(values: Sequence[float]) -> list[str]:
    """The shortest decimals that tell the values apart; thousands as k, millions as M."""
    if not values:
        return []
    largest = max(abs(v) for v in values)
    divisor, suffix = next(((d, s) for d, s in ((1e6, "M"), (1e3, "k")) if largest >= 10 * d), (1.0, ""))
    step = min((b - a for a, b in itertools.pairwise(values)), default=largest or 1.0) / divisor
    if largest and (largest < 1e-3 or largest >= 1e9):
        return [f"{v:.1e}" for v in values]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    return [f"{v / divisor:.{min(decimals, 4)}f}{suffix if v else ''}" for v in values]


def log_labels(logarithms: Sequence[float]) -> list[str]:
    """The values whose decimal logarithms these are, without exponents where a few zeros do."""
    values = [10.0**v for v in logarithms]
    return [f"{v:.0f}" if 1e3 <= v < 1e7 else f"{v:.4g}" for v in values]


def power_labels(exponents: Sequence[float]) -> list[str]:
    """Labels of powers of ten, for logarithmic axes: "0.1", "100", "10k", "1T"."""
    labels = []
    for exponent in exponents:
        power, rest = divmod(round(exponent), 3)
        if -1 <= power <= 0:
            labels.append(f"{10.0 ** round(exponent):g}")
        elif 1 <= power <= 5:
            labels.append(f"{10**rest}{'kMGTP'[power - 1]}")
        else:
            labels.append(f"1e{round(exponent)}")
    return labels
