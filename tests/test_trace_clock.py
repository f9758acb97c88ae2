"""Cycles to nanoseconds: the printed uncertainty holds against simulated SMs, and a changed clock is seen."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trace_synthetic
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_synthetic import Builder, Machine

from warpdeck.telemetry.trace import layout
from warpdeck.telemetry.trace.clock import convert, timer_step
from warpdeck.telemetry.trace.decode import decode
from warpdeck.telemetry.trace.readings import EndReadings
from warpdeck.telemetry.trace.timeline import Timeline

STAGES = ("work",)


def run(
    machine: Machine,
    *,
    warps: int,
    span_ns: float,
    each: int = 0,
    length: float = 3000.0,
    before: float = 2e4,
) -> tuple[Builder, Timeline]:
    """Warps on random SMs at random times, and `each` calibration readings an SM, before and after."""
    builder = Builder(STAGES, machine)
    rng = np.random.default_rng(1)
    for i in range(warps):
        at = float(rng.uniform(before, before + span_ns - length))
        with builder.warp(cta=i, sm=i % machine.sms, at_ns=at) as w:
            w.step(20).begin("work").step(round(length * 1.9 * rng.uniform(0.3, 1))).end("work")
    anchors: Any = None
    if each:
        first = machine.anchors(each // 2, 100.0, 90.0)
        after = machine.anchors(each - each // 2, before + span_ns + 3000.0, 90.0)
        anchors = np.concatenate([first, after])
    return builder, decode(builder.build(anchors=anchors))


def errors(builder: Builder, timeline: Timeline) -> np.ndarray:
    """[2 * warps] decoded less true times of the warps' begins and ends, but for a shift common to all."""
    raw = builder.build()
    by_cta = {int(w.header["cta"]): w for w in builder.warps}
    found, true = [], []
    for i, cta in enumerate(timeline.warps.cta.tolist()):
        w = by_cta[cta]
        found += [timeline.warps.start_ns[i], timeline.warps.end_ns[i]]
        true += [builder.true_ns(w, w.begun), builder.true_ns(w, w.now)]
    assert raw.headers["count"].sum() == 2 * len(builder.warps)
    return np.array(found) - np.array(true)


def busy(
    machine: Machine, *, warps: int, span_ns: float, period: int, each: int = 64, at: float = 4e4
) -> tuple[Builder, Timeline]:
    """A launch at `at`, of warps that record ranges throughout, about `period` cycles each."""
    builder = Builder(STAGES, machine)
    rng = np.random.default_rng(7)
    for i in range(warps):
        sm = i % machine.sms
        stop = machine.cycles(at + span_ns, sm)
        with builder.warp(cta=i, sm=sm, at_ns=at + float(rng.uniform(0, 500))) as w:
            while w.now < stop:
                w.begin("work").step(round(period * rng.uniform(0.5, 1.5))).end("work")
    first = machine.anchors(each, 100.0, 500.0)
    after = machine.anchors(each, at + span_ns + 4000.0, 500.0)
    return builder, decode(builder.build(anchors=np.concatenate([first, after])))


def record_errors(builder: Builder, timeline: Timeline) -> np.ndarray:
    """Decoded less true times of all ranges' begins and ends, but for a shift common to all."""
    by_cta = {int(w.header["cta"]): w for w in builder.warps}
    off = []
    for i, cta in enumerate(timeline.warps.cta.tolist()):
        w = by_cta[cta]
        base = int(w.header["clock_begin"]) & 0xFFFFFFFF
        since = np.array([(clock - base) & 0xFFFFFFFF for clock, _ in w.records])
        true = np.array([builder.machine.ns(w.begun + int(c), w.sm) for c in since])
        mine = timeline.slices.row == i
        found = np.stack([timeline.slices.start_ns[mine], timeline.slices.end_ns[mine]], 1).reshape(-1)
        off.append(found - true)
    return np.concatenate(off)


def holds(builder: Builder, timeline: Timeline) -> bool:
    """Whether one shift brings every time to within the printed uncertainty of the truth."""
    off = errors(builder, timeline)
    return bool(off.max() - off.min() <= 2 * timeline.clock.uncertainty_ns + 1e-3)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    sms=st.integers(1, 6),
    warps=st.integers(1, 40),
    each=st.integers(0, 40),
    ghz=st.floats(0.3, 3.0),
    tick=st.sampled_from([1, 32, 1000, 1024]),
    gap=st.integers(1, 40),
    jitter=st.sampled_from([0, 0, 1, 30]),
    position=st.floats(0, 1),
    span=st.floats(4e3, 1e7),
)
def test_the_error_never_exceeds_the_printed_uncertainty(
    seed: int,
    sms: int,
    warps: int,
    each: int,
    ghz: float,
    tick: int,
    gap: int,
    jitter: int,
    position: float,
    span: float,
) -> None:
    machine = Machine(sms, ghz=ghz, tick=tick, gap=gap, jitter=jitter, position=position, seed=seed)
    builder, timeline = run(machine, warps=warps, span_ns=span, each=each)
    assert timeline.clock.method == "fit" and timeline.clock.reason == ""
    assert timeline.clock.tick_ns % tick == 0 or timeline.clock.tick_ns == 1024  # not known
    assert holds(builder, timeline)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 30), shortest=st.integers(1, 20), widest=st.integers(21, 60))
def test_the_uncertainty_holds_wherever_in_a_gap_the_timer_was_read(
    seed: int, shortest: int, widest: int
) -> None:
    """Gaps of all lengths, and the timer read anywhere within: nothing but the gap's bounds may be used."""
    machine = Machine(3, seed=seed)

    def read(sm: int, cycle: int) -> tuple[int, int, int]:
        gap = int(machine.rng.integers(shortest, widest))
        at = cycle + float(machine.rng.uniform(0, gap))
        when = (trace_synthetic.EPOCH + int(machine.ns(at) // 1)) // 32 * 32
        return when, int(machine.offsets[sm]) + cycle, gap

    machine.read = read  # type: ignore[method-assign]
    builder, timeline = run(machine, warps=20, span_ns=1e5, each=32)
    assert holds(builder, timeline)


def test_32_anchors_an_sm_give_5_ns() -> None:
    for seed in range(5):
        machine = Machine(132, seed=seed, gap=20, jitter=4)
        builder, timeline = run(machine, warps=264, span_ns=60_000, each=32)
        assert timeline.clock.tick_ns == 32
        assert timeline.clock.uncertainty_ns <= 5
        assert holds(builder, timeline)
        assert timeline.clock.ghz == pytest.approx(1.98, rel=1e-4)


def test_one_warp_alone_is_honest() -> None:
    builder, timeline = run(Machine(1), warps=1, span_ns=5000)
    assert timeline.clock.anchors == 2 and timeline.clock.uncertainty_ns > 16
    assert holds(builder, timeline)
    builder = Builder(STAGES, Machine(1))
    builder.warp().step(5).begin("work").step(400).end("work")  # never ends: one reading, no rate
    known = {"device": {"sm_clock_max_mhz": 1980.0}}
    timeline = decode(builder.build(meta=known))
    assert timeline.clock.ghz == pytest.approx(1.98) and timeline.clock.uncertainty_ns > 500


@pytest.mark.parametrize("ghz", [1.2, 1.98])
@pytest.mark.parametrize("tick", [32, 1024])
@pytest.mark.parametrize("warps", [1, 2])
@pytest.mark.parametrize("length", [4000.0, 40_000.0, 400_000.0])
def test_without_calibration_a_few_warps_have_about_their_length(
    length: float, warps: int, tick: int, ghz: float
) -> None:
    """By their own readings: which step the timer takes isn't known then, but surely at most 1024 ns."""
    machine = Machine(2, ghz=ghz, tick=tick)
    builder, timeline = run(machine, warps=warps, span_ns=1.2 * length, length=length)
    assert holds(builder, timeline)
    found = timeline.warps.end_ns - timeline.warps.start_ns
    truth = [machine.ns(w.now, w.sm) - machine.ns(w.begun, w.sm) for w in builder.warps]
    assert np.sort(found) == pytest.approx(np.sort(truth), rel=0.02, abs=min(1024.0, 0.3 * max(truth)))
    assert timeline.clock.tick_ns <= 1024


def test_too_short_for_any_rate_a_launch_has_a_usual_one() -> None:
    builder, timeline = run(Machine(1, tick=1024), warps=1, span_ns=200.0, length=200.0)
    assert timeline.clock.ghz == pytest.approx(2.0) and holds(builder, timeline)


def test_a_clock_change_in_the_middle_is_detected() -> None:
    machine = Machine(4, changes=[(60_000.0, 1.4)], seed=2)
    builder, timeline = run(machine, warps=60, span_ns=100_000, each=32)
    clock = timeline.clock
    assert clock.method == "per warp" and "the clock changed during the trace" in clock.reason
    assert clock.uncertainty_ns > 16
    assert holds(builder, timeline)
    assert 1.4 < clock.ghz < 1.98


@pytest.mark.parametrize(
    ("when", "words"),
    [(10_000.0, "the calibration before it"), (122_000.0, "the calibration after it")],
)
def test_a_change_beside_the_launch_only_leaves_that_calibration_out(when: float, words: str) -> None:
    """Calibration runs until 1,500 ns and from 123,000; the launch from 20,000 to 120,000."""
    ghz = (1.2, 1.98) if when < 20_000 else (1.98, 1.2)
    machine = Machine(4, ghz=ghz[0], changes=[(when, ghz[1])], seed=5)
    builder, timeline = run(machine, warps=60, span_ns=100_000, each=32)
    assert timeline.clock.method == "fit" and words in timeline.clock.reason
    assert timeline.clock.ghz == pytest.approx(1.98, rel=1e-3)
    assert holds(builder, timeline)


def test_a_change_by_a_thousandth_is_detected() -> None:
    machine = Machine(4, changes=[(520_000.0, 1.98 * 1.001)], seed=3)
    builder, timeline = run(machine, warps=200, span_ns=1_000_000, each=32)
    assert timeline.clock.method == "fit, piecewise"
    assert holds(builder, timeline)


DIPS = [(40_000.0, 0.02, 6000.0), (40_000.0, 0.008, 9000.0), (40_000.0, 0.015, 4000.0), (40_000.0, 0.0, 1e4)]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    late=st.sampled_from([0.0, 0.02, 0.1]),
    depth=st.floats(0.0, 0.025),
    tau=st.floats(3000.0, 12_000.0),
    start=st.floats(39_000.0, 50_000.0),
    warps=st.integers(4, 24),
    period=st.integers(200, 4000),
    tick=st.sampled_from([32, 32, 32, 1, 1024]),
)
def test_the_uncertainty_holds_when_the_clock_dips(
    seed: int, late: float, depth: float, tau: float, start: float, warps: int, period: int, tick: int
) -> None:
    dips = [(start, depth, tau), (start + 500.0, depth / 3, tau * 2)]
    machine = Machine(4, gap=6, jitter=2, tick=tick, dips=dips, ends=True, late=late, seed=seed)
    builder, timeline = busy(machine, warps=warps, span_ns=30_000, period=period)
    off = record_errors(builder, timeline)
    assert off.max() - off.min() <= 2 * timeline.clock.uncertainty_ns + 1e-3


@pytest.mark.parametrize("late", [0.0, 0.03])
def test_a_dip_with_dense_readings_gives_6_ns(late: float) -> None:
    machine = Machine(4, gap=6, jitter=2, dips=DIPS, ends=True, late=late, seed=1)
    builder, timeline = busy(machine, warps=4 * 48, span_ns=20_000, period=800)
    clock = timeline.clock
    assert clock.method == "fit, piecewise" and "slower in the first" in clock.reason
    off = record_errors(builder, timeline)
    assert off.max() - off.min() <= 2 * clock.uncertainty_ns
    assert clock.uncertainty_ns <= 6 and clock.median_ns < 3


def real(first: int, last: int) -> tuple[Any, Any, Any]:
    """A recorded launch as (headers of a warp an SM, calibration beside it, its readings [SMs, n])."""
    data = np.load(Path(__file__).parent / "data" / "clock" / "h200.npz")
    readings = np.zeros(data["time"].shape, layout.ANCHOR)
    readings["time"] = np.cumsum(data["time"].astype(np.uint64) * np.uint64(32), axis=1)
    steps = np.concatenate([np.zeros((16, 1), np.uint64), data["clock"].astype(np.uint64)], axis=1)
    readings["clock"] = data["start"][:, None] + np.cumsum(steps, axis=1)
    readings["sm"], readings["gap"] = data["sm"][:, None], data["gap"]
    launch = readings[:, first:last]
    headers: Any = np.zeros(16, layout.HEADER)
    headers["magic"], headers["sm"], headers["cta"] = layout.MAGIC_CLOSED, data["sm"], np.arange(16)
    for name, at in (("begin", 0), ("end", -1)):
        for field in ("time", "clock", "gap"):
            headers[f"{field}_{name}"] = launch[field][:, at]
    beside = np.concatenate([readings[:, first - 64 : first], readings[:, last : last + 64]], axis=1)
    return headers, beside.reshape(-1), launch


@pytest.mark.parametrize(("first", "most"), [(64, 80.0), (304, 60.0)], ids=["FFMA", "memory"])
def test_readings_left_out_of_a_recorded_launch_lie_within_the_uncertainty(first: int, most: float) -> None:
    headers, beside, launch = real(first, first + 120)
    since = (launch["clock"] - headers["clock_begin"][:, None]).astype(np.int64)
    row = np.broadcast_to(np.arange(16)[:, None], launch.shape)
    for part in (0, 1):
        used, held = (slice(1 + part, None, 2), slice(2 - part, None, 2))
        ends = EndReadings(row[:, used].ravel(), since[:, used].ravel(), launch["time"][:, used].ravel())
        made = convert(headers, beside, since[:, -1], {}, ends)
        assert (
            made.clock.method == "fit, piecewise" and made.clock.median_ns < made.clock.uncertainty_ns < 400
        )
        found = made.ns(row[:, held].ravel(), since[:, held].ravel())
        floor = launch["time"][:, held].ravel().astype(np.float64)
        above = (floor - launch["gap"][:, held].ravel() / 1.9 - found).max()
        below = (floor + 32 - found).min()
        assert above - below <= 2 * made.clock.uncertainty_ns
        assert made.clock.median_ns < most
        assert ("slower" in made.clock.reason) == (first == 64)


def test_the_timer_step_is_measured() -> None:
    rng = np.random.default_rng(0)
    dense = rng.integers(0, 1000, 500).astype(np.uint64)
    assert timer_step(dense * np.uint64(32) + np.uint64(7)) == 32
    jumps = np.array([0, 992, 2016, 3008, 4032], np.uint64)  # steps of about 1 µs, a multiple of 32
    assert timer_step(np.repeat(jumps, 50)) >= 992
    assert timer_step(np.array([5, 5], np.uint64)) == 1024
    assert timer_step(np.array([5, 30_005], np.uint64)) == 1024


def test_a_hundred_thousand_warps_convert_quickly() -> None:
    raw = trace_synthetic.loops(12_500, 8, 1, "flat")
    last = (raw.headers["clock_end"] - raw.headers["clock_begin"]).astype(np.int64)
    begin = time.process_time()
    conversion = convert(raw.headers, raw.anchors, last)
    assert time.process_time() - begin < 5
    assert conversion.start.size == 100_000 and conversion.clock.method == "fit"
