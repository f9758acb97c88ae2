"""`?`: what the focused pane shows, and every key that works now."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from ..commands import commands


class HelpScreen(ModalScreen[None]):
    """Help for one screen and the pane that had the focus there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q", "dismiss", "Close", key_display="esc", id="help.close"),
        Binding("j", "scroll(1)", "Down", show=False, id="help.down"),
        Binding("k", "scroll(-1)", "Up", show=False, id="help.up"),
    ]

    def __init__(self, behind: Screen[Any]) -> None:
        super().__init__()
        self._text = _help(behind)

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="dialog"):
            yield Static(self._text)

    def action_scroll(self, lines: int) -> None:
        """Scroll the text."""
        self.query_one("#dialog").scroll_relative(y=lines, animate=False)


def _help(behind: Screen[Any]) -> RenderableType:
    about = getattr(behind.focused, "HELP", None) or getattr(behind, "HELP", "")
    title, _, text = about.removeprefix("### ").partition("\n")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("key", no_wrap=True)
    table.add_column("does")
    for command in commands(behind):
        table.add_row(command.keys, command.words)
    return Group(Text(title, "bold underline"), "", Markdown(text), "", table)
