"""What a run's steps say of its search: the best's interval, and what chance would have found."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .state import RunState

POINTS = 160  # of the expectation's curve, between which it is straight
TAIL = 1e-15  # probability that is left out of an expectation


def best_band(
    state: RunState,
) -> tuple[tuple[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]:
    """((steps, lower ends), upper ends) of the best's 95% interval, from each new best to the last step."""
    known = [r for r in state.records if r.step is not None and r.speedup_ci is not None]
    if not known:
        return (np.empty(0), np.empty(0)), np.empty(0)
    x = np.array([r.step for r in known], dtype=np.float64)
    ends = np.array([r.speedup_ci for r in known], dtype=np.float64)
    last = float(state.steps.step[-1])
    if last > x[-1]:
        x, ends = np.append(x, last), np.append(ends, ends[-1:], axis=0)
    return (x, ends[:, 0]), ends[:, 1]


def expected_best(
    values: NDArray[np.float64], failures: int, draws: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Expected greatest value among k of n configurations drawn at random without replacement, exactly.

    Args:
        values: The values, greatest first, (m,).
        failures: Configurations without a value: n = m + failures.
        draws: k of each result, 1 to n.

    Returns:
        The expectation for each k, given that at least one drawn configuration has a value.

    With the values in order, the best of k draws is not among the first i with the probability
    S(i) = C(n-i, k) / C(n, k), so that S(i+1) = S(i) (n-i-k) / (n-i); the expectation is the sum of
    v(i) (S(i) - S(i+1)), over 1 - S(m).
    """
    n, m = len(values) + failures, len(values)
    found = np.empty(len(draws))
    for j, k in enumerate(draws.tolist()):
        # S falls at least as fast as (1 - k/n)^i: what is below TAIL changes nothing.
        needed = m if k >= n else int(np.ceil(np.log(TAIL) / np.log1p(-k / n))) + 1
        i = np.arange(min(m, needed))
        survive = np.concatenate([[1.0], np.cumprod(np.maximum(n - i - k, 0) / (n - i))])
        weights = survive[:-1] - survive[1:]
        found[j] = float(values[: len(i)] @ weights) / float(weights.sum())
    return found


def expectation(
    values: NDArray[np.float64], failures: int, last: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    """(draws, the best that so many are expected to have) up to `last` draws; None of fewer than two
    configurations, or where none has a value. `values`: greatest first."""
    n = len(values) + failures
    most = min(n, last)
    if not len(values) or most < 2:
        return None
    draws = np.unique(np.rint(np.geomspace(1, most, POINTS)).astype(np.int64))
    return draws, expected_best(values, failures, draws)


def chance(state: RunState) -> tuple[str, NDArray[np.int64], NDArray[np.float64]] | None:
    """(over what, draws, expected speedup) of a random search: "random" over the whole space where a
    recording knows it, "shuffled" over the configurations that were tried. None where neither is known."""
    info, base = state.info, state.baseline
    if info is None or base is None or base.score_ms is None or not len(state.steps):
        return None
    last = int(state.steps.step[-1])
    if info.known_ms:
        found = expectation(base.score_ms / np.asarray(info.known_ms), info.known_failed, last)
        return None if found is None else ("random", *found)
    values = latest(state)[1]
    good = np.sort(values[np.isfinite(values)])[::-1]
    found = expectation(good, len(values) - len(good), last)
    return None if found is None else ("shuffled", *found)


def latest(state: RunState) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(number, speedup) of each configuration that was tried, by its last step; NaN: it failed."""
    codes = state.steps.config
    known = np.flatnonzero(np.isfinite(codes))[::-1]
    numbers, first = np.unique(codes[known], return_index=True)
    return numbers.astype(np.int64), state.steps.speedup[known[first]]
