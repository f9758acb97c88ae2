"""What the panes of Timeline, Counters and Code save: pictures and data."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from textual.widget import Widget

from warpdeck.core.tracing import decoded
from warpdeck.sessions.profiles import profile_one
from warpdeck.sessions.traces import trace_named
from warpdeck.telemetry.trace.timeline import Timeline
from warpdeck.tui.export import Exported
from warpdeck.tui.screens.counters import CountersScreen
from warpdeck.tui.screens.counters_compare import CompareCountersScreen
from warpdeck.tui.screens.timeline import TimelineScreen
from warpdeck.tui.screens.timeline_compare import CompareTimelineScreen


def trace(variant: str) -> Timeline:
    return decoded(trace_named("gemm", device="recorded:h200", variant=variant))


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


async def test_the_timeline_saves_what_is_on_the_screen(kit: Any, tmp_path: Path) -> None:
    timeline = trace("tiled")
    async with kit.show(TimelineScreen(timeline, folder=tmp_path)) as console:
        pane = console.screen.pane
        low, high = pane.view
        await console.press("e")
        await console.settle()
        assert "saved" in console.text
        saved = tmp_path / "artifacts"
        assert sorted(p.name for p in saved.iterdir()) == [
            "timeline-1.csv",
            "timeline-1.png",
            "timeline-1.svg",
        ]
        rows = table((saved / "timeline-1.csv").read_text())
        assert rows and all(float(r["start_ns"]) < high and float(r["end_ns"]) > low for r in rows)
        shown = {int(timeline.warps.cta[i]) for i in pane.lanes.row[pane.top : pane.top + pane.body]}
        assert {int(r["cta"]) for r in rows} == shown
        assert {r["stage"] for r in rows} <= set(timeline.stages)
        svg = ElementTree.parse(saved / "timeline-1.svg").getroot()
        words = "".join(svg.itertext())
        assert "c compute" in words and "recorded on NVIDIA H200" in words and "cta 0 w0" in words
        await console.press("f", "e")
        await console.settle()
        assert len(table((saved / "timeline-2.csv").read_text())) > len(rows)


async def test_every_pane_saves_figures(kit: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    profiles = [profile_one("gemm", "recorded:h200", variant=v) for v in ("classic", "tiled")]
    screens = (
        TimelineScreen(trace("tiled")),
        CompareTimelineScreen(trace("tiled"), trace("cuda")),
        CountersScreen(profiles[1]),
        CompareCountersScreen(*profiles),
    )
    seen = {}
    for screen in screens:
        async with kit.show(screen) as console:
            for pane in console.screen.query("*").results():
                saved = pane.exported() if isinstance(pane, Exported) else None
                if saved is not None:
                    assert isinstance(pane, Widget)
                    assert any(b.action == "export" for _, b in pane._bindings), pane
                    seen[f"{type(screen).__name__} {pane.id}"] = saved
    assert len(seen) == 17, sorted(seen)
    for name, saved in seen.items():
        drawing = saved.drawing()
        assert drawing.svg().startswith("<svg") and drawing.png().startswith(b"\x89PNG"), name
        assert len(saved.csv().splitlines()) > 1, name
    stages = {r["name"]: r for r in table(seen["TimelineScreen stages"].csv())}
    assert float(stages["compute"]["share"]) == pytest.approx(0.87, abs=0.02)
    flow = table(seen["CountersScreen flow"].csv())
    assert [r["to"] for r in flow] == ["SM", "L1", "L2"] and float(flow[1]["hit_rate"]) == pytest.approx(
        0.769, abs=0.001
    )
    pairs = {r["label"]: r for r in table(seen["CompareCountersScreen pairs"].csv())}
    assert float(pairs["Compute"]["second"]) > float(pairs["Compute"]["first"])
