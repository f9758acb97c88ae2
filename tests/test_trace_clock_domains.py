"""SMs that share a clock: found by calibration, pooled, and kept apart where readings say so."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_trace_clock import busy, record_errors
from trace_synthetic import Builder, Machine

import warpdeck.kernels
from warpdeck.telemetry.trace import layout
from warpdeck.telemetry.trace.clock import idle_rate, timer_step
from warpdeck.telemetry.trace.clock_domains import Domains, domains
from warpdeck.telemetry.trace.clock_timer import Timer
from warpdeck.telemetry.trace.decode import decode
from warpdeck.telemetry.trace.store import load
from warpdeck.telemetry.trace.timeline import RawTrace

RECORDED = sorted(Path(warpdeck.kernels.__file__).parent.glob("*/recordings/*.wdtrace"))
DIPS = [(41_000.0, 0.03, 6000.0), (43_000.0, 0.01, 9000.0), (41_000.0, 0.01, 4000.0), (40_000.0, 0.0, 1e4)]


def of(raw: RawTrace) -> Domains:
    """A trace's clock domains, by calibration alone."""
    headers = raw.headers[raw.headers["magic"] == layout.MAGIC_CLOSED]
    rate = idle_rate(raw.anchors, headers["time_begin"].min(), raw.meta)
    assert rate is not None
    return domains(headers, raw.anchors, rate, Timer(timer_step(raw.anchors["time"])), None)


def launch(machine: Machine, each: int = 64) -> RawTrace:
    """A warp on each SM, and `each` calibration readings an SM on either side."""
    builder = Builder(("work",), machine)
    for sm in range(machine.sms):
        with builder.warp(cta=sm, sm=sm, at_ns=40_000.0) as w:
            w.begin("work").step(30_000).end("work")
    beside = [machine.anchors(each, at, 500.0) for at in (100.0, 70_000.0)]
    return builder.build(anchors=np.concatenate(beside))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 30), pairs=st.integers(1, 3))
def test_sms_of_one_clock_are_found_and_placed_within_their_error(seed: int, pairs: int) -> None:
    machine = Machine(8 * pairs, gap=6, jitter=2, dips=DIPS, seed=seed)
    found = of(launch(machine))
    true = np.arange(machine.sms) // 2 % len(DIPS)
    for domain in np.unique(found.domain):
        mine = np.flatnonzero(found.domain == domain)
        assert len(np.unique(true[mine])) == 1
        # A cycle of each placed where the timer was then, but for what is common to all of them.
        zero = [machine.ns(int(found.pivot[sm]) - int(machine.offsets[sm]), sm) for sm in mine.tolist()]
        off = found.offset[mine] - np.array(zero)
        assert np.ptp(off) <= 2 * found.error[mine].max() + 0.5
    assert len(np.unique(found.domain)) <= len(DIPS) * pairs


def test_domains_part_into_pairs_and_these_into_sms() -> None:
    found = of(launch(Machine(16, gap=6, dips=DIPS[:1]), each=256))
    assert len(np.unique(found.domain)) == 1 and found.error.max() > 0
    pairs = found.parted(np.array([0]))
    assert (pairs.domain[::2] == pairs.domain[1::2]).all() and len(np.unique(pairs.domain)) == 8
    singles = pairs.parted(np.unique(pairs.domain))
    assert len(np.unique(singles.domain)) == 16 and not singles.error.any()


def test_sms_without_calibration_stay_alone() -> None:
    raw = launch(Machine(4, gap=6), each=12)
    assert len(np.unique(of(raw).domain)) == 4


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    sms=st.sampled_from([8, 16, 24]),
    late=st.sampled_from([0.0, 0.02, 0.1]),
    depths=st.lists(st.floats(0.0, 0.06), min_size=1, max_size=4),
    period=st.integers(300, 4000),
    span=st.sampled_from([12_000.0, 30_000.0]),
)
def test_the_uncertainty_holds_over_pooled_sms(
    seed: int, sms: int, late: float, depths: list[float], period: int, span: float
) -> None:
    """Dips of up to 6%, each domain's of its own depth and length.

    Domains whose dips cost equally much, though at different times, would be taken for one; here they have no
    more SMs than a domain may have, which on a whole GPU they would.
    """
    dips = [(41_000.0 + 900 * i, depth, 4000.0 + 2500 * i) for i, depth in enumerate(depths)]
    assume(all(abs(a[1] * a[2] - b[1] * b[2]) > 15 for a, b in combinations(dips, 2)))
    machine = Machine(sms, gap=6, jitter=2, dips=dips, ends=True, late=late, seed=seed)
    builder, timeline = busy(machine, warps=sms + sms // 2, span_ns=span, period=period)
    off = record_errors(builder, timeline)
    assert off.max() - off.min() <= 2 * timeline.clock.uncertainty_ns + 1e-3


def test_pooling_tells_more_than_each_sm_alone() -> None:
    """16 SMs of one clock, of which each reads the timer about once in a microsecond."""
    machine = Machine(16, gap=6, jitter=2, dips=[(41_000.0, 0.02, 6000.0)], ends=True, seed=3)
    builder, timeline = busy(machine, warps=16, span_ns=20_000, period=2000)
    off = record_errors(builder, timeline)
    assert off.max() - off.min() <= 2 * timeline.clock.uncertainty_ns
    raw = builder.build(anchors=np.concatenate([machine.anchors(64, at, 500.0) for at in (100.0, 64_000.0)]))
    few = raw.anchors[raw.anchors["time"] > raw.headers["time_end"].max()]
    few = np.concatenate([raw.anchors[raw.anchors["time"] < raw.headers["time_begin"][0]], few[::8]])
    alone = decode(RawTrace(raw.headers, raw.records, few, raw.stages, raw.meta))  # too few to be pooled
    assert timeline.clock.uncertainty_ns < 0.8 * alone.clock.uncertainty_ns


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_every_recorded_trace_has_a_curve(path: Path) -> None:
    timeline = decode(load(path))
    assert timeline.clock.method == "fit, piecewise" and timeline.clock.uncertainty_ns < 80
    assert timeline.mispaired_count == 0


@pytest.mark.parametrize("path", [p for p in RECORDED if "gemm" in p.name], ids=lambda path: path.stem)
def test_an_h200_has_eight_clocks(path: Path) -> None:
    """Of 12 to 18 SMs. Where clocks dip the most, some pairs of SMs don't keep quite together."""
    found = of(load(path))
    sizes = np.bincount(found.domain)
    assert sizes.max() <= 18 and np.count_nonzero(sizes >= 12) >= 5
    assert (found.domain[::2] == found.domain[1::2]).all()
    assert np.median(found.error) < 3
