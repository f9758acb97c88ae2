"""The choice of a theme: the marked one is shown at once."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from ..settings import THEMES


class ThemeScreen(ModalScreen[str]):
    """Themes by name. Returns the chosen one's; None, with the theme as it was, on escape."""

    HELP = """\
### Theme

Moving the mark shows a theme at once. **enter** keeps it, also for the next time; **escape** goes back to
the one before.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "cancel", "Back", key_display="esc", id="themes.cancel"),
        Binding("j", "move('down')", "Down", show=False, id="themes.down"),
        Binding("k", "move('up')", "Up", show=False, id="themes.up"),
    ]

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Static("Theme", id="question")
            width = max(map(len, THEMES))
            yield OptionList(*(Option(f"{n:<{width}}  {about}", id=n) for n, about in THEMES.items()))
            yield Static("enter: keep · escape: back", id="keys")

    def on_mount(self) -> None:
        self._before = self.app.theme
        choice = self.query_one(OptionList)
        choice.highlighted = list(THEMES).index(self._before) if self._before in THEMES else 0
        choice.focus()

    @on(OptionList.OptionHighlighted)
    def _preview(self, event: OptionList.OptionHighlighted) -> None:
        self.app.theme = event.option_id or self._before

    @on(OptionList.OptionSelected)
    def _keep(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id)

    def action_move(self, direction: str) -> None:
        """Move the mark."""
        choice = self.query_one(OptionList)
        (choice.action_cursor_down if direction == "down" else choice.action_cursor_up)()

    def action_cancel(self) -> None:
        """The theme as it was."""
        self.app.theme = self._before
        self.dismiss(None)
