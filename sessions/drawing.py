"""Rectangles and text, drawn once and written as SVG and as PNG.

The PNG is made here (an array, a small dot font, zlib) because the base install must write it and nothing in
it draws: Pillow comes only with extras that are for other things.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from html import escape

import numpy as np

from .glyphs import HEIGHT, WIDTH, dots

PIXELS = 2  # a unit of the drawing in the PNG
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


@dataclass
class Drawing:
    """A picture of `width` × `height` units. Colours are `#rrggbb`."""

    width: int
    height: int
    title: str
    _rectangles: list[_Rectangle] = field(default_factory=list)
    _texts: list[_Text] = field(default_factory=list)

    def rectangle(self, x: int, y: int, width: int, height: int, fill: str) -> None:
        """A filled rectangle."""
        self._rectangles.append(_Rectangle(x, y, width, height, fill))

    def text(
        self, x: int, y: int, text: str, fill: str = "#202020", *, size: int = 1, at: str = "start"
    ) -> None:
        """A line of text with its top at `y`, and at `x` its `start`, `middle` or `end`."""
        length = text_width(text, size)
        left = x - {"start": 0, "middle": length // 2, "end": length}[at]
        self._texts.append(_Text(left, y, text, fill, size))

    def svg(self) -> str:
        """As SVG; its text is text."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width * PIXELS}" height="{self.height * PIXELS}" role="img">',
            f"<title>{escape(self.title)}</title>",
            f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>',
        ]
        for r in self._rectangles:
            parts.append(f'<rect x="{r.x}" y="{r.y}" width="{r.width}" height="{r.height}" fill="{r.fill}"/>')
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
        for t in self._texts:
            for x, y in dots(t.text):
                fill(t.x + x * t.size, t.y + y * t.size, t.size, t.size, t.fill)
        return _png(image)


def text_width(text: str, size: int = 1) -> int:
    """Units that a text takes."""
    return max(len(text) * ADVANCE - 1, 0) * size


def _png(image: np.ndarray) -> bytes:
    height, width, _ = image.shape
    rows = np.zeros((height, 1 + width * 3), np.uint8)  # each row begins with its filter: none
    rows[:, 1:] = image.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
