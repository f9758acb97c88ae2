"""The last step before the terminal: no text that is painted commands it.

Names, configurations, sources, messages: all of a session may be somebody else's. What is known to be text
of others is tamed where it becomes the state that is shown; this holds for all that is painted.
"""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from ..sessions.words import cells


class Tamed(LineFilter):
    """Takes out of each painted line what commands a terminal or turns the direction of text."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same cells; nearly always the same segments, which costs a microsecond a line."""
        if "".join([segment.text for segment in segments]).isprintable():
            return segments
        return [
            segment if segment.control else Segment(cells(segment.text), segment.style)
            for segment in segments
        ]


TAMED = Tamed()
