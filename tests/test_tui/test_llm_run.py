"""The Run screen of agents that try sources: `llm` with a model, `ladder` without, and without times."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import llm_logs
import pytest

from warpdeck.sessions.events import Event
from warpdeck.sessions.llm_state import LlmState, Usage
from warpdeck.sessions.state import RunState, reduce_all
from warpdeck.tui import llm_view
from warpdeck.tui.braille import Shape
from warpdeck.tui.screens.help import HelpScreen
from warpdeck.tui.sources import ReplaySource
from warpdeck.tui.widgets.attempts import Attempts
from warpdeck.tui.widgets.model import ModelPane

SIZES = [(80, 24), (120, 40)]


@pytest.fixture(autouse=True)
def dark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")


async def settled(console: Any) -> None:
    for _ in range(5):  # plots and tables are drawn less often than polled
        await console.poll()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("llm", llm_logs.llm_events()),
        ("llm-emulated", llm_logs.llm_events(llm_logs.CPU)),
        ("ladder", llm_logs.ladder_events()),
        ("ladder-emulated", llm_logs.ladder_events(llm_logs.CPU)),
    ],
)
async def test_snapshots(
    kit: Any, name: str, events: list[Event], size: tuple[int, int], snapshot_text: Any
) -> None:
    async with kit.open(kit.source(events), size) as console:
        await settled(console)
        assert len(console.lines) == size[1]
        snapshot_text(f"{name}-{size[0]}x{size[1]}", console.text)


@pytest.mark.parametrize("size", SIZES)
async def test_it_shows_the_attempts_the_model_and_what_it_costs(kit: Any, size: tuple[int, int]) -> None:
    async with kit.open(kit.source(llm_logs.llm_events()), size) as console:
        await settled(console)
        text = console.text
        assert "best 28.07× [27.68, 28.47]" in console.lines[2]
        assert re.search(r"▸ propose .*attempt 7, from attempt 4", console.lines[3])
        assert "18.5k tokens in" in console.lines[4] and "$0.0205" in console.lines[4]
        assert re.search(r"↻3 +✔.* 68\.80 µs +27\.91× +\[27\.52, 28\.30\] +K +float4 loads", text)
        assert re.search(r"5 +4 +I.* – +– +– +skip the last step", text)
        assert "streaming" in text and "#define FULL 0xff" in text
        assert "◆ kept" in text and "Time per attempt" in text


async def test_statuses_have_colours_beside_their_letters(kit: Any) -> None:
    async with kit.open(kit.source(llm_logs.llm_events())) as console:
        await settled(console)
        table = console.screen.query_one(Attempts)
        colours = {}
        for y in range(1, 7):
            for segment in table.render_line(y):
                word = segment.text.strip()
                if segment.style and segment.style.color and word in ("✔ ok", "C compile error", "K"):
                    colours[word] = segment.style.color
        good, bad = (table.get_component_rich_style(f"table--{tone}").color for tone in ("good", "bad"))
        assert colours["✔ ok"] == colours["K"] == good
        assert colours["C compile error"] == bad != good


async def test_an_emulated_device_shows_no_times(kit: Any) -> None:
    for events in (llm_logs.llm_events(llm_logs.CPU), llm_logs.ladder_events(llm_logs.CPU)):
        async with kit.open(kit.source(events)) as console:
            await settled(console)
            assert "emulated" in console.lines[0] and "emulated: correctness only" in console.lines[2]
            assert "Status per attempt" in console.text and "emulated, no times" in console.text
            shown = console.text.replace("At 0.067 ms", "")  # the model's words
            assert not re.search(r"\d (µs|ms)\b|\d×", shown)
    async with kit.open(kit.source(llm_logs.llm_events(llm_logs.CPU))) as console:
        await settled(console)
        assert "✔ ✔ C ✔ I ✔" in console.text and "1 compile error" in console.text


async def test_what_streams_arrives_and_the_pane_follows(kit: Any) -> None:
    events = llm_logs.llm_events()
    source = kit.source(events)
    source.arrived -= 2
    async with kit.open(source) as console:
        await settled(console)
        assert "waiting for the first words" in console.text
        source.arrived += 1
        await console.poll()
        assert "two accumulators" in console.text and "#define FULL" not in console.text.split("Attempts")[0]
        lines = "\\n".join(f"line {i}" for i in range(200))
        more = events[-1]._replace(data={"id": "r7", "text": lines})
        source.events[-1] = more
        source.arrived += 1
        await console.poll()
        assert "line 199" in console.text
        pane = console.screen.query_one(ModelPane)
        await console.press("3", "g")
        await console.pilot.wait_for_animation()
        assert pane.scroll_y == 0 and "Reasoning summary" in console.text


async def test_the_newest_attempt_stays_marked_until_another_is(kit: Any) -> None:
    events = llm_logs.llm_events(asking=False)
    source = kit.source(events)
    source.arrived = next(i for i, e in enumerate(events) if e.kind == "attempt" and e.data["attempt"] == 4)
    async with kit.open(source, (80, 24)) as console:
        await settled(console)
        table = console.screen.query_one(Attempts)
        assert table.marked is not None and table.marked.number == 3
        assert "compile error: row.cu(18): expected ';'" in console.text
        await console.press("k")
        source.arrived = len(events)
        await settled(console)
        assert table.marked.number == 2
        await console.press("G")
        assert table.marked.number == 6


async def test_panes_by_number(kit: Any) -> None:
    async with kit.open(kit.source(llm_logs.llm_events()), (80, 24)) as console:
        await settled(console)
        for key, words in (("1", "GPU cuda:0"), ("2", "Time per attempt"), ("3", "Model"), ("5", "Log")):
            await console.press(key)
            assert words in console.text
        await console.press("4")
        assert isinstance(console.app.focused, Attempts)
        await console.press("question_mark")
        assert isinstance(console.app.screen, HelpScreen)
        assert "repairs it" in console.dialog
        await console.press("escape")
        titles = [c.title for c in console.app.get_system_commands(console.screen)]
        assert {"Focus attempts", "Focus model", "Pick an attempt to compare with"} <= set(titles)


async def test_the_slimmest_screen(kit: Any) -> None:
    async with kit.open(kit.source(llm_logs.llm_events()), (60, 16)) as console:
        await settled(console)
        assert "▸" in console.text and "28.07×" in console.text
        await console.press("3")
        assert "Model" in console.text and "Time per attempt" not in console.text


async def test_a_seek_before_the_start_and_back(kit: Any, tmp_path: Path) -> None:
    folder = kit.write(tmp_path, llm_logs.llm_events(), "row_sum-llm-1")
    async with kit.open(ReplaySource(folder, start=1e9, clock=lambda: 0.0)) as console:
        await settled(console)
        assert "Attempts, 6" in console.text
        await console.press("0")
        await settled(console)
        assert "Leaderboard" in console.text and "Attempts" not in console.text
        await console.press("9")
        await settled(console)
        assert "Attempts, " in console.text and "Leaderboard" not in console.text


async def test_classic_runs_have_no_attempts(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(20))) as console:
        await console.press("m")
        assert "Leaderboard" in console.text and "Attempts" not in console.text
        titles = [c.title for c in console.app.get_system_commands(console.screen)]
        assert "What changed in the source" in titles and "Pick an attempt to compare with" not in titles


def state_of(events: list[Event]) -> tuple[RunState, LlmState]:
    state = reduce_all(events)
    assert state.llm is not None
    return state, state.llm


def test_times_far_apart_are_drawn_on_a_logarithmic_axis() -> None:
    series, unit, log = llm_view.latency_series(*state_of(llm_logs.llm_events()))
    by_shape = {s.shape: s for s in series}
    assert (unit, log) == ("µs", True)
    assert by_shape[Shape.STAIRS].y == pytest.approx([1920, 212, 68.8, 68.4])
    assert list(by_shape[Shape.RUG].x) == [3, 5] and list(by_shape[Shape.POINT].x) == [1, 2, 4]
    assert by_shape[Shape.DOTTED].y[0] == pytest.approx(71.0)


def test_another_precision_is_not_the_best_so_far() -> None:
    series, _, _ = llm_view.latency_series(*state_of(llm_logs.ladder_events()))
    stairs = next(s for s in series if s.shape is Shape.STAIRS)
    assert stairs.y[-1] == pytest.approx(68.8)


def test_costs() -> None:
    assert llm_view.cost_text(Usage()) == ""
    assert llm_view.cost_text(Usage(answers=2, cost=0.01234)) == "$0.0123"
    assert llm_view.cost_text(Usage(answers=2, cost=12.3, unpriced=1)) == "at least $12.30"
    assert llm_view.cost_text(Usage(answers=2, unpriced=2)) == "cost unknown"
    assert [llm_view.count_text(n) for n in (812, 12_345, 1_240_000)] == ["812", "12.3k", "1.24M"]
