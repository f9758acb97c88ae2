"""Statistics behind every verdict.

Comparisons work on one log ratio per block of interleaved samples (A B B A cancels any linear drift) and
invert Wilcoxon's signed-rank test: the estimate is the Hodges-Lehmann median of all pairwise means, its
bounds are exact for any symmetric distribution of the blocks' log ratios, however heavy its tails, and up
to 29% of the blocks may be arbitrarily wrong. Blocks that don't reach the wanted level (fewer than 7 at
99%) give infinite bounds, hence a tie, never a false verdict.

Levels and margins: a *win* needs the one-sided 99% lower bound of the speedup above 1.005, a *loss* the
upper bound below 1/1.005; anything else is a *tie*.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .model import Protocol

Array = NDArray[np.float64]

MARGIN = 0.005  # speedups and slowdowns up to this don't count
BOUND_LEVEL = 0.99  # one-sided, of wins, losses and ties
INTERVAL_LEVEL = 0.95  # two-sided, of what is printed

# ABBA blocks that find a 2% slowdown with at least 90% power, outliers and drift included: 20 at 1% noise a
# sample, 40 at 2%, 80 at 3% (tests/test_stats.py).
DEFAULT_BLOCKS = 80
MIN_BLOCKS = 20
MIN_BLOCKS_OF_MEAN = 30
MAX_BLOCKS = 128


class Verdict(StrEnum):
    """Of b against a: faster, slower, or not shown to differ by more than the margin."""

    WIN = "win"
    LOSS = "loss"
    TIE = "tie"


@dataclass(frozen=True)
class Speedup:
    """How much faster b is than a (a's time / b's time), with its uncertainty.

    `lo`, `hi`: two-sided 95% interval. `win_bound`, `loss_bound`: one-sided 99% lower and upper bound.
    `blocks`: of interleaved samples; 0 where the samples weren't paired.
    """

    ratio: float
    lo: float
    hi: float
    win_bound: float
    loss_bound: float
    blocks: int

    @property
    def verdict(self) -> Verdict:
        """Win, loss or tie, by the one-sided 99% bounds and the 0.5% margin."""
        if self.win_bound > 1 + MARGIN:
            return Verdict.WIN
        if self.loss_bound < 1 / (1 + MARGIN):
            return Verdict.LOSS
        return Verdict.TIE


UNITY = Speedup(1.0, 1.0, 1.0, 1.0, 1.0, 0)  # of the same binary, launched alike


def through(b: Speedup, a: Speedup) -> Speedup:
    """Speedup of b over a, where both were compared with the same third by samples of their own.

    Each bound is the quotient of the two worst ones, so that it errs at most where one of them does: it is
    wider than that of a direct comparison, and never claims more than the two levels together allow.
    """
    return Speedup(
        b.ratio / a.ratio,
        b.lo / a.hi,
        b.hi / a.lo if a.lo > 0 else math.inf,
        b.win_bound / a.loss_bound,
        b.loss_bound / a.win_bound if a.win_bound > 0 else math.inf,
        min(a.blocks, b.blocks),
    )


def geomean(values: Iterable[float]) -> float:
    """Geometric mean. Raises ValueError for no values, or one that isn't positive and finite."""
    array = np.fromiter(values, dtype=np.float64)
    if array.size == 0 or not np.all(np.isfinite(array)) or np.any(array <= 0):
        raise ValueError("a geometric mean needs positive, finite values")
    return float(np.exp(np.log(array).mean()))


# -- one sample -----------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _median_rank(n: int, level: float) -> int:
    """Largest k (from 0) such that [x_(k), x_(n-1-k)] covers the median with at least `level`."""
    tail, term, k = 0.0, 0.5**n, 0
    while k < n // 2 and tail + term <= (1 - level) / 2:
        tail += term
        term *= (n - k) / (k + 1)
        k += 1
    return max(k - 1, 0)


def median_ci(samples: ArrayLike, level: float = INTERVAL_LEVEL) -> tuple[float, float]:
    """Distribution-free interval of the median by order statistics; covers at least `level`.

    Needs independent samples: use `bootstrap_by_round` where rounds are known. Below 6 samples (at 95%)
    it is the whole range, whose coverage is 1 - 2^(1-n). Raises ValueError for no samples.
    """
    x = np.sort(np.asarray(samples, dtype=np.float64), axis=None)
    if x.size == 0:
        raise ValueError("no samples")
    k = 0 if x.size > 1000 else _median_rank(x.size, level)
    if x.size > 1000:  # 0.5**n underflows eventually; the normal approximation is exact to one rank here
        z = NormalDist().inv_cdf((1 + level) / 2)
        k = max(math.floor((x.size - 1 - z * math.sqrt(x.size)) / 2), 0)
    return float(x[k]), float(x[x.size - 1 - k])


class AdaptiveStop:
    """When enough samples of one case are in, by a Protocol's rule.

    Fixed: `samples` of them. Adaptive: at least `min_samples`, and the median's 95% interval lies within
    ±1% or ±0.1 µs of the median, whichever is larger; never more than `samples`.
    """

    RELATIVE = 0.01
    ABSOLUTE_MS = 1e-4

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol

    def enough(self, samples_ms: ArrayLike) -> bool:
        """Whether measuring may stop with these samples (ms)."""
        x = np.asarray(samples_ms, dtype=np.float64)
        if x.size >= self.protocol.samples:
            return True
        if not self.protocol.adaptive or x.size < max(self.protocol.min_samples, 1):
            return False
        median = float(np.median(x))
        allowed = max(self.RELATIVE * median, self.ABSOLUTE_MS)
        lo, hi = median_ci(x)
        return median - lo <= allowed and hi - median <= allowed


# -- rounds ---------------------------------------------------------------------------------------


def _t_quantile(p: float, dof: int) -> float:
    """Student's t quantile by Cornish-Fisher expansion (within 0.1% for dof >= 5)."""
    z = NormalDist().inv_cdf(p)
    return (
        z
        + (z**3 + z) / (4 * dof)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * dof**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * dof**3)
    )


def _expanded_tail(rounds: int, level: float) -> float:
    """Tail probability that makes a percentile interval over few rounds cover `level` (Hesterberg 2015)."""
    if rounds < 2:
        return (1 - level) / 2
    t = _t_quantile((1 + level) / 2, rounds - 1)
    return NormalDist().cdf(-t * math.sqrt(rounds / (rounds - 1)))


def _weighted_medians(x: Array, group: NDArray[np.int64], counts: NDArray[np.int64]) -> Array:
    """Median of x where sample i occurs counts[:, group[i]] times; one for each row of counts."""
    order = np.argsort(x, kind="stable")
    values, weights = x[order], counts[:, group[order]]
    cumulative = np.cumsum(weights, axis=1)
    total = cumulative[:, -1:]
    low = np.argmax(2 * cumulative >= total, axis=1)
    high = np.argmax(2 * cumulative > total, axis=1)
    return (values[low] + values[high]) / 2


def _resampled_rounds(rounds: int, resamples: int, seed: int) -> NDArray[np.int64]:
    rng = np.random.default_rng(seed)
    return rng.multinomial(rounds, np.full(rounds, 1 / rounds), size=resamples)


def bootstrap_by_round(
    samples: ArrayLike,
    rounds: ArrayLike,
    *,
    level: float = INTERVAL_LEVEL,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Interval of the median when samples of one round share that round's conditions.

    Whole rounds are drawn with replacement; percentiles are widened for the small number of rounds. One
    round alone falls back on `median_ci`. Raises ValueError for no samples or unequal lengths.
    """
    x = np.asarray(samples, dtype=np.float64)
    labels, group = np.unique(np.asarray(rounds), return_inverse=True)
    if x.size == 0 or x.shape != group.shape:
        raise ValueError(f"{x.size} samples with {group.size} round numbers")
    if len(labels) < 2:
        return median_ci(x, level)
    medians = _weighted_medians(x, group, _resampled_rounds(len(labels), resamples, seed))
    tail = _expanded_tail(len(labels), level)
    lo, hi = np.quantile(medians, (tail, 1 - tail))
    return float(lo), float(hi)


def round_logs(samples: ArrayLike, rounds: ArrayLike) -> Array:
    """Log of each round's median, in order of round number, shape [rounds].

    Rounds of two configurations measured together pair up; average over cases for a score's logs.
    """
    x, r = np.asarray(samples, dtype=np.float64), np.asarray(rounds)
    return np.array([math.log(float(np.median(x[r == label]))) for label in np.unique(r)])


# -- pairs ----------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _signed_rank_cumulative(n: int) -> Array:
    """P(W <= w) of Wilcoxon's signed-rank statistic for w = 0, 1, …, n(n+1)/2, exactly."""
    p = np.zeros(n * (n + 1) // 2 + 1)
    p[0] = 1.0
    for i in range(1, n + 1):
        shifted = np.zeros_like(p)
        shifted[i:] = p[:-i]
        p = (p + shifted) / 2
    return np.cumsum(p)


def _walsh(d: Array) -> Array:
    """All pairwise means (i <= j) of d along its last axis, sorted; shape [..., n(n+1)/2]."""
    i, j = np.triu_indices(d.shape[-1])
    return np.sort((d[..., i] + d[..., j]) / 2, axis=-1)


def _rank_of_bound(n: int, tail: float) -> int:
    """The bound is the q-th smallest pairwise mean (from 1); 0 where n can't reach the tail."""
    return int(np.searchsorted(_signed_rank_cumulative(n), tail, side="right"))


def _bounds(walsh: Array, n: int, tail: float) -> tuple[float, float]:
    q = _rank_of_bound(n, tail)
    if q == 0:
        return -math.inf, math.inf
    return float(walsh[q - 1]), float(walsh[-q])


def block_logs(a_ms: ArrayLike, b_ms: ArrayLike) -> Array:
    """One log ratio log(a/b) per block; inputs [blocks, samples] (or [blocks]) in ms.

    Blocks with a sample that isn't positive and finite are left out.
    Raises ValueError for different numbers of blocks.
    """
    a, b = (np.asarray(x, dtype=np.float64) for x in (a_ms, b_ms))
    if len(a) != len(b):
        raise ValueError(f"{len(a)} blocks of a, {len(b)} of b")
    if len(a) == 0:
        return np.empty(0)
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    good = np.all(np.isfinite(a) & (a > 0), axis=1) & np.all(np.isfinite(b) & (b > 0), axis=1)
    return np.log(a[good]).mean(axis=1) - np.log(b[good]).mean(axis=1)


def speedup_of_logs(d: ArrayLike) -> Speedup:
    """Estimate, interval and bounds from one log ratio per block. Raises ValueError for none."""
    logs = np.asarray(d, dtype=np.float64)
    n = logs.size
    if n == 0:
        raise ValueError("no usable blocks")
    walsh = _walsh(logs)
    lo, hi = _bounds(walsh, n, (1 - INTERVAL_LEVEL) / 2)
    win, loss = _bounds(walsh, n, 1 - BOUND_LEVEL)
    ratio = math.exp(float(np.median(walsh)))
    return Speedup(ratio, math.exp(lo), math.exp(hi), math.exp(win), math.exp(loss), n)


def paired_speedup(a_ms: ArrayLike, b_ms: ArrayLike) -> Speedup:
    """Speedup of b over a from interleaved samples, shape [blocks, samples of the block] each, in ms.

    Samples of a block belong together in time (A B B A, best alternating with B A A B so that being first
    costs both the same). 20 blocks are the fewest worth measuring.
    """
    return speedup_of_logs(block_logs(a_ms, b_ms))


def combined_speedup(pairs: Sequence[tuple[ArrayLike, ArrayLike]]) -> Speedup:
    """Speedup in geometric mean over cases: `pairs` holds (a_ms, b_ms) of each case.

    Block i of every case is averaged; surplus blocks are left out.
    """
    logs = [block_logs(a, b) for a, b in pairs]
    n = min(len(d) for d in logs)
    return speedup_of_logs(np.mean([d[:n] for d in logs], axis=0))


def tied(best: ArrayLike, others: ArrayLike) -> NDArray[np.bool_]:
    """Which configurations are statistically tied with the best.

    A configuration is tied unless it is shown to be slower than the best by more than 0.5%: the one-sided
    99% lower bound of (its time / the best's) is at most 1.005. That is, unless it loses against the best.

    Args:
        best: log times of the best by round or block, shape [rounds].
        others: the same of the others, shape [configurations, rounds], in the same rounds.
    """
    d = np.asarray(others, dtype=np.float64) - np.asarray(best, dtype=np.float64)
    n = d.shape[-1]
    q = _rank_of_bound(n, 1 - BOUND_LEVEL)
    if q == 0:
        return np.ones(d.shape[:-1], dtype=bool)
    return _walsh(d)[..., q - 1] <= math.log1p(MARGIN)


def blocks_for(samples_ms: ArrayLike) -> int:
    """How many ABBA blocks find a 2% difference with 90% power, from earlier samples of the kernel (ms).

    Between 20 and 128, by the samples' robust relative spread: ((2.33 + 1.28)·spread / 1.5%)², two thirds
    added for small samples and outliers. 80 where fewer than 10 samples are known. Take the samples from
    an earlier measurement, never from the comparison itself.
    """
    return blocks_for_mean([samples_ms])


def blocks_for_mean(samples_ms: Sequence[ArrayLike]) -> int:
    """As `blocks_for`, of each of several cases, for a 2% difference in their geometric mean.

    The mean of so many log ratios, whose noise is independent, spreads less than any one of them, but an
    outlier in any case spoils the block of all: hence at least 30 blocks, and twice as many more
    (tests/test_stats.py).
    """
    series = [np.asarray(x, dtype=np.float64) for x in samples_ms]
    if any(x.size < 10 for x in series):
        return DEFAULT_BLOCKS
    spread = math.hypot(*(_robust_spread(x) for x in series)) / len(series)
    more, fewest = (5 / 3, MIN_BLOCKS) if len(series) == 1 else (3, MIN_BLOCKS_OF_MEAN)
    wanted = more * ((2.33 + 1.28) * spread / 0.015) ** 2
    return int(min(max(math.ceil(wanted), fewest), MAX_BLOCKS))


def _robust_spread(x: Array) -> float:
    """Relative to the median; a normal distribution's standard deviation."""
    median = float(np.median(x))
    return 1.4826 * float(np.median(np.abs(x - median))) / median


# -- samples that nothing pairs --------------------------------------------------------------------

FEWEST = 7  # samples: below, even their whole range misses the median more often than a bound may


@lru_cache(maxsize=64)
def _block_draws(n: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """Indices of circular runs of consecutive samples, `n` of them a row; an eighth of the series long."""
    length = max(n // 8, 1)
    starts = np.random.default_rng([seed, n]).integers(n, size=(resamples, math.ceil(n / length)))
    return ((starts[:, :, None] + np.arange(length)) % n).reshape(resamples, -1)[:, :n]


def _drawn_medians(x: Array, seed: int, resamples: int = 2000) -> Array:
    return np.median(x[_block_draws(x.size, resamples, seed)], axis=1)


def block_bootstrap(samples: ArrayLike, level: float = INTERVAL_LEVEL) -> tuple[float, float] | None:
    """Interval of the median of one series, in measuring order; None for a single sample.

    Runs of consecutive samples are drawn with replacement (an eighth of the series each), so that a drift
    shorter than that counts; percentiles are widened as for eight rounds. Fewer than 7 samples give their
    whole range. Raises ValueError for no samples.
    """
    x = np.asarray(samples, dtype=np.float64)
    if x.size < FEWEST:
        return median_ci(x, level) if x.size != 1 else None
    tail = _expanded_tail(x.size // max(x.size // 8, 1), level)
    lo, hi = np.quantile(_drawn_medians(x, 0), (tail, 1 - tail))
    return float(lo), float(hi)


def unpaired_speedup(pairs: Sequence[tuple[ArrayLike, ArrayLike]]) -> Speedup:
    """Speedup of b over a from samples that were measured apart; `blocks` is 0.

    The ratio is that of the medians (geometric mean over cases: `pairs` holds (a_ms, b_ms) of each, shapes
    [n] and [m], in measuring order); its bounds are percentiles of a bootstrap of runs of consecutive
    samples, drawn for each series on its own. A drift *between* two series isn't in their samples: these
    intervals don't cover it. A series of fewer than 7 samples gives infinite bounds, hence a tie.
    """
    if not pairs:
        raise ValueError("no cases")
    series = [(np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)) for a, b in pairs]
    ratio = geomean([float(np.median(a) / np.median(b)) for a, b in series])
    fewest = min(min(a.size, b.size) for a, b in series)
    if fewest < FEWEST:
        return Speedup(ratio, 0.0, math.inf, 0.0, math.inf, 0)
    logs = np.mean(
        [
            np.log(_drawn_medians(a, 2 * i)) - np.log(_drawn_medians(b, 2 * i + 1))
            for i, (a, b) in enumerate(series)
        ],
        axis=0,
    )
    units = min(x.size // max(x.size // 8, 1) for pair in series for x in pair)
    interval, bound = _expanded_tail(units, INTERVAL_LEVEL), _expanded_tail(units, 2 * BOUND_LEVEL - 1)
    lo, hi, win, loss = np.exp(np.quantile(logs, (interval, 1 - interval, bound, 1 - bound)))
    return Speedup(ratio, float(lo), float(hi), float(win), float(loss), 0)
