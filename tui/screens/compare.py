"""The Compare screen: two or more sessions beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.widgets import Static

from ...core.errors import WarpdeckError
from ...sessions.comparing import Comparison, Row, compare
from ..widgets.footer import Footer
from ..widgets.table import Column, Table, TableRow
from .leaving import gone
from .zooming import Zooming

NAME = 13
NARROWEST, WIDEST = 18, 44  # of a session's column
BEST = "★"


class CompareScreen(Zooming):
    """Reads the sessions in a thread."""

    HELP = """\
### Compare

A column a session. **≠** marks the lines in which they differ, **★** the best where that can be told: the
least time of sessions with the same workload, device, sizes, cache and clock, and a speedup whose 95%
interval lies above all the others'. Between sessions nothing is measured in pairs. **d** hides the lines
that are the same.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "d", "differences", "Differences", id="compare.differences", tooltip="Only what differs, or all"
        ),
        Binding("y", "copy", "Copy", id="compare.copy", tooltip="Copy the table as text"),
        Binding("question_mark", "help", "Help", key_display="?", id="compare.help"),
        Binding("q,escape", "leave", "Back", key_display="q", id="compare.quit"),
    ]

    def __init__(self, folders: Sequence[Path]) -> None:
        super().__init__()
        self._folders = list(folders)
        self._found: Comparison | None = None
        self._only = False

    def compose(self) -> ComposeResult:
        yield Static("warpdeck · compare", id="title", markup=False)
        yield Static("reading the sessions…", id="progress", markup=False)
        yield Static("", id="alert", markup=False)
        yield Table(id="comparison")
        yield Footer()
        yield Static("", id="tiny", markup=False)

    def on_mount(self) -> None:
        self.query_one(Table).border_title = f"{len(self._folders)} sessions"
        self.query_one(Table).focus()
        self.query_one("#alert").display = False
        self.run_worker(self._compare)

    def on_resize(self, event: Resize) -> None:
        width, height = event.size
        self.query_one("#tiny", Static).update(f"warpdeck needs 60×16, this terminal is {width}×{height}")
        self._draw()

    async def _compare(self) -> None:
        try:
            self._found = await asyncio.to_thread(compare, self._folders)
        except WarpdeckError as error:
            if not gone(self):
                self.query_one("#progress", Static).update(f"✘ {error}")
            return
        if not gone(self):
            self._draw()

    def _draw(self) -> None:
        found = self._found
        if found is None:
            return
        rows = [row for row in found.rows if row.differs or not self._only]
        differing = sum(row.differs for row in found.rows)
        self.query_one("#progress", Static).update(
            f"{differing} of {len(found.rows)} lines differ"
            + (", only those are shown" if self._only else "")
        )
        alert = self.query_one("#alert", Static)
        alert.display = bool(found.notes)
        alert.update("\n".join(f"! {note}" for note in found.notes))
        room = self.size.width - 6 - NAME - 3 - 2 * len(found.sessions)
        width = min(WIDEST, max(NARROWEST, room // len(found.sessions)))
        columns = [
            Column("", 1),
            Column("", NAME),
            *(Column(_short(s, width), width) for s in found.sessions),
        ]
        self.query_one(Table).fill(columns, list(_rows(rows)))

    def action_differences(self) -> None:
        """Only the lines that differ, or all."""
        self._only = not self._only
        self._draw()

    def action_copy(self) -> None:
        """Copy the table as text, its columns apart by tabs."""
        if self._found is not None:
            lines = ["\t".join(("", *self._found.sessions))]
            lines += ["\t".join((row.name, *row.cells)) for row in self._found.rows]
            self.app.copy_to_clipboard("\n".join(lines))
            self.notify(f"copied: {len(lines)} lines")

    def action_help(self) -> None:
        """Help."""
        from .help import HelpScreen

        self.app.push_screen(HelpScreen(self))

    def action_leave(self) -> None:
        """Back."""
        self.dismiss()


def _short(session: str, width: int) -> str:
    """A session's id; where it is too long its end, which tells it apart."""
    return session if len(session) <= width else f"…{session[-(width - 1) :]}"


def _rows(rows: Sequence[Row]):
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            yield TableRow(f"group {group}", ("", group.upper(), *("" for _ in row.cells)), strong=True)
        cells = [f"{cell} {BEST}" if row.best == i else cell for i, cell in enumerate(row.cells)]
        tones = ["good" if row.best == i else "" for i in range(len(cells))]
        key = f"{row.group} {row.name}"
        yield TableRow(key, ("≠" if row.differs else "", row.name, *cells), tones=("", "dim", *tones))
