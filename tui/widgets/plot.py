"""The plot pane: paints a braille frame, redrawn only when data or size change."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from ..braille import BLANK, LEGEND, Frame, Series, draw


class Plot(Widget, can_focus=True):
    """Curves over steps. `show` takes whole series; nothing is kept but the last ones."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "plot--axis",
        "plot--each",
        "plot--best",
        "plot--mean",
        "plot--level",
        "plot--vendor",
        "plot--failed",
    }
    HELP = """\
### Plot

One point a step; the legend in the frame's lower edge says what each mark is. **×** in the bottom row
is a step that failed and so has no value. The dashed line is the baseline's 1×, the dotted one how fast
the vendor's library is. Marks differ in shape as well as in colour. `z` maximises the plot.
"""

    def __init__(
        self,
        title: str,
        *,
        empty: str,
        unit: str = "",
        x_label: str = "step",
        powers: bool = False,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self.border_title = title
        self._x_label = x_label
        self._powers = powers
        self._empty = empty
        self._unit = unit
        self._log = False
        self._series: tuple[Series, ...] = ()
        self._strips: list[Strip] | None = None

    def show(self, series: Sequence[Series], *, unit: str | None = None, log: bool = False) -> None:
        """Replace the curves, and the unit if there is another. `log`: y values are decimal logarithms, and
        the axis says what they are the logarithms of."""
        self._unit, self._log = self._unit if unit is None else unit, log
        self._series = tuple(s for s in series if len(s.x))
        self._strips = None
        self._label()
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips = None

    def render_line(self, y: int) -> Strip:
        """One row of the frame (the frame is drawn once a change, not once a row)."""
        width, height = self.content_size
        if self._strips is None or len(self._strips) != height or self._strips[0].cell_length != width:
            self._strips = self._paint(width, height)
        return self._strips[y] if y < len(self._strips) else Strip.blank(width, self.rich_style)

    def on_resize(self) -> None:
        self._label()

    def _label(self) -> None:
        """The legend, in the frame's lower edge: the last drawn is the most important, and comes first."""
        legend = ""
        for s in reversed(self._series):
            entry = f"{LEGEND[s.shape]} {s.label}"
            if len(legend) + 2 + len(entry) <= self.size.width - 4:
                legend = f"{legend}  {entry}" if legend else entry
        self.border_subtitle = legend

    def _paint(self, width: int, height: int) -> list[Strip]:
        frame = draw(
            self._series,
            width,
            height,
            x_label=self._x_label,
            y_unit=self._unit,
            powers=self._powers,
            log_y=self._log,
        )
        if frame is None:
            blank = Strip.blank(width, self.rich_style)
            if not height:
                return []
            words = (self._empty if not self._series else "too small to draw")[:width]
            middle = Strip([Segment(words.center(width), self.get_component_rich_style("plot--axis"))], width)
            return [middle if row == height // 2 else blank for row in range(height)]
        styles = {i: self.get_component_rich_style(f"plot--{s.style}") for i, s in enumerate(self._series)}
        styles[BLANK] = self.get_component_rich_style("plot--axis")
        return [_strip(frame, row, styles, width) for row in range(height)]


def _strip(frame: Frame, row: int, styles: Mapping[int, Style], width: int) -> Strip:
    """One row as runs of equal owner."""
    text, owner = frame.text[row], frame.owner[row]
    edges = [0, *(np.flatnonzero(owner[1:] != owner[:-1]) + 1).tolist(), width]
    runs = [Segment(text[start:end], styles[int(owner[start])]) for start, end in itertools.pairwise(edges)]
    return Strip(runs, width)
