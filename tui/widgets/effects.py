"""The knob-effect heatmap: for each knob and value the median time, or what the value does to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...sessions.effects import Effect, Level
from ..charts import Cell, Grid
from ..export import Exported
from ..format import clip, percent, ratio, time_text

# Crameri's "vik" without its dark middle: brown is slow, blue is fast, apart for the colour-blind as well.
SHADES = (
    *((140, 66, 15), (178, 107, 62), (208, 154, 119), (229, 202, 184)),
    *((196, 216, 230), (122, 170, 201), (54, 120, 166), (14, 74, 130)),
)
INKS = ("#ffffff", "#ffffff", "#101010", "#101010", "#101010", "#101010", "#ffffff", "#ffffff")
UNKNOWN, UNKNOWN_INK = "#3a3f46", "#d0d4d9"
LEAST_LOG = math.log(1.05)  # an effect that has the strongest colour, if none is larger
LEAST = 6  # characters of a cell
GAP = 1
NAMES = 14  # characters of a knob's name at most


class Measure(StrEnum):
    """What the numbers say of a value's configurations."""

    EFFECT = "effect"  # median time of all configurations / median time of those with the value
    MEDIAN = "median"  # median time
    BEST = "best"  # best time


NOTES = {
    Measure.EFFECT: "median time of all / median time with the value",
    Measure.MEDIAN: "median time of the configurations with the value",
    Measure.BEST: "best time of the configurations with the value",
}


@dataclass(frozen=True)
class _Box:
    label: str
    words: str
    shade: int | None  # of SHADES; None: no time is known


class EffectsPane(ScrollView, Exported, can_focus=True):
    """A row a knob, those that matter most first; a cell a value, coloured and with its number."""

    ALLOW_MAXIMIZE = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {"effects--name", "effects--small"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll_down", "Down", show=False, id="effects.down"),
        Binding("k,up", "scroll_up", "Up", show=False, id="effects.up"),
        Binding("v", "measure", "Effect, median or best", show=False, id="effects.measure"),
        Exported.BINDING,
    ]
    HELP = """\
### Knob effects

What each value of each knob does, from the configurations that this run tried: the median over those that
have the value. **effect**: the median time of all over the median time of those with the value, above 1 is
faster; `v` changes to the **median** time, and to the **best** time. Blue is fast and brown is slow (the
colour-blind tell them apart), and the number says how much. *▲* marks a knob's fastest value. A value that
failed every time says so, as *0 of 4*.

The knobs that explain most of the time come first, with the share of its variance (of the logarithm) that
lies between their values. These are marginal effects: an agent doesn't try values evenly, and knobs act
together. They say where to look.
"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._effects: tuple[Effect, ...] = ()
        self._whole: float | None = None  # median time of all
        self._measure = Measure.EFFECT
        self._empty = "no configurations yet"
        self._rows: list[list[tuple[str, Style]]] = []
        self.border_title = "Knob effects"

    def show(self, effects: Sequence[Effect], median_ms: float | None, *, empty: str) -> None:
        """Show these, and the median over all configurations; `empty`: what is said if there are none."""
        if (tuple(effects), median_ms, empty) != (self._effects, self._whole, self._empty):
            self._effects, self._whole, self._empty = tuple(effects), median_ms, empty
            self._lay_out()

    def on_resize(self) -> None:
        self._lay_out()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_attached:
            self.call_after_refresh(self._lay_out)  # in the new theme's colours

    def action_measure(self) -> None:
        """The next of effect, median and best."""
        order = list(Measure)
        self._measure = order[(order.index(self._measure) + 1) % len(order)]
        self._lay_out()

    def exported(self) -> Grid | None:
        """What `e` saves: the grid as it is shown, and all that is known of each value."""
        if not self._effects:
            return None
        shown = [
            (
                f"{effect.knob} {percent(effect.share)}",
                [Cell(box.label, box.words, *_colours(box.shade)) for box in self._boxes(effect)],
            )
            for effect in self._effects
        ]
        note = (
            f"{self._measure} of the configurations with each value; beside a knob its share of the variance"
        )
        return Grid("Knob effects", note, shown, [_values(e, v) for e in self._effects for v in e.levels])

    def _boxes(self, effect: Effect) -> list[_Box]:
        best = min(
            (level for level in effect.levels if level.median_ms is not None),
            key=lambda level: level.median_ms or 0.0,
            default=None,
        )
        return [
            _Box(_label(level, level is best), self._words(level), self._shade(level))
            for level in effect.levels
        ]

    def _words(self, level: Level) -> str:
        if level.median_ms is None or self._whole is None:
            return f"0 of {level.tried}"
        if self._measure is Measure.EFFECT:
            return ratio(self._whole / level.median_ms)
        return time_text(level.median_ms if self._measure is Measure.MEDIAN else level.best_ms, self._whole)

    def _shade(self, level: Level) -> int | None:
        """Slow to fast: around the median of all, or for the best between the slowest and the fastest."""
        mine = self._time(level)
        times = [self._time(v) for e in self._effects for v in e.levels]
        known = np.log([t for t in times if t is not None])
        if mine is None or self._whole is None or not len(known):
            return None
        middle = math.log(self._whole)
        if self._measure is Measure.BEST:
            middle = (known.min() + known.max()) / 2
        most = max(float(np.abs(known - middle).max()), LEAST_LOG)
        share = 0.5 + 0.5 * (middle - math.log(mine)) / most
        return min(int(share * len(SHADES)), len(SHADES) - 1)

    def _time(self, level: Level) -> float | None:
        return level.best_ms if self._measure is Measure.BEST else level.median_ms

    def _lay_out(self) -> None:
        width = self.scrollable_content_region.width
        if width <= 0:
            return
        name = self.get_component_rich_style("effects--name")
        small = self.get_component_rich_style("effects--small")
        rows: list[list[tuple[str, Style]]] = []
        names = min(NAMES, max((len(e.knob) for e in self._effects), default=0)) + 5  # and the share
        for effect in self._effects:
            boxes = self._boxes(effect)
            size = max(LEAST, *(len(text) + 1 for box in boxes for text in (box.label, box.words)))
            each = max(1, (width - names) // (size + GAP))
            knob = clip(effect.knob, names - 5).ljust(names - 5)
            head = [(knob, name), (percent(effect.share).rjust(4) + " ", small)]
            under = [(" " * names, small)]
            for first in range(0, len(boxes), each):
                part = boxes[first : first + each]
                labels, words = [box.label for box in part], [box.words for box in part]
                rows.append((under if first else head) + _cells(labels, part, size, self.rich_style))
                rows.append(under + _cells(words, part, size, self.rich_style, strong=True))
        if not rows:
            rows = [[(self._empty[:width], small)]]
        self._rows = rows
        self.border_title = f"Knob effects · {self._measure}"
        self.border_subtitle = "v: median, best" if self._effects and self._measure is Measure.EFFECT else ""
        self.virtual_size = Size(width, len(rows))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One visible line."""
        width = self.scrollable_content_region.width
        index = self.scroll_offset.y + y
        if index >= len(self._rows):
            return Strip.blank(width, self.rich_style)
        segments = [Segment(text, style) for text, style in self._rows[index]]
        return Strip(segments).crop_extend(0, width, self.rich_style)


def _cells(
    texts: Sequence[str], boxes: Sequence[_Box], size: int, blank: Style, *, strong: bool = False
) -> list[tuple[str, Style]]:
    cells = []
    for text, box in zip(texts, boxes, strict=True):
        fill, ink = _colours(box.shade)
        cells += [(f"{text} ".rjust(size), Style(color=ink, bgcolor=fill, bold=strong)), (" " * GAP, blank)]
    return cells


def _colours(shade: int | None) -> tuple[str, str]:
    """(background, text), "#rrggbb"."""
    if shade is None:
        return UNKNOWN, UNKNOWN_INK
    return "#{:02x}{:02x}{:02x}".format(*SHADES[shade]), INKS[shade]


def _label(level: Level, best: bool) -> str:
    return f"▲{level.value}" if best else f"{level.value}"


def _values(effect: Effect, level: Level) -> dict[str, Any]:
    return {"knob": effect.knob, "share": effect.share, **level.__dict__}
