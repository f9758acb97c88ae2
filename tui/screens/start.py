"""The start screen: what ran lately and what runs, what this machine can do, and the way to a new run."""

from __future__ import annotations

import asyncio
import textwrap
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.events import Resize
from textual.widgets import Static

from ..._version import __version__
from ...sessions.listing import SessionInfo
from ..format import NONE
from ..machine import abilities, examine
from ..widgets.bars import TextPane
from ..widgets.footer import Footer
from ..widgets.table import Column, Table, TableRow
from .browsing import INTERVAL_S, Browsing, best_words, count_words, started_words, state_tone, state_words
from .leaving import gone

if TYPE_CHECKING:
    from ...core.doctor import Check

RECENT = 50
STATE, WORKLOAD, BEST, AGENT, STARTED = 13, 9, 7, 7, 16  # columns
DEVICE, LEAST_DEVICE = 35, 20  # "recorded on NVIDIA H200, 2026-11-29"
NOTHING_YET = """\
No sessions yet. A run is a session: everything it measured, to be looked at, played back and compared.

  n                                  describe a run in a form, and start it
  warpdeck tune softmax              the same in a shell: on this GPU, else recorded
  warpdeck tune --help               agents, sizes, budgets
  warpdeck replay gemm-ladder-h200   a climb on an H200 that ships, played back"""


class MachinePane(TextPane):
    """What works here, and the remedies of what doesn't."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("This machine", HELP_MACHINE, id=id)
        self.checks: Sequence[Check] | None = None

    def show(self, checks: Sequence[Check]) -> None:
        """Show doctor's findings."""
        self.checks = checks
        failed = sum(not check.ok for check in checks)
        self.border_subtitle = f"{len(checks) - failed} of {len(checks)} checks ok"
        self.draw()

    def text(self, width: int) -> Text:
        """First what can be done, then every check that needs attention, then the others."""
        text = Text()
        if self.checks is None:
            return text.append("looking at this machine…", self.style_of("small"))
        for ability in abilities(self.checks):
            lacks = ability.lacks
            self._line(text, "✔" if lacks is None else "–", ability.words, "strong", width)
            if lacks is not None:
                self._line(text, " ", f"{lacks.name}: {lacks.detail}", "small", width)
        for heading, found in (
            ("To mend", [check for check in self.checks if not check.ok]),
            ("Checked", [check for check in self.checks if check.ok]),
        ):
            if found:
                text.append(f"\n{heading}\n", self.style_of("strong"))
            for check in found:
                self._line(text, "✔" if check.ok else "–", f"{check.name}: {check.detail}", "", width)
                if check.remedy:
                    self._line(text, " ", f"→ {check.remedy}", "warning", width)
        text.right_crop(1)
        return text

    def _line(self, text: Text, mark: str, words: str, part: str, width: int) -> None:
        style = self.style_of(part) if part else ""
        for i, line in enumerate(textwrap.wrap(" ".join(words.split()), max(8, width - 2))):
            text.append(f"{mark if not i else ' '} ", self.style_of("bar") if mark == "✔" else style)
            text.append(f"{line}\n", style)


HELP_MACHINE = """\
### This machine

What works here, as `warpdeck doctor` finds it: **✔** works, **–** does not, and **→** says how to mend it.
What is to be mended matters only for what it is for; recordings and replay work everywhere.
"""


class StartScreen(Browsing):
    """Recent sessions and the machine. `checks`: what finds out about it, None: nothing does (tests)."""

    HELP = """\
### Start

**n** describes a run in a form and starts it; **s** lists all sessions, to filter, compare and export them.
**enter** opens one: a run that goes on is joined, one that has ended is shown at its end. **r** plays it from
the start. A run belongs to no console: it goes on whether or not one is open.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sessions", "Sessions", id="start.sessions", tooltip="All sessions"),
        Binding(
            "d", "check", "Check again", show=False, id="start.check", tooltip="Look at the machine again"
        ),
        Binding("q", "leave", "Quit", id="start.quit"),
    ]

    def __init__(
        self,
        sessions: Path | None = None,
        *,
        interval: float | None = INTERVAL_S,
        checks: Callable[[], Sequence[Check]] | None = examine,
    ) -> None:
        super().__init__(sessions, interval=interval)
        self._checks = checks
        self._looking = self._looked = False

    def compose(self) -> ComposeResult:
        yield Static(f"warpdeck {__version__}", id="title", markup=False)
        yield Static("reading the sessions…", id="progress", markup=False)
        with Horizontal(id="start"):
            yield Table(id="recent")
            yield MachinePane(id="machine")
        yield Static(NOTHING_YET, id="how", markup=False)
        yield Footer()
        yield Static("", id="tiny", markup=False)

    def on_mount(self) -> None:
        self.query_one(Table).border_title = "Recent sessions"
        self.query_one("#how").display = False

    def show(self, home: str, infos: Sequence[SessionInfo]) -> None:
        """The newest sessions."""
        self.query_one("#progress", Static).update(f"{count_words(infos)} · {home}")
        self.query_one("#how").display = not infos
        self._draw()
        if not self._looked:  # only now: it takes a second of a core
            self._looked = True
            self.call_after_refresh(self.action_check)

    def on_resize(self, event: Resize) -> None:
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        """The device's column takes what room there is."""
        table = self.query_one(Table)
        room = table.scrollable_content_region.width - STATE - WORKLOAD - BEST - 8
        columns = (
            Column("state", STATE),
            Column("workload", WORKLOAD),
            Column("best", BEST, right=True),
            # Before the rest: where a number was recorded belongs beside it.
            Column("device", min(DEVICE, max(LEAST_DEVICE, room))),
            Column("agent", AGENT),
            Column("started", STARTED),
        )
        table.fill(columns, [_row(info) for info in list(self.infos.values())[:RECENT]])
        self.describe_marked()

    def action_check(self) -> None:
        """Look at the machine, in a thread that nobody waits for: a probe may take a minute."""
        if self._checks is None or self._looking:
            return
        self._looking = True
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Sequence[Check]] = loop.create_future()

        def look(checks: Callable[[], Sequence[Check]]) -> None:
            result = checks()
            with suppress(RuntimeError):  # the dashboard has ended meanwhile
                loop.call_soon_threadsafe(lambda: None if found.done() else found.set_result(result))

        threading.Thread(target=look, args=(self._checks,), name="doctor", daemon=True).start()
        self.run_worker(partial(self._found, found), group="doctor")

    async def _found(self, found: asyncio.Future[Sequence[Check]]) -> None:
        checks = await found
        self._looking = False
        if not gone(self):
            self.query_one(MachinePane).show(checks)

    def action_sessions(self) -> None:
        """All sessions."""
        from .sessions import SessionsScreen

        self.app.push_screen(SessionsScreen(self.folder, interval=self._interval), self._come_back)


def _row(info: SessionInfo) -> TableRow:
    cells = (
        state_words(info),
        info.workload or NONE,
        best_words(info),
        info.device or NONE,
        info.agent or NONE,
        started_words(info),
    )
    return TableRow(info.id, cells, tones=(state_tone(info), "", "", "", "", ""))
