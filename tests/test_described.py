"""Descriptions of launches that nobody wrote: files of traces and of counters show them or refuse them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import trace_synthetic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warpdeck.cli import profile as cli_profile
from warpdeck.cli import trace as cli_trace
from warpdeck.core import tracing
from warpdeck.core.devices import stored_counters
from warpdeck.core.errors import UsageError
from warpdeck.telemetry.described import strange
from warpdeck.telemetry.ncu.counters import Counters, Metric
from warpdeck.telemetry.trace import store
from warpdeck.tui import counters_view, trace_view

KEYS = (
    *("workload", "variant", "case", "kernel", "date", "command", "cache", "set", "tool", "config", "params"),
    *(
        "grid",
        "block",
        "instance",
        "capacity",
        "passes",
        "resources",
        "warnings",
        "device",
        "overhead",
        "ctas",
    ),
)
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=4)
NAMES = st.sampled_from(
    [
        "name",
        "label",
        "date",
        "recorded",
        "compute_capability",
        "ci",
        "ratio",
        "traced",
        "of",
        "traced_ms",
        "x",
    ]
)
VALUES = st.recursive(
    LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(NAMES, v, max_size=4), max_leaves=8
)
META = st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=4)
no_reset = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
OVERHEAD = {"untraced_ms": 1.0, "traced_ms": 1.5, "ratio": 1.5, "ci": [1.4, 1.6]}


@no_reset
@given(META)
def test_a_trace_says_what_it_can_or_is_refused(tmp_path: Path, meta: dict[str, Any]) -> None:
    path = tmp_path / "t.wdtrace"
    store.save(dataclasses.replace(trace_synthetic.loops(1, 1, 2, "mixed"), meta=meta), path)
    try:
        timeline = tracing.read(path)
    except UsageError as error:
        key = strange(meta)
        assert key is not None and key in str(error)
        return
    assert strange(meta) is None
    cli_trace._report(found := tracing.document(timeline))
    cli_trace._warnings(found)
    for line in (trace_view.title_line, trace_view.cost_line, trace_view.alert_line):
        line(timeline, 80)
    trace_view.rerun_command(timeline)


@no_reset
@given(META)
def test_a_profile_says_what_it_can_or_is_refused(tmp_path: Path, meta: dict[str, Any]) -> None:
    path = tmp_path / "p.counters.json"
    stored_counters.save(Counters("k", {"duration_ns": Metric(5.0, "ns")}, meta=meta), path)
    try:
        counters = stored_counters.load(path)
    except UsageError as error:
        key = strange(meta)
        assert key is not None and key in str(error)
        return
    assert strange(meta) is None
    cli_profile._present([counters], as_json=False, show=False)
    cli_profile._present([counters], as_json=True, show=False)
    for line in (counters_view.title_line, counters_view.cost_line):
        line(counters, 80)


@pytest.mark.parametrize(
    ("key", "fine", "strange_ones"),
    [
        ("overhead", {**OVERHEAD, "recording": OVERHEAD}, [{**OVERHEAD, "recording": {"ratio": 2.0}}]),
        ("overhead", OVERHEAD, [{"ratio": 1.5}, {**OVERHEAD, "ci": [1.4]}, {**OVERHEAD, "ratio": "1"}, [1]]),
        (
            "device",
            {"name": "G", "compute_capability": [9, 0]},
            ["G", {"compute_capability": "x"}, {"name": 5}],
        ),
        ("ctas", {"traced": 3, "of": None}, [7, {"traced": 3}, {"of": 3}, {"traced": "3", "of": 3}]),
        ("config", {"BLOCK": 64, "kind": "a"}, ["zz", [1], {"BLOCK": [64]}]),
        ("grid", [1, 2, 3], [[1, 2], 5, [1, 2, "3"]]),
        ("warnings", ["a"], ["a", [1]]),
        ("command", "warpdeck trace 'a b'", ["trace 'a", ["trace"]]),
    ],
)
def test_what_is_strange(key: str, fine: Any, strange_ones: list[Any]) -> None:
    assert strange({key: fine}) is None
    assert strange({key: None, "unknown": object()}) is None
    assert [strange({key: value}) for value in strange_ones] == [key] * len(strange_ones)
