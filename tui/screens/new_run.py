"""The New run screen: a form, each field judged as it is typed, and the command that would start the same."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.events import Resize
from textual.screen import Screen
from textual.suggester import SuggestFromList
from textual.timer import Timer
from textual.widgets import Input, Static

from ...core.errors import WarpdeckError
from ...kernels.loader import list_workloads
from ...sessions.launch import Launched, launch_run
from .. import run_form
from ..access import changes
from ..format import clip
from ..run_form import FIELDS, Field
from ..widgets.choice import Choice
from ..widgets.footer import Footer
from .leaving import gone

SETTLED_S = 0.3  # after the last key, before what takes longer is looked at
_started: list[Launched] = []  # their processes are waited for as long as this console lives


class NewRunScreen(Screen[Path | None]):
    """Returns the session's folder once the run is started; None if none was.

    `sessions`: the folder of sessions (default: the user's); `delay`: seconds before the whole is checked.
    """

    HELP = """\
### New run

A form for `warpdeck tune`. **tab** and the arrows go through the fields, **←** and **→** through the
choices of one; what is wrong with a field stands beside it. The line below is the command that starts the
same run in a shell. **ctrl+s** starts it; it goes on whether or not this console is open.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "start", "Start", key_display="^s", id="new.start", tooltip="Start the run"),
        Binding(
            "ctrl+y", "copy", "Copy command", key_display="^y", id="new.copy", tooltip="Copy the command"
        ),
        Binding("down", "app.focus_next", "Next field", show=False, priority=True, id="new.next"),
        Binding("up", "app.focus_previous", "Previous field", show=False, priority=True, id="new.previous"),
        Binding("f1", "help", "Help", id="new.help"),
        Binding(
            "escape", "leave", "Cancel", key_display="esc", id="new.cancel", tooltip="Back without a run"
        ),
    ]

    def __init__(self, sessions: Path | None = None, *, delay: float = SETTLED_S) -> None:
        super().__init__()
        self.values = run_form.defaults()
        self._sessions, self._delay = sessions, delay
        self._wrong: dict[str, str] = {}
        self._refused: str | None = None  # "": the whole may be started; None: not known yet
        self._starting = False
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Static("warpdeck · new run", id="title", markup=False)
        yield Static("", id="progress", markup=False)
        with VerticalScroll(id="form", can_focus=False):
            for field in FIELDS:
                with Horizontal(id=f"row-{field.name}", classes="row"):
                    yield Static(field.label, classes="label", markup=False)
                    yield _widget(field)
                    yield Static("", id=f"note-{field.name}", classes="note", markup=False)
        yield Static("", id="command", markup=False)
        yield Footer()
        yield Static("", id="tiny", markup=False)

    def on_mount(self) -> None:
        self.query_one("#form").border_title = "What to run"
        self.query_one("#field-workload").focus()
        self._changed()

    def on_resize(self, event: Resize) -> None:
        width, height = event.size
        self.query_one("#tiny", Static).update(f"warpdeck needs 60×16, this terminal is {width}×{height}")

    # As it is typed

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._set(event.input.id, event.value)

    @on(Choice.Changed)
    def _turned(self, event: Choice.Changed) -> None:
        self._set(event.choice.id, event.choice.value)

    @on(Input.Submitted)
    def _next(self) -> None:
        self.focus_next()

    def _set(self, widget: str | None, value: str) -> None:
        name = str(widget).removeprefix("field-")
        if name in self.values and self.values[name] != value:
            self.values[name] = value
            self._changed()

    def _changed(self) -> None:
        """Judge every field; what takes longer is looked at once the hands rest."""
        values = dict(self.values)
        self._wrong = run_form.faults(values)
        self._refused = None
        fields = {field.name for field in run_form.shown(values)}
        with self.app.batch_update():
            for field in FIELDS:
                self.query_one(f"#row-{field.name}").display = field.name in fields
                self._note(field.name)
            steps = self.query_one("#field-steps", Input)
            steps.placeholder = str(run_form.steps_of(values["agent"]))
            self.query_one("#command", Static).update(f"$ {run_form.command(values)}")
            self._say()
            self.on_descendant_focus()
        self.refresh_bindings()
        if self._timer is not None:
            self._timer.stop()
        if self._wrong:
            return
        if self._delay:
            self._timer = self.set_timer(self._delay, self._look)
        else:
            self._look()

    def _note(self, name: str) -> None:
        note = self.query_one(f"#note-{name}", Static)
        note.update(self._words(name))
        note.set_class(name in self._wrong, "-wrong")

    def _words(self, name: str) -> str:
        """What is wrong with a field, else what it stands for."""
        why = self._wrong.get(name)
        return f"✘ {why}" if why else run_form.hint(name, self.values)

    def on_descendant_focus(self) -> None:
        """Of the field with the focus all words, also where they are cut off beside it."""
        form, focused = self.query_one("#form"), self.focused
        name = str(focused.id if focused is not None else "").removeprefix("field-")
        words = self._words(name) if name in self.values else ""
        form.border_subtitle = clip(words, max(0, self.size.width - 8))

    def _look(self) -> None:
        self.run_worker(partial(self._check, dict(self.values)), group="check")

    async def _check(self, values: dict[str, str]) -> None:
        """What the whole would be refused for; of no interest once something else was typed."""
        try:
            await asyncio.to_thread(run_form.check, values)
            refused = ""
        except WarpdeckError as error:
            refused = str(error)
        if not gone(self) and values == self.values:
            self._refused = refused
            self._say()
            self.refresh_bindings()

    def _say(self) -> None:
        """Whether it can be started, and if not why."""
        if self._wrong:
            labels = [field.label for field in FIELDS if field.name in self._wrong]
            words = f"✘ to mend: {', '.join(labels)}"
        elif self._refused is None:
            words = "… looking whether this can run"
        elif self._refused:
            words = f"✘ {self._refused}"
        else:
            words = "✔ ready: ctrl+s starts it"
        progress = self.query_one_optional("#progress", Static)
        if progress is not None:  # the form may have been left while the worker looked
            progress.update(words)
            progress.set_class(bool(self._wrong or self._refused), "-trouble")

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Starting is dimmed while something speaks against it."""
        if action == "start":
            return True if self._refused == "" and not self._starting else None
        return True

    @changes("start runs")
    def action_start(self) -> None:
        """Start the run."""
        if self._refused == "" and not self._starting:
            self._starting = True
            self.query_one("#progress", Static).update("… starting")
            self.run_worker(self._start(dict(self.values)), group="start")

    async def _start(self, values: dict[str, str]) -> None:
        def launch() -> Launched:
            return launch_run(run_form.check(values), sessions=self._sessions)

        try:
            launched = await asyncio.to_thread(launch)
        except WarpdeckError as error:
            self._refused = str(error)
            self._say()
            return
        finally:
            self._starting = False
        _started.append(launched)
        self.dismiss(launched.folder)

    def action_copy(self) -> None:
        """Copy the command."""
        text = run_form.command(self.values)
        self.app.copy_to_clipboard(text)
        self.notify(f"copied: {text}", markup=False)

    def action_help(self) -> None:
        """Help."""
        from .help import HelpScreen

        self.app.push_screen(HelpScreen(self))

    def action_leave(self) -> None:
        """Back without a run."""
        self.dismiss(None)


def _widget(field: Field) -> Choice | Input:
    """What a field is typed or chosen in."""
    name = f"field-{field.name}"
    if field.choices:
        return Choice(field.choices, field.default, id=name)
    known = {"workload": list_workloads, "device": run_form.devices}.get(field.name)
    return Input(
        field.default,
        id=name,
        compact=True,
        suggester=SuggestFromList(known(), case_sensitive=True) if known else None,
    )
