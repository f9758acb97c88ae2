"""Line plots in braille, drawn by numpy: data in, rows of characters and owners out. No Textual here.

Why not textual-plot: its per-point Python loops take 66 ms at 10,000 points, so that it is only usable
with a subclass that overrides its private canvas; it brings two packages of one author that a console
meant to last would have to follow. Axes, ticks, stairs and a rug of failures are the 200 lines below:
2 to 5 ms at any number of points, and nothing private.

A cell is 2 × 4 dots. Where series share a cell their dots are merged, and the later series owns (colours)
it. Each series also has a shape of its own, so that a plot reads without colours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

DOT_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.uint8)
BRAILLE = 0x2800
BLANK = -1  # owner of a cell that nothing was drawn in


class Shape(StrEnum):
    """How a series is drawn."""

    DOTS = "dots"  # one dot a point
    LINE = "line"  # joined; an envelope per column where points are dense
    STAIRS = "stairs"  # each value holds until the next point
    DASHES = "dashes"  # a constant: y[0] over the whole width
    DOTTED = "dotted"  # another constant
    POINT = "point"  # "◆" at each x and y
    RUG = "rug"  # "×" in the bottom row at each x, y ignored


LEGEND = {
    Shape.DOTS: "•",
    Shape.LINE: "~",
    Shape.STAIRS: "─",
    Shape.DASHES: "╌",
    Shape.DOTTED: "┈",
    Shape.POINT: "◆",
    Shape.RUG: "×",
}
PERIOD = {Shape.DASHES: (4, 2), Shape.DOTTED: (4, 1)}  # dots a repetition, and how many of them are set


@dataclass(frozen=True, eq=False)
class Series:
    """One curve: `x` ascending and `y`, both (n,); points whose y isn't finite are left out."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    shape: Shape
    label: str
    style: str  # which of the widget's styles paints it

    @classmethod
    def of(cls, x: ArrayLike, y: ArrayLike, shape: Shape, label: str, style: str) -> Series:
        """From anything array-like, with the points that can't be drawn removed."""
        xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
        keep = np.isfinite(xs) if shape is Shape.RUG else np.isfinite(xs) & np.isfinite(ys)
        return cls(xs[keep], ys[keep], shape, label, style)


@dataclass(frozen=True)
class Frame:
    """A drawn plot: `text[row]` is exactly `width` characters, `owner[row, column]` indexes the series
    (BLANK: axis and labels)."""

    text: tuple[str, ...]
    owner: NDArray[np.int8]


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most `most` round values (1, 2 or 5 times a power of ten apart) within [low, high]."""
    span = high - low
    if most < 1 or not math.isfinite(span) or span <= 0:
        return []
    magnitude = 10.0 ** math.floor(math.log10(span / most))
    for factor in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0):
        step = factor * magnitude
        first = math.ceil(low / step - 1e-9)
        last = math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [k * step + 0.0 for k in range(first, last + 1)]
    return []


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """As `ticks`, for decimal logarithms: of 1, 2 or 5 times powers of ten, or of powers alone."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [power + math.log10(factor) for power in powers for factor in factors]
        found = [value for value in found if low <= value <= high]
        if len(found) <= most:
            return found
    return ticks(low, high, most)


def tick_labels(values: Sequence[float]) -> list[str]:
    """The shortest decimals that tell the values apart; thousands as k, millions as M."""
    if not values:
        return []
    largest = max(abs(v) for v in values)
    divisor, suffix = next(((d, s) for d, s in ((1e6, "M"), (1e3, "k")) if largest >= 10 * d), (1.0, ""))
    step = min((b - a for a, b in itertools.pairwise(values)), default=largest or 1.0) / divisor
    if largest and (largest < 1e-3 or largest >= 1e9):
        return [f"{v:.1e}" for v in values]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0 else 0
    return [f"{v / divisor:.{min(decimals, 4)}f}{suffix if v else ''}" for v in values]


def power_labels(exponents: Sequence[float]) -> list[str]:
    """Labels of powers of ten, for logarithmic axes: "0.1", "100", "10k", "1T"."""
    labels = []
    for exponent in exponents:
        power, rest = divmod(round(exponent), 3)
        if -1 <= power <= 0:
            labels.append(f"{10.0 ** round(exponent):g}")
        elif 1 <= power <= 5:
            labels.append(f"{10**rest}{'kMGTP'[power - 1]}")
        else:
            labels.append(f"1e{round(exponent)}")
    return labels


def bounds(series: Sequence[Series]) -> tuple[float, float, float, float] | None:
    """(x low, x high, y low, y high) over all series, never empty in a direction; None without points."""
    drawn = [s for s in series if len(s.x) and s.shape not in PERIOD]
    levels = [s for s in series if len(s.y) and s.shape is not Shape.RUG]
    if not drawn or not levels:
        return None
    x_low, x_high = min(float(s.x[0]) for s in drawn), max(float(s.x[-1]) for s in drawn)
    y_low, y_high = min(float(s.y.min()) for s in levels), max(float(s.y.max()) for s in levels)
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
    if s.shape in (Shape.DOTS, Shape.POINT) or len(s.x) == 1:
        dots[y, column] = True
        return dots
    first, last = int(column[0]), int(column[-1])
    covered = np.arange(first, last + 1)
    if s.shape is Shape.STAIRS:
        low = y[np.searchsorted(column, covered, side="right") - 1]
        high = low.copy()
    elif len(s.x) >= len(covered):  # dense: the least and greatest of each column
        starts = np.flatnonzero(np.r_[True, column[1:] != column[:-1]])
        covered = column[starts]
        low, high = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
    else:
        low = np.rint(np.interp(covered, position, y)).astype(np.int64)
        high = low.copy()
    joined_low, joined_high = low.copy(), high.copy()
    joined_low[1:] = np.minimum(low[1:], high[:-1])
    joined_high[1:] = np.maximum(high[1:], low[:-1])
    row = np.arange(rows)[:, None]
    dots[:, covered] = (row >= joined_low) & (row <= joined_high)
    return dots


def draw(
    series: Sequence[Series],
    width: int,
    height: int,
    x_label: str = "",
    y_unit: str = "",
    powers: bool = False,
    log_y: bool = False,
) -> Frame | None:
    """Draw a plot with axes into `width` × `height` characters.

    `powers`: values are decimal logarithms, and the axes say 10 to their power; `log_y`: y values alone are.

    Returns None if there is nothing to draw or no room (under 16 × 3). The x axis takes the two bottom
    rows from 6 rows on, with its label before its numbers; the unit follows every number of the y axis.
    """
    limits = bounds(series)
    if limits is None or width < 16 or height < 3:
        return None
    axis_rows = 2 if height >= 6 else 0
    plot_rows = height - axis_rows
    x_low, x_high, y_low, y_high = limits
    levels = (log_ticks if log_y else ticks)(y_low, y_high, max(2, plot_rows // 3))
    if powers:
        levels = [level for level in levels if level == round(level)]
    label = power_labels if powers else tick_labels
    names = [f"{10**level:.4g}" for level in levels] if log_y else label(levels)
    names = [name + y_unit for name in names]
    gutter = max((len(n) for n in names), default=1) + 1
    plot_cols = width - gutter
    cells = np.zeros((plot_rows, plot_cols), dtype=np.uint8)
    owner = np.full((height, width), BLANK, dtype=np.int8)
    area = owner[:plot_rows, gutter:]
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
        cells |= packed
        area[packed > 0] = index
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
    codes[:plot_rows, gutter - 1] = ord("│")
    for level, name in zip(levels, names, strict=True):
        row = round((y_high - level) / (y_high - y_low) * (4 * plot_rows - 1)) // 4
        _write(codes, row, gutter - 1 - len(name), name)
        codes[row, gutter - 1] = ord("┤")
    if axis_rows:
        _x_axis(codes, plot_rows, gutter, (x_low, x_high), x_label, label)
    text = tuple(row.tobytes().decode("utf-32-le") for row in codes)
    return Frame(text, owner)


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
