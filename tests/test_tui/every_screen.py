"""Every screen and dialog of the dashboard over the same recorded sessions, traces and counters.

`SCREENS` says how each is reached: a screen to begin with, and keys. What has to hold everywhere is tested
over them all, and a screen that is missing here is found by the test that walks the keys.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import llm_logs
import trace_synthetic
from rich.cells import cell_len
from rich.style import Style
from test_tui.conftest import LIVE, START, Console, FakeSource, run_events, write_session

from warpdeck.core.doctor import Check
from warpdeck.core.tracing import decoded
from warpdeck.sessions.profiles import profile_one
from warpdeck.sessions.state import reduce_all
from warpdeck.sessions.traces import trace_named
from warpdeck.telemetry.ncu.counters import Counters
from warpdeck.telemetry.trace.decode import decode
from warpdeck.telemetry.trace.timeline import Timeline
from warpdeck.tui.app import WarpdeckApp
from warpdeck.tui.screens.code import CodeScreen
from warpdeck.tui.screens.counters import CountersScreen
from warpdeck.tui.screens.counters_compare import CompareCountersScreen
from warpdeck.tui.screens.new_run import NewRunScreen
from warpdeck.tui.screens.run import RunScreen
from warpdeck.tui.screens.sessions import SessionsScreen
from warpdeck.tui.screens.source import SourceScreen
from warpdeck.tui.screens.start import StartScreen
from warpdeck.tui.screens.timeline import TimelineScreen
from warpdeck.tui.screens.timeline_compare import CompareTimelineScreen
from warpdeck.tui.settings import Settings
from warpdeck.tui.source_files import of_counters, sources_of
from warpdeck.tui.sources import ReplaySource

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-*/%&$#@!?"
CHECKS = [
    Check("python", True, "Python 3.11.7 on Linux x86_64"),
    Check("driver", False, "no NVIDIA driver", "to measure here, install an NVIDIA driver"),
    Check("gpu", False, "no CUDA GPU", "use --device recorded:h200, or a machine with a GPU"),
    Check("sandbox", True, "code of others runs under bubblewrap"),
    Check("disk space", True, "60.0 GiB free"),
]


@cache
def trace(variant: str) -> Timeline:
    return decoded(trace_named("gemm", device="recorded:h200", variant=variant))


@cache
def profile(variant: str) -> Counters:
    return profile_one("gemm", "recorded:h200", variant=variant)


def sessions(folder: Path) -> Path:
    """Two finished sessions; the second is the newer."""
    home = folder / "sessions"
    if not home.exists():
        for age, (name, device) in enumerate((("softmax-random-2", LIVE), ("softmax-random-1", None))):
            events = run_events(60, end=True) if device is None else run_events(20, device, end=True)
            stamp = write_session(home, events, name) / "created"
            stamp.touch()
            os.utime(stamp, (START - age * 100, START - age * 100))
    return home


def replay(folder: Path) -> RunScreen:
    source = ReplaySource(sessions(folder) / "softmax-random-1", start=20.2, clock=lambda: 0.0)
    source.bookmark("first win")
    return RunScreen(source, interval=None)


def tried(folder: Path, events: Sequence[Any]) -> FakeSource:
    """A run that tries sources, which are in `folder`."""
    source = FakeSource(list(events))
    llm_logs.write_sources(folder)
    source.folder = folder
    return source


def source(folder: Path) -> SourceScreen:
    llm_logs.write_sources(folder)
    state = reduce_all(llm_logs.llm_events())
    return SourceScreen(lambda: sources_of(state, folder), "attempt 4", "attempt 2")


def dropped(_: Path) -> TimelineScreen:
    raw = trace_synthetic.loops(ctas=4, warps=4, iterations=12, shape="flat", capacity=10)
    return TimelineScreen(decode(dataclasses.replace(raw, meta={**raw.meta, "workload": "gemm"})))


def mispaired(_: Path) -> TimelineScreen:
    builder = trace_synthetic.Builder(("load", "wait"))
    with builder.warp() as warp:
        warp.begin("load").step(50).end("load").end("wait").step(50)
    return TimelineScreen(decode(builder.build()))


def live(_: Path) -> RunScreen:
    return RunScreen(FakeSource(run_events(120, LIVE, planned=200)), interval=None)


@dataclass(frozen=True)
class Shown:
    """How a screen is reached: the first one, made for a folder, and keys from there."""

    make: Callable[[Path], Any]
    keys: tuple[str, ...] = ()


def start(folder: Path) -> StartScreen:
    return StartScreen(sessions(folder), interval=None, checks=lambda: CHECKS)


def listed(folder: Path) -> SessionsScreen:
    return SessionsScreen(sessions(folder), interval=None)


SCREENS: dict[str, Shown] = {
    "start": Shown(start),
    "new-run": Shown(lambda folder: NewRunScreen(folder, delay=0)),
    "sessions": Shown(listed, ("m", "m")),
    "sessions-compare": Shown(listed, ("m", "m", "c")),
    "sessions-export": Shown(listed, ("cd /", "e")),
    "sessions-import": Shown(listed, ("i",)),
    "sessions-delete": Shown(listed, ("delete",)),
    "run": Shown(live),
    "run-stop": Shown(live, ("x",)),
    "run-gauges": Shown(live, ("1", "z")),
    "run-plot": Shown(live, ("3", "z", "f")),
    "run-board": Shown(live, ("4", "z", "slash", "t", "i", "e", "d")),
    "run-log": Shown(live, ("5", "z")),
    "run-effects": Shown(live, ("6",)),
    "replay": Shown(replay),
    "replay-place": Shown(replay, ("colon",)),
    "replay-bookmarks": Shown(replay, ("B",)),
    "llm": Shown(lambda folder: RunScreen(tried(folder, llm_logs.llm_events()), interval=None)),
    "ladder": Shown(lambda folder: RunScreen(tried(folder, llm_logs.ladder_events()), interval=None)),
    "source": Shown(source),
    "source-split": Shown(source, ("v",)),
    "timeline": Shown(lambda _: TimelineScreen(trace("pipelined"))),
    "timeline-dropped": Shown(dropped),
    "timeline-mispaired": Shown(mispaired),
    "timeline-pick": Shown(lambda _: TimelineScreen(trace("pipelined")), ("o",)),
    "timeline-compare": Shown(lambda _: CompareTimelineScreen(trace("tiled"), trace("cuda"))),
    "counters": Shown(lambda _: CountersScreen(profile("tiled"))),
    "counters-flow": Shown(lambda _: CountersScreen(profile("tiled")), ("m",)),
    "counters-compare": Shown(lambda _: CompareCountersScreen(profile("classic"), profile("tiled"))),
    "code": Shown(lambda _: CodeScreen(*of_counters(profile("tiled"), None))),
    "help": Shown(live, ("question_mark",)),
    "palette": Shown(live, ("ctrl+p",)),
    "themes": Shown(live, ("theme",)),
}
# Those that stand before another, or that are for typing.
DIALOGS = {
    *("new-run", "sessions-export", "sessions-import", "sessions-delete", "run-stop", "replay-place"),
    *("replay-bookmarks", "timeline-pick", "help", "palette", "themes", "run-board"),
}


@asynccontextmanager
async def shown(
    name: str, folder: Path, size: tuple[int, int] = (120, 40), settings: Settings | None = None
) -> AsyncIterator[Console]:
    """A screen of `SCREENS`, at rest."""
    what = SCREENS[name]
    first = what.make(folder)
    app = WarpdeckApp(first, settings)
    async with app.run_test(size=size, notifications=True) as pilot:
        console = Console(app, pilot, first)
        await at_rest(console)
        for key in what.keys:
            if key == "theme":
                app.action_change_theme()
            elif key == "cd /":
                os.chdir("/")  # which the dialog names; whoever uses it goes back
            else:
                await console.tap(key)
            await at_rest(console)
        yield console


async def at_rest(console: Console) -> None:
    """Plots and tables are drawn less often than polled, and a footer after what it shows has changed."""
    for _ in range(5):
        if isinstance(console.screen, RunScreen):
            await console.screen.tick()
        await console.settle()


def painted(console: Console) -> str:
    """The screen as text, and below it what each cell is drawn in: a letter, which a list explains."""
    rows, letters, names = [], [], dict[str, str]()
    for strip in console.app.screen._compositor.render_strips():
        line = ""
        for segment in strip:
            style = segment.style or Style()
            name = str(style.without_color + Style(color=style.color, bgcolor=style.bgcolor))
            letter = names.setdefault(name, LETTERS[len(names) % len(LETTERS)])
            line += letter * cell_len(segment.text)
        rows.append(strip.text.rstrip())
        letters.append(line)
    legend = [f"{letter} {name}" for name, letter in names.items()]
    return "\n".join([*rows, "", *letters, "", *legend])
