"""The Run screen's curves: chance is exact, bands and effects are those of the steps that were logged."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.sessions.events import Event
from warpdeck.sessions.progress import best_band, expected_best
from warpdeck.sessions.progress import chance as chance_of
from warpdeck.sessions.series import Series
from warpdeck.sessions.state import RunState, reduce_all
from warpdeck.tui.braille import Shape
from warpdeck.tui.curves import (
    MANY,
    MEAN_WINDOW,
    STRIDE,
    Chance,
    knob_effects,
    no_effects,
    reward_series,
    speedup_series,
)

KNOBS = {"block": [64, 128], "unroll": [1, 2, 4]}
BASE_MS = 0.02


def run(results: Sequence[tuple[dict[str, Any], float | None]], **start: Any) -> RunState:
    """A run that tried these configurations with these times in ms."""
    begin = {"workload": "w", "agent": "random", "cases": [{"name": "n", "params": {}}], "knobs": KNOBS}
    log: list[tuple[str, dict[str, Any]]] = [("start", {**begin, **start})]
    measured = {"variant": "v", "status": "ok", "measurements": []}
    log.append(("baseline", {**measured, "candidate": "base", "config": {}, "score_ms": BASE_MS}))
    best = None
    for number, (config, ms) in enumerate(results, start=1):
        speedup = None if ms is None else BASE_MS / ms
        best = max((s for s in (best, speedup) if s is not None), default=None)
        row = {"step": number, "reward": -1.0 if speedup is None else speedup - 1, "speedup": speedup}
        log.append(("step", {**row, "best_speedup": best, "config": config}))
    return reduce_all(Event(i + 1, 1000.0 + i, kind, data) for i, (kind, data) in enumerate(log))


@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=5).map(lambda v: sorted(v, reverse=True)),
    st.integers(0, 3),
)
def test_expected_best_is_the_mean_over_all_draws(values: list[float], failures: int) -> None:
    space = [*values, *[None] * failures]
    for k in range(1, len(space) + 1):
        draws = [[v for v in drawn if v is not None] for drawn in itertools.combinations(space, k)]
        mean = statistics.fmean(max(good) for good in draws if good)
        found = expected_best(np.array(values), failures, np.array([k]))
        assert found[0] == pytest.approx(mean, rel=1e-12)


def test_expected_best_of_many_is_what_a_simulation_finds() -> None:
    rng = np.random.default_rng(1)
    values = np.sort(rng.gamma(4, 0.3, 5000))[::-1]
    found = expected_best(values, 500, np.array([40]))
    space = np.concatenate([values, np.zeros(500)])
    simulated = [rng.choice(space, 40, replace=False).max() for _ in range(3000)]
    assert found[0] == pytest.approx(statistics.fmean(simulated), rel=0.01)


def same(found: Any, curve: Any) -> bool:
    """Whether a report has the console's curve."""
    label, draws, expected = found
    return (label, draws.tolist(), expected.tolist()) == (curve.label, curve.x.tolist(), curve.y.tolist())


def test_chance_is_over_the_whole_space_where_a_recording_knows_it() -> None:
    known = {"ms": [0.01, 0.02, 0.04], "failed": 1}
    state = run([({"block": 64, "unroll": u}, 0.02) for u in (1, 2, 4)] + [({}, 0.02)] * 9, known=known)
    chance = Chance()
    curve = chance.of(state)
    assert curve is not None and curve.label == "random"
    assert curve.x.tolist() == [1, 2, 3, 4]  # there are no more configurations to draw
    assert curve.y[0] == pytest.approx((2 + 1 + 0.5) / 3)
    assert curve.y[-1] == 2.0
    assert chance.of(state) is curve
    assert same(chance_of(state), curve)


def test_chance_is_a_shuffle_of_what_was_tried_where_nothing_else_is_known() -> None:
    tried = [({"block": 64, "unroll": 1}, 0.02), ({"block": 64, "unroll": 2}, None)]
    state = run([*tried, ({"block": 128, "unroll": 4}, 0.01), ({"block": 64, "unroll": 1}, 0.04)])
    curve = Chance().of(state)
    assert curve is not None and curve.label == "shuffled"
    assert curve.x.tolist() == [1, 2, 3]
    assert curve.y.tolist() == pytest.approx([(2 + 0.5) / 2, (2 + 2 + 0.5) / 3, 2.0])
    assert same(chance_of(state), curve)
    assert Chance().of(run([({}, 0.01)] * 3)) is chance_of(run([({}, 0.01)] * 3)) is None


def test_the_curves_of_speedup_say_what_they_are() -> None:
    state = run([({"block": 64, "unroll": 1}, 0.02), ({"block": 64, "unroll": 2}, None)])
    curves = {s.label: s for s in speedup_series(state, None)}
    assert list(curves) == ["baseline", "failed", "step", "best"]
    assert curves["failed"].x.tolist() == [2]
    assert speedup_series(RunState()) == []


def test_the_bests_interval_goes_on_to_the_last_step() -> None:
    def judged(step: int, ms: float) -> dict[str, Any]:
        measured = [{"case": "n", "median_ms": ms, "ci95_ms": [ms * 0.9, ms * 1.1]}]
        data = {"candidate": f"{step}", "variant": "v", "config": {}, "status": "ok", "score_ms": ms}
        return {**data, "step": step, "measurements": measured}

    log = [("start", {"workload": "w", "agent": "random"}), ("baseline", judged(0, 0.02))]
    for step, ms in ((1, 0.02), (2, 0.01), (3, 0.015)):
        log += [("evaluation", judged(step, ms)), ("step", {"step": step, "speedup": 0.02 / ms})]
    state = reduce_all(Event(i + 1, float(i), kind, data) for i, (kind, data) in enumerate(log))
    (x, low), high = best_band(state)
    assert x.tolist() == [1, 2, 3]
    assert low.tolist() == pytest.approx([0.9 / 1.1, 2 * 0.9 / 1.1, 2 * 0.9 / 1.1])
    assert high.tolist() == pytest.approx([1.1 / 0.9, 2 * 1.1 / 0.9, 2 * 1.1 / 0.9])


def test_the_mean_of_very_many_rewards_is_taken_at_every_tenth_step() -> None:
    rewards = np.random.default_rng(1).normal(size=MANY + 7)
    steps = Series().extend(
        [np.arange(len(rewards)).tolist(), rewards.tolist(), rewards.tolist(), rewards.tolist()]
    )
    band, each, mean = reward_series(replace(RunState(), steps=steps))
    assert len(each.x) == len(rewards) and len(mean.x) < len(rewards) / STRIDE
    for place, step in enumerate(mean.x.astype(int).tolist()):
        window = rewards[step + 1 - MEAN_WINDOW : step + 1]
        assert mean.y[place] == pytest.approx(window.mean())
        half = 1.959964 * window.std(ddof=1) / np.sqrt(MEAN_WINDOW)
        assert band.tops[place] - band.y[place] == pytest.approx(2 * half)
    assert mean.x[-1] > len(rewards) - 2 * STRIDE


def test_the_rewards_mean_has_its_interval() -> None:
    rng = np.random.default_rng(3)
    state = run([({}, float(ms)) for ms in rng.uniform(0.01, 0.03, 2 * MEAN_WINDOW)])
    band, _, mean = reward_series(state)
    assert band.shape is Shape.BAND and band.high is not None
    window = state.steps.reward[-MEAN_WINDOW:]
    half = 1.959964 * window.std(ddof=1) / np.sqrt(MEAN_WINDOW)
    assert mean.y[-1] == pytest.approx(window.mean())
    assert (band.y[-1], band.high[-1]) == pytest.approx((window.mean() - half, window.mean() + half))


configs = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in KNOBS.items()})
times = st.one_of(st.none(), st.floats(0.001, 1.0))


@given(st.lists(st.tuples(configs, times), min_size=1, max_size=40))
def test_effects_are_the_medians_over_each_configurations_last_step(
    results: list[tuple[dict[str, Any], float | None]],
) -> None:
    last = {frozenset(config.items()): (config, ms) for config, ms in results}
    good = [ms for _, ms in last.values() if ms is not None]
    effects, whole = knob_effects(run(results))
    if not good:
        assert (effects, whole) == ([], None)
        return
    assert whole == pytest.approx(statistics.median(good))
    for effect in effects:
        for level in effect.levels:
            mine = [ms for config, ms in last.values() if config[effect.knob] == level.value]
            ok = [ms for ms in mine if ms is not None]
            assert (level.tried, level.ok) == (len(mine), len(ok))
            assert level.median_ms == (pytest.approx(statistics.median(ok)) if ok else None)


def test_without_effects_the_reason_is_said() -> None:
    assert no_effects(RunState()) == "no configurations yet"
    assert no_effects(run([], knobs={})) == "this run has no knobs"
    assert "don't say" in no_effects(run([({"other": 1}, 0.1)]))
