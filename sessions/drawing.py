"""Rectangles, curves and text, drawn once and written as SVG and as PNG.

The PNG is made here (an array, a small dot font, zlib) because the base install must write it and nothing in
it draws: Pillow comes only with extras that are for other things.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .glyphs import HEIGHT, WIDTH, dots
from .words import tame

PIXELS = 2  # a unit of the drawing in the PNG
FINER = 2  # samples a pixel in each direction, where curves are smoothed
ADVANCE = WIDTH + 1  # of a character, in units, at size 1


@dataclass(frozen=True)
class _Rectangle:
    x: int
    y: int
    width: int
    height: int
    fill: str


@dataclass(frozen=True)
class _Text:
    x: int  # its left end
    y: int  # its top
    text: str
    fill: str
    size: int


@dataclass(frozen=True)
class _Line:
    points: NDArray[np.float64]  # (n, 2)
    stroke: str
    width: float
    dash: tuple[float, ...]  # lengths drawn and left out, in turns


@dataclass(frozen=True)
class _Specks:
    points: NDArray[np.float64]  # (n, 2): their centres
    size: float
    fill: str


@dataclass
class Drawing:
    """A picture of `width` × `height` units. Colours are `#rrggbb`."""

    width: int
    height: int
    title: str
    _rectangles: list[_Rectangle] = field(default_factory=list)
    _texts: list[_Text] = field(default_factory=list)
    _curves: list[_Line | _Specks] = field(default_factory=list)

    def rectangle(self, x: int, y: int, width: int, height: int, fill: str) -> None:
        """A filled rectangle."""
        self._rectangles.append(_Rectangle(x, y, width, height, fill))

    def text(
        self, x: int, y: int, text: str, fill: str = "#202020", *, size: int = 1, at: str = "start"
    ) -> None:
        """A line of text with its top at `y`, and at `x` its `start`, `middle` or `end`."""
        length = text_width(text, size)
        left = x - {"start": 0, "middle": length // 2, "end": length}[at]
        self._texts.append(_Text(left, y, tame(text), fill, size))

    def line(self, points: ArrayLike, stroke: str, *, width: float = 1.0, dash: Sequence[float] = ()) -> None:
        """A line through points (n, 2); it lies over all rectangles and under all text."""
        self._curves.append(_Line(np.asarray(points, np.float64).reshape(-1, 2), stroke, width, tuple(dash)))

    def specks(self, points: ArrayLike, size: float, fill: str) -> None:
        """Squares around points (n, 2); they lie over what was drawn before."""
        self._curves.append(_Specks(np.asarray(points, np.float64).reshape(-1, 2), size, fill))

    def svg(self) -> str:
        """As SVG; its text is text."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width * PIXELS}" height="{self.height * PIXELS}" role="img">',
            f"<title>{escape(tame(self.title))}</title>",
            f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>',
        ]
        for r in self._rectangles:
            parts.append(f'<rect x="{r.x}" y="{r.y}" width="{r.width}" height="{r.height}" fill="{r.fill}"/>')
        parts += [_curve_svg(curve) for curve in self._curves if len(curve.points)]
        for t in self._texts:
            length = text_width(t.text, t.size)
            parts.append(
                f'<text x="{t.x}" y="{t.y + HEIGHT * t.size}" font-family="monospace" '
                f'font-size="{10 * t.size}" textLength="{length}" lengthAdjust="spacingAndGlyphs" '
                f'fill="{t.fill}">{escape(t.text)}</text>'
            )
        return "\n".join([*parts, "</svg>"]) + "\n"

    def png(self) -> bytes:
        """As PNG, eight bits a channel."""
        image = np.full((self.height * PIXELS, self.width * PIXELS, 3), 255, np.uint8)

        def fill(x: int, y: int, width: int, height: int, colour: str) -> None:
            x, y = max(x, 0), max(y, 0)
            image[y * PIXELS : (y + height) * PIXELS, x * PIXELS : (x + width) * PIXELS] = np.frombuffer(
                bytes.fromhex(colour[1:]), np.uint8
            )

        for r in self._rectangles:
            fill(r.x, r.y, r.width, r.height, r.fill)
        for curve in self._curves:
            _paint(image, curve)
        for t in self._texts:
            for x, y in dots(t.text):
                fill(t.x + x * t.size, t.y + y * t.size, t.size, t.size, t.fill)
        return _png(image)


def text_width(text: str, size: int = 1) -> int:
    """Units that a text takes."""
    return max(len(text) * ADVANCE - 1, 0) * size


def _curve_svg(curve: _Line | _Specks) -> str:
    xy = np.round(curve.points, 2)
    if isinstance(curve, _Specks):
        half = curve.size / 2
        path = "".join(f"M{x - half:.5g} {y:.5g}h{curve.size:g}" for x, y in xy.tolist())
        return f'<path d="{path}" stroke="{curve.fill}" stroke-width="{curve.size:g}" fill="none"/>'
    path = " ".join(f"{x:.5g},{y:.5g}" for x, y in xy.tolist())
    dash = f' stroke-dasharray="{" ".join(f"{d:g}" for d in curve.dash)}"' if curve.dash else ""
    return (
        f'<polyline points="{path}" fill="none" stroke="{curve.stroke}" stroke-width="{curve.width:g}" '
        f'stroke-linejoin="round"{dash}/>'
    )


def _paint(image: np.ndarray, curve: _Line | _Specks) -> None:
    """Stamp a curve, smoothed: what it covers of each pixel is counted in a grid `FINER` times as fine."""
    points, size = curve.points, curve.size if isinstance(curve, _Specks) else curve.width
    scale = PIXELS * FINER
    if isinstance(curve, _Line):
        points = _along(points, 1 / scale, curve.dash)
    if not len(points):
        return
    height, width, _ = image.shape
    mask = np.zeros((height * FINER, width * FINER), dtype=bool)
    side = max(1, round(size * scale))
    corner = np.rint(points * scale - side / 2).astype(np.int64)
    x, y = np.clip(corner.T, 0, [[mask.shape[1] - side], [mask.shape[0] - side]])
    for dx in range(side):
        for dy in range(side):
            mask[y + dy, x + dx] = True
    rows = np.flatnonzero(mask.any(axis=1))
    top, bottom = rows[0] // FINER, rows[-1] // FINER + 1
    part = mask[top * FINER : bottom * FINER].reshape(bottom - top, FINER, width, FINER)
    share = part.mean(axis=(1, 3))[..., None]
    colour = np.frombuffer(
        bytes.fromhex((curve.fill if isinstance(curve, _Specks) else curve.stroke)[1:]), np.uint8
    )
    image[top:bottom] = np.rint(image[top:bottom] * (1 - share) + colour * share).astype(np.uint8)


def _along(points: np.ndarray, spacing: float, dash: Sequence[float]) -> np.ndarray:
    """Points on a line at most `spacing` apart, without those in a dash's gaps."""
    if len(points) < 2:
        return points
    lengths = np.hypot(*np.diff(points, axis=0).T)
    way = np.concatenate([[0.0], np.cumsum(lengths)])
    at = np.linspace(0.0, way[-1], max(2, int(way[-1] / spacing) + 1))
    if dash:
        ends = np.cumsum(dash)
        at = at[np.searchsorted(ends, at % ends[-1], side="right") % 2 == 0]
    return np.stack([np.interp(at, way, points[:, 0]), np.interp(at, way, points[:, 1])], axis=1)


def _png(image: np.ndarray) -> bytes:
    height, width, _ = image.shape
    rows = np.zeros((height, 1 + width * 3), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = image.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
