"""The log pane: the run's messages, one a line, following the end unless scrolled away from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ..format import duration


class Line(NamedTuple):
    """A message `t` seconds into the run. The level is written out, so that it reads without colour."""

    t: float
    level: str
    text: str

    def __str__(self) -> str:
        level = "" if self.level == "info" else f"{self.level}: "
        return f"{duration(self.t):>7}  {level}{_printable(self.text)}"


def _printable(text: str) -> str:
    """One line without control characters: a compiler's log must not drive the terminal."""
    return "".join(c if c.isprintable() else " " for c in text.strip())


class LogPane(ScrollView, can_focus=True):
    """A view of a sequence of lines: showing an earlier state (a seek) simply shows fewer."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"log--warning", "log--error"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down", show=False, id="log.down"),
        Binding("k", "scroll_up", "Up", show=False, id="log.up"),
        Binding("h", "scroll_left", "Left", show=False, id="log.left"),
        Binding("l", "scroll_right", "Right", show=False, id="log.right"),
        Binding("g", "scroll_home", "Start", show=False, id="log.start"),
        Binding("G", "scroll_end", "End", show=False, id="log.end"),
    ]
    HELP = """\
### Log

What the run says, with the time since its start. Warnings and errors carry the word. The pane follows
the newest line until you scroll up; `G` follows again.
"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: tuple[Line, ...] = ()
        self.border_title = "Log"

    def show(self, lines: Sequence[Line]) -> None:
        """Replace the lines."""
        shown = tuple(lines)
        if shown == self._lines:
            return
        following = self.is_vertical_scroll_end
        self._lines = shown
        self.virtual_size = Size(max((len(str(x)) for x in shown), default=0), len(shown))
        if following:
            self.scroll_end(animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One visible line."""
        left, top = self.scroll_offset
        width = self.scrollable_content_region.width
        index = top + y
        if index >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        line = self._lines[index]
        named = line.level in ("warning", "error")
        style = self.get_component_rich_style(f"log--{line.level}") if named else self.rich_style
        return Strip([Segment(str(line), style)]).crop_extend(left, left + width, self.rich_style)
