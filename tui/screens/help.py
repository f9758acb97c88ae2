"""`?`: what the focused pane shows, and every key that works now."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from rich.console import Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from ..commands import commands

_MARKED = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<bold>.+?)\*\*|\*(?P<italic>.+?)\*")


class HelpScreen(ModalScreen[None]):
    """Help for one screen and the pane that had the focus there."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"help--code"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q", "dismiss", "Close", key_display="esc", id="help.close"),
        Binding("j", "scroll(1)", "Down", show=False, id="help.down"),
        Binding("k", "scroll(-1)", "Up", show=False, id="help.up"),
    ]

    def __init__(self, behind: Screen[Any]) -> None:
        super().__init__()
        self._about = getattr(behind.focused, "HELP", None) or getattr(behind, "HELP", "")
        self._commands = commands(behind)

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="dialog"):
            yield Static()

    def on_mount(self) -> None:
        self.query_one(Static).update(self._text())

    def _text(self) -> RenderableType:
        code = self.get_component_rich_style("help--code", partial=True)
        title, _, text = self._about.removeprefix("### ").partition("\n")
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("key", no_wrap=True, style=code)
        table.add_column("does")
        for command in self._commands:
            table.add_row(command.keys, command.words)
        return Group(Text(title, "bold underline"), "", *prose(text, code), table)

    def action_scroll(self, lines: int) -> None:
        """Scroll the text."""
        self.query_one("#dialog").scroll_relative(y=lines, animate=False)


def prose(text: str, code: Style) -> list[Text]:
    """Paragraphs with `code`, **bold** and *italic* words in them; a blank line after each."""
    styles = {"code": code, "bold": Style(bold=True), "italic": Style(italic=True)}
    found = []
    for paragraph in filter(None, map(str.strip, text.split("\n\n"))):
        words, line, end = Text(), " ".join(paragraph.split()), 0
        for match in _MARKED.finditer(line):
            kind = str(match.lastgroup)
            words.append(line[end : match.start()]).append(match[kind], styles[kind])
            end = match.end()
        found += [words.append(line[end:]), Text()]
    return found
