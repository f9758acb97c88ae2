"""The start screen: what ran and what runs, and how to start a run."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Footer, Static

from ...core.errors import WarpdeckError
from ...sessions import alive, listing, paths
from ...sessions.events import Lifecycle
from ...sessions.listing import SessionInfo
from ..format import NONE, clip, ratio
from ..sources import LiveSource, ReplaySource, RunSource
from ..view import STATE_MARKS
from ..widgets.table import Column, Table, TableRow
from .run import RunScreen

INTERVAL_S = 3.0
HOW = """\
To start a run, in a shell:

  warpdeck tune softmax             on this GPU, else on a recording
  warpdeck tune gemm --agent tpe --steps 200 --size 4096
  warpdeck tune --help              agents, sizes, budgets"""
COLUMNS = (
    Column("state", 13),
    Column("workload", 9),
    Column("best", 7, right=True),
    Column("device", 35),  # before the rest: where a number was recorded belongs beside it
    Column("agent", 7),
    Column("steps", 6, right=True),
    Column("started", 16),
)


class SessionsScreen(Screen[None]):
    """Every session of a folder (default: the user's), newest first. `interval`: as RunScreen's."""

    HELP = """\
### Sessions

What ran, and what runs now. **enter** opens a session: one that runs is joined, one that has ended is
shown at its end, from where **0-9** and the arrows go back in time. **r** plays it from the start. A run
belongs to no console: it goes on whether or not one is open.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", id="sessions.open", tooltip="Join or look at the marked session"),
        Binding("r", "replay", "Replay", id="sessions.replay", tooltip="Play it from the start"),
        Binding("y", "copy", "Copy id", id="sessions.copy", tooltip="Copy the marked session's id"),
        Binding("question_mark", "help", "Help", key_display="?", id="sessions.help"),
        Binding("q", "leave", "Quit", id="sessions.quit"),
    ]

    def __init__(self, sessions: Path | None = None, *, interval: float | None = INTERVAL_S) -> None:
        super().__init__()
        self._folder = sessions
        self._listing = listing.Listing(sessions)
        self._shown: tuple[str, list[SessionInfo]] | None = None
        self._interval = interval
        self._infos: dict[str, SessionInfo] = {}
        self._busy = False

    def compose(self) -> ComposeResult:
        yield Static("warpdeck · sessions", id="title", markup=False)
        yield Static("reading the sessions…", id="progress", markup=False)
        yield Table(id="sessions")
        yield Static(HOW, id="how", markup=False)
        yield Footer(show_command_palette=False, compact=True)
        yield Static("", id="tiny", markup=False)

    def on_mount(self) -> None:
        self.query_one(Table).border_title = "Sessions"
        self.query_one(Table).focus()
        self.run_worker(self.tick())
        if self._interval is not None:
            self.set_interval(self._interval, self.tick)

    def on_resize(self, event: Resize) -> None:
        self.query_one("#tiny", Static).update(
            f"warpdeck needs 60×16, this terminal is {event.size.width}×{event.size.height}"
        )
        self._describe()

    async def tick(self) -> None:
        """Read the sessions, in a thread, and show them."""
        if self._busy or not self.is_current:
            return
        self._busy = True
        try:
            home, infos = await asyncio.to_thread(_read, self._folder, self._listing)
        except (WarpdeckError, OSError) as error:
            self.query_one("#progress", Static).update(f"{error}; trying again")
            return
        finally:
            self._busy = False
        if self.is_attached and self._shown != (home, infos):
            self._shown = home, infos
            self._show(home, infos)

    def _show(self, home: str, infos: Sequence[SessionInfo]) -> None:
        self._infos = {info.id: info for info in infos}
        running = sum(info.state in _GOING for info in infos)
        count = "1 session" if len(infos) == 1 else f"{len(infos)} sessions"
        words = f"{count}, {running} running" if infos else "no sessions yet"
        with self.app.batch_update():
            self.query_one("#progress", Static).update(f"{words} · {home}")
            self.query_one(Table).fill(COLUMNS, [_row(info) for info in infos])
            self._describe()
        self.refresh_bindings()

    def _describe(self) -> None:
        table = self.query_one(Table)
        info = self.marked
        words = "" if info is None else info.error or info.id
        table.border_subtitle = clip(words, max(0, table.size.width - 6))

    @property
    def marked(self) -> SessionInfo | None:
        """The session under the cursor."""
        key = self.query_one(Table).marked_key
        return None if key is None else self._infos.get(key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Opening needs a session."""
        return bool(self._infos) if action in ("open", "replay", "copy") else True

    def on_table_moved(self) -> None:
        self._describe()

    def on_table_chosen(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        """Join a run that goes on; show one that has ended at its end."""
        self._open(
            lambda folder: (
                LiveSource(folder, attach=True)
                if alive.is_running(folder)
                else ReplaySource(folder, start=math.inf)
            )
        )

    def action_replay(self) -> None:
        """Play the marked session from the start."""
        self._open(ReplaySource)

    def _open(self, source: Callable[[Path], RunSource]) -> None:
        info = self.marked
        if info is None:
            return
        try:
            opened = source(paths.resolve(info.id, self._folder))
        except WarpdeckError as error:
            self.notify(str(error), title="can't open it", severity="error", markup=False)
            return
        self.app.push_screen(RunScreen(opened), self._come_back)

    async def _come_back(self, _: None) -> None:
        await self.tick()

    def action_copy(self) -> None:
        """Copy the marked session's id."""
        if self.marked is not None:
            self.app.copy_to_clipboard(self.marked.id)
            self.notify(f"copied: {self.marked.id}", markup=False)

    def action_help(self) -> None:
        """Help."""
        from .help import HelpScreen

        self.app.push_screen(HelpScreen(self))

    def action_leave(self) -> None:
        """Leave; runs go on."""
        self.dismiss()


_GOING = frozenset({Lifecycle.RUNNING, Lifecycle.PAUSED, Lifecycle.STOPPING, Lifecycle.CREATED})


def _read(folder: Path | None, known: listing.Listing) -> tuple[str, list[SessionInfo]]:
    """(where the sessions are and why, the sessions)."""
    home = paths.home()
    where = str(folder or home.sessions)
    return home.notice if folder is None and home.notice else _short(where), known.read()


def _short(path: str) -> str:
    """The path with the user's home as "~"."""
    home = str(Path.home())
    return "~" + path.removeprefix(home) if path.startswith(home + "/") else path


def _row(info: SessionInfo) -> TableRow:
    mark = STATE_MARKS.get(Lifecycle(info.state)) if info.state in list(Lifecycle) else f"! {info.state}"
    started = NONE
    if info.started:
        started = datetime.fromisoformat(info.started).astimezone().strftime("%Y-%m-%d %H:%M")
    cells = (
        mark or info.state,
        info.workload or NONE,
        ratio(info.best_speedup),
        info.device or NONE,
        info.agent or NONE,
        NONE if info.steps is None else str(info.steps),
        started,
    )
    return TableRow(info.id, cells, strong=info.state in _GOING)
