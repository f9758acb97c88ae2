"""What the model says: its reasoning summary, and the answer as it is streamed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ..format import shown_lines

Section = tuple[str, str, bool]  # heading, text, whether it is prose


class ModelPane(ScrollView, can_focus=True):
    """Sections of text, wrapped, following the end unless scrolled away from it."""

    ALLOW_MAXIMIZE = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {"model--heading", "model--prose"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down", show=False, id="model.down"),
        Binding("k", "scroll_up", "Up", show=False, id="model.up"),
        Binding("g", "scroll_home", "Start", show=False, id="model.start"),
        Binding("G", "scroll_end", "End", show=False, id="model.end"),
    ]
    HELP = """\
### Model

The model's latest reasoning summary, as far as the server gives one; below it the answer, as it is
streamed. Structured answers are shown as they read, not as JSON. Only the end of a long answer is kept here:
every request and answer is whole in the session. The pane follows the newest words until you scroll up;
`G` follows again.
"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.border_title = "Model"
        self._sections: tuple[Section, ...] = ()
        self._lines: list[tuple[str, str]] = []  # text, component

    def show(self, sections: Sequence[Section]) -> None:
        """Replace the sections."""
        if tuple(sections) != self._sections:
            self._sections = tuple(sections)
            self._lay_out()

    def on_resize(self) -> None:
        self._lay_out()

    def _lay_out(self) -> None:
        width = self.scrollable_content_region.width
        if width <= 0:
            return
        following = self.is_vertical_scroll_end
        lines: list[tuple[str, str]] = []
        for heading, text, prose in self._sections:
            lines += [("", "")] if lines else []
            lines += [(part, "heading") for part in textwrap.wrap(heading, width)]
            for line in shown_lines(text):
                parts = textwrap.wrap(line, width, drop_whitespace=prose, replace_whitespace=False)
                lines += [(part, "prose" if prose else "") for part in parts or [""]]
        self._lines = lines or [("the model has not been asked yet", "prose")]
        self.virtual_size = Size(width, len(self._lines))
        if following:
            self.scroll_end(animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One visible line."""
        width = self.scrollable_content_region.width
        index = self.scroll_offset.y + y
        if index >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        text, name = self._lines[index]
        style = self.get_component_rich_style(f"model--{name}") if name else self.rich_style
        return Strip([Segment(text, style)]).crop_extend(0, width, self.rich_style)
