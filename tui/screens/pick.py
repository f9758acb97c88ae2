"""Which other trace or profile to compare with: a list, or a file's path."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ...core.errors import WarpdeckError
from ..others import Choice
from ..widgets.table import Column, Table, TableRow
from .leaving import gone

Found = TypeVar("Found")


class PickScreen(ModalScreen[Any], Generic[Found]):
    """Returns what was picked, loaded; None if nothing was. `find` and `read` run in a thread."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Close", id="pick.close"),
        Binding("enter", "choose", "Compare", id="pick.choose", tooltip="Compare with the marked one"),
        Binding("tab", "other", "Other", show=False, id="pick.other", tooltip="To the list or to the path"),
    ]

    def __init__(
        self,
        question: str,
        find: Callable[[], Sequence[Choice[Found]]],
        read: Callable[[Path], Found],
        baseline: Callable[[Choice[Found]], bool],
    ) -> None:
        super().__init__()
        self._question, self._find, self._read, self._baseline = question, find, read, baseline
        self._choices: Sequence[Choice[Found]] = ()

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(self._question, id="question", markup=False)
            yield Table(id="choices")
            yield Input(id="answer", compact=True, placeholder="or the path of a file (tab)")
            yield Static("looking…", id="meaning", markup=False)

    def on_mount(self) -> None:
        self.query_one(Table).focus()
        self.run_worker(self._list(), exclusive=True)

    async def _list(self) -> None:
        try:
            choices = await asyncio.to_thread(self._find)
        except WarpdeckError as error:
            choices, trouble = [], str(error)
        else:
            trouble = "" if choices else "nothing else is here"
        if gone(self):  # closed meanwhile
            return
        self._choices = choices
        table = self.query_one(Table)
        room = max(40, self.query_one("#dialog").content_size.width - 6)
        where = max((len(choice.where) for choice in choices), default=0)
        columns = (Column("launch", room - min(where, room // 3) - 4), Column("where", min(where, room // 3)))
        rows = [
            TableRow(str(i), (f"{'baseline: ' if self._baseline(c) else ''}{c.label}", c.where))
            for i, c in enumerate(choices)
        ]
        table.fill(columns, rows)
        table.styles.height = min(14, len(rows) + 3)
        self._say(trouble or "enter compares · tab to a path · esc closes")
        if not choices:
            self.query_one(Input).focus()

    def _say(self, words: str, *, wrong: bool = False) -> None:
        meaning = self.query_one("#meaning", Static)
        meaning.update(words)
        meaning.set_class(wrong, "-wrong")

    def action_choose(self) -> None:
        """Load the marked one."""
        key = self.query_one(Table).marked_key
        if key is not None:
            self._load(self._choices[int(key)].load)

    @on(Table.Chosen)
    def _chosen(self) -> None:
        self.action_choose()

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        if text:
            self._load(lambda: self._read(Path(text)))

    def _load(self, load: Callable[[], Found]) -> None:
        self._say("reading…")
        self.run_worker(self._loaded(load), exclusive=True)

    async def _loaded(self, load: Callable[[], Found]) -> None:
        try:
            found = await asyncio.to_thread(load)
        except WarpdeckError as error:
            if not gone(self):
                self._say(f"✘ {error}", wrong=True)
            return
        if not gone(self):
            self.dismiss(found)

    def action_other(self) -> None:
        """To the path or to the list."""
        table, field = self.query_one(Table), self.query_one(Input)
        (field if self.focused is table else table).focus()

    def action_cancel(self) -> None:
        """Close."""
        self.dismiss(None)
