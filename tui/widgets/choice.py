"""One of a few words, in one line: the arrows go through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget


class Choice(Widget, can_focus=True):
    """Shows "‹ tpe ›", and while it has the focus "◂ tpe ▸"."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l,space", "turn(1)", "Next", show=False, id="choice.next", tooltip="The next choice"),
        Binding("left,h", "turn(-1)", "Previous", show=False, id="choice.previous", tooltip="The one before"),
    ]

    value: reactive[str] = reactive("")

    class Changed(Message):
        """Another word is chosen."""

        def __init__(self, choice: Choice) -> None:
            super().__init__()
            self.choice = choice

        @property
        def control(self) -> Choice:
            """The widget."""
            return self.choice

    def __init__(self, options: Sequence[str], value: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.options = tuple(options)
        self.set_reactive(Choice.value, value)

    def render(self) -> Text:
        """The word between its arrows."""
        left, right = ("◂", "▸") if self.has_focus else ("‹", "›")
        return Text(f"{left} {self.value} {right}", no_wrap=True)

    def watch_value(self) -> None:
        self.post_message(self.Changed(self))

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def action_turn(self, direction: int) -> None:
        """The next word, or the one before."""
        at = self.options.index(self.value) if self.value in self.options else 0
        self.value = self.options[(at + direction) % len(self.options)]

    def on_click(self, event: Click) -> None:
        """A click on the left arrow goes back, anywhere else on."""
        self.action_turn(-1 if event.x == 0 else 1)
