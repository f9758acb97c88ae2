"""What can be saved of a pane, as a picture and as CSV: curves, a table, a grid of coloured numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..sessions.drawing import ADVANCE, Drawing, text_width
from . import braille
from .braille import Series, Shape
from .ticks import log_labels, log_ticks, power_labels, tick_labels, ticks

INK, FAINT, GRID = "#202020", "#707070", "#e4e4e4"
# Okabe and Ito's colours, which the colour-blind tell apart; shapes differ too.
COLOURS = {
    "each": "#56b4e9",
    "best": "#d55e00",
    "band": "#f6d9c6",
    "mean": "#d55e00",
    "level": "#707070",
    "vendor": "#009e73",
    "floor": "#cc79a7",
    "chance": "#0072b2",
    "failed": "#000000",
}
DASHES = {Shape.DASHES: (6, 3), Shape.DOTTED: (2, 3), Shape.LONG: (12, 3), Shape.SPARSE: (3, 2)}
WIDTH, HEIGHT = 720, 400  # units of a chart
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 30, 44
MOST_CELLS = 120  # characters of a table's column that are drawn; the CSV has all


class Saved(Protocol):
    """Something that can be saved."""

    @property
    def title(self) -> str:
        """What it is, for people."""
        ...

    def csv(self) -> str:
        """Its data, numbers as exact as they are known."""
        ...

    def drawing(self) -> Drawing:
        """Its picture."""
        ...


def csv_text(heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV; None is empty, a float has all its digits."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows(rows)
    return out.getvalue()


@dataclass(frozen=True, eq=False)
class Chart:
    """Curves with axes. The CSV has every point; the picture those in the `window`."""

    title: str
    x_label: str
    unit: str
    series: Sequence[Series]
    window: tuple[float, float] | None = None
    log: bool = False
    fit: bool = True
    powers: bool = False  # the values are decimal logarithms

    def csv(self) -> str:
        """A row a point: `curve`, x, `value`, `upper` (of a band, whose lower edge is the value)."""
        rows = (
            (s.label, repr(x), "" if s.shape is Shape.RUG else repr(y), "" if high is None else repr(high))
            for s in self.series
            for x, y, high in zip(
                s.x.tolist(),
                s.y.tolist(),
                [None] * len(s.x) if s.high is None else s.high.tolist(),
                strict=True,
            )
        )
        return csv_text(["curve", self.x_label or "x", "value", "upper"], rows)

    def drawing(self) -> Drawing:
        """Axes, a grid, curves from back to front and a legend."""
        drawing = Drawing(WIDTH, HEIGHT, self.title)
        drawing.text(LEFT, 8, self.title, INK)
        shown = [s.logarithms() for s in self.series] if self.log else list(self.series)
        shown = [s if self.window is None else s.within(*self.window) for s in shown]
        limits = braille.bounds(shown, self.window, fit=self.fit)
        if limits is None:
            drawing.text(WIDTH // 2, HEIGHT // 2, "nothing to draw", FAINT, at="middle")
            return drawing
        self._axes(drawing, limits)
        for s in shown:
            _curve(drawing, s, limits)
        x = WIDTH - RIGHT
        for s in shown:  # right to left, the most important at the left
            entry = s.label + _beyond(s, limits)
            x -= text_width(entry) + 24
            if x < LEFT + text_width(self.title) + 12:
                break
            colour = COLOURS.get(s.style, FAINT)
            _sample(drawing, s.shape, x, 11.5, colour)
            drawing.text(x + 14, 8, entry, INK)
        return drawing

    def _axes(self, drawing: Drawing, limits: tuple[float, float, float, float]) -> None:
        x_low, x_high, y_low, y_high = limits
        levels = (log_ticks if self.log else ticks)(y_low, y_high, 8)
        names = (log_labels if self.log else tick_labels)(levels)
        marks = [t for t in ticks(x_low, x_high, 10) if self.powers or t == round(t)]
        under = tick_labels(marks)
        if self.powers:
            names, under = power_labels(levels), power_labels(marks)
        for level, name in zip(levels, names, strict=True):
            _, y = _place(np.array([x_low]), np.array([level]), limits)[0]
            drawing.rectangle(LEFT, round(y), WIDTH - LEFT - RIGHT, 1, GRID)
            drawing.text(LEFT - 5, round(y) - 3, name + self.unit, FAINT, at="end")
        for mark, name in zip(marks, under, strict=True):
            x, _ = _place(np.array([mark]), np.array([y_low]), limits)[0]
            drawing.rectangle(round(x), HEIGHT - BOTTOM, 1, 4, FAINT)
            drawing.text(round(x), HEIGHT - BOTTOM + 8, name, FAINT, at="middle")
        drawing.rectangle(LEFT, HEIGHT - BOTTOM, WIDTH - LEFT - RIGHT, 1, FAINT)
        drawing.rectangle(LEFT, TOP, 1, HEIGHT - TOP - BOTTOM, FAINT)
        drawing.text((LEFT + WIDTH - RIGHT) // 2, HEIGHT - 16, self.x_label, INK, at="middle")


def _place(
    x: NDArray[np.float64], y: NDArray[np.float64], limits: tuple[float, float, float, float]
) -> NDArray[np.float64]:
    """Units in the drawing of points, (n, 2)."""
    x_low, x_high, y_low, y_high = limits
    across = LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
    down = TOP + (y_high - y) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
    return np.stack([across, down], axis=1)


def _beyond(s: Series, limits: tuple[float, float, float, float]) -> str:
    """An arrow, where a constant is too far away to be drawn."""
    if s.shape not in braille.PERIOD or not len(s.y) or limits[2] <= s.y[0] <= limits[3]:
        return ""  # nothing of it is left on a logarithmic axis, say
    return " ↑" if s.y[0] > limits[3] else " ↓"


def _curve(drawing: Drawing, s: Series, limits: tuple[float, float, float, float]) -> None:
    colour = COLOURS.get(s.style, FAINT)
    x_low, x_high, y_low, y_high = limits
    if not len(s.x):
        return
    if s.shape in braille.PERIOD:
        if y_low <= s.y[0] <= y_high:
            ends = _place(np.array([x_low, x_high]), np.repeat(s.y[:1], 2), limits)
            drawing.line(ends, colour, width=1.2, dash=DASHES[s.shape])
        return
    if s.shape is Shape.RUG:
        at = _place(s.x, np.full(len(s.x), y_low), limits)
        for x in np.unique(np.rint(at[:, 0])).tolist():
            drawing.line([(x - 2, HEIGHT - BOTTOM - 6), (x + 2, HEIGHT - BOTTOM - 2)], colour)
            drawing.line([(x - 2, HEIGHT - BOTTOM - 2), (x + 2, HEIGHT - BOTTOM - 6)], colour)
        return
    points = _place(s.x, s.y, limits)
    if s.shape is Shape.BAND:
        _band(drawing, points, _place(s.x, s.tops, limits), colour)
    elif s.shape in (Shape.DOTS, Shape.POINT):
        few = len(points) <= 2000
        size = 5.0 if s.shape is Shape.POINT else 3.0 if few else 1.0
        drawing.specks(np.unique(np.rint(points * 2) / 2 if few else np.rint(points), axis=0), size, colour)
    else:
        if s.shape is Shape.STAIRS:
            points = np.repeat(points, 2, axis=0)
            points = np.stack([points[1:, 0], points[:-1, 1]], axis=1)
        drawing.line(_envelope(points), colour, width=1.6, dash=DASHES.get(s.shape, ()))


def _envelope(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of many points the least and greatest of each unit of x, in turn."""
    if len(points) <= 3 * WIDTH:
        return points
    column = np.rint(points[:, 0])
    starts = np.flatnonzero(np.r_[True, column[1:] != column[:-1]])
    low, high = (f.reduceat(points[:, 1], starts) for f in (np.minimum, np.maximum))
    return np.stack([np.repeat(column[starts], 2), np.stack([low, high], axis=1).ravel()], axis=1)


def _band(drawing: Drawing, low: NDArray[np.float64], high: NDArray[np.float64], colour: str) -> None:
    """A rectangle a unit of x, between the edges that hold there."""
    columns = np.arange(round(low[0, 0]), round(low[-1, 0]) + 1)
    place = np.maximum(np.searchsorted(low[:, 0], columns, side="right") - 1, 0)
    edges = np.stack([np.rint(high[place, 1]), np.rint(low[place, 1])], axis=1)
    starts = np.flatnonzero(np.r_[True, (edges[1:] != edges[:-1]).any(axis=1)])
    for i, first in enumerate(starts.tolist()):
        last = starts[i + 1] if i + 1 < len(starts) else len(columns)
        top, bottom = (int(v) for v in edges[first])
        drawing.rectangle(int(columns[first]), top, int(last - first), max(1, bottom - top), colour)


def _sample(drawing: Drawing, shape: Shape, x: int, y: float, colour: str) -> None:
    """What a curve looks like, in the legend."""
    if shape in (Shape.DOTS, Shape.POINT):
        drawing.specks([(x + 5, y)], 4.0, colour)
    elif shape is Shape.RUG:
        drawing.line([(x + 3, y - 2), (x + 7, y + 2)], colour)
        drawing.line([(x + 3, y + 2), (x + 7, y - 2)], colour)
    elif shape is Shape.BAND:
        drawing.rectangle(x, round(y) - 4, 11, 8, colour)
    else:
        drawing.line([(x, y), (x + 11, y)], colour, width=1.6, dash=DASHES.get(shape, ()))


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table: cells as they are shown, and the values behind them for the CSV (the same, if None)."""

    title: str
    heading: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[bool] = ()  # which columns are aligned to the right
    values: Sequence[Mapping[str, Any]] | None = None

    def csv(self) -> str:
        """A row a row."""
        if self.values is None:
            return csv_text(self.heading, self.rows)
        names = list(dict.fromkeys(name for row in self.values for name in row))
        return csv_text(names, ([row.get(name) for name in names] for row in self.values))

    def drawing(self) -> Drawing:
        """As it reads, every other row shaded."""
        columns = range(len(self.heading))
        cut = [[braille_free(cell)[:MOST_CELLS] for cell in row] for row in [self.heading, *self.rows]]
        widths = [max((len(row[i]) for row in cut), default=0) for i in columns]
        line, gap = 13, 2
        width = sum(widths) * ADVANCE + gap * ADVANCE * max(0, len(widths) - 1) + 20
        drawing = Drawing(max(width, text_width(self.title) + 20), 34 + line * len(cut), self.title)
        drawing.text(10, 8, self.title, INK)
        for number, row in enumerate(cut):
            y, x = 24 + line * number, 10
            if number % 2 == 0:
                drawing.rectangle(6, y - 3, drawing.width - 12, line, "#d8dee6" if number == 0 else "#f3f5f7")
            for i in columns:
                end = i < len(self.right) and self.right[i]
                at = x + (widths[i] * ADVANCE - 1 if end else 0)
                drawing.text(at, y, row[i], INK, at="end" if end else "start")
                x += (widths[i] + gap) * ADVANCE
        return drawing


def braille_free(text: str) -> str:
    """Text without what the PNG's font can't draw and doesn't need: marks before a number."""
    return "".join(c for c in text if not 0x2580 <= ord(c) < 0x2900)


@dataclass(frozen=True)
class Cell:
    """A coloured number: its label, what it says, its background."""

    label: str
    words: str
    fill: str
    ink: str


@dataclass(frozen=True, eq=False)
class Grid:
    """Rows of coloured numbers, as a heatmap."""

    title: str
    note: str
    rows: Sequence[tuple[str, Sequence[Cell]]]
    values: Sequence[Mapping[str, Any]]

    def csv(self) -> str:
        """A row a cell."""
        return Sheet(self.title, (), (), values=self.values).csv()

    def drawing(self) -> Drawing:
        """A row a row; in each cell its label over its number."""
        names = max((text_width(name) for name, _ in self.rows), default=0) + 20
        wide = max(
            (text_width(t) for _, cells in self.rows for c in cells for t in (c.label, c.words)), default=0
        )
        most = max((len(cells) for _, cells in self.rows), default=0)
        width = max(names + most * (wide + 14) + 10, text_width(self.title) + 20, text_width(self.note) + 20)
        drawing = Drawing(width, 46 + 30 * len(self.rows), self.title)
        drawing.text(10, 8, self.title, INK)
        for number, (name, cells) in enumerate(self.rows):
            y = 24 + 30 * number
            drawing.text(10, y + 10, name, INK)
            for i, cell in enumerate(cells):
                x = names + i * (wide + 14)
                drawing.rectangle(x, y, wide + 12, 28, cell.fill)
                drawing.text(x + 6 + wide // 2, y + 5, cell.label, cell.ink, at="middle")
                drawing.text(x + 6 + wide // 2, y + 16, cell.words, cell.ink, at="middle")
        drawing.text(10, drawing.height - 14, self.note, FAINT)
        return drawing
