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

from ..access import changes
from ..settings import THEMES, save_theme


class ThemeScreen(ModalScreen[None]):
    """Themes by name. Enter keeps the marked one and writes it into the settings, escape goes back."""

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
        self.app.theme = event.option_id or self._before
        self.dismiss()
        self._save(self.app.theme)

    @changes("write settings")
    def _save(self, name: str) -> None:
        try:
            path = save_theme(name)
        except (OSError, ValueError) as error:
            self.app.notify(f"theme {name}; not saved: {error}", severity="warning", markup=False)
        else:
            self.app.notify(f"theme {name}, saved in {path}", markup=False)

    def action_move(self, direction: str) -> None:
        """Move the mark."""
        choice = self.query_one(OptionList)
        (choice.action_cursor_down if direction == "down" else choice.action_cursor_up)()

    def action_cancel(self) -> None:
        """The theme as it was."""
        self.app.theme = self._before
        self.dismiss()
