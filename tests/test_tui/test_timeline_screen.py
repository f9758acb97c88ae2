"""The Timeline screen: what it says, every key, every size, and traces that are odd."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import trace_synthetic
from textual.events import MouseScrollDown, MouseScrollUp

from warpdeck.telemetry.trace.decode import decode
from warpdeck.telemetry.trace.timeline import Timeline
from warpdeck.tui import trace_view
from warpdeck.tui.lanes import DEEPEST, EVERY
from warpdeck.tui.screens.help import HelpScreen
from warpdeck.tui.screens.timeline import TimelineScreen, match_stage
from warpdeck.tui.widgets.stages import LongestPane, StagePane

SIZES = [(60, 16), (80, 24), (120, 40), (200, 60)]
RECORDED = {
    "name": "NVIDIA H200",
    "spec": "recorded:h200",
    "recorded": True,
    "date": "2026-11-29",
    "compute_capability": [9, 0],
    "sm_count": 132,
}
META = {
    "workload": "gemm",
    "variant": "pipelined",
    "case": "1024",
    "config": {"tile": 128},
    "device": RECORDED,
    "ctas": {"traced": 4, "of": 64},
    "overhead": {"untraced_ms": 0.1, "traced_ms": 0.1008, "ratio": 1.008, "ci": [1.006, 1.01]},
    "command": "warpdeck trace gemm --variant pipelined --knob tile=128",
}


def trace(shape: str = "mixed", *, ctas: int = 4, capacity: int | None = None, **meta: Any) -> Timeline:
    raw = trace_synthetic.loops(ctas=ctas, warps=4, iterations=12, shape=shape, capacity=capacity)
    return decode(dataclasses.replace(raw, meta={**raw.meta, **META, **meta}))


@pytest.fixture(params=["dark", "no colour"])
def colours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "dark":
        monkeypatch.delenv("NO_COLOR")
    return request.param


@pytest.mark.parametrize("size", SIZES)
async def test_it_shows_the_trace_and_its_cost(size: tuple[int, int], colours: str, kit: Any) -> None:
    timeline = trace()
    async with kit.show(TimelineScreen(timeline), size) as console:
        assert len(console.lines) == size[1]
        assert "recorded on NVIDIA H200, 2026-11-29" in console.lines[0]
        assert console.lines[0].lstrip().startswith("gemm")
        assert "tracing +0.8% vs untraced" in console.lines[1]
        assert "0 dropped" in console.lines[1]
        if size[0] >= 80:
            assert "clock ±" in console.lines[1] and "events" in console.lines[1]
        assert "µs" in console.text and "▼" in console.text
        assert "w0" in console.text and "cta" in console.text
        assert ("count" in console.text and "imb." in console.text) == (size[0] >= 100)
        assert "cta 0 warp 0 on SM 0" in console.text
        assert "━" in console.text
        letters = "LC" if colours == "no colour" else "▏◆"
        assert any(letter in console.text for letter in letters)


async def test_below_the_least_size_it_says_so(kit: Any) -> None:
    async with kit.show(TimelineScreen(trace()), (50, 12)) as console:
        assert "needs 60×16, this terminal is 50×12" in console.text


async def test_a_live_trace_names_its_device(kit: Any) -> None:
    live = {**RECORDED, "recorded": False, "spec": "cuda:0"}
    async with kit.show(TimelineScreen(trace(device=live, overhead=None))) as console:
        assert "NVIDIA H200 (cuda:0)" in console.lines[0] and "recorded" not in console.lines[0]
        assert "tracing's own cost was not measured" in console.lines[1]


@pytest.mark.parametrize("size", SIZES)
async def test_drops_are_told_with_the_command_that_has_room(size: tuple[int, int], kit: Any) -> None:
    timeline = trace("flat", capacity=10)
    assert timeline.dropped > 0
    async with kit.show(TimelineScreen(timeline), size) as console:
        assert f"{timeline.dropped} events dropped in 16 of 16 warps" in console.text
        assert "warpdeck trace gemm --variant" in console.text
        assert console.app.screen.query_one("#alert").has_class("-dropped")
        assert "╱" in console.text
        await console.press("r")
        assert console.app.clipboard == META["command"]


async def test_what_was_dropped_of_asynchronous_stages_is_unknown(kit: Any) -> None:
    """A copy that another warp completes later is no record of the warp that issued it."""
    builder = trace_synthetic.Builder(("load", "copy"))
    with builder.warp(cta=0, warp=0, sm=0, at_ns=0, warps=2) as w:
        w.step(100).issue("copy", 1).begin("load").step(1800).end("load")  # about 1 µs; three records
        for _ in range(8):
            w.begin("load").step(2000).end("load")
    with builder.warp(cta=0, warp=1, sm=0, at_ns=0, warps=2) as w:
        w.step(12_000).done("copy", 1).step(5000)
    timeline = decode(builder.build(3))
    assert timeline.dropped == 16
    async with kit.show(TimelineScreen(timeline), (80, 24)) as console:
        await console.press("f")
        (issuer,) = [line for line in console.lines if "w0 " in line and "SM" not in line]
        (copies,) = [line for line in console.lines if "→" in line]
        assert issuer.count("╱") > 0.8 * (len(issuer) - 17)  # from its last record on
        assert 5 < copies.count("╱") < 0.4 * len(copies)  # from the copy's end on


async def test_everything_dropped(kit: Any) -> None:
    async with kit.show(TimelineScreen(trace("flat", capacity=0))) as console:
        assert "╱╱╱╱" in console.text
        assert "no range here" in console.text
        await console.press("n", "x", "right_square_bracket", "enter", "d", "slash")
        assert console.screen.query_one("#prompt").display is False


async def test_an_empty_trace(kit: Any) -> None:
    timeline = decode(trace_synthetic.Builder(("load",)).build())
    async with kit.show(TimelineScreen(timeline), (80, 24)) as console:
        assert "no warp was traced" in console.text
        assert "Nothing was traced" in console.text
        keys = "h j k l H L g G 0 plus minus f enter d a n x colon"
        await console.press(*keys.split(), "3", "enter", "y", "pageup", "pagedown", "s", "tab")
        assert console.app.is_running


async def test_one_warp_and_no_stage_names(kit: Any) -> None:
    builder = trace_synthetic.Builder(("load",))
    with builder.warp() as w:
        w.begin("load", 3).step(400).end("load")
    async with kit.show(TimelineScreen(decode(builder.build())), (80, 24)) as console:
        assert console.screen.pane.lanes.count == 1
        await console.press("j", "G", "pagedown")
        assert console.screen.pane.lane == 0
        assert "load 3" in console.text


async def test_the_cursor_moves_and_tells_what_it_is_on(kit: Any) -> None:
    timeline = trace("flat")
    async with kit.show(TimelineScreen(timeline)) as console:
        pane, s = console.screen.pane, timeline.slices
        assert pane.chosen == 0
        assert f"load {s.payload[0]} ·" in console.text and "range at depth 0" in console.text
        await console.press("right_square_bracket")
        assert pane.chosen == 1 and pane.time == s.start_ns[1]
        await console.press("left_square_bracket")
        assert pane.chosen == 0
        column = pane.column
        await console.press("l", "right")
        assert pane.column == column + 2
        await console.press("h", "left")
        assert pane.column == column
        await console.press("j", "down")
        assert pane.lane == 2 and "cta 0 warp 2" in console.text
        await console.press("k", "up", "k")
        assert pane.lane == 0
        await console.press("G")
        assert pane.lane == pane.lanes.count - 1 and "cta 3 warp 3" in console.text
        await console.press("g")
        assert pane.lane == 0
        await console.press("dollar_sign")
        assert pane.time > pane.high - pane.column_ns
        await console.press("0")
        assert pane.time == pane.low


async def test_rows_scroll_by_pages(kit: Any) -> None:
    async with kit.show(TimelineScreen(trace(ctas=40)), (80, 24)) as console:
        pane = console.screen.pane
        await console.press("pagedown")
        assert pane.top == pane.body == pane.lane
        await console.press("ctrl+f", "ctrl+b", "pageup")
        assert pane.top == 0 and pane.lane == 0
        for _ in range(pane.body):
            await console.tap("j")
        await console.settle()
        assert pane.top == 1


async def test_zoom_stays_at_the_cursor_and_pan_moves_half_a_screen(kit: Any) -> None:
    async with kit.show(TimelineScreen(trace())) as console:
        pane = console.screen.pane
        pane.action_fit()
        for _ in range(30):
            pane.action_step(1)
        await console.press("l")
        time, column = pane.time, pane.column
        await console.press("plus", "plus", "equals_sign")
        span = pane.view[1] - pane.view[0]
        assert span == pytest.approx((pane.high - pane.low) / 8)
        assert pane.time == time and abs(pane.column - column) <= 1
        start = pane.view[0]
        await console.press("L")
        assert pane.view[0] == pytest.approx(start + span / 2)
        await console.press("H", "shift+left")
        assert pane.view[0] == pytest.approx(start - span / 2)
        await console.press("minus")
        assert pane.view[1] - pane.view[0] == pytest.approx(2 * span)
        await console.press("f")
        assert pane.view == (pane.low, pane.high)
        await console.press("minus", "shift+right")
        assert pane.view == (pane.low, pane.high)


async def test_it_opens_at_the_first_steps_of_a_loop(kit: Any) -> None:
    raw = trace_synthetic.loops(ctas=2, warps=2, iterations=40, shape="flat")
    timeline = decode(raw)
    s = timeline.slices
    async with kit.show(TimelineScreen(timeline)) as console:
        pane = console.screen.pane
        low, high = pane.view
        loads = s.start_ns[(s.row == 0) & (s.stage == timeline.stages.index("load"))]
        assert 5 <= ((loads >= low) & (loads < high)).sum() <= 7
        assert f"of {trace_view.time_words(pane.high - pane.low, 3)} shown" in console.text
        await console.press("f")
        assert "shown" in console.text and "all of " in console.text


async def test_few_steps_are_shown_whole(kit: Any) -> None:
    timeline = decode(trace_synthetic.loops(ctas=2, warps=2, iterations=8, shape="flat"))
    async with kit.show(TimelineScreen(timeline)) as console:
        pane = console.screen.pane
        assert pane.view == (pane.low, pane.high)


async def test_a_trace_whose_clock_fits_no_curve_says_so(kit: Any) -> None:
    timeline = trace()
    clock = dataclasses.replace(timeline.clock, method="per warp", reason="too few readings")
    async with kit.show(
        TimelineScreen(dataclasses.replace(timeline, clock=clock, mispaired_count=0))
    ) as console:
        assert "too few readings: compare within a warp" in console.text


async def test_huge_zoom_ends_below_a_tick_and_comes_back(kit: Any) -> None:
    async with kit.show(TimelineScreen(trace()), (80, 24)) as console:
        pane = console.screen.pane
        for _ in range(60):
            pane.action_zoom(0.5)
        await console.press("plus")
        assert 0 < pane.column_ns <= pane.timeline.clock.tick_ns
        assert 0 <= pane.column < pane.columns
        assert "ns" in console.text
        for _ in range(60):
            pane.action_zoom(2)
        await console.press("minus")
        assert pane.view == (pane.low, pane.high)


async def test_fit_slice(kit: Any) -> None:
    timeline = trace("flat")
    async with kit.show(TimelineScreen(timeline)) as console:
        pane = console.screen.pane
        await console.press("right_square_bracket", "enter")
        length = timeline.slices.end_ns[1] - timeline.slices.start_ns[1]
        assert pane.view[1] - pane.view[0] == pytest.approx(3 * length, rel=0.01)
        assert f"compute {timeline.slices.payload[1]}" in console.text


async def test_search_goes_to_the_next_range_of_a_stage(kit: Any) -> None:
    timeline = trace("flat")
    s = timeline.slices
    compute = np.flatnonzero(s.stage == timeline.stages.index("compute"))
    order = compute[np.argsort(s.start_ns[compute], kind="stable")]
    async with kit.show(TimelineScreen(timeline)) as console:
        pane = console.screen.pane
        await console.press("slash", "c", "o")
        assert pane.focus_stage == timeline.stages.index("compute")  # while it is typed
        await console.press("enter")
        first = next(i for i in order if s.start_ns[i] >= s.start_ns[0])
        assert pane.chosen == first
        await console.press("n")
        assert pane.chosen == order[list(order).index(first) + 1]
        await console.press("N")
        assert pane.chosen == first
        assert f"compute: {list(order).index(first) + 1} of {len(order)}" in console.text
        await console.press("escape")
        assert pane.focus_stage is None


async def test_search_wraps_and_mistyped_names_are_told(kit: Any) -> None:
    timeline = trace("flat", ctas=1)
    async with kit.show(TimelineScreen(timeline)) as console:
        pane = console.screen.pane
        await console.press("slash", "l", "enter")
        pane.reveal(int(np.argmin(timeline.slices.start_ns)))
        await console.press("N")
        assert "from the end again" in console.text
        last = pane.chosen
        await console.press("n", "N")
        assert pane.chosen == last
        await console.press("slash", "z", "z", "enter")
        assert "no stage is named 'zz'" in console.text
        await console.press("slash", "c", "escape")
        assert pane.focus_stage == timeline.stages.index("load")
        await console.press("slash", "s", "t", "enter")
        assert "no range of store was recorded" in console.text


async def test_the_longest_first(kit: Any) -> None:
    timeline = trace("flat")
    s = timeline.slices
    load = np.flatnonzero(s.stage == timeline.stages.index("load"))
    order = load[np.argsort(s.start_ns[load] - s.end_ns[load], kind="stable")]
    async with kit.show(TimelineScreen(timeline)) as console:
        pane = console.screen.pane
        await console.press("x")  # of the stage at the cursor
        assert pane.chosen == order[0] and "load: the longest of" in console.text
        await console.press("x")
        assert pane.chosen == order[1]
        await console.press("X", "X")
        assert pane.chosen == order[0]


async def test_go_to_a_warp(kit: Any) -> None:
    async with kit.show(TimelineScreen(trace())) as console:
        pane = console.screen.pane
        await console.press("colon", "2", "full_stop", "3", "enter")
        assert "cta 2 warp 3" in console.text
        await console.press("colon", "1", "enter")
        assert "cta 1 warp 0" in console.text
        lane = pane.lane
        await console.press("colon", "9", "9", "enter")
        assert "warp 99 was not traced (CTAs: 0 to 3)" in console.text
        await console.press("colon", "x", "enter")
        assert "'x' is not CTA or CTA.WARP" in console.text
        assert pane.lane == lane


async def test_depths(kit: Any) -> None:
    async with kit.show(TimelineScreen(trace("nested")), (120, 40)) as console:
        pane = console.screen.pane
        assert "innermost ranges" in console.text
        await console.press("j", "j", "d")
        assert pane.levels == EVERY and "every depth" in console.text and " ·1" in console.text
        assert pane.row == 2
        seen = []
        for _ in range(3):
            await console.press("d")
            seen.append(pane.levels)
        assert seen == [0, 1, 2] and "depth 2 only" in console.text
        await console.press("d")
        assert pane.levels == DEEPEST


async def test_a_range_that_is_not_shown_is_brought_back(kit: Any) -> None:
    timeline = trace("nested")
    async with kit.show(TimelineScreen(timeline)) as console:
        pane = console.screen.pane
        await console.press("d", "d")
        assert pane.levels == 0
        await console.press("slash", "w", "a", "enter")  # waits are two levels down
        assert pane.levels == DEEPEST
        assert pane.chosen is not None and timeline.stages[timeline.slices.stage[pane.chosen]] == "wait"


async def test_tokens_async_stages_marks_and_values(kit: Any) -> None:
    timeline = trace("mixed")
    async with kit.show(TimelineScreen(timeline)) as console:
        pane = console.screen.pane
        assert "~0" in console.text and "→0" in console.text and "◆" in console.text
        before = pane.lanes.count
        await console.press("j", "right_square_bracket")
        assert "token range" in console.text
        await console.press("a")
        assert pane.lanes.count < before and "~0" not in console.text
        await console.press("a")
        assert pane.lanes.count == before
        marks = timeline.marks
        value = int(np.flatnonzero(~np.isnan(marks.value))[0])
        pane.place(int(np.searchsorted(pane.lanes.row, marks.row[value])), float(marks.time_ns[value]))
        pane.set_view(pane.time, pane.time + 10)
        await console.settle()
        assert f"◆ compute = {marks.value[value]:.7g} at" in console.text


async def test_an_async_stage_names_the_warp_that_completed_it(kit: Any) -> None:
    builder = trace_synthetic.Builder(("copy",))
    with builder.warp(warp=0, warps=2) as w, builder.warp(warp=1, warps=2, at_ns=300) as other:
        w.issue("copy", 7).step(2000)
        other.step(900).done("copy", 7)
    async with kit.show(TimelineScreen(decode(builder.build()))) as console:
        await console.press("j", "right_square_bracket")
        assert "async stage · completed by cta 0 warp 1" in console.text
        assert "flow 7" in console.text


async def test_mispaired_ranges_are_told_and_found(kit: Any) -> None:
    builder = trace_synthetic.Builder(("load", "wait"))
    with builder.warp() as w:
        w.begin("load").step(50).end("load").end("wait").step(50)
    with builder.warp(warp=1) as w:
        w.begin("wait").step(500)
    timeline = decode(builder.build())
    assert timeline.mispaired_count == 2
    async with kit.show(TimelineScreen(timeline)) as console:
        assert "2 mispaired" in console.lines[1] and "! 2 mispaired" in console.lines[2]
        await console.press("P")
        assert "mispaired 1 of 2" in console.text and timeline.mispaired[0].problem in console.text
        await console.press("P")
        pane = console.screen.pane
        assert timeline.warps.warp[pane.row] == timeline.mispaired[1].warp
        await console.press("g", "j")
        assert "its end is missing, its length not known" in console.text


async def test_warps_that_never_ended_are_marked(kit: Any) -> None:
    builder = trace_synthetic.Builder(("load",))
    builder.warp().begin("load").step(100).end("load")
    raw = builder.build()
    assert not decode(raw).warps.closed.any()
    async with kit.show(TimelineScreen(decode(raw))) as console:
        assert "w0!" in console.text and "never" in console.lines[2]


async def test_the_stages_pane(kit: Any) -> None:
    timeline = trace("flat")
    async with kit.show(TimelineScreen(timeline)) as console:
        stages = console.app.screen.query_one(StagePane)
        await console.press("tab")
        assert console.app.screen.focused is stages
        await console.press("j", "down", "k", "up", "G", "g", "end", "home", "j")
        assert stages.cursor == 1
        await console.press("enter")
        pane = console.screen.pane
        assert pane.focus_stage == timeline.stages.index("compute") and console.app.screen.focused is pane
        await console.press("s")
        assert not stages.region.area and console.app.screen.focused is pane
        await console.press("tab", "s")
        assert stages.region.area
        await console.pilot.click("#stages", offset=(5, 3))
        await console.settle()
        assert stages.cursor == 0


async def test_the_longest_waits(kit: Any) -> None:
    timeline = trace("nested")
    s = timeline.slices
    waits = np.flatnonzero(s.stage == timeline.stages.index("wait"))
    longest = waits[np.argsort(s.start_ns[waits] - s.end_ns[waits], kind="stable")]
    async with kit.show(TimelineScreen(timeline)) as console:
        pane = console.screen.pane
        await console.press("tab", "tab", "j", "enter")
        assert console.app.screen.focused is pane
        assert pane.chosen == longest[1]
        await console.pilot.click("#longest", offset=(5, 2))
        await console.pilot.click("#longest", offset=(5, 2))
        await console.settle()
        assert pane.chosen == longest[0]


async def test_the_stages_take_the_timelines_place_where_it_is_narrow(kit: Any) -> None:
    async with kit.show(TimelineScreen(trace()), (80, 24)) as console:
        assert "imb." not in console.text
        await console.press("s")
        assert "imb." in console.text and "▼" not in console.text
        await console.press("s")
        assert "imb." not in console.text and "▼" in console.text


async def test_the_mouse(kit: Any) -> None:
    async with kit.show(TimelineScreen(trace())) as console:
        pane = console.screen.pane
        pane.action_fit()
        await console.pilot.click("#timeline", offset=(40, 5))
        assert pane.lane == 3
        at = pane.time
        assert at == pytest.approx(pane.view[0] + (39 - pane.label_width) * pane.column_ns, rel=0.01)

        async def wheel(kind: type[Any], **keys: bool) -> None:
            x, y = pane.region.x + 40, pane.region.y + 5
            flags = {"shift": False, "meta": False, "ctrl": False, **keys}
            event = kind(pane, 40, 5, 0, 0, 0, **flags, screen_x=x, screen_y=y, style=None)
            pane.post_message(event)
            await console.settle()

        await wheel(MouseScrollUp)
        assert pane.view[1] - pane.view[0] == pytest.approx(0.8 * (pane.high - pane.low))
        assert pane.view[0] < at < pane.view[1]
        start = pane.view[0]
        await wheel(MouseScrollDown, shift=True)
        assert pane.view[0] > start
        await wheel(MouseScrollDown)
        assert pane.view == (pane.low, pane.high)
        await wheel(MouseScrollDown, ctrl=True)
        assert pane.top in (3, max(0, pane.lanes.count - pane.body))


async def test_dragging_pans_and_the_minimap_jumps(kit: Any) -> None:
    async with kit.show(TimelineScreen(trace())) as console:
        pane, pilot = console.screen.pane, console.pilot
        await console.press("plus", "plus")
        pane.set_view(pane.low + (pane.high - pane.low) / 2, pane.low + 3 * (pane.high - pane.low) / 4)
        await console.settle()
        start, lane = pane.view[0], pane.lane
        await pilot.mouse_down("#timeline", offset=(40, 8))
        await pilot.hover("#timeline", offset=(50, 8))
        await pilot.mouse_up("#timeline", offset=(50, 8))
        assert pane.view[0] == pytest.approx(start - 10 * pane.column_ns)
        assert pane.lane == lane
        await pilot.click("#timeline", offset=(1 + pane.label_width, 1 + pane.body + 2))
        assert pane.view[0] == pane.low


async def test_resizing_keeps_the_cursor_on_the_screen(kit: Any) -> None:
    async with kit.show(TimelineScreen(trace(ctas=40)), (120, 40)) as console:
        pane = console.screen.pane
        await console.press("G", "plus", "plus")
        for width, height in ((60, 16), (200, 60), (80, 24), (50, 10), (120, 40)):
            await console.pilot.resize_terminal(width, height)
            await console.settle()
            assert pane.top <= pane.lane < pane.top + pane.body
            assert len(console.lines) == height


async def test_copy_help_palette_and_quit(kit: Any) -> None:
    async with kit.show(TimelineScreen(trace())) as console:
        await console.press("y")
        assert "cta 0 warp 0 on SM 0" in console.app.clipboard
        titles = [c.title for c in console.app.get_system_commands(console.screen)]
        assert "Search a stage" in titles and "The next mispaired range" not in titles
        await console.press("question_mark")
        assert isinstance(console.app.screen, HelpScreen)
        assert "A row a warp" in console.text
        await console.press("escape", "q")
        assert not console.app.is_running or console.app._exit


async def test_every_binding_can_be_remapped(kit: Any) -> None:
    async with kit.show(TimelineScreen(trace())) as console:
        for widget in (
            console.screen,
            console.screen.pane,
            console.screen.query_one(StagePane),
            console.screen.query_one(LongestPane),
        ):
            assert all(binding.id for binding in type(widget).__dict__["BINDINGS"]), widget


def test_match_stage() -> None:
    names = ("load", "wait", "preload", "Store")
    assert match_stage(names, "load") == 0
    assert match_stage(names, "pre") == 2
    assert match_stage(names, "oad") == 0
    assert match_stage(names, " store ") == 3
    assert match_stage(names, "") is None and match_stage(names, "x") is None


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_snapshots(size: tuple[int, int], kit: Any, snapshot_text: Any) -> None:
    async with kit.show(TimelineScreen(trace()), size) as console:
        snapshot_text(f"timeline-{size[0]}x{size[1]}", "\n".join(console.lines[:-1]))
