"""A question with two answers."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Static


class ConfirmScreen(ModalScreen[bool]):
    """Returns True for yes. `keys`: further keys that mean yes, so that the key that asked can answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes", id="confirm.yes"),
        Binding("n,escape", "answer(False)", "No", id="confirm.no"),
    ]

    AUTO_FOCUS = ""  # the keys answer (enter doesn't: it may have been meant for the screen below)

    def __init__(self, question: str, detail: str, *, yes: str, no: str, keys: str = "") -> None:
        super().__init__()
        self._question, self._detail = question, detail
        self._yes, self._no = yes, no
        self._keys = keys.split(",") if keys else []

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static(self._question, id="question", markup=False)
            yield Static(self._detail, markup=False)
            with Horizontal():
                yield Button(f"{self._yes} (y)", id="yes", compact=True)
                yield Button(f"{self._no} (n)", id="no", compact=True)

    def on_mount(self) -> None:
        for key in self._keys:
            self._bindings.bind(key, "answer(True)", show=False)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, answer: bool) -> None:
        """Close with an answer."""
        self.dismiss(answer)
