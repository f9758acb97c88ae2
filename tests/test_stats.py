"""Statistics: exactness against brute force, and error rates by seeded simulation of GPU timing noise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.core.model import Protocol
from warpdeck.core.stats import (
    DEFAULT_BLOCKS,
    AdaptiveStop,
    Verdict,
    blocks_for,
    blocks_for_mean,
    bootstrap_by_round,
    combined_speedup,
    geomean,
    median_ci,
    paired_speedup,
    round_logs,
    through,
    tied,
)


def noise(rng, launches, rel_std, *, heavy=False, drift=0.03, phi=0.99, outliers=0.01):
    """Log times of consecutive launches around 0: noise, autocorrelated clock drift, slow outliers."""
    e = rng.standard_t(2.5, launches) / math.sqrt(5) if heavy else rng.standard_normal(launches)
    w = rng.standard_normal(launches) * drift * math.sqrt(1 - phi**2)
    w[0] = rng.standard_normal() * drift
    path = np.empty(launches)
    level = 0.0
    for i, step in enumerate(w):
        level = phi * level + step
        path[i] = level
    late = np.where(rng.random(launches) < outliers, rng.uniform(0.2, 2.3, launches), 0)
    return rel_std * e + path + late


def abba(rng, blocks, rel_std, slowdown=1.0, **kwargs):
    """(a_ms, b_ms) of a kernel of 1 ms against itself, b slowed down."""
    t = noise(rng, 4 * blocks, rel_std, **kwargs).reshape(blocks, 4)
    return np.exp(t[:, [0, 3]]), np.exp(t[:, [1, 2]]) * slowdown


CONDITIONS = [
    pytest.param({"rel_std": 0.01}, 20, id="1%, 20 blocks"),
    pytest.param({"rel_std": 0.02}, 40, id="2%, 40 blocks"),
    pytest.param({"rel_std": 0.03, "drift": 0.02}, DEFAULT_BLOCKS, id="3%, default"),
    pytest.param({"rel_std": 0.02, "heavy": True, "outliers": 0.02}, DEFAULT_BLOCKS, id="heavy tails"),
    pytest.param({"rel_std": 0.01, "phi": 0.7, "drift": 0.02}, 30, id="fast drift"),
]


@pytest.mark.parametrize(("kwargs", "blocks"), CONDITIONS)
def test_false_wins_at_most_one_percent(kwargs, blocks):
    rng = np.random.default_rng(1)
    results = [paired_speedup(*abba(rng, blocks, **kwargs)) for _ in range(400)]
    assert sum(r.verdict is not Verdict.TIE for r in results) <= 4
    # the bounds themselves, without the margin: 1% nominal, 400 draws (10 is 3 sigma above)
    assert sum(r.win_bound > 1 for r in results) <= 10
    assert sum(r.lo <= 1 <= r.hi for r in results) >= 0.92 * len(results)


@pytest.mark.parametrize(("kwargs", "blocks"), CONDITIONS)
def test_two_percent_slowdown_is_found(kwargs, blocks):
    rng = np.random.default_rng(2)
    results = [paired_speedup(*abba(rng, blocks, slowdown=1.02, **kwargs)) for _ in range(200)]
    assert sum(r.verdict is Verdict.LOSS for r in results) >= 180
    assert np.median([r.ratio for r in results]) == pytest.approx(1 / 1.02, rel=2e-3)


def test_speedup_is_antisymmetric_and_immune_to_linear_drift():
    rng = np.random.default_rng(3)
    a, b = abba(rng, 30, 0.01, slowdown=0.9)
    forward, backward = paired_speedup(a, b), paired_speedup(b, a)
    assert forward.verdict is Verdict.WIN and backward.verdict is Verdict.LOSS
    assert forward.ratio == pytest.approx(1 / backward.ratio)
    assert forward.win_bound == pytest.approx(1 / backward.loss_bound)
    ramp = np.exp(np.linspace(0, 1, 80)).reshape(20, 4)
    assert paired_speedup(ramp[:, [0, 3]], ramp[:, [1, 2]]).ratio == pytest.approx(1, abs=1e-12)


def test_wild_blocks_do_not_move_the_verdict():
    rng = np.random.default_rng(4)
    a, b = abba(rng, 40, 0.005, slowdown=0.97, outliers=0)
    b[::8] *= 50  # 12% of the blocks hit by a preemption
    assert paired_speedup(a, b).verdict is Verdict.WIN
    a[3, 0], a[5, 1], a[7, 0] = np.nan, 0.0, np.inf  # broken records are left out
    result = paired_speedup(a, b)
    assert result.blocks == 37 and result.verdict is Verdict.WIN


def test_too_few_blocks_never_decide():
    a, b = np.full((6, 2), 2.0), np.full((6, 2), 1.0)
    few = paired_speedup(a, b)
    assert few.verdict is Verdict.TIE and few.win_bound == 0 and few.loss_bound == math.inf
    assert paired_speedup(np.full((7, 2), 2.0), np.full((7, 2), 1.0)).verdict is Verdict.WIN
    with pytest.raises(ValueError, match="no usable blocks"):
        paired_speedup(np.empty((0, 2)), np.empty((0, 2)))
    with pytest.raises(ValueError, match="6 blocks of a, 5 of b"):
        paired_speedup(a, b[:5])


def test_bounds_are_the_exact_signed_rank_ones():
    """For 8 symmetric differences, the bound misses zero for exactly P(W < q) of the sign patterns."""
    sizes = np.array([0.011, 0.017, 0.023, 0.031, 0.043, 0.053, 0.071, 0.097])
    misses = 0
    for signs in itertools.product((-1, 1), repeat=8):
        d = sizes * np.array(signs)
        misses += paired_speedup(np.exp(d), np.ones(8)).win_bound > 1
    assert misses == 2  # 2/256 <= 1% < 3/256


def test_what_two_comparisons_with_a_third_say_of_each_other():
    rng = np.random.default_rng(8)
    alike = [through(*(paired_speedup(*abba(rng, 40, 0.01)) for _ in range(2))) for _ in range(400)]
    assert sum(r.verdict is not Verdict.TIE for r in alike) <= 4
    assert np.mean([r.lo <= 1 <= r.hi for r in alike]) >= 0.95
    slower = [
        through(paired_speedup(*abba(rng, 40, 0.01, slowdown=1.05)), paired_speedup(*abba(rng, 40, 0.01)))
        for _ in range(100)
    ]
    assert sum(r.verdict is Verdict.LOSS for r in slower) >= 90
    assert np.median([r.ratio for r in slower]) == pytest.approx(1 / 1.05, rel=0.005)
    unknown = paired_speedup(np.ones((3, 2)), np.ones((3, 2)))
    assert through(unknown, slower[0]).verdict is Verdict.TIE is through(slower[0], unknown).verdict


def test_combined_speedup_averages_cases():
    rng = np.random.default_rng(5)
    pairs = [abba(rng, 40, 0.005, slowdown=s) for s in (0.8, 0.9)]
    assert combined_speedup(pairs).ratio == pytest.approx(1 / math.sqrt(0.72), rel=5e-3)


@given(st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_median_interval_is_made_of_order_statistics(n, seed):
    x = np.random.default_rng(seed).standard_normal(n)
    lo, hi = median_ci(x)
    ordered = np.sort(x)
    k = int(np.searchsorted(ordered, lo))
    assert lo == ordered[k] and hi == ordered[n - 1 - k] and lo <= np.median(x) <= hi
    miss = 2 * sum(math.comb(n, j) for j in range(k + 1)) / 2**n
    assert k == 0 or miss <= 0.05
    wider = 2 * sum(math.comb(n, j) for j in range(k + 2)) / 2**n
    assert wider > 0.05  # one rank narrower would not cover


def test_median_interval_of_many_samples_is_tight_and_continuous():
    x = np.arange(1000.0), np.arange(1002.0)
    widths = [hi - lo for lo, hi in map(median_ci, x)]
    assert widths[0] == pytest.approx(1.96 * math.sqrt(1000), rel=0.05)
    assert widths[1] == pytest.approx(widths[0], abs=3)
    with pytest.raises(ValueError, match="no samples"):
        median_ci([])


def test_adaptive_stop():
    stop = AdaptiveStop(Protocol(samples=100, min_samples=30))
    steady = np.full(30, 1.0)
    assert not stop.enough(steady[:29])
    assert stop.enough(steady)
    noisy = np.random.default_rng(0).normal(1, 0.2, 99)
    assert not stop.enough(noisy) and stop.enough(np.append(noisy, 1.0))
    # a 2 µs kernel may be uncertain by 0.1 µs, 5%
    short = np.random.default_rng(0).normal(0.002, 0.0001, 30)
    assert stop.enough(short) and not stop.enough(short * 1000)
    assert not AdaptiveStop(Protocol(samples=100, adaptive=False)).enough(steady)


def test_bootstrap_by_round_covers_where_independence_fails():
    rng = np.random.default_rng(6)
    rounds = np.repeat(np.arange(8), 8)
    covered = naive = 0
    x = np.ones(64)
    for _ in range(300):
        x = np.exp(rng.standard_normal(8)[rounds] * 0.02 + rng.standard_normal(64) * 0.005)
        lo, hi = bootstrap_by_round(x, rounds, resamples=500)
        covered += lo <= 1 <= hi
        naive += (lambda ci: ci[0] <= 1 <= ci[1])(median_ci(x))
    assert covered >= 0.92 * 300 > naive
    assert bootstrap_by_round(x, rounds, seed=3) == bootstrap_by_round(x, rounds, seed=3)


def test_bootstrap_by_round_degenerate():
    assert bootstrap_by_round([1.0, 2.0, 3.0], [0, 0, 0]) == median_ci([1.0, 2.0, 3.0])
    lo, hi = bootstrap_by_round([1.0, 1.0, 3.0, 3.0, 3.0], [7, 7, 9, 9, 9])  # unequal rounds
    assert (lo, hi) == (1.0, 3.0)
    with pytest.raises(ValueError, match="2 samples with 1 round"):
        bootstrap_by_round([1.0, 2.0], [0])


@given(st.lists(st.tuples(st.floats(0.1, 10), st.integers(0, 3)), min_size=1, max_size=40), st.integers(0, 9))
def test_bootstrap_interval_lies_within_the_samples(pairs, seed):
    x, r = zip(*pairs, strict=True)
    lo, hi = bootstrap_by_round(x, r, resamples=50, seed=seed)
    assert min(x) <= lo <= hi <= max(x)


def test_tied_set():
    rng = np.random.default_rng(7)
    shared = rng.standard_normal(8) * 0.03  # a round's clock, common to all

    def measured(slowdown):
        rounds = np.repeat(np.arange(8), 4)
        return round_logs(slowdown * np.exp(shared[rounds] + rng.normal(0, 0.004, 32)), rounds)

    best = measured(1.0)
    others = np.array([best, *(measured(s) for s in (1.0, 1.002, 1.03, 1.5, 0.99))])
    assert tied(best, others).tolist() == [True, True, True, False, False, True]
    assert tied(best[:6], others[:, :6]).all()  # too few rounds to exclude anything


def test_geomean():
    assert geomean([1, 4]) == pytest.approx(2)
    for bad in ([], [1, 0], [1, math.inf], [-1]):
        with pytest.raises(ValueError, match="geometric mean"):
            geomean(bad)


@pytest.mark.parametrize("spreads", [(0.035, 0.02, 0.01), (0.02, 0.02, 0.02), (0.03, 0.002, 0.002)])
def test_blocks_of_a_mean_find_two_percent_and_are_no_more_than_they_must(spreads):
    rng = np.random.default_rng(13)
    before = [np.exp(noise(rng, 100, s, drift=0.01)) for s in spreads]
    blocks = blocks_for_mean(before)
    assert 30 <= blocks < max(blocks_for(x) for x in before)
    for slowdown, verdict, low, high in ((1.02, Verdict.LOSS, 0.9, 1), (1.0, Verdict.WIN, 0, 0.01)):
        found = [combined_speedup([abba(rng, blocks, s, slowdown) for s in spreads]) for _ in range(200)]
        assert low * 200 <= sum(speedup.verdict is verdict for speedup in found) <= high * 200
    assert blocks_for_mean([before[0], [1.0]]) == DEFAULT_BLOCKS


def test_blocks_for_follows_the_noise():
    rng = np.random.default_rng(8)
    wanted = [blocks_for(np.exp(rng.normal(0, s, 200))) for s in (0.002, 0.02, 0.03, 0.2)]
    assert wanted[0] == 20 and 30 <= wanted[1] <= 50 and 60 <= wanted[2] <= 110 and wanted[3] == 128
    assert blocks_for([1.0]) == DEFAULT_BLOCKS
