"""Names, configurations, sources and messages of others: none of them commands the terminal."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import llm_logs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment, Segments
from test_tui.conftest import LIVE, RECORDED, Console, FakeSource, run_events, write_session
from test_tui.every_screen import at_rest, profile, trace
from textual.color import Color

from warpdeck.sessions.events import Event
from warpdeck.sessions.html_report import report
from warpdeck.sessions.state import reduce_all
from warpdeck.sessions.words import cells, one_line, tame
from warpdeck.tui.app import WarpdeckApp
from warpdeck.tui.paint import TAMED
from warpdeck.tui.screens.code import CodeScreen
from warpdeck.tui.screens.compare import CompareScreen
from warpdeck.tui.screens.counters import CountersScreen
from warpdeck.tui.screens.counters_compare import CompareCountersScreen
from warpdeck.tui.screens.run import RunScreen
from warpdeck.tui.screens.sessions import SessionsScreen
from warpdeck.tui.screens.source import SourceScreen
from warpdeck.tui.screens.timeline import TimelineScreen
from warpdeck.tui.screens.timeline_compare import CompareTimelineScreen
from warpdeck.tui.source_files import of_counters, sources_of

# The title of the window, a device's report, a bell, text from right to left, half of a surrogate pair.
EVIL = "\x1b]0;owned\x07\x9b6n\x00\u202egnp\u2066\u2028\tx\r\ud834[red]"
COMMANDS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# What a reader must understand: without it the events are no run.
MEANT = {"status", "state", "kind", "level", "cache", "clock", "verdict", "case", "name", "source", "node"}


def poisoned(value: Any, key: str = "") -> Any:
    """The same JSON, its texts with EVIL in them, except where a word of ours is meant."""
    if isinstance(value, dict):
        return {k: poisoned(v, k) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [poisoned(v, key) for v in value]
    return f"{EVIL}{value}" if isinstance(value, str) and value and key not in MEANT else value


def evil(events: Sequence[Event]) -> list[Event]:
    """A run whose knobs, values, devices, messages and names are hostile."""
    found = [e._replace(data=poisoned(e.data)) for e in events]
    for event in found:
        for config in (event.data.get("config"), event.data.get("baseline")):
            if isinstance(config, dict):
                config[f"knob{EVIL}"] = f"value{EVIL}"
    return found


def safe(console: Console, size: tuple[int, int]) -> None:
    """Nothing on the screen commands a terminal, and every line is as wide as the screen."""
    strips = console.app.screen._compositor.render_strips()
    assert len(strips) == size[1]
    for strip in strips:
        assert not COMMANDS.search(strip.text), repr(strip.text)
        assert cell_len(strip.text) == strip.cell_length == size[0], repr(strip.text)


def on_disk(folder: Path) -> Path:
    """Two sessions with hostile texts; half of a surrogate pair can't be in a database."""
    events = json.loads(json.dumps(evil(run_events(30, RECORDED, end=True))).replace("\\ud834", ""))
    for name in ("one", "two"):
        write_session(folder, [Event(*event) for event in events], name)
    return folder


def source(folder: Path) -> SourceScreen:
    llm_logs.write_sources(folder)
    for file in (folder / "artifacts").rglob("*.cu"):
        file.write_text(file.read_text().replace("\n", f" // {EVIL.replace(chr(0xD834), '')}\n"))
    state = reduce_all(evil(llm_logs.llm_events()))
    return SourceScreen(lambda: sources_of(state, folder), "attempt 4", "attempt 2")


def timeline(variant: str) -> Any:
    found = trace(variant)
    stages = tuple(f"{EVIL}{stage}" for stage in found.stages)
    return dataclasses.replace(found, stages=stages, meta=poisoned(dict(found.meta)))


def counters(variant: str) -> Any:
    found = profile(variant)
    spots = tuple(
        dataclasses.replace(s, source=f"{s.source}{EVIL}", sass=f"{s.sass}{EVIL}") for s in found.hotspots
    )
    return dataclasses.replace(
        found, kernel=found.kernel + EVIL, meta=poisoned(dict(found.meta)), hotspots=spots
    )


SCREENS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "run": (lambda _: RunScreen(FakeSource(evil(run_events(40, LIVE))), interval=None), "1z_z4z_z5z_z6"),
    "llm": (lambda _: RunScreen(FakeSource(evil(llm_logs.llm_events())), interval=None), "2z_z4z_z5z"),
    "sessions": (lambda folder: SessionsScreen(on_disk(folder), interval=None), "e^d^mj"),
    "compare": (
        lambda folder: CompareScreen(sorted(on_disk(folder).iterdir())),
        "jj",
    ),
    "source": (source, "v"),
    "timeline": (lambda _: TimelineScreen(timeline("pipelined")), "so"),
    "timelines": (lambda _: CompareTimelineScreen(timeline("tiled"), timeline("cuda")), "s"),
    "counters": (lambda _: CountersScreen(counters("tiled")), "mi^o"),
    "both counters": (lambda _: CompareCountersScreen(counters("classic"), counters("tiled")), "a"),
    "code": (lambda _: CodeScreen(*of_counters(counters("tiled"), None)), "p"),
}


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize("name", SCREENS)
async def test_no_text_of_others_commands_the_terminal(
    name: str, size: tuple[int, int], tmp_path: Path
) -> None:
    make, keys = SCREENS[name]
    screen = make(tmp_path)
    app = WarpdeckApp(screen)
    async with app.run_test(size=size, notifications=True) as pilot:
        console = Console(app, pilot, screen)
        await at_rest(console)
        safe(console, size)
        assert "owned" in console.text  # it did reach the screen
        for key in keys:
            await console.tap({"^": "escape", "_": "full_stop"}.get(key, key))
            await at_rest(console)
            safe(console, size)
        await console.press("y")
        assert not COMMANDS.search(re.sub(r"[\n\t]", "", app.clipboard))


@given(st.lists(st.text(st.characters(categories=None) | st.sampled_from(EVIL), max_size=12), max_size=6))
def test_a_painted_line_keeps_its_cells(texts: list[str]) -> None:
    before = [Segment(text) for text in texts]
    after = TAMED.apply(before, Color(0, 0, 0))
    assert not COMMANDS.search("".join(s.text for s in after))
    assert [cell_len(s.text) for s in after] == [cell_len(s.text) for s in before]
    if not COMMANDS.search("".join(texts)):
        assert "".join(s.text for s in after) == "".join(texts)
    assert Segments(after)


@given(st.text(st.characters(categories=None) | st.sampled_from(EVIL)))
def test_texts_of_others(text: str) -> None:
    assert not COMMANDS.search(cells(text))
    assert not COMMANDS.search(one_line(text)) and one_line(text).isprintable() is True
    assert not COMMANDS.search(re.sub(r"[\t\n]", "", tame(text)))


def test_a_report_shows_what_would_be_hidden(tmp_path: Path) -> None:
    page = report(on_disk(tmp_path) / "one")
    assert not COMMANDS.search(re.sub(r"[\t\n]", "", page)) and "\\u202e" in page
