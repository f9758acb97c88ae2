"""Pictures of the report as inline SVG, drawn from all of the data and bounded in size.

Dots are drawn each while they are few; of more, every cell of a fine grid that holds one is drawn, so that no
outlier is lost. Lines keep the least and the greatest value of each column. Colours are classes: the style
sheet has them for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .html_elements import Html, tag

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 10, 26
MOST_DOTS = 4000  # beyond, cells are drawn
FEW_DOTS = 200  # up to here, they are large
CELL = 2.0  # units
TICKS = 5


@dataclass(frozen=True)
class Layer:
    """Something in a plot. `kind`: "dots", "line" (stairs), "curve" (straight from point to point), "band"
    (stairs from `y` up to `top`), "level" (its one y from side to side), "rug" (marks at the bottom),
    "crosses". `style`: a class of the style sheet; `name`: in the legend."""

    kind: str
    name: str
    style: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    top: NDArray[np.float64]

    @classmethod
    def of(
        cls, kind: str, name: str, style: str, x: ArrayLike, y: ArrayLike, top: ArrayLike | None = None
    ) -> Layer:
        """Of columns of one length; points that aren't finite are left out. `top`: `y` where it is None."""
        a, b, c = (np.asarray(v, np.float64).ravel() for v in (x, y, y if top is None else top))
        known = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
        return cls(kind, name, style, a[known], b[known], c[known])

    def only(self, which: NDArray[np.bool_]) -> Layer:
        """With some of its points."""
        return replace(self, x=self.x[which], y=self.y[which], top=self.top[which])


def plot(
    title: str,
    layers: Sequence[Layer],
    *,
    x_name: str = "step",
    y_name: str = "",
    log: bool = False,
    log_x: bool = False,
) -> Html:
    """A plot with axes and a legend; nothing if there are no points. `log`, `log_x`: values > 0 on a
    logarithmic scale."""
    if log:
        layers = [a if a.kind == "rug" else a.only(a.y > 0) for a in layers]
    if log_x:
        layers = [a if a.kind == "level" else a.only(a.x > 0) for a in layers]
    layers = [layer for layer in layers if len(layer.x)]
    data = [layer for layer in layers if layer.kind not in ("level", "rug")]
    if not data:
        return Html()
    every_x = np.concatenate([layer.x for layer in layers if layer.kind != "level"])
    every_y = np.concatenate(
        [part for layer in layers if layer.kind != "rug" for part in (layer.y, layer.top)]
    )
    change: Callable[[NDArray[np.float64]], NDArray[np.float64]] = np.log10 if log else np.asarray
    change_x: Callable[[NDArray[np.float64]], NDArray[np.float64]] = np.log10 if log_x else np.asarray
    x_low, x_high = _room(float(change_x(every_x).min()), float(change_x(every_x).max()))
    y_low, y_high = _room(float(change(every_y).min()), float(change(every_y).max()), share=0.04)

    def across(x: ArrayLike) -> NDArray[np.float64]:
        return LEFT + (change_x(np.asarray(x)) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def up(y: ArrayLike) -> NDArray[np.float64]:
        placed = (change(np.asarray(y)) - y_low) / (y_high - y_low)
        return TOP + (1 - np.asarray(placed)) * (HEIGHT - TOP - BOTTOM)

    parts = [tag("title", title)]
    for value in _log_ticks(x_low, x_high) if log_x else ticks(x_low, x_high):
        at = float(across(value))
        if LEFT - 1 <= at <= WIDTH - RIGHT + 1:
            parts.append(_text(at, HEIGHT - 8, f"{value:,.10g}", "middle"))
    for value in _log_ticks(y_low, y_high) if log else ticks(y_low, y_high):
        at = float(up(value))
        parts.append(tag("path", d=f"M{LEFT} {at:.1f}H{WIDTH - RIGHT}", class_="grid"))
        parts.append(_text(LEFT - 6, at + 3.5, f"{value:.4g}", "end"))
    for layer in layers:
        x = across(layer.x) if layer.kind != "level" else layer.x
        y, top = (layer.y, layer.y) if layer.kind == "rug" else (up(layer.y), up(layer.top))
        parts.append(_drawn(layer, x, y, top))
    svg = tag(
        "svg",
        parts,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title}: {y_name or title} by {x_name}",
        class_="plot",
    )
    legend = [tag("li", tag("span", class_=f"key {a.kind} {a.style}"), a.name) for a in layers if a.name]
    caption = tag("figcaption", tag("b", title), tag("ul", legend, class_="legend"))
    return tag("figure", caption, svg)


def _drawn(layer: Layer, x: NDArray[np.float64], y: NDArray[np.float64], top: NDArray[np.float64]) -> Html:
    if layer.kind == "level":
        return tag("path", d=f"M{LEFT} {float(y[0]):.1f}H{WIDTH - RIGHT}", class_=f"level {layer.style}")
    if layer.kind == "rug":
        places = np.unique(np.round(x, 1))
        d = "".join(f"M{_short(at)} {HEIGHT - BOTTOM}v-5" for at in places.tolist())
        return tag("path", d=Html(d), class_=f"rug {layer.style}")
    if layer.kind == "line":
        return tag("path", d=Html(stairs(x, y)), class_=f"line {layer.style}")
    if layer.kind == "band":
        there, back = _kept(x, top), _kept(x, y)[::-1]
        return tag("path", d=Html(_joined(np.concatenate([there, back])) + "Z"), class_=f"band {layer.style}")
    if layer.kind == "curve":
        return tag("path", d=Html(_joined(np.stack([x, y], axis=1))), class_=f"curve {layer.style}")
    if len(x) > MOST_DOTS:
        cells = np.unique(np.stack([np.floor(x / CELL), np.floor(y / CELL)], 1), axis=0) * CELL + CELL / 2
        x, y = cells[:, 0], cells[:, 1]
    d = "".join(f"M{_short(a)} {_short(b)}h0" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    few = " few" if len(x) <= FEW_DOTS else ""
    return tag("path", d=Html(d), class_=f"{layer.kind}{few} {layer.style}")


def stairs(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    """A path that keeps each value until the next; of several in a tenth of a unit the least, the greatest
    and the last remain."""
    parts: list[str] = []
    column = np.round(x, 1)
    starts = np.flatnonzero(np.r_[True, np.diff(column) != 0])
    low, high = np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)
    last = y[np.r_[starts[1:], len(y)] - 1]
    for at, least, most, end in zip(
        column[starts].tolist(), low.tolist(), high.tolist(), last.tolist(), strict=True
    ):
        parts.append(f"H{_short(at)}" if parts else f"M{_short(at)} {_short(least)}")
        if most - least > 0.05:
            parts.append(f"V{_short(least)}V{_short(most)}")
        parts.append(f"V{_short(end)}")
    kept = [part for before, part in zip(["", *parts], parts, strict=False) if part != before]
    return "".join(_merged(kept))


def _kept(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The corners of stairs, (n, 2), without those at which nothing turns."""
    turns = np.union1d(np.flatnonzero(np.r_[True, np.abs(np.diff(y)) > 0.05]), [len(y) - 1])
    x, y = x[turns], y[turns]
    return np.stack([np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]], axis=1)


def _joined(points: NDArray[np.float64]) -> str:
    return "M" + "L".join(f"{_short(a)} {_short(b)}" for a, b in points.tolist())


def _merged(parts: Sequence[str]) -> list[str]:
    """Without the corners at which nothing turns."""
    found: list[str] = []
    height = ""
    for part in parts:
        if part[0] == "V" and part == height:
            continue
        if part[0] == "V":
            height = part
        if part[0] == "H" and found and found[-1][0] == "H":
            found[-1] = part
        else:
            found.append(part)
    return found


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _room(low: float, high: float, share: float = 0.0) -> tuple[float, float]:
    """Ends that differ."""
    if high - low < 1e-12 * max(abs(low), abs(high), 1e-300):
        half = abs(low) / 10 or 0.5
        return low - half, high + half
    more = (high - low) * share
    return low - more, high + more


def ticks(low: float, high: float, most: int = TICKS) -> list[float]:
    """At most `most` + 1 round values within [low, high]."""
    step = 10.0 ** math.floor(math.log10((high - low) / most))
    for factor in (1, 2, 5, 10):
        if (high - low) / (step * factor) <= most:
            step *= factor
            break
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Round values between powers of ten, given their logarithms."""
    for factors in ((1, 2, 5), (1,)):
        found = [
            factor * 10.0**power
            for power in range(math.floor(low), math.ceil(high) + 1)
            for factor in factors
            if low <= math.log10(factor) + power <= high
        ]
        if 2 <= len(found) <= 2 * TICKS:
            return found
    if not found or len(found) < 2:
        return [v for v in ticks(10**low, 10**high) if v > 0]
    return found[:: max(1, len(found) // TICKS)]


def _text(x: float, y: float, text: str, anchor: str, style: str = "tick") -> Html:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=style)


def bars(rows: Sequence[tuple[str, float | None, str]]) -> Html:
    """Labelled bars of shares from 0 to 1; None: the words say why there is none."""
    return tag(
        "ul",
        [
            tag(
                "li",
                tag("span", label, class_="label"),
                tag("span", tag("i", style=f"width:{100 * min(max(share, 0.0), 1.0):.1f}%"), class_="track")
                if share is not None
                else None,
                tag("span", words, class_="words"),
            )
            for label, share, words in rows
        ],
        class_="bars",
    )
