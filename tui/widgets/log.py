"""The log pane: the run's messages, one a line, following the end unless scrolled away from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...sessions.words import one_line
from ..export import Exported, Sheet
from ..format import duration


class Line(NamedTuple):
    """A message `t` seconds into the run. The level is written out, so that it reads without colour."""

    t: float
    level: str
    text: str

    def __str__(self) -> str:
        level = "" if self.level == "info" else f"{self.level}: "
        return f"{duration(self.t):>7}  {level}{one_line(self.text)}"


def has_words(text: str, wanted: str) -> bool:
    """Whether a text has all words of a filter, and none that begins with "!"; case doesn't count."""
    lower = text.lower()
    return all(
        (word[1:] not in lower) if word.startswith("!") and len(word) > 1 else (word in lower)
        for word in wanted.lower().split()
    )


class LogPane(ScrollView, Exported, can_focus=True):
    """A view of a sequence of lines: showing an earlier state (a seek) simply shows fewer."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"log--warning", "log--error"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down", show=False, id="log.down"),
        Binding("k", "scroll_up", "Up", show=False, id="log.up"),
        Binding("h", "scroll_left", "Left", show=False, id="log.left"),
        Binding("l", "scroll_right", "Right", show=False, id="log.right"),
        Binding("g", "scroll_home", "Start", show=False, id="log.start"),
        Binding("G", "scroll_end", "End", show=False, id="log.end"),
        Exported.BINDING,
    ]
    HELP = """\
### Log

What the run says, with the time since its start. Warnings and errors carry the word. The pane follows
the newest line until you scroll up; `G` follows again. `/` shows only lines with all the words typed
(`!word`: without it; *warning* and *error* are words too); escape shows all again. `e` saves the lines.
"""
    FILTER_HINT = "words, !not: warning, best, attempt 7"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._all: tuple[Line, ...] = ()
        self._lines: tuple[Line, ...] = ()
        self.filter = ""
        self.border_title = "Log"

    def show(self, lines: Sequence[Line]) -> None:
        """Replace the lines."""
        shown = tuple(lines)
        if shown != self._all:
            self._all = shown
            self._choose()

    def set_filter(self, text: str) -> None:
        """Show only lines with these words."""
        if text != self.filter:
            self.filter = text
            self._choose()

    def _choose(self) -> None:
        following = self.is_vertical_scroll_end
        self._lines = tuple(line for line in self._all if has_words(str(line), self.filter))
        found = f" · /{self.filter}: {len(self._lines)} of {len(self._all)}" if self.filter else ""
        if self.border_title != f"Log{found}":
            self.border_title = f"Log{found}"
        self.virtual_size = Size(max((len(str(x)) for x in self._lines), default=0), len(self._lines))
        if following:
            self.scroll_end(animate=False)
        self.refresh()

    def exported(self) -> Sheet | None:
        """The lines that are shown."""
        if not self._lines:
            return None
        rows = [(duration(line.t), line.level, one_line(line.text)) for line in self._lines]
        values = [{"seconds": line.t, "level": line.level, "text": line.text} for line in self._lines]
        return Sheet(str(self.border_title), ("time", "level", "text"), rows, (True,), values)

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
