"""What a quantity is: our name for a number, and the ways to compute it from Nsight Compute's counters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Combine = Callable[[Sequence[float]], float | None]


def only(values: Sequence[float]) -> float:
    """The single counter itself."""
    return values[0]


def total(values: Sequence[float]) -> float:
    """The counters' sum."""
    return sum(values)


def product(values: Sequence[float]) -> float:
    result = 1.0
    for value in values:
        result *= value
    return result


def percent(values: Sequence[float]) -> float | None:
    """The first counter as percent of the second; undefined where that is 0."""
    return 100.0 * values[0] / values[1] if values[1] > 0 else None


def quotient(values: Sequence[float]) -> float | None:
    return values[0] / values[1] if values[1] > 0 else None


def per_second(values: Sequence[float]) -> float | None:
    """A count over a duration in nanoseconds."""
    return values[0] * 1e9 / values[1] if values[1] > 0 else None


def in_time(values: Sequence[float]) -> float:
    """A rate by second times a duration in nanoseconds."""
    return values[0] * values[1] / 1e9


def share_of_first_two(values: Sequence[float]) -> float | None:
    whole = sum(values)
    return 100.0 * (values[0] + values[1]) / whole if whole > 0 else None


def nonzero(values: Sequence[float]) -> float | None:
    """The counter; an average over no accesses reads 0, which is no average."""
    return values[0] if values[0] > 0 else None


def of_a_sector(values: Sequence[float]) -> float | None:
    """Bytes used of a 32-byte sector, in percent."""
    return 100.0 * values[0] / 32.0 if values[0] > 0 else None


def weighted(weights: Sequence[float], times_last: bool = False) -> Combine:
    """Sum of weight × counter; with `times_last` that sum times one more counter."""

    def combine(values: Sequence[float]) -> float:
        value = sum(w * v for w, v in zip(weights, values, strict=False))
        return value * values[-1] if times_last else value

    return combine


def scaled(factor: float) -> Combine:
    return lambda values: factor * product(values)


@dataclass(frozen=True)
class Way:
    """One way to get a quantity: counters and how they combine.

    `only_on`, `not_on`: major compute capabilities that have, or lack, these counters.
    """

    counters: tuple[str, ...]
    combine: Combine = only
    only_on: tuple[int, ...] = ()
    not_on: tuple[int, ...] = ()

    def on(self, capability: tuple[int, int]) -> bool:
        """Whether chips of this compute capability have the counters."""
        return capability[0] not in self.not_on and (not self.only_on or capability[0] in self.only_on)

    @property
    def everywhere(self) -> bool:
        """Whether every chip from Volta to Blackwell has the counters."""
        return not self.only_on and not self.not_on


@dataclass(frozen=True)
class Quantity:
    """A number that warpdeck shows: our name, words, unit, one sentence, and the ways to get it.

    `undefined`: why it has no value although its counters were read.
    """

    name: str
    label: str
    unit: str
    meaning: str
    ways: tuple[Way, ...]
    undefined: str = ""
