"""RunState is a function of the log, whichever way it is reached."""

from __future__ import annotations

import json
import math
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdeck.core.errors import UsageError
from warpdeck.core.model import (
    CacheMode,
    Candidate,
    DeviceInfo,
    Evaluation,
    Measurement,
    Resources,
    Status,
)
from warpdeck.sessions import snapshot
from warpdeck.sessions.entries import TOP
from warpdeck.sessions.events import Event, Lifecycle, encode
from warpdeck.sessions.series import BLOCK, Series
from warpdeck.sessions.state import MESSAGES, SAMPLES, RunState, reduce, reduce_all
from warpdeck.sessions.store import SessionStore

DEVICE = DeviceInfo("NVIDIA H200", "recorded:h200", recorded=True, date="2026-11-29")
START = {
    "workload": "softmax",
    "agent": "random",
    "seed": 1,
    "cases": [{"name": "1024", "params": {"m": 1024, "n": 1024}}],
    "device": DEVICE.to_json(),
    "steps": 10,
    "vendor": {"1024": {"name": "torch.softmax", "median_ms": 0.5}},
    "floors": {"1024": 0.25},
}


def evaluation(ms: float | None, config: dict[str, Any], status: Status = Status.OK) -> dict[str, Any]:
    measurements = ()
    if ms is not None:
        samples = np.array([ms * 0.98, ms, ms * 1.02])
        measurements = (
            Measurement("1024", CacheMode.COLD, "cupti", samples, ci95_ms=(ms * 0.99, ms * 1.01)),
        )
    candidate = Candidate("classic", config, "abc")
    return Evaluation(
        candidate, status, measurements=measurements, resources=Resources(32, occupancy=0.5)
    ).to_json()


def fold(*events: tuple[str, dict[str, Any]], dt: float = 1.0) -> RunState:
    return reduce_all(Event(i + 1, 1000.0 + dt * i, kind, data) for i, (kind, data) in enumerate(events))


def test_a_run_from_start_to_result():
    state = fold(
        ("state", {"state": "running"}),
        ("start", START),
        ("baseline", evaluation(1.0, {"block_size": 256})),
        ("evaluation", {**evaluation(0.8, {"block_size": 64}), "step": 1}),
        ("step", {"step": 1, "reward": 0.25, "speedup": 1.25, "best_speedup": 1.25}),
        ("evaluation", {**evaluation(None, {"block_size": 32}, Status.COMPILE_ERROR), "step": 2}),
        ("step", {"step": 2, "reward": -1.0, "speedup": None, "best_speedup": 1.25}),
    )
    assert state.lifecycle is Lifecycle.RUNNING
    assert state.device_label == "recorded on NVIDIA H200, 2026-11-29"
    assert state.info is not None
    assert state.info.cases[0].params == {"m": 1024, "n": 1024}
    assert state.baseline is not None
    assert state.baseline.speedup == 1.0
    best = state.best
    assert best is not None
    assert best.speedup == pytest.approx(1.25)
    assert best.speedup_ci == pytest.approx((0.99 / 0.808, 1.01 / 0.792))
    assert best.vendor_ratio == pytest.approx(0.5 / 0.8)
    assert best.floor_ratio == pytest.approx(0.25 / 0.8)
    assert (best.registers, best.occupancy) == (32, 0.5)
    assert state.counts == {"ok": 1, "compile_error": 1}
    assert state.last is not None
    assert state.last.status == "compile_error"
    assert state.steps.best.tolist() == [1.25, 1.25]
    assert math.isnan(state.steps.speedup[1])
    assert state.progress == pytest.approx(0.2)
    assert state.active_s == 6.0
    assert state.eta_s == pytest.approx(24.0)


def test_the_leaderboard_keeps_the_latest_evaluation_of_a_candidate():
    state = fold(
        ("evaluation", evaluation(0.5, {"x": 1})),
        ("evaluation", evaluation(0.7, {"x": 2})),
        ("evaluation", evaluation(0.9, {"x": 1})),
    )
    assert [entry.config["x"] for entry in state.leaderboard] == [2, 1]
    assert [entry.score_ms for entry in state.leaderboard] == pytest.approx([0.7, 0.9])
    state = reduce(state, Event(4, 0.0, "evaluation", evaluation(None, {"x": 2}, Status.TIMEOUT)))
    assert [entry.config["x"] for entry in state.leaderboard] == [1]


def test_the_leaderboard_is_the_best_of_many():
    rng = np.random.default_rng(0)
    times = rng.permutation(200) + 1.0
    state = fold(*[("evaluation", evaluation(float(ms), {"x": i})) for i, ms in enumerate(times)])
    assert [entry.score_ms for entry in state.leaderboard] == pytest.approx(list(range(1, TOP + 1)))


def test_ties_are_overlapping_intervals_until_the_result_says_otherwise():
    events = [
        ("evaluation", evaluation(1.0, {"x": 1})),
        ("evaluation", evaluation(1.015, {"x": 2})),
        ("evaluation", evaluation(1.2, {"x": 3})),
    ]
    state = fold(*events)
    ids = {entry.config["x"]: entry.candidate for entry in state.leaderboard}
    assert state.tied == {ids[1], ids[2]}
    finalists = [
        {"candidate": ids[3], "speedup": 1.5, "speedup_ci": [1.4, 1.6], "paired_ms": 1.1},
        {"candidate": ids[1], "speedup": 1.2, "speedup_ci": [1.1, None]},
        {"candidate": "unknown", "speedup": 1.0, "speedup_ci": [None, None]},
    ]
    state = reduce(state, Event(4, 1010.0, "result", {"tied": [{"x": 3}], "finalists": finalists}))
    assert state.tied == {ids[3]}
    assert [entry.config["x"] for entry in state.leaderboard] == [3, 1, 2]
    assert state.leaderboard[0].speedup_ci == (1.4, 1.6)
    assert [entry.paired for entry in state.leaderboard] == [True, True, False]
    assert [entry.score_ms for entry in state.leaderboard] == [1.1, 1.0, 1.015]


def test_records_are_the_candidates_that_were_faster_than_all_before():
    times = [(3.0, 1), (5.0, 2), (2.0, 3), (2.5, 3), (2.2, 4), (1.0, 5)]
    state = fold(*[("evaluation", evaluation(ms, {"x": x})) for ms, x in times])
    assert [(round(record.score_ms, 9), record.config["x"]) for record in state.records] == [
        (3.0, 1),
        (2.0, 3),
        (1.0, 5),
    ]


def test_time_dead_or_paused_is_not_running_time():
    state = reduce_all(
        [
            Event(1, 0.0, "state", {"state": "running"}),
            Event(2, 10.0, "step", {"step": 0}),
            Event(3, 5000.0, "state", {"state": "interrupted"}),
            Event(4, 5000.0, "state", {"state": "running", "reason": "resumed"}),
            Event(5, 5005.0, "state", {"state": "paused"}),
            Event(6, 6000.0, "state", {"state": "running"}),
            Event(7, 6001.0, "step", {"step": 1}),
        ]
    )
    assert state.active_s == 16.0


def test_rings_are_bounded():
    state = fold(
        *[("message", {"text": str(i)}) for i in range(MESSAGES + 5)],
        *[("sample", {"power_w": i, "temp_c": None}) for i in range(SAMPLES + 5)],
    )
    assert [m.text for m in state.messages] == [str(i) for i in range(5, MESSAGES + 5)]
    assert len(state.samples) == SAMPLES
    assert state.sample == {"power_w": SAMPLES + 4, "temp_c": None}


def test_columnar_steps_equal_single_ones():
    rows = [
        {"step": i, "reward": i * 0.1, "speedup": None if i % 3 else i, "best_speedup": i} for i in range(50)
    ]
    single = fold(*[("step", row) for row in rows])
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    batch = fold(("steps", columns), ("steps", {key: [] for key in columns}))
    assert batch.steps == single.steps
    assert (batch.step, batch.best_speedup) == (single.step, single.best_speedup) == (49, 49.0)


def test_unknown_kinds_and_keys_are_ignored():
    state = fold(("telepathy", {"a": 1}), ("state", {"state": "running", "mood": "good"}))
    assert (state.seq, state.lifecycle) == (2, Lifecycle.RUNNING)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("start", {}),
        ("start", {**START, "device": {"spec": "cuda:0"}}),
        ("baseline", {"status": "ok"}),
        ("evaluation", {"candidate": "x", "variant": "v", "status": "ok", "config": {}, "measurements": [1]}),
        ("step", {}),
        ("step", {"step": "first"}),
        ("steps", {"step": [1, 2], "reward": [1], "speedup": [1], "best_speedup": [1]}),
        ("message", {}),
        ("state", {"state": "dancing"}),
        ("artifact", {"name": "x"}),
        ("result", {"tied": [3]}),
        ("result", {"best": {"config": "x"}}),
    ],
)
def test_damaged_events_are_usage_errors(kind, data):
    with pytest.raises(UsageError, match=rf"event 1 \({kind}\) is damaged") as caught:
        reduce(RunState(), Event(1, 0.0, kind, data))
    assert "\n" not in str(caught.value)


def test_a_state_never_changes_even_if_the_past_is_continued_twice():
    first = fold(*[("step", {"step": i, "reward": 1.0}) for i in range(10)])
    left = reduce(first, Event(11, 0.0, "step", {"step": 10, "reward": 2.0}))
    right = reduce(first, Event(11, 0.0, "step", {"step": 10, "reward": 3.0}))
    assert left.steps.reward.tolist() == [1.0] * 10 + [2.0]
    assert right.steps.reward.tolist() == [1.0] * 10 + [3.0]
    assert len(first.steps) == 10
    with pytest.raises(ValueError):
        first.steps.reward[0] = 9.0


KNOBS = {"block": [64, 128], "unroll": [1, 2, 4]}


def test_steps_number_their_configurations():
    def step(number: int, config: Any) -> tuple[str, dict[str, Any]]:
        return "step", {"step": number, "speedup": 1.0, "config": config}

    state = fold(
        ("start", {**START, "knobs": KNOBS}),
        step(1, {"block": 128, "unroll": 4}),
        step(2, {"unroll": 2, "block": 64}),
        step(3, {"block": 96, "unroll": 4}),
        step(4, {"block": 64}),
        ("steps", {"step": [5], "reward": [1.0], "speedup": [1.0], "best_speedup": [1.0]}),
    )
    assert np.array_equal(state.steps.config, [5, 1, np.nan, np.nan, np.nan], equal_nan=True)


def test_failures_are_kept_until_the_candidate_works():
    bad, good = {"block": 64, "unroll": 1}, {"block": 64, "unroll": 2}
    failing = [("evaluation", evaluation(None, bad, Status.INCORRECT))]
    state = fold(("start", START), *failing, ("evaluation", evaluation(0.5, good)))
    assert [dict(entry.config) for entry in state.failed] == [bad]
    again = fold(("start", START), *failing, ("evaluation", evaluation(0.5, bad)))
    assert again.failed == ()


def test_a_record_knows_its_interval():
    state = fold(
        ("start", START),
        ("baseline", evaluation(0.5, {"x": 0})),
        ("evaluation", evaluation(0.25, {"x": 1})),
    )
    assert state.records[0].speedup_ci == pytest.approx((0.495 / 0.2525, 0.505 / 0.2475))


def test_series_blocks_round_trip():
    series = Series()
    for i in range(2 * BLOCK + 7):
        series = series.append(i, None, i * 0.5, i)
    blocks = [series.block(i) for i in range(3)]
    again = Series.from_blocks(blocks)
    assert again == series
    assert len(again.append(0, 0, 0, 0)) == len(series) + 1
    assert Series.from_blocks([]) == Series()
    with pytest.raises(ValueError):
        Series.from_blocks([blocks[0][:-16], blocks[1]])


numbers = st.one_of(st.none(), st.floats(-1e6, 1e6), st.integers(-1000, 1000))
configs = st.fixed_dictionaries({"x": st.integers(0, 12), "y": st.sampled_from(["a", "b"])})
event_data = st.one_of(
    st.tuples(
        st.just("step"),
        st.fixed_dictionaries(
            {"step": st.integers(0, 10**6), "reward": numbers, "speedup": numbers, "best_speedup": numbers}
        ),
    ),
    st.tuples(
        st.just("steps"),
        st.lists(st.tuples(st.integers(0, 10**6), numbers, numbers, numbers), max_size=40).map(
            lambda rows: {
                name: [row[i] for row in rows]
                for i, name in enumerate(("step", "reward", "speedup", "best_speedup"))
            }
        ),
    ),
    st.tuples(
        st.sampled_from(["evaluation", "baseline"]),
        st.builds(evaluation, st.floats(1e-3, 1e3), configs),
    ),
    st.tuples(st.just("evaluation"), st.builds(evaluation, st.none(), configs, st.just(Status.INCORRECT))),
    st.tuples(st.just("start"), st.just(START)),
    st.tuples(st.just("sample"), st.fixed_dictionaries({"power_w": numbers})),
    st.tuples(
        st.just("message"), st.fixed_dictionaries({"text": st.text(max_size=9), "level": st.just("info")})
    ),
    st.tuples(
        st.just("artifact"),
        st.fixed_dictionaries({"name": st.sampled_from("ab"), "path": st.text(max_size=3)}),
    ),
    st.tuples(st.just("result"), st.fixed_dictionaries({"tied": st.lists(configs, max_size=3)})),
    st.tuples(
        st.just("state"), st.fixed_dictionaries({"state": st.sampled_from([str(x) for x in Lifecycle])})
    ),
)
logs = st.lists(st.tuples(event_data, st.floats(-5, 1e5)), max_size=60)


@settings(max_examples=150, deadline=None)
@given(logs, st.data())
def test_a_snapshot_and_the_rest_equal_the_whole(log, data):
    events = [
        Event(i + 1, t, kind, json.loads(encode(content))) for i, ((kind, content), t) in enumerate(log)
    ]
    whole = reduce_all(events)
    cut = data.draw(st.integers(0, len(events)))
    part = reduce_all(events[:cut])
    body, tail = snapshot.encode(part)
    blocks = [part.steps.block(i) for i in range(len(part.steps) // BLOCK)]
    restored = snapshot.decode(body, blocks, tail)
    assert restored == part
    assert reduce_all(events[cut:], restored) == whole


@settings(max_examples=25, deadline=None)
@given(logs, st.integers(1, 7), st.data())
def test_the_stores_state_at_any_event_is_the_reduction_up_to_it(tmp_path_factory, log, every, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warpdeck.sessions.store.SNAPSHOT_EVENTS", every)
        base = tmp_path_factory.mktemp("sessions")
        with SessionStore.create(base, "s", {}) as session:
            for (kind, content), _ in log:
                session.append(kind, content)
            events = list(session.events())
            until = data.draw(st.integers(0, len(events)))
            assert session.state(until) == reduce_all(events[:until])
            assert session.state() == reduce_all(events)


def test_damaged_snapshots_cost_time_not_the_session(tmp_path):
    with SessionStore.create(tmp_path, "s", {}) as session:
        session.append_many(("step", {"step": i, "reward": i}) for i in range(3000))
        session.append("message", {"text": "end"})
        expected = reduce_all(session.events())
        session._db.execute("UPDATE snapshot SET data = x'00ff'")
        assert session.state() == expected
    with SessionStore.create(tmp_path, "s2", {}) as session:
        session.append_many(("step", {"step": i, "reward": i}) for i in range(3000))
        session._db.execute("DELETE FROM series WHERE block = 1")
        assert session.state() == reduce_all(session.events())
        session._db.execute("UPDATE snapshot SET rows = 'many'")
        assert session.state() == reduce_all(session.events())


def test_a_snapshot_that_commands_a_terminal_is_passed_over(tmp_path):
    with SessionStore.create(tmp_path, "s", {}) as session:
        session.append_many(("message", {"text": "red \u2026 😀 \\u001b"}) for _ in range(3000))
        kept = [row[0] for row in session._db.execute("SELECT data FROM snapshot")]
        assert kept and all(snapshot.is_tame(data) for data in kept)
        escaped = (b"\\u001b", b"\\b", b"\\u009b", b"\\u202e", b"\\u202E", b"\\u009B", b"\\\\\\u0007")
        for hostile in (*escaped, b"\x7f", "\u202e".encode(), "\x9b".encode()):
            changed = zlib.compress(zlib.decompress(kept[-1]).replace(b"red", hostile))
            assert not snapshot.is_tame(changed)
            session._db.execute("UPDATE snapshot SET data = ?", (changed,))
            assert session.state() == reduce_all(session.events())


def test_the_state_at_a_step_is_the_first_that_reaches_it(tmp_path):
    with SessionStore.create(tmp_path, "s", {}) as session:
        for i in range(1, 1301):
            session.append("step", {"step": i, "reward": i})
            session.append("message", {"text": str(i)})
        for step in (1, 2, 499, 500, 501, 1300):
            assert session.state_at_step(step).seq == 2 * step - 1
        assert session.state_at_step(0).seq <= 1
        assert session.state_at_step(9999).step == 1300
