"""The Sessions screen: every session of a folder, to sort, filter, compare, export, delete and import."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Key
from textual.widgets import Input, Static

from ...core.errors import UsageError, WarpdeckError
from ...sessions import alive, comparing, listing
from ...sessions.listing import SessionInfo
from ..access import changes
from ..format import NONE
from ..widgets.footer import Footer
from ..widgets.table import Column, Table, TableRow
from .browsing import (
    GOING,
    INTERVAL_S,
    Browsing,
    best_words,
    count_words,
    started_words,
    state_tone,
    state_words,
)
from .confirm import ConfirmScreen

__all__ = ["INTERVAL_S", "SessionsScreen"]

PICKED = "●"
TOLD = 6  # names in a question
# Heading, width, whether numbers, what the column is sorted by, whether the largest comes first.
_ORDERS: tuple[tuple[str, int, bool, Callable[[SessionInfo], Any], bool], ...] = (
    ("state", 13, False, lambda i: i.state, False),
    ("workload", 10, False, lambda i: i.workload or "", False),
    ("best", 7, True, lambda i: i.best_speedup or 0.0, True),
    ("device", 35, False, lambda i: i.device or "", False),
    ("agent", 7, False, lambda i: i.agent or "", False),
    ("steps", 7, True, lambda i: i.steps or 0, True),
    ("started", 16, False, lambda i: i.started or "", True),
)
NEWEST = len(_ORDERS) - 1


class SessionsScreen(Browsing):
    """Every session, newest first."""

    HELP = """\
### Sessions

What ran, and what runs now. **enter** opens a session: one that runs is joined, one that has ended is shown
at its end, from where **0-9** and the arrows go back in time. **r** plays it from the start. **m** marks
sessions (●): **c** compares two or more, **delete** removes them for good, after asking. **/** filters by
words in any column, **o** and **O** sort. **e** exports one: packed, as a report (HTML), JSON or CSV;
**i** imports one; **E** saves the list. A run belongs to no console: it goes on whether or not one is open.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m,space", "pick", "Mark", key_display="m", id="sessions.pick", tooltip="Mark it, or not"),
        Binding("c", "compare", "Compare", id="sessions.compare", tooltip="Compare the marked sessions"),
        Binding(
            "slash", "filter", "Filter", key_display="/", id="sessions.filter", tooltip="Filter by words"
        ),
        Binding("o", "sort(1)", "Sort", show=False, id="sessions.sort", tooltip="Sort by the next column"),
        Binding("O", "reverse", "Reverse", show=False, id="sessions.reverse", tooltip="Reverse the order"),
        Binding("e", "export", "Export", id="sessions.export", tooltip="Write it as a file"),
        Binding(
            "E",
            "save_list",
            "Save the list",
            show=False,
            id="sessions.save_list",
            tooltip="Save the list as SVG, PNG and CSV",
        ),
        Binding("i", "import", "Import", show=False, id="sessions.import", tooltip="Import an exported one"),
        Binding(
            "delete,D",
            "delete",
            "Delete",
            key_display="del",
            id="sessions.delete",
            tooltip="Delete (asks first)",
        ),
        Binding(
            "escape", "clear", "Clear", show=False, id="sessions.clear", tooltip="No filter, nothing marked"
        ),
        Binding("q", "leave", "Back", id="sessions.quit"),
    ]

    def __init__(self, sessions: Path | None = None, *, interval: float | None = INTERVAL_S) -> None:
        super().__init__(sessions, interval=interval)
        self._words = ""
        self._order, self._reversed = NEWEST, False
        self._picked: set[str] = set()
        self._home = ""

    def compose(self) -> ComposeResult:
        yield Static("warpdeck · sessions", id="title", markup=False)
        yield Static("reading the sessions…", id="progress", markup=False)
        yield Table(id="sessions")
        yield Input(id="prompt", compact=True, placeholder="/ words that a session has, in any column")
        yield Footer()
        yield Static("", id="tiny", markup=False)

    def on_mount(self) -> None:
        self.query_one(Table).border_title = "Sessions"
        self.query_one("#prompt").display = False

    # What is shown

    def show(self, home: str, infos: Sequence[SessionInfo]) -> None:
        """All sessions that the filter leaves, in order."""
        self._home = home
        self._picked &= self.infos.keys()
        self._draw()

    def _draw(self) -> None:
        every = list(self.infos.values())
        found = [info for info in every if matches(info, self._words)]
        key, down = _ORDERS[self._order][3], _ORDERS[self._order][4] != self._reversed
        found.sort(key=key, reverse=down)  # stable: the newest first among equals
        parts = [count_words(every)]
        parts += [f"{len(found)} with '{self._words}'"] if self._words else []
        parts += [f"{len(self._picked)} marked"] if self._picked else []
        self.query_one("#progress", Static).update(" · ".join([*parts, self._home]))
        arrow = "▼" if down else "▲"
        columns = [
            Column(f"{name} {arrow}" if i == self._order else name, width, right)
            for i, (name, width, right, _, _) in enumerate(_ORDERS)
        ]
        rows = [_row(info, info.id in self._picked) for info in found]
        self.query_one(Table).fill([Column("", 1), *columns], rows)
        self.describe_marked()
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """What there is something for."""
        if action == "compare":
            return len(self._chosen()) >= comparing.LEAST
        if action in ("pick", "delete"):
            return self.marked is not None
        if action == "export":
            return self.marked is not None and not self.marked.error
        if action == "clear":
            return bool(self._words or self._picked)
        return super().check_action(action, parameters)

    def _chosen(self) -> list[SessionInfo]:
        """The marked sessions (●), and with fewer than two of them also the one under the cursor."""
        marked = self.marked
        picked = [info for info in self.infos.values() if info.id in self._picked]
        if len(picked) < comparing.LEAST and marked is not None and marked not in picked:
            picked.append(marked)
        return [info for info in picked if not info.error]

    # Keys

    def action_pick(self) -> None:
        """Mark the session under the cursor, or take the mark away; on to the next."""
        if self.marked is not None:
            self._picked ^= {self.marked.id}
            self._draw()
            self.query_one(Table).action_move(1)

    def action_sort(self, direction: int) -> None:
        """Sort by another column."""
        self._order, self._reversed = (self._order + direction) % len(_ORDERS), False
        self._draw()

    def action_reverse(self) -> None:
        """The other way around."""
        self._reversed = not self._reversed
        self._draw()

    def on_table_heading_clicked(self, event: Any) -> None:
        """A click on a heading sorts by it; a second one reverses."""
        column = event.column - 1
        if column == self._order:
            self.action_reverse()
        elif column >= 0:
            self.action_sort(column - self._order)

    def action_filter(self) -> None:
        """Filter as it is typed."""
        prompt = self.query_one("#prompt", Input)
        prompt.display = True
        prompt.focus()

    @on(Input.Changed, "#prompt")
    def _typed(self, event: Input.Changed) -> None:
        self._words = event.value.strip()
        self._draw()

    @on(Input.Submitted, "#prompt")
    def _keep(self) -> None:
        self._close_prompt()

    def on_key(self, event: Key) -> None:
        """escape leaves the prompt, and ends the filter."""
        if event.key == "escape" and self.query_one("#prompt").has_focus:
            event.stop()
            self.query_one("#prompt", Input).value = ""
            self._close_prompt()

    def _close_prompt(self) -> None:
        self.query_one("#prompt").display = False
        self.query_one(Table).focus()

    def action_clear(self) -> None:
        """End the filter and take all marks away."""
        self._picked.clear()
        self.query_one("#prompt", Input).value = ""
        self._words = ""
        self._draw()

    def action_compare(self) -> None:
        """The marked sessions beside each other."""
        from .compare import CompareScreen

        try:
            folders = [self.resolved(info.id) for info in self._chosen()]
        except WarpdeckError as error:
            self._fail("can't compare", error)
            return
        self.app.push_screen(CompareScreen(folders))

    @changes("write files")
    def action_export(self) -> None:
        """Write the session under the cursor as a file."""
        from .transfer import ExportScreen

        info = self.marked
        if info is None:
            return
        try:
            self.app.push_screen(ExportScreen(self.resolved(info.id)))
        except WarpdeckError as error:
            self._fail("can't export it", error)

    @changes("write files")
    async def action_save_list(self) -> None:
        """Save the list of sessions, as any table."""
        await self.query_one(Table).action_export()

    @changes("import sessions")
    def action_import(self) -> None:
        """Import a session that was exported elsewhere."""
        from .transfer import ImportScreen

        self.app.push_screen(ImportScreen(self.folder), self._imported)

    async def _imported(self, session: str | None) -> None:
        await self.tick()
        table = self.query_one(Table)
        table.cursor = next((i for i, row in enumerate(table.rows) if row.key == session), table.cursor)

    @changes("delete sessions")
    def action_delete(self) -> None:
        """Ask, then delete the marked sessions, or the one under the cursor, for good."""
        names = sorted(self._picked) or ([self.marked.id] if self.marked is not None else [])
        if not names:
            return
        try:
            folders = [self.resolved(name) for name in names]
            going = [
                folder.name for folder in folders if alive.is_running(folder) or alive.is_starting(folder)
            ]
            if going:
                raise UsageError(f"{_some(going)} still runs; stop it first (open it, then x)")
        except WarpdeckError as error:
            self._fail("not deleted", error)
            return

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._delete(folders), group="delete")

        question = "Delete this session?" if len(names) == 1 else f"Delete these {len(names)} sessions?"
        detail = f"{_some(names)}\n\n{'Its' if len(names) == 1 else 'Their'} files are removed for good."
        self.app.push_screen(ConfirmScreen(question, detail, yes="Delete", no="Keep"), answered)

    async def _delete(self, folders: Sequence[Path]) -> None:
        deleted = 0
        for folder in folders:
            try:
                await asyncio.to_thread(listing.remove, folder)
                deleted += 1
            except WarpdeckError as error:
                self._fail("not deleted", error)
        if deleted:
            self.notify(f"deleted {deleted} session{'s' if deleted > 1 else ''}")
        await self.tick()

    def _fail(self, title: str, error: Exception) -> None:
        self.notify(str(error), title=title, severity="error", markup=False)


def matches(info: SessionInfo, words: str) -> bool:
    """Whether a session has every word, in any column, whatever its case."""
    text = " ".join(
        str(part)
        for part in (
            info.id,
            info.state,
            info.workload,
            info.agent,
            info.device,
            started_words(info),
            info.error,
        )
        if part
    ).lower()
    return all(word in text for word in words.lower().split())


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - TOLD} more" if len(names) > TOLD else ""
    return ", ".join(names[:TOLD]) + more


def _row(info: SessionInfo, picked: bool) -> TableRow:
    cells = (
        PICKED if picked else "",
        state_words(info),
        info.workload or NONE,
        best_words(info),
        info.device or (" ".join(info.error.split()) if info.error else NONE),
        info.agent or NONE,
        NONE if info.steps is None else str(info.steps),
        started_words(info),
    )
    tones = ("good", state_tone(info), "", "", "bad" if info.error else "", "", "", "")
    return TableRow(info.id, cells, strong=picked or info.state in GOING, tones=tones)
