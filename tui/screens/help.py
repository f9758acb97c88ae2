"""`?`: what the focused pane shows, and every key that works now."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.table import Table
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static


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
    focused = behind.focused
    about = getattr(focused, "HELP", None) or getattr(behind, "HELP", "") or ""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=True, header_style="bold")
    table.add_column("key", no_wrap=True)
    table.add_column("does")
    seen: set[str] = set()
    for active in behind.active_bindings.values():
        binding = active.binding
        if not binding.description or binding.action in seen or not active.enabled or binding.system:
            continue
        seen.add(binding.action)
        shown = behind.app.get_key_display(binding)
        table.add_row(shown, active.tooltip or binding.tooltip or binding.description)
    return Group(Markdown(about), "", table)
