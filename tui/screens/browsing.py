"""What screens over a folder of sessions have in common: reading it, opening a session, starting a run."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.widgets import Static

from ...core.errors import WarpdeckError
from ...sessions import alive, listing, paths
from ...sessions.events import Lifecycle
from ...sessions.listing import DAMAGED, SessionInfo
from ..access import changes
from ..format import NONE, clip, ratio
from ..sources import LiveSource, ReplaySource, RunSource
from ..view import STATE_MARKS
from ..widgets.table import Table
from .leaving import gone
from .run import RunScreen
from .zooming import Zooming

INTERVAL_S = 3.0
GOING = frozenset({Lifecycle.RUNNING, Lifecycle.PAUSED, Lifecycle.STOPPING, Lifecycle.CREATED})


class Browsing(Zooming):
    """A table of sessions. `sessions`: their folder (default: the user's); `interval`: seconds between two
    readings, None: only `tick()` reads (tests)."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", id="sessions.open", tooltip="Join or look at the marked session"),
        Binding("n", "new", "New run", id="sessions.new", tooltip="Start a run"),
        Binding("r", "replay", "Replay", show=False, id="sessions.replay", tooltip="Play it from the start"),
        Binding(
            "y", "copy", "Copy id", show=False, id="sessions.copy", tooltip="Copy the marked session's id"
        ),
        Binding("question_mark", "help", "Help", key_display="?", id="sessions.help"),
    ]

    def __init__(self, sessions: Path | None = None, *, interval: float | None = INTERVAL_S) -> None:
        super().__init__()
        self.folder = sessions
        self.infos: dict[str, SessionInfo] = {}
        self._listing = listing.Listing(sessions)
        self._known: tuple[str, list[SessionInfo]] | None = None
        self._interval = interval
        self._busy = False

    def on_mount(self) -> None:
        self.query_one(Table).focus()
        self.run_worker(self.tick)
        if self._interval is not None:
            self.set_interval(self._interval, self.tick)

    def on_resize(self, event: Resize) -> None:
        width, height = event.size
        self.query_one("#tiny", Static).update(f"warpdeck needs 60×16, this terminal is {width}×{height}")
        self.call_after_refresh(self.describe_marked)

    async def tick(self) -> None:
        """Read the sessions, in a thread, and show them."""
        if self._busy or not self.is_current:
            return
        self._busy = True
        try:
            home, infos = await asyncio.to_thread(_read, self.folder, self._listing)
        except (WarpdeckError, OSError) as error:
            if not gone(self):
                self.query_one("#progress", Static).update(
                    clip(f"{error}; trying again", self.size.width - 2)
                )
            return
        finally:
            self._busy = False
        if not gone(self) and self._known != (home, infos):
            self._known = home, infos
            self.infos = {info.id: info for info in infos}
            with self.app.batch_update():
                self.show(home, infos)
                self.describe_marked()
            self.refresh_bindings()

    def show(self, home: str, infos: Sequence[SessionInfo]) -> None:
        """Show what was read, newest first. `home`: where it lies, in words."""
        raise NotImplementedError

    def describe_marked(self) -> None:
        """The marked session's id, or what is wrong with it, on the table's frame."""
        table, info = self.query_one(Table), self.marked
        words = "" if info is None else info.error or info.id
        table.border_subtitle = clip(" ".join(words.split()), max(0, table.size.width - 6))

    @property
    def marked(self) -> SessionInfo | None:
        """The session under the cursor."""
        key = self.query_one(Table).marked_key
        return None if key is None else self.infos.get(key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Opening needs a session; of a damaged one it says what is wrong."""
        return self.marked is not None if action in ("open", "replay", "copy") else True

    def on_table_moved(self) -> None:
        self.describe_marked()
        self.refresh_bindings()

    def on_table_chosen(self) -> None:
        self.action_open()

    def resolved(self, session: str) -> Path:
        """A session's folder. UsageError if it is gone."""
        return paths.resolve(session, self.folder)

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
            opened = source(self.resolved(info.id))
        except WarpdeckError as error:
            self.notify(str(error), title="can't open it", severity="error", markup=False)
            return
        self.app.push_screen(RunScreen(opened), self._come_back)

    async def _come_back(self, _: None) -> None:
        await self.tick()

    @changes("start runs")
    def action_new(self) -> None:
        """Describe a run, start it, look at it."""
        from .new_run import NewRunScreen  # the agents' settings are loaded when they are needed

        self.app.push_screen(NewRunScreen(self.folder), self._started)

    async def _started(self, folder: Path | None) -> None:
        if folder is not None:
            self.app.push_screen(RunScreen(LiveSource(folder)), self._come_back)
        else:
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


def _read(folder: Path | None, known: listing.Listing) -> tuple[str, list[SessionInfo]]:
    """(where the sessions are and why, the sessions)."""
    home = paths.home()
    where = str(folder or home.sessions)
    return home.notice if folder is None and home.notice else _short(where), known.read()


def _short(path: str) -> str:
    """The path with the user's home as "~"."""
    home = str(Path.home())
    return "~" + path.removeprefix(home) if path.startswith(home + "/") else path


def count_words(infos: Sequence[SessionInfo]) -> str:
    """ "12 sessions, 1 running"."""
    running = sum(info.state in GOING for info in infos)
    count = "1 session" if len(infos) == 1 else f"{len(infos)} sessions"
    return f"{count}, {running} running" if infos else "no sessions yet"


def state_words(info: SessionInfo) -> str:
    """A session's state with its sign."""
    if info.state in list(Lifecycle):
        return STATE_MARKS[Lifecycle(info.state)]
    return f"! {info.state}"


def state_tone(info: SessionInfo) -> str:
    """Its colour: what goes on is good, what is damaged or failed bad."""
    if info.state in GOING:
        return "good"
    return "bad" if info.state in (DAMAGED, Lifecycle.FAILED, Lifecycle.INTERRUPTED) else ""


def started_words(info: SessionInfo) -> str:
    """When it began, local time."""
    return (
        datetime.fromisoformat(info.started).astimezone().strftime("%Y-%m-%d %H:%M") if info.started else NONE
    )


def best_words(info: SessionInfo) -> str:
    """Its best speedup."""
    return ratio(info.best_speedup)
