"""Keys of a replay beyond playing and stepping: go to a place, single events, bookmarks."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ...core.errors import UsageError, WarpdeckError
from ...sessions.bookmarks import MOST_NAME, Bookmark
from ...sessions.seeking import HELP, Target, Unit, parse
from ...sessions.state import RunState
from ..access import changes
from ..format import duration
from ..sources import Playback, RunSource
from ..widgets.replay_bar import ReplayBar
from ..widgets.table import Column, Table, TableRow
from .zooming import Zooming


class Ask(ModalScreen[str]):
    """One line of text. `check` says what the text means as it is typed; it may raise UsageError."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Cancel", id="ask.cancel", tooltip="Close without doing anything")
    ]

    def __init__(
        self, question: str, check: Callable[[str], str], *, value: str = "", hint: str = ""
    ) -> None:
        super().__init__()
        self._question, self._check, self._value, self._hint = question, check, value, hint

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(self._question, id="question", markup=False)
            yield Input(self._value, id="answer", compact=True, max_length=MOST_NAME)
            yield Static(self._hint, id="meaning", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        meaning = self.query_one("#meaning", Static)
        try:
            words, wrong = self._check(event.value) if event.value.strip() else self._hint, False
        except UsageError as error:
            words, wrong = f"✘ {error}", True
        meaning.update(words)
        meaning.set_class(wrong, "-wrong")

    @on(Input.Submitted)
    def _answered(self, event: Input.Submitted) -> None:
        try:
            self._check(event.value)
        except UsageError:
            return  # the words below say why
        self.dismiss(event.value)

    def action_cancel(self) -> None:
        """Close."""
        self.dismiss(None)


class BookmarkScreen(ModalScreen[str]):
    """The bookmarks of a session: enter jumps, delete deletes. Returns the name of the one to jump to."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,B", "cancel", "Close", id="bookmarks.close"),
        Binding("enter", "choose", "Go to", id="bookmarks.choose", tooltip="Jump to the marked bookmark"),
        Binding("d,delete", "forget", "Delete", id="bookmarks.delete", tooltip="Delete the marked bookmark"),
    ]
    COLUMNS: ClassVar[tuple[Column, ...]] = (
        Column("bookmark", 34),
        Column("at", 8, right=True),
        Column("step", 8, right=True),
    )

    def __init__(self, playback: Playback) -> None:
        super().__init__()
        self._playback = playback

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static("Bookmarks", id="question", markup=False)
            yield Table(id="bookmarks")
            keys = "enter jumps · d deletes · esc closes"
            yield Static(keys, id="meaning", markup=False)

    def on_mount(self) -> None:
        table = self.query_one(Table)
        table.styles.height = min(14, len(self._playback.bookmarks) + 3)  # heading, frame
        table.focus()
        self._fill()

    def _fill(self) -> None:
        rows = [
            TableRow(b.name, (b.name, duration(b.position), str(b.step))) for b in self._playback.bookmarks
        ]
        self.query_one(Table).fill(self.COLUMNS, rows)

    def action_choose(self) -> None:
        """Jump to it."""
        self.dismiss(self.query_one(Table).marked_key)

    @on(Table.Chosen)
    def _chosen(self) -> None:
        self.action_choose()

    @changes("delete bookmarks")
    def action_forget(self) -> None:
        """Delete it."""
        name = self.query_one(Table).marked_key
        if name is not None:
            try:
                self._playback.forget(name)
            except WarpdeckError as error:
                self.notify(str(error), severity="error", markup=False)
            self._fill()

    def action_cancel(self) -> None:
        """Close."""
        self.dismiss(None)


class Playing(Zooming):
    """A screen over a source that may be a replay. Subclasses have `source`, `state` and `jump`."""

    source: RunSource
    state: RunState
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "colon",
            "go_to",
            "Go to",
            key_display=":",
            id="replay.go_to",
            tooltip="Go to a step, time or bookmark",
        ),
        Binding(
            "full_stop", "event(1)", "Event on", show=False, id="replay.event_on", tooltip="One event on"
        ),
        Binding(
            "comma", "event(-1)", "Event back", show=False, id="replay.event_back", tooltip="One event back"
        ),
        Binding("b", "bookmark", "Bookmark", show=False, id="replay.bookmark", tooltip="Set a bookmark here"),
        Binding(
            "B",
            "bookmarks",
            "Bookmarks",
            show=False,
            id="replay.bookmarks",
            tooltip="List, jump to, delete bookmarks",
        ),
        Binding(
            "right_curly_bracket",
            "next_bookmark(1)",
            "Next bookmark",
            show=False,
            id="replay.bookmark_on",
            tooltip="Jump to the next bookmark",
        ),
        Binding(
            "left_curly_bracket",
            "next_bookmark(-1)",
            "Previous bookmark",
            show=False,
            id="replay.bookmark_back",
            tooltip="Jump to the previous bookmark",
        ),
    ]

    def tell_trouble(self) -> None:
        """Say what is wrong with the bookmarks, once."""
        words = getattr(self.source, "trouble", "")
        if words:
            self.notify(words, title="no bookmarks", severity="warning", timeout=15, markup=False)

    def jump(self, act: Callable[[Playback], None]) -> None:
        """Do something to the replay and show where it is then."""
        raise NotImplementedError

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only in a replay; bookmarks only where there are any."""
        source = self.source
        if action in ("go_to", "event", "bookmark", "bookmarks", "next_bookmark"):
            if not isinstance(source, Playback):
                return False
            if action in ("bookmarks", "next_bookmark"):
                return bool(source.bookmarks)
        return True

    def _play(self, act: Callable[[Playback], None]) -> None:
        def safely(playback: Playback) -> None:
            try:
                act(playback)
            except WarpdeckError as error:
                self.notify(str(error), severity="warning", markup=False)

        self.jump(safely)

    @on(ReplayBar.Sought)
    def _sought(self, event: ReplayBar.Sought) -> None:
        self._play(lambda playback: playback.seek(event.share))

    @on(ReplayBar.Toggled)
    def _toggled(self) -> None:
        self._play(lambda playback: playback.toggle())

    def action_event(self, direction: int) -> None:
        """One event of the log."""
        self._play(lambda playback: playback.step_event(direction))

    def action_go_to(self) -> None:
        """Ask where to."""
        source = self.source
        if not isinstance(source, Playback):
            return

        def meaning(text: str) -> str:
            return f"→ {parse(text, source.bookmarks).words}"

        def answered(text: str | None) -> None:
            if text is not None:
                target = parse(text, source.bookmarks)
                self._play(lambda playback: playback.go_to(target))

        self.app.push_screen(Ask("Go to", meaning, hint=HELP), answered)

    @changes("set bookmarks")
    def action_bookmark(self) -> None:
        """Ask for a name, and set a bookmark here."""
        source = self.source
        if not isinstance(source, Playback):
            return
        playing = source.playing
        if playing:
            source.toggle()  # the place is where the key was pressed
        names = {mark.name.lower() for mark in source.bookmarks}

        def meaning(text: str) -> str:
            if not text.strip():
                raise UsageError("a bookmark needs a name")
            moves = text.strip().lower() in names
            note = "; it moves here" if moves else ""
            return f"→ at step {self.state.step}, {duration(source.position)}{note}"

        def answered(name: str | None) -> None:
            if name is not None:
                self._keep(source, name)
            if playing:
                source.toggle()
            self.jump(lambda _: None)
            self.refresh_bindings()

        default = f"step {self.state.step}"
        self.app.push_screen(Ask("Bookmark", meaning, value=default, hint="a name for this place"), answered)

    def _keep(self, playback: Playback, name: str) -> None:
        try:
            playback.bookmark(name)
        except WarpdeckError as error:
            self.notify(str(error), title="could not set a bookmark", severity="error", markup=False)

    def action_bookmarks(self) -> None:
        """List them."""
        source = self.source
        if not isinstance(source, Playback):
            return

        def answered(name: str | None) -> None:
            mark = next((b for b in source.bookmarks if b.name == name), None)
            if mark is not None:
                self._go(mark)
            else:
                self.jump(lambda _: None)
            self.refresh_bindings()

        self.app.push_screen(BookmarkScreen(source), answered)

    def action_next_bookmark(self, direction: int) -> None:
        """To the next or the previous one."""
        source = self.source
        marks = source.bookmarks if isinstance(source, Playback) else ()
        here = self.state.seq
        if direction > 0:
            mark = next((b for b in marks if b.seq > here), None)
        else:
            mark = next((b for b in reversed(marks) if b.seq < here), None)
        if mark is None:
            self.notify("no later bookmark" if direction > 0 else "no earlier bookmark")
        else:
            self._go(mark)

    def _go(self, mark: Bookmark) -> None:
        self._play(lambda playback: playback.go_to(Target(Unit.BOOKMARK, mark.seq)))
