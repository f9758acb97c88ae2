"""A timer whose steps come with another clock's beats: when each comes is learnt from idle SMs' readings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from warpdeck.telemetry.trace import layout
from warpdeck.telemetry.trace.clock_timer import simple, timer

FIRST, RATE = 1_790_000_000_000_000_000, 1 / 1.98


def readings(
    beat: float, start: float, seed: int, spread_ns: float, sms: int = 40
) -> tuple[np.ndarray, np.ndarray]:
    """Just before and just after 32 steps of an SM, and again 100 µs later; how late each step came, ns."""
    rng = np.random.default_rng(seed)
    made, late = [], []
    for at in (0, 4000):
        for sm in range(sms):
            number = at + int(rng.integers(0, 40))
            for _ in range(32):
                due = number * 32.0
                came = np.ceil((due + start) / beat) * beat - start if beat else due
                cycle = (
                    5_000_000 * (sm + 1)
                    + round((came + rng.normal(0, spread_ns)) / RATE)
                    + int(rng.integers(0, 3))
                )
                made += [(FIRST + (number - 1) * 32, cycle - 4, sm, 4), (FIRST + number * 32, cycle, sm, 4)]
                late += [came - due] * 2
                number += int(rng.integers(33, 38))
    return np.array(made, layout.ANCHOR), np.array(late)


def quiet(anchors: np.ndarray) -> np.ndarray:
    return np.ones(anchors.size, bool)


@settings(max_examples=30, deadline=None)
@example(beat=9.0, start=0.0, seed=0)
@example(beat=8.726879337658474, start=0.0, seed=0)
@example(beat=9.846517579516037, start=3.0, seed=1)
@example(beat=1000 / 108, start=3.0, seed=1)  # an H200's
@given(
    beat=st.floats(8.5, 9.9).filter(lambda b: 0.07 < 32 / b % 1 < 0.93 and abs(32 / b % 1 - 0.5) > 0.03),
    start=st.floats(0, 50),
    seed=st.integers(0, 1 << 30),
)
def test_how_far_off_a_step_came_lies_between_the_bounds(beat: float, start: float, seed: int) -> None:
    anchors, late = readings(beat, start, seed, 0.3)
    found = timer(anchors, quiet(anchors), RATE, 32.0)
    if not found.beat:
        assert simple(32 / beat % 1 - 1e-4) or simple(32 / beat % 1 + 1e-4)
        return
    assert (
        abs(abs(found.beat) - beat) < 0.01 and abs(found.ratio - min(32 / beat % 1, 1 - 32 / beat % 1)) < 1e-4
    )
    after = slice(1, None, 2)
    early, latest = found.early(anchors["time"][after]), found.late(anchors["time"][after] - np.uint64(32))
    off = late[after] - beat / 2  # what all steps are late by can't be told
    shift = np.median(off - (early + latest) / 2)
    assert abs(shift) < 1
    assert (off - shift > early - 1).all() and (off - shift < latest + 1).all()
    assert np.mean(latest - early > 0.1) < 0.15  # few are in doubt


def test_an_h200_s_beat_is_told() -> None:
    anchors, _ = readings(1000 / 108, 7.0, 3, 0.3)
    assert abs(timer(anchors, quiet(anchors), RATE, 32.0).beat) == pytest.approx(1000 / 108, abs=0.01)


def test_even_steps_are_left_as_they_are() -> None:
    anchors, _ = readings(0.0, 0.0, 1, 1.0)
    found = timer(anchors, quiet(anchors), RATE, 32.0)
    assert not found.beat and not found.early(anchors["time"]).any()
    assert not timer(anchors[:100], quiet(anchors[:100]), RATE, 32.0).beat


@pytest.mark.filterwarnings("error")
@given(
    times=st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=3),
    clocks=st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=3),
    tick=st.sampled_from([1.0, 32.0, 1024.0]),
)
def test_whatever_was_read_gives_a_timer(times: list[int], clocks: list[int], tick: float) -> None:
    anchors = np.zeros(1200, layout.ANCHOR)
    step = np.arange(1200, dtype=np.uint64)
    anchors["time"] = np.resize(np.array(times, np.uint64), 1200) + step % np.uint64(2) * np.uint64(tick)
    anchors["clock"] = np.resize(np.array(clocks, np.uint64), 1200) + step % np.uint64(2) * np.uint64(4)
    assert np.isfinite(timer(anchors, quiet(anchors), RATE, tick).early(anchors["time"])).all()
