"""Two traces beside each other: stages' differences, linked panes, every size."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import trace_synthetic
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.core.tracing import decoded
from warpdeck.sessions.traces import trace_named
from warpdeck.telemetry.trace.decode import decode
from warpdeck.telemetry.trace.summary import Summary, summarise
from warpdeck.telemetry.trace.timeline import Timeline
from warpdeck.tui import trace_compare
from warpdeck.tui.screens.pick import PickScreen
from warpdeck.tui.screens.timeline import TimelineScreen
from warpdeck.tui.screens.timeline_compare import ChangePane, CompareTimelineScreen

SIZES = [(60, 16), (80, 24), (120, 40), (200, 60)]


def trace(variant: str = "tiled") -> Timeline:
    return decoded(trace_named("gemm", device="recorded:h200", variant=variant))


def made(ctas: int = 2, iterations: int = 12, **meta: Any) -> Timeline:
    raw = trace_synthetic.loops(ctas=ctas, warps=4, iterations=iterations, shape="mixed")
    return decode(dataclasses.replace(raw, meta={**raw.meta, "workload": "gemm", **meta}))


def slower(timeline: Timeline, stage: str, factor: float) -> Summary:
    """The same summary with one stage's own time stretched."""
    summary = summarise(timeline)
    stages = tuple(
        dataclasses.replace(s, self_ns=s.self_ns * factor, p50_ns=s.p50_ns * factor) if s.name == stage else s
        for s in summary.stages
    )
    return dataclasses.replace(summary, stages=stages, span_ns=summary.span_ns * 1.5)


def test_the_stage_that_got_slower_comes_first() -> None:
    timeline = made()
    before = summarise(timeline)
    name = max(before.stages, key=lambda s: s.self_ns).name
    after = slower(timeline, name, 2.0)
    found = trace_compare.stage_changes(before, after)
    assert found[0].name == name and trace_compare.change_words(found[0]).endswith("+100%")
    assert trace_compare.change_words(found[0]).startswith("▲ +")
    assert [trace_compare.change_words(c) for c in found[1:]] == ["="] * (len(found) - 1)
    words = trace_compare.said(before, after, ("a", "b"))
    assert words[0].startswith("b is 1.50× as long") and words[1].startswith(f"slower in b: {name} +")
    back = trace_compare.said(after, before, ("b", "a"))
    assert back[1].startswith(f"faster in a: {name} −") and back[1].endswith("−50%")


def test_the_same_twice_and_another_number_of_warps() -> None:
    one, two = summarise(made(ctas=2)), summarise(made(ctas=4))
    assert trace_compare.said(one, one, ("a", "b"))[1:] == ["no stage changed by more than 2% of the whole"]
    assert trace_compare.said(one, two, ("a", "b"))[-1].startswith("8 → 16 warps were traced")
    # Twice as many warps that do the same are no change of any stage.
    assert all(abs(c.delta_ns) < 0.02 * one.span_ns for c in trace_compare.stage_changes(one, two))


def test_a_stage_of_one_side_only() -> None:
    summary = summarise(made())
    lacking = dataclasses.replace(summary, stages=summary.stages[1:])
    gone = summary.stages[0].name
    found = {c.name: c for c in trace_compare.stage_changes(lacking, summary)}
    assert trace_compare.change_words(found[gone]) == "only in 2" and "–" in found[gone].cells[1]
    assert any(f"new: {gone}" in line for line in trace_compare.said(lacking, summary, ("a", "b")))


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_words_fit_any_times(a: float, b: float) -> None:
    change = trace_compare.StageChange("load", None, None, a, b)
    assert trace_compare.change_words(change) == "only in 2"
    stage = summarise(made()).stages[0]
    words = trace_compare.change_words(dataclasses.replace(change, before=stage, after=stage))
    assert words[0] == ("=" if abs(b - a) < 0.5 else "▲" if b > a else "▼")


@pytest.mark.parametrize("size", SIZES)
async def test_both_beside_each_other(size: tuple[int, int], kit: Any) -> None:
    async with kit.show(CompareTimelineScreen(trace(), trace("cuda")), size) as console:
        assert len(console.lines) == size[1]
        assert "Timelines · gemm · recorded on NVIDIA H200" in console.lines[0]
        assert "1  tiled" in console.lines[1] and "2  cuda" in console.lines[2]
        assert "cuda is 1.24× as long" in console.lines[3]
        assert "1 tiled ·" in console.text and "2 cuda ·" in console.text
        first, second = console.screen.panes
        assert first.view == second.view and first.columns == second.columns
        assert (first.region.y == second.region.y) == (size[0] >= 160)
        if size[1] >= 30:
            assert re.search(r"slower in cuda: compute \+16\.\d µs \+30%", console.text)
            assert re.search(r"▲ \+16\.\d µs \+30%", console.text) and "only in 2" in console.text


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_snapshots(size: tuple[int, int], kit: Any, snapshot_text: Any) -> None:
    async with kit.show(CompareTimelineScreen(trace(), trace("cuda")), size) as console:
        snapshot_text(f"timeline-compare-{size[0]}x{size[1]}", "\n".join(console.lines[:-1]))


async def test_light_is_readable(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    async with kit.show(CompareTimelineScreen(trace(), trace("cuda"))) as console:
        console.app.theme = "light"
        await console.settle()
        strips = console.screen.panes[0]._strips
        assert strips is not None
        for segment in (segment for strip in strips for segment in strip if segment.text.strip(" ▏│")):
            style = segment.style
            assert style is not None and style.color is not None and style.bgcolor is not None
            ink, ground = style.color.get_truecolor(), style.bgcolor.get_truecolor()
            assert sum(abs(a - b) for a, b in zip(ink, ground, strict=True)) > 90, segment


async def test_what_one_shows_the_other_shows(kit: Any) -> None:
    async with kit.show(CompareTimelineScreen(made(2), made(2, iterations=30))) as console:
        first, second = console.screen.panes
        assert first.high == second.high  # one axis, as long as the longer trace
        await console.press("plus", "plus", "j", "j")
        assert first.view == second.view and (first.lane, first.time) == (second.lane, second.time)
        await console.press("c", "minus", "j")
        assert first.view != second.view and first.lane == second.lane + 1
        assert "not linked" in console.lines[0]
        await console.press("c")
        assert first.view == second.view and first.lane == second.lane
        await console.press("tab", "plus", "k")
        assert first.view == second.view and first.lane == second.lane


async def test_a_warp_that_the_other_lacks_leaves_it(kit: Any) -> None:
    async with kit.show(CompareTimelineScreen(made(4), made(2))) as console:
        first, second = console.screen.panes
        await console.press("G")
        assert first.lane > second.lane and first.view == second.view
        await console.press("end")
        assert second.chosen is None or second.row is not None


async def test_keys(kit: Any) -> None:
    screen = CompareTimelineScreen(made(variant="a"), made(iterations=30, variant="b"))
    async with kit.show(screen) as console:
        assert "b is" in console.lines[3]
        await console.press("x")
        assert "1  b" in console.lines[1] and "a is" in console.lines[3] and "shorter" in console.lines[3]
        assert screen.panes[0].region.y < screen.panes[1].region.y
        await console.press("s", "enter")
        assert isinstance(console.app.screen.focused, ChangePane)
        assert all(pane.focus_stage is not None for pane in screen.panes)
        await console.press("s", "escape")
        assert all(pane.focus_stage is None for pane in screen.panes)
        await console.press("z", "z", "y", "question_mark")
        assert "a is" in console.app.clipboard
        assert "row a warp" in console.dialog.lower()
        await console.press("escape", "q")
        assert console.app._exit


async def test_the_other_trace_is_picked(kit: Any, tmp_path: Path) -> None:
    async with kit.show(TimelineScreen(trace())) as console:
        await console.press("o")
        await console.settle()
        assert isinstance(console.app.screen, PickScreen)
        assert "pipelined · size 1024" in console.dialog and "recorded:h200" in console.dialog
        await console.press("enter")
        await console.settle()
        assert isinstance(console.app.screen, CompareTimelineScreen)
        assert console.app.screen.timelines[1] is console.screen.timeline
