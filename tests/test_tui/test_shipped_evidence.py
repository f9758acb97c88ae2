"""The Timeline and the Counters screen over what was recorded on an H200."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from warpdeck.core.tracing import decoded
from warpdeck.sessions.profiles import profile_one
from warpdeck.sessions.traces import trace_named
from warpdeck.tui.screens.counters import CountersScreen
from warpdeck.tui.screens.timeline import TimelineScreen

DEVICE = "recorded:h200"


async def test_a_pipelined_gemm_shows_producers_consumers_and_copies(kit: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    timeline = decoded(trace_named("gemm", device=DEVICE, variant="pipelined"))
    s = timeline.slices
    async with kit.show(TimelineScreen(timeline)) as console:
        pane = console.screen.pane
        assert re.search(r"gemm · pipelined · size 1024 · recorded on NVIDIA H200, \d{4}-", console.lines[0])
        assert "0 dropped" in console.lines[1] and "CTAs" in console.lines[1]
        # A few tiles are on the screen, not the whole launch: names fit, and so do the copies' flows.
        low, high = pane.view
        tiles = (s.row == 0) & (s.stage == timeline.stages.index("compute")) & (s.depth == 0)
        assert 4 <= ((s.start_ns[tiles] < high) & (s.end_ns[tiles] > low)).sum() <= 8
        assert "wait" in console.text and re.search(r"→0.*copy", console.text)
        for stage in timeline.stages:
            assert re.search(rf"\b{stage} .*%", console.text)
        # The longest wait is found by its name.
        await console.press("slash", "w", "a", "i", "t", "enter", "x")
        waits = s.stage == timeline.stages.index("wait")
        assert pane.chosen is not None and waits[pane.chosen]
        length = s.end_ns - s.start_ns
        assert length[pane.chosen] == np.max(length[waits])
        assert "wait: the longest of" in console.text


async def test_a_trace_of_65_000_events_opens_readable_in_80_columns(kit: Any) -> None:
    timeline = decoded(trace_named("gemm", device=DEVICE, variant="classic"))
    assert timeline.events > 60_000
    async with kit.show(TimelineScreen(timeline), (80, 24)) as console:
        rows = [line for line in console.lines if re.search(r"\bw\d ", line)]
        assert len(rows) >= 8
        for row in rows[:8]:  # without colours: loads and computations in turn, several times
            assert len(re.findall(r"[Ll]+[^Ll]*C", row)) >= 4
        assert "clock ±" in console.lines[1]


async def test_the_profile_of_softmax(kit: Any) -> None:
    counters = profile_one("softmax", DEVICE)
    async with kit.show(CountersScreen(counters)) as console:
        assert re.search(r"softmax · \w+ · size 1024 · recorded on NVIDIA H200, \d{4}-", console.lines[0])
        assert "µs under the profiler" in console.lines[1] and "38 passes" in console.lines[1]
        assert re.search(r"1 (latency|memory|compute) bound: ", console.text)
        assert re.search(r"Roofline · \d+% of the (memory|compute) roof ", console.text)
        assert re.search(r"(classic|kernel)\.py:\d+ +\d+\.\d% +\d+ ", console.text)
        assert "samples at " in console.text
        await console.press("t")
        assert "Duration" in console.text and re.search(r"Achieved occupancy +\d+\.\d%", console.text)
