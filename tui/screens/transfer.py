"""A session to a file, and back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ...core.errors import WarpdeckError
from ...sessions.exporting import FORMS, export
from ...sessions.portable import SUFFIXES, import_session
from ..format import size_text
from ..widgets.choice import Choice


class ExportScreen(ModalScreen[None]):
    """Asks for the form and the file, and writes it. `folder`: the session's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "write", "Write", id="export.write", tooltip="Write the file"),
        Binding("escape", "leave", "Cancel", id="export.cancel", tooltip="Close without writing"),
        Binding("down", "app.focus_next", "Next", show=False, priority=True, id="export.next"),
        Binding("up", "app.focus_previous", "Previous", show=False, priority=True, id="export.previous"),
    ]

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._busy = False

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(f"Export {self._folder.name}", id="question", markup=False)
            yield Choice(list(FORMS), "html", id="form")
            yield Static("", id="about", markup=False)
            yield Input(id="answer", compact=True)
            yield Static("", id="meaning", markup=False)

    def on_mount(self) -> None:
        self.query_one(Choice).focus()
        self._suggest()

    @on(Choice.Changed)
    def _suggest(self) -> None:
        """The usual name for this form."""
        form = FORMS[self.query_one(Choice).value]
        self.query_one("#about", Static).update(form.words)
        self.query_one(Input).value = f"{self._folder.name}{form.suffix}"
        self._judge()

    @on(Input.Changed)
    def _judge(self) -> None:
        """Say what will become of the file."""
        path = self._target()
        if not path.parent.is_dir():
            self._say(f"✘ there is no folder {path.parent}", wrong=True)
        elif path.is_file():
            self._say("! it exists already: enter replaces it", wrong=True)
        else:
            into = f"enter writes it into {path.absolute().parent}"
            self._say(f"{into}\n←→ another form · ↓ another name · esc cancels")

    def _target(self) -> Path:
        return Path(self.query_one(Input).value.strip() or ".").expanduser()

    def _say(self, words: str, *, wrong: bool = False) -> None:
        meaning = self.query_one("#meaning", Static)
        meaning.update(words)
        meaning.set_class(wrong, "-wrong")

    @on(Input.Submitted)
    def action_write(self) -> None:
        """Write the file, in a thread."""
        if self._target().parent.is_dir() and not self._busy:
            self._busy = True
            self._say("writing…")
            self.run_worker(self._write(self.query_one(Choice).value, self._target()))

    async def _write(self, form: str, target: Path) -> None:
        try:
            written = await asyncio.to_thread(export, self._folder, form, target)
        except WarpdeckError as error:
            self._say(f"✘ {error}", wrong=True)
            return
        finally:
            self._busy = False
        self.app.notify(f"{written} ({size_text(written.stat().st_size)})", title="exported", markup=False)
        self.dismiss()

    def action_leave(self) -> None:
        """Close."""
        self.dismiss()


class ImportScreen(ModalScreen[str | None]):
    """Asks for an exported session's file and imports it. Returns its id; None if nothing was imported."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel", id="import.cancel", tooltip="Close without importing"),
        Binding("down", "app.focus_next", "Next", show=False, priority=True, id="import.next"),
        Binding("up", "app.focus_previous", "Previous", show=False, priority=True, id="import.previous"),
    ]
    HINT: ClassVar[str] = "enter imports it · down: another name · esc cancels"

    def __init__(self, sessions: Path | None) -> None:
        super().__init__()
        self._sessions = sessions
        self._busy = False

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static("Import a session", id="question", markup=False)
            yield Input(id="answer", compact=True, placeholder=f"file: a {' or '.join(SUFFIXES)}")
            yield Input(id="name", compact=True, placeholder="name here; its own where this is empty")
            yield Static(self.HINT, id="meaning", markup=False)

    def on_mount(self) -> None:
        self.query_one("#answer").focus()

    def _file(self) -> Path:
        return Path(self.query_one("#answer", Input).value.strip()).expanduser()

    @on(Input.Changed)
    def _judge(self) -> None:
        """Say what is wrong with the file's name."""
        typed = self.query_one("#answer", Input).value.strip()
        missing = bool(typed) and not self._file().is_file()
        self._say("✘ there is no such file" if missing else self.HINT, wrong=missing)

    def _say(self, words: str, *, wrong: bool = False) -> None:
        meaning = self.query_one("#meaning", Static)
        meaning.update(words)
        meaning.set_class(wrong, "-wrong")

    @on(Input.Submitted)
    def _submit(self) -> None:
        if self._file().is_file() and not self._busy:
            self._busy = True
            self._say("importing…")
            self.run_worker(self._import(self._file(), self.query_one("#name", Input).value.strip() or None))

    async def _import(self, file: Path, name: str | None) -> None:
        try:
            folder = await asyncio.to_thread(import_session, file, name=name, sessions=self._sessions)
        except WarpdeckError as error:
            self._say(f"✘ {error}", wrong=True)
            return
        finally:
            self._busy = False
        self.app.notify(folder.name, title="imported", markup=False)
        self.dismiss(folder.name)

    def action_leave(self) -> None:
        """Close."""
        self.dismiss(None)
