"""Line plots in braille, drawn by numpy: data in, rows of characters and owners out. No Textual here.

Why not textual-plot: its per-point Python loops take 66 ms at 10,000 points, so that it is only usable
with a subclass that overrides its private canvas; it brings two packages of one author that a console
meant to last would have to follow. Axes, ticks, stairs and a rug of failures are the 200 lines below:
2 to 5 ms at any number of points, and nothing private.

A cell is 2 × 4 dots. Where series share a cell their dots are merged, and the later series owns (colours)
it. Each series also has a shape of its own, so that a plot reads without colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .ticks import log_labels, log_ticks, power_labels, tick_labels, ticks

DOT_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.uint8)
BRAILLE = 0x2800
BLANK = -1  # owner of a cell that nothing was drawn in
CURSOR = -2  # of one that the cursor's line passes
REACH = 0.6  # of the points' span: a constant further away doesn't stretch the plot


class Shape(StrEnum):
    """How a series is drawn."""

    DOTS = "dots"  # one dot a point
    LINE = "line"  # joined; an envelope per column where points are dense
    STAIRS = "stairs"  # each value holds until the next point
    DASHES = "dashes"  # a constant: y[0] over the whole width
    DOTTED = "dotted"  # another constant
    LONG = "long"  # a third one, in long dashes
    SPARSE = "sparse"  # a line of every other dot
    BAND = "band"  # between y and high: a weave of dots; held until the next point where points are few
    POINT = "point"  # "◆" at each x and y
    RUG = "rug"  # "×" in the bottom row at each x, y ignored


LEGEND = {
    Shape.DOTS: "•",
    Shape.LINE: "~",
    Shape.STAIRS: "─",
    Shape.DASHES: "╌",
    Shape.DOTTED: "┈",
    Shape.LONG: "━",
    Shape.SPARSE: "⋯",
    Shape.BAND: "░",
    Shape.POINT: "◆",
    Shape.RUG: "×",
}
PERIOD = {
    Shape.DASHES: (4, 2),
    Shape.DOTTED: (4, 1),
    Shape.LONG: (10, 8),
}  # dots a repetition, and how many of them are set


@dataclass(frozen=True, eq=False)
class Series:
    """One curve: `x` ascending and `y`, both (n,); points whose y isn't finite are left out. `high` (n,): the
    upper edge of a band, whose lower one is `y`."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    shape: Shape
    label: str
    style: str  # which of the widget's styles paints it
    high: NDArray[np.float64] | None = None

    @classmethod
    def of(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        shape: Shape,
        label: str,
        style: str,
        high: ArrayLike | None = None,
    ) -> Series:
        """From anything array-like, with the points that can't be drawn removed."""
        xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        top = None if high is None else np.asarray(high, dtype=np.float64)
        keep = np.isfinite(xs) if shape is Shape.RUG else np.isfinite(xs) & np.isfinite(ys)
        keep = keep if top is None else keep & np.isfinite(top)
        if keep.all():
            return cls(xs, ys, shape, label, style, top)
        return cls(xs[keep], ys[keep], shape, label, style, None if top is None else top[keep])

    @property
    def tops(self) -> NDArray[np.float64]:
        """The upper edge: `y` itself, except of a band."""
        return self.y if self.high is None else self.high

    def within(self, low: float, high: float) -> Series:
        """The part of it that shows between two values of x; a line or stairs are cut at the edges."""
        if self.shape in PERIOD or not len(self.x) or (low <= self.x[0] and self.x[-1] <= high):
            return self
        first, last = int(np.searchsorted(self.x, low)), int(np.searchsorted(self.x, high, side="right"))
        if self.shape in (Shape.STAIRS, Shape.BAND):
            first = max(first - 1, 0)
            x = np.maximum(self.x[first:last], low)
            return replace(self, x=x, y=self.y[first:last], high=self.tops[first:last])
        if self.shape not in (Shape.LINE, Shape.SPARSE):
            return replace(self, x=self.x[first:last], y=self.y[first:last], high=None)
        ends = [edge for edge in (low, high) if self.x[0] < edge < self.x[-1]]
        x = np.union1d(self.x[first:last], ends)
        return replace(self, x=x, y=np.interp(x, self.x, self.y), high=None)

    def logarithms(self) -> Series:
        """The same of decimal logarithms, without what has none."""
        if self.shape is Shape.RUG:
            return self
        good = self.y > 0
        high = None if self.high is None else np.log10(self.high[good])
        return replace(self, x=self.x[good], y=np.log10(self.y[good]), high=high)


@dataclass(frozen=True)
class Frame:
    """A drawn plot: `text[row]` is exactly `width` characters, `owner[row, column]` indexes the series
    (BLANK: axis and labels; CURSOR: the cursor's line). `limits`: (x low, x high, y low, y high) of the
    plotted area, which begins at column `gutter` and has `rows` rows."""

    text: tuple[str, ...]
    owner: NDArray[np.int8]
    limits: tuple[float, float, float, float]
    gutter: int
    rows: int


def bounds(
    series: Sequence[Series], window: tuple[float, float] | None = None, *, fit: bool = True
) -> tuple[float, float, float, float] | None:
    """(x low, x high, y low, y high) over all series, never empty in a direction; None without points.

    `window`: the x values to show, of series that are cut to it. `fit`: constants far away from all points
    stretch the plot too.
    """
    drawn = [s for s in series if len(s.x) and s.shape not in PERIOD]
    points = [s for s in drawn if s.shape is not Shape.RUG]
    constants = [float(s.y[0]) for s in series if len(s.y) and s.shape in PERIOD]
    if not drawn or not (points or constants):
        return None
    x_low, x_high = window or (min(float(s.x[0]) for s in drawn), max(float(s.x[-1]) for s in drawn))
    ends = [float(end) for s in points for end in (s.y.min(), s.tops.max())] or constants
    reach = REACH * (max(ends) - min(ends)) or math.inf
    near = [c for c in constants if fit or min(ends) - reach <= c <= max(ends) + reach]
    y_low, y_high = min([*ends, *near]), max([*ends, *near])
    if x_high <= x_low:
        x_high = x_low + 1.0
    if y_high <= y_low:
        pad = abs(y_low) * 0.05 or 0.5
        return x_low, x_high, y_low - pad, y_high + pad
    pad = (y_high - y_low) * 0.04
    return x_low, x_high, y_low - pad, y_high + pad


def _mask(s: Series, limits: tuple[float, float, float, float], cols: int, rows: int) -> NDArray[np.bool_]:
    """Which of (rows, cols) dots one series sets."""
    x_low, x_high, y_low, y_high = limits
    dots = np.zeros((rows, cols), dtype=bool)
    if not len(s.x):
        return dots
    y = np.rint((y_high - s.y) / (y_high - y_low) * (rows - 1))
    if s.shape in PERIOD:
        period, filled = PERIOD[s.shape]
        if 0 <= y[0] < rows:
            dots[int(y[0]), np.arange(cols) % period < filled] = True
        return dots
    position = (s.x - x_low) / (x_high - x_low) * (cols - 1)
    column = np.clip(np.rint(position), 0, cols - 1).astype(np.int64)
    y = np.clip(y, 0, rows - 1).astype(np.int64)
    if s.shape in (Shape.DOTS, Shape.POINT) or (len(s.x) == 1 and s.high is None):
        dots[y, column] = True
        return dots
    top = y
    if s.high is not None:
        top = np.clip(np.rint((y_high - s.high) / (y_high - y_low) * (rows - 1)), 0, rows - 1).astype(
            np.int64
        )
    covered = np.arange(int(column[0]), int(column[-1]) + 1)
    held = s.shape is Shape.STAIRS or (s.shape is Shape.BAND and len(s.x) < len(covered))
    if held:
        place = np.searchsorted(column, covered, side="right") - 1
        high, low = y[place], top[place]  # rows count downwards
    elif len(s.x) >= len(covered):  # dense: the least and greatest of each column
        starts = np.flatnonzero(np.r_[True, column[1:] != column[:-1]])
        covered = column[starts]
        low, high = np.minimum.reduceat(top, starts), np.maximum.reduceat(y, starts)
    else:
        low = np.rint(np.interp(covered, position, y)).astype(np.int64)
        high = low.copy()
    row = np.arange(rows)[:, None]
    if s.shape is Shape.BAND:
        dots[:, covered] = (row >= low) & (row <= high) & ((row + covered) % 2 == 0)
        return dots
    joined_low, joined_high = low.copy(), high.copy()
    joined_low[1:] = np.minimum(low[1:], high[:-1])
    joined_high[1:] = np.maximum(high[1:], low[:-1])
    dots[:, covered] = (row >= joined_low) & (row <= joined_high)
    if s.shape is Shape.SPARSE:
        dots[:, covered] &= (row // 2 + covered // 2) % 2 == 0
    return dots


def draw(
    series: Sequence[Series],
    width: int,
    height: int,
    x_label: str = "",
    y_unit: str = "",
    powers: bool = False,
    log_y: bool = False,
    window: tuple[float, float] | None = None,
    fit: bool = True,
    cursor: float | None = None,
) -> Frame | None:
    """Draw a plot with axes into `width` × `height` characters.

    `powers`: values are decimal logarithms, and the axes say 10 to their power; `log_y`: y values alone are.
    `window`: the x values to show (all); `fit`: whether constants far from all points are shown; `cursor`:
    the x at which a vertical line stands.

    Returns None if there is nothing to draw or no room (under 16 × 3). The x axis takes the two bottom
    rows from 6 rows on, with its label before its numbers; the unit follows every number of the y axis.
    """
    if window is not None:
        series = [s.within(*window) for s in series]
    limits = bounds(series, window, fit=fit)
    if limits is None or width < 16 or height < 3:
        return None
    axis_rows = 2 if height >= 6 else 0
    plot_rows = height - axis_rows
    x_low, x_high, y_low, y_high = limits
    levels = (log_ticks if log_y else ticks)(y_low, y_high, max(2, plot_rows // 3))
    if powers:
        levels = [level for level in levels if level == round(level)]
    label = power_labels if powers else tick_labels
    names = (log_labels if log_y else label)(levels)
    names = [name + y_unit for name in names]
    gutter = max((len(n) for n in names), default=1) + 1
    plot_cols = width - gutter
    cells = np.zeros((plot_rows, plot_cols), dtype=np.uint8)
    owner = np.full((height, width), BLANK, dtype=np.int8)
    area = owner[:plot_rows, gutter:]
    bands = np.zeros(cells.shape, dtype=bool)  # what only bands fill
    rugs: list[tuple[int, NDArray[np.int64]]] = []
    points: list[tuple[int, NDArray[np.int64], NDArray[np.int64]]] = []
    for index, s in enumerate(series):
        if s.shape is Shape.RUG:
            at = (s.x - x_low) / (x_high - x_low) * (plot_cols - 1)
            rugs.append((index, np.unique(np.clip(np.rint(at), 0, plot_cols - 1).astype(np.int64))))
            continue
        if s.shape is Shape.POINT:
            rows, columns = np.nonzero(_mask(s, limits, 2 * plot_cols, 4 * plot_rows))
            points.append((index, rows // 4, columns // 2))
            continue
        dots = _mask(s, limits, 2 * plot_cols, 4 * plot_rows)
        packed = (dots.reshape(plot_rows, 4, plot_cols, 2) * DOT_BITS[None, :, None, :]).sum(
            axis=(1, 3), dtype=np.uint8
        )
        mine = packed > 0
        if s.shape is not Shape.BAND:  # a curve is read before the band that it runs in
            cells[mine & bands] = 0
            bands &= ~mine
        else:
            bands |= mine
        cells |= packed
        area[mine] = index
    codes = np.full((height, width), ord(" "), dtype=np.uint32)
    plot = codes[:plot_rows, gutter:]
    np.copyto(plot, cells + np.uint32(BRAILLE), where=cells > 0)
    for index, s in enumerate(series):
        # A lone braille dot is hard to see; few points get a round mark where no line passes.
        if s.shape is Shape.DOTS and len(s.x) <= 3 * plot_cols:
            plot[(area == index) & (cells > 0)] = ord("•")
    for index, columns in rugs:
        plot[-1, columns] = ord("×")
        area[-1, columns] = index
    for index, rows, columns in points:
        plot[rows, columns] = ord("◆")
        area[rows, columns] = index
    if cursor is not None and x_low <= cursor <= x_high:
        column = round((cursor - x_low) / (x_high - x_low) * (plot_cols - 1))
        free = plot[:, column] == ord(" ")
        plot[free, column] = ord("│")
        area[free, column] = CURSOR
    for index, s in enumerate(series):
        if s.shape in PERIOD and len(s.y):
            _name_level(plot, area, index, s, limits)
    codes[:plot_rows, gutter - 1] = ord("│")
    for level, name in zip(levels, names, strict=True):
        row = round((y_high - level) / (y_high - y_low) * (4 * plot_rows - 1)) // 4
        _write(codes, row, gutter - 1 - len(name), name)
        codes[row, gutter - 1] = ord("┤")
    if axis_rows:
        _x_axis(codes, plot_rows, gutter, (x_low, x_high), x_label, label)
    text = tuple(row.tobytes().decode("utf-32-le") for row in codes)
    return Frame(text, owner, limits, gutter, plot_rows)


def _name_level(
    plot: NDArray[np.uint32],
    area: NDArray[np.int8],
    index: int,
    s: Series,
    limits: tuple[float, float, float, float],
) -> None:
    """A constant's label on its line, or at the edge that it is beyond; as far right as it covers nothing."""
    rows, columns = plot.shape
    level, low, high = float(s.y[0]), limits[2], limits[3]
    sign = "↑ " if level > high else "↓ " if level < low else ""
    text = f" {s.label} {sign}"
    if len(text) > columns // 2:
        return
    row = min(max(round((high - level) / (high - low) * (4 * rows - 1)) // 4, 0), rows - 1)
    taken = (area[row] != index) & (area[row] != BLANK)
    spans = np.convolve(taken, np.ones(len(text), dtype=int), mode="valid")
    free = np.flatnonzero(spans == 0)
    start = int(free[-1]) if len(free) else 0 if sign else columns - len(text)
    plot[row, start : start + len(text)] = [ord(c) for c in text]
    area[row, start : start + len(text)] = index


def _x_axis(
    codes: NDArray[np.uint32],
    row: int,
    gutter: int,
    limits: tuple[float, float],
    label: str,
    words: Callable[[Sequence[float]], list[str]],
) -> None:
    """The axis line, its label and its numbers in the two rows from `row`."""
    x_low, x_high = limits
    columns = codes.shape[1] - gutter
    if len(label) > columns // 2:
        label = ""
    _write(codes, row + 1, 0, label)
    codes[row, gutter - 1] = ord("└")
    codes[row, gutter:] = ord("─")
    marks = [t for t in ticks(x_low, x_high, max(2, columns // 10)) if t == round(t)]
    free = len(label) + 1 if label else 0
    for mark, name in zip(marks, words(marks), strict=True):
        column = gutter + round((mark - x_low) / (x_high - x_low) * (columns - 1))
        start = min(max(column - len(name) // 2, free), codes.shape[1] - len(name))
        codes[row, column] = ord("┴")
        if start >= free:
            _write(codes, row + 1, start, name)
            free = start + len(name) + 1


def _write(codes: NDArray[np.uint32], row: int, column: int, text: str) -> None:
    codes[row, column : column + len(text)] = [ord(c) for c in text]


def bar(fraction: float, width: int) -> str:
    """A bar of `width` characters in eighths; clipped to 0..1."""
    eighths = round(min(max(fraction, 0.0), 1.0) * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[part] if part else "")).ljust(width, "·")[:width]
