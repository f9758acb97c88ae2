"""Clocks that were read beside the launch: followed through a dip, and never further off than is printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_trace_clock import record_errors
from trace_synthetic import Builder, Machine

from warpdeck.telemetry.trace.clock import idle_rate
from warpdeck.telemetry.trace.clock_domains import domains
from warpdeck.telemetry.trace.clock_timer import Timer
from warpdeck.telemetry.trace.decode import decode
from warpdeck.telemetry.trace.readings import begun_beside, during
from warpdeck.telemetry.trace.timeline import RawTrace

AT = 42_000.0


def launch(
    machine: Machine,
    *,
    warps: int = 16,
    span_ns: float = 40_000.0,
    pause_ns: float = 1000.0,
    off_ns: float = 0.0,
) -> tuple[Builder, RawTrace]:
    """Warps that record ranges of 1.5 µs, on a few SMs. The clocks of all are read before, beside, after."""
    builder = Builder(("work",), machine)
    rng = np.random.default_rng(7)
    for i in range(warps):
        sm = i * 5 % machine.sms
        stop = machine.cycles(AT + span_ns, sm)
        with builder.warp(cta=i, sm=sm, at_ns=AT + float(rng.uniform(0, 500))) as w:
            while w.now < stop:
                w.begin("work").step(round(3000 * rng.uniform(0.5, 1.5))).end("work")
    parts: list[Any] = [machine.steps(AT - 40_000, AT - 3500, 1100, off_ns)]
    parts.append(machine.steps(AT + span_ns + 4000, AT + span_ns + 40_000, 1100, off_ns))
    if pause_ns:
        parts.append(machine.steps(AT + 700, AT + span_ns, pause_ns, off_ns))
    return builder, builder.build(anchors=np.concatenate(parts))


def spread(builder: Builder, raw: RawTrace) -> tuple[float, Any]:
    """Half of how far decoded times lie apart from the true ones, and the clock."""
    timeline = decode(raw)
    off = record_errors(builder, timeline)
    return float(np.ptp(off)) / 2, timeline.clock


@pytest.mark.parametrize("depth", [0.01, 0.03, 0.06])
@pytest.mark.parametrize("off_ns", [0.0, 2.0])
def test_readings_beside_the_launch_show_what_a_dip_did(depth: float, off_ns: float) -> None:
    dips = [(AT + 500, depth, 12_000.0), (AT + 300, depth / 2, 9000.0)]
    machine = Machine(32, gap=4, dips=dips, ends=True, late=0.02, seed=3)
    builder, raw = launch(machine, off_ns=off_ns)
    found, clock = spread(builder, raw)
    assert found <= clock.uncertainty_ns and clock.uncertainty_ns <= 12 and clock.median_ns <= 6
    without = decode(
        RawTrace(raw.headers, raw.records, raw.anchors[~during(raw.anchors, raw.headers)], raw.stages)
    )
    assert clock.uncertainty_ns < without.clock.uncertainty_ns / 2


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    depths=st.lists(st.floats(0.0, 0.06), min_size=1, max_size=4),
    tau=st.floats(3000.0, 15_000.0),
    begin=st.floats(-3000.0, 20_000.0),
    pause=st.sampled_from([300.0, 1000.0, 5000.0]),
    off=st.sampled_from([0.0, 2.0]),
    late=st.sampled_from([0.0, 0.1]),
)
def test_the_uncertainty_holds_with_readings_beside_the_launch(
    seed: int, depths: list[float], tau: float, begin: float, pause: float, off: float, late: float
) -> None:
    """SMs of up to four clocks that dip at different times by different amounts, or hardly."""
    dips = [(AT + begin + 700 * i, depth, tau + 2500 * i) for i, depth in enumerate(depths)]
    machine = Machine(16, gap=4, dips=dips, ends=True, late=late, seed=seed)
    builder, raw = launch(machine, span_ns=25_000.0, pause_ns=pause, off_ns=off)
    found, clock = spread(builder, raw)
    assert found <= clock.uncertainty_ns + off


def test_clocks_that_lost_as_much_are_told_apart_by_what_they_did_meanwhile() -> None:
    dips = [(AT + 100, 0.04, 4500.0), (AT + 100, 0.06, 3000.0)]  # 180 ns both
    machine = Machine(48, gap=4, dips=dips, ends=True, seed=5)
    builder, raw = launch(machine, pause_ns=500.0)
    headers = raw.headers[raw.headers["magic"] != 0]
    rate = idle_rate(raw.anchors, headers["time_begin"].min(), raw.meta)
    assert rate is not None
    found = domains(headers, raw.anchors, rate, Timer(32.0), None)
    assert np.unique(found.domain).size == 2
    assert (found.domain[:2] == found.domain[4]).all() and found.domain[0] != found.domain[2]
    off, clock = spread(builder, raw)
    assert off <= clock.uncertainty_ns <= 12


def test_a_launch_that_waited_for_the_readings_beside_it_is_noticed() -> None:
    machine = Machine(16, gap=4, seed=1)
    _, raw = launch(machine, pause_ns=0.0)
    headers = raw.headers[raw.headers["magic"] != 0]
    beside = machine.steps(AT - 2000, AT + 300, 500.0)
    ended = beside[beside["time"] < headers["time_begin"].min()]
    assert ended.size and not begun_beside(ended, headers)
    later = headers[headers["time_begin"] <= beside["time"].max()]
    assert begun_beside(beside, later if later.size else headers[:0])
    assert begun_beside(np.zeros_like(ended), headers) and begun_beside(ended, headers[:0])
