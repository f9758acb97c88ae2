"""The plot pane: paints a braille frame, redrawn only when data, view or size change."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click, MouseScrollDown, MouseScrollUp
from textual.strip import Strip
from textual.widget import Widget

from ..braille import BLANK, CURSOR, LEGEND, PERIOD, Frame, Series, Shape, draw
from ..export import Chart, Exported
from ..format import clip
from ..zoom import View


class Plot(Widget, Exported, can_focus=True):
    """Curves over steps. `show` takes whole series; nothing is kept but the last ones."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "plot--axis",
        "plot--each",
        "plot--best",
        "plot--band",
        "plot--mean",
        "plot--level",
        "plot--vendor",
        "plot--floor",
        "plot--chance",
        "plot--failed",
        "plot--cursor",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign", "zoom(1)", "Zoom in", show=False, id="plot.in"),
        Binding("minus", "zoom(-1)", "Zoom out", show=False, id="plot.out"),
        Binding("h", "pan(-1)", "Earlier", show=False, id="plot.left"),
        Binding("l", "pan(1)", "Later", show=False, id="plot.right"),
        Binding("left", "arrow(-1)", "Earlier", show=False, id="plot.arrow_left"),
        Binding("right", "arrow(1)", "Later", show=False, id="plot.arrow_right"),
        Binding("g,home", "edge(-1)", "The first steps", show=False, id="plot.first"),
        Binding("G,end", "edge(1)", "The newest steps, and follow them", show=False, id="plot.last"),
        Binding("a", "all", "Show everything", show=False, id="plot.all"),
        Binding("w", "scale", "Logarithmic or linear scale", show=False, id="plot.scale"),
        Binding("f", "fit", "Fit far lines in, or leave them out", show=False, id="plot.fit"),
        Binding("full_stop", "cursor(1)", "Read the next value", show=False, id="plot.next"),
        Binding("comma", "cursor(-1)", "Read the value before", show=False, id="plot.previous"),
        Exported.BINDING,
    ]
    HELP = """\
### Plot

One point a step; the legend in the frame's lower edge says what each mark is. **×** in the bottom row
is a step that failed and so has no value. The dashed line is the baseline's 1×, the dotted one how fast
the vendor's library is, the long dashes the roofline: as fast as physics allows; *↑* means that a line is
above what is drawn (`f` fits it in). *░* is a 95% interval: of the best so far, or of the mean.
*⋯* is chance: the best that a random search would be expected to have by each step, computed exactly, over
the whole space where all its times are known (*random*: a recording), else over the configurations that this
run tried (*shuffled*: the same ones in another order). The search is worth its name above it.

`+` and `-` zoom, `h` and `l` pan, `a` shows everything; `G` follows the newest steps. `w` changes between a
linear and a logarithmic scale. `,` and `.` (or a click) read values, the wheel zooms. `e` saves what is shown
as SVG and PNG, and all of it as CSV. Marks differ in shape as well as in colour. `z` maximises the plot.
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
        self._title = title
        self._labels = (title, "")
        self.border_title = title
        self._x_label = x_label
        self._powers = powers
        self._empty = empty
        self._unit = unit
        self._wants_log = False  # what the data ask for
        self._log: bool | None = None  # what the user asks for
        self._fit = powers
        self._view = View()
        self._cursor: float | None = None
        self._series: tuple[Series, ...] = ()
        self._strips: list[Strip] | None = None
        self._frame: Frame | None = None

    def show(self, series: Sequence[Series], *, unit: str | None = None, log: bool = False) -> None:
        """Replace the curves, and the unit if there is another. `log`: a logarithmic scale suits them, which
        the user may overrule."""
        self._unit, self._wants_log = self._unit if unit is None else unit, log
        self._series = tuple(s for s in series if len(s.x))
        ends = self._ends()
        self._view = View() if ends is None else self._view.grown(ends)
        self._changed()

    @property
    def logarithmic(self) -> bool:
        """Whether the scale of y is logarithmic."""
        wanted = self._wants_log if self._log is None else self._log
        return wanted and self._can_log()

    @property
    def window(self) -> tuple[float, float] | None:
        """The x values shown; None: all."""
        return self._view.window

    def exported(self) -> Chart:
        """What `e` saves."""
        return Chart(
            self._title,
            self._x_label,
            self._unit,
            self._series,
            self._view.window,
            self.logarithmic,
            self._fit,
            self._powers,
        )

    def _changed(self) -> None:
        self._strips = None
        self._label()
        self.refresh()

    def _can_log(self) -> bool:
        points = [s for s in self._series if s.shape is not Shape.RUG]
        return not self._powers and bool(points) and all(float(s.y.min()) > 0 for s in points)

    def _ends(self) -> tuple[float, float] | None:
        drawn = [s for s in self._series if s.shape not in PERIOD]
        if not drawn:
            return None
        return min(float(s.x[0]) for s in drawn), max(float(s.x[-1]) for s in drawn)

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
        """The legend, in the frame's lower edge: the last drawn is the most important, and comes first. The
        upper edge tells the view, or the values at the cursor."""
        room = self.size.width - 4
        legend = ""
        for s in reversed(self._series):
            if s.shape in PERIOD:  # named where it is drawn
                continue
            entry = f"{LEGEND[s.shape]} {s.label}"
            if len(legend) + 2 + len(entry) <= room:
                legend = f"{legend}  {entry}" if legend else entry
        title, words = self._title, self._view_words()
        if self._cursor is not None:
            title = self._read()
        elif words:
            whole = f"{title} · {words}"
            title = whole if len(whole) <= room else f"{title.split()[0]} · {words}"
        title = clip(title, max(room, 0))
        if self._labels != (title, legend):  # setting them repaints, whether they differ or not
            self._labels = (title, legend)
            self.border_title, self.border_subtitle = title, legend

    def _drawn(self) -> list[Series]:
        """The curves in the scale and the window shown."""
        series = [s.logarithms() for s in self._series] if self.logarithmic else list(self._series)
        return series if self._view.window is None else [s.within(*self._view.window) for s in series]

    def _view_words(self) -> str:
        parts = ["log"] if self.logarithmic else []
        if self._view.window is not None:
            low, high = (math.ceil(self._view.window[0]), math.floor(self._view.window[1]))
            newest = f"newest {high - low + 1} {self._x_label}s"
            parts.append(newest if self._view.following else f"{self._x_label}s {low} to {high}")
        return " · ".join(parts)

    def _read(self) -> str:
        """The values at the cursor; of stairs, those that hold there."""
        at = self._cursor
        assert at is not None
        parts = [f"{self._x_label} {at:g}"]
        for s in reversed(self._series):
            if s.shape in PERIOD:
                continue
            place = int(np.searchsorted(s.x, at, side="right")) - 1
            if place < 0 or (s.shape not in (Shape.STAIRS, Shape.BAND) and s.x[place] != at):
                continue
            if s.shape is Shape.RUG:
                parts.append(s.label)
            elif s.high is not None:
                parts.append(f"[{s.y[place]:.4g}, {s.high[place]:.4g}]")
            else:
                parts.append(f"{s.label} {s.y[place]:.4g}{self._unit}")
        text = f"{parts[0]}: "
        for number, part in enumerate(parts[1:]):
            more = f"{text}{', ' if number else ''}{part}"
            text = more if len(more) <= self.size.width - 4 else text
        return text.rstrip(": ")

    def _paint(self, width: int, height: int) -> list[Strip]:
        frame = self._frame = draw(
            self._drawn(),
            width,
            height,
            x_label=self._x_label,
            y_unit=self._unit,
            powers=self._powers,
            log_y=self.logarithmic,
            window=self._view.window,
            fit=self._fit,
            cursor=self._cursor,
        )
        if frame is None:
            blank = Strip.blank(width, self.rich_style)
            if not height:
                return []
            words = self._empty if not self._series else "nothing in this part: a shows everything"
            words = words if height >= 3 and width >= 16 else "too small to draw"
            middle = Strip(
                [Segment(clip(words, width).center(width), self.get_component_rich_style("plot--axis"))],
                width,
            )
            return [middle if row == height // 2 else blank for row in range(height)]
        styles = {i: self.get_component_rich_style(f"plot--{s.style}") for i, s in enumerate(self._series)}
        styles[BLANK] = self.get_component_rich_style("plot--axis")
        styles[CURSOR] = self.get_component_rich_style("plot--cursor")
        return [_strip(frame, row, styles, width) for row in range(height)]

    # Keys and mouse

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Arrows pan, except in a replay, where they belong to the replay bar; powers have one view."""
        if action == "arrow" and self.screen.has_class("-replay"):
            return False
        own = ("zoom", "pan", "arrow", "edge", "all", "scale", "fit", "cursor")
        return not (self._powers and action in own)

    def action_zoom(self, direction: int) -> None:
        """Show fewer or more steps, around the cursor or, while following, the newest."""
        ends = self._ends()
        if ends is not None:
            self._look(self._view.zoomed(direction, ends, self._cursor))

    def action_pan(self, direction: int) -> None:
        """Show earlier or later steps."""
        ends = self._ends()
        if ends is not None:
            self._look(self._view.panned(direction, ends))

    def action_arrow(self, direction: int) -> None:
        """The same, with arrows."""
        self.action_pan(direction)

    def action_edge(self, direction: int) -> None:
        """The first or the newest steps; the newest are followed."""
        ends = self._ends()
        if ends is not None:
            self._look(self._view.edge(direction, ends))

    def action_all(self) -> None:
        """Show everything, without a cursor."""
        self._cursor = None
        self._look(View())

    def _look(self, view: View) -> None:
        self._view = view
        self._changed()

    def action_scale(self) -> None:
        """Change between a linear and a logarithmic scale."""
        if not self._can_log():
            self.notify(
                f"{self._title}: a logarithmic scale needs values above 0", severity="warning", markup=False
            )
            return
        self._log = not self.logarithmic
        self._changed()

    def action_fit(self) -> None:
        """Fit lines that are far from all points in, or leave them out."""
        self._fit = not self._fit
        self._changed()

    def action_cursor(self, direction: int) -> None:
        """Read the next value or the one before; the first time the newest that is shown."""
        steps = self._steps()
        if not len(steps):
            return
        if self._cursor is None:
            shown = steps if self.window is None else steps[steps <= self.window[1]]
            self._cursor = float(shown[-1]) if len(shown) else float(steps[0])
        else:
            side = "right" if direction > 0 else "left"
            place = int(np.searchsorted(steps, self._cursor, side=side)) - (direction < 0)
            self._cursor = float(steps[min(max(place, 0), len(steps) - 1)])
        ends = self._ends()
        self._look(self._view if ends is None else self._view.showing(self._cursor, ends))

    def _steps(self) -> np.ndarray:
        """Where there are values: the longest curve's x."""
        curves = [s.x for s in self._series if s.shape in (Shape.DOTS, Shape.STAIRS, Shape.LINE)]
        return max(curves, key=len, default=np.empty(0))

    def _x_at(self, column: int) -> float | None:
        """The x value at a column of the content."""
        if self._frame is None:
            return None
        low, high, _, _ = self._frame.limits
        columns = self._frame.owner.shape[1] - self._frame.gutter
        share = (column - self._frame.gutter) / max(1, columns - 1)
        return low + min(max(share, 0.0), 1.0) * (high - low)

    def on_click(self, event: Click) -> None:
        """Read the values there."""
        offset = event.get_content_offset(self)
        x = None if offset is None or self._powers else self._x_at(offset.x)
        steps = self._steps()
        if x is not None and len(steps):
            self._cursor = float(steps[int(np.argmin(np.abs(steps - x)))])
            self._changed()

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Zoom in where the pointer is."""
        self._wheel(1, event.x)
        event.stop()

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Zoom out."""
        self._wheel(-1, event.x)
        event.stop()

    def _wheel(self, direction: int, column: int) -> None:
        x = None if self._powers else self._x_at(column - 1)  # less the frame
        ends = self._ends()
        if x is not None and ends is not None:
            self._look(self._view.zoomed(direction, ends, x))


def _strip(frame: Frame, row: int, styles: Mapping[int, Style], width: int) -> Strip:
    """One row as runs of equal owner."""
    text, owner = frame.text[row], frame.owner[row]
    edges = [0, *(np.flatnonzero(owner[1:] != owner[:-1]) + 1).tolist(), width]
    runs = [Segment(text[start:end], styles[int(owner[start])]) for start, end in itertools.pairwise(edges)]
    return Strip(runs, width)
