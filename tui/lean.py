"""Terminal output without the styles that the terminal has already: half of the bytes, which count over SSH.

Rich sets every style whole and resets it after each run of text, although its neighbours mostly share the
background, and blanks show no other colour at all.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

SHORT = 256  # characters of output that aren't worth it
_RUN = r"\x1b\[([1-9][\d;]*)m([^\x1b]*)\x1b\[0m"
# A styled run, perhaps a move of the cursor, and whether another styled run follows at once.
_SEGMENT = re.compile(rf"{_RUN}((?:\x1b\[\d+;\d+H)?)(?=({_RUN})?)")
_SEEN_ON_BLANKS = frozenset({"4", "5", "6", "7", "9", "21", "53"})  # underlined, blinking, reversed, struck…


class Look(NamedTuple):
    """A style as SGR codes: "" is the terminal's own colour."""

    attributes: frozenset[str] = frozenset()
    colour: str = ""
    background: str = ""


def lean(output: str) -> str:
    """The same picture in fewer bytes."""
    if len(output) < SHORT:
        return output
    held: Look | None = None  # what the terminal has now; None: nothing set

    def shorter(found: re.Match[str]) -> str:
        nonlocal held
        code, text, move, more = found[1], found[2], found[3], found[4]
        wanted = _look(code)
        if (
            held is not None
            and not text.strip(" ")
            and _SEEN_ON_BLANKS.isdisjoint(held.attributes | wanted.attributes)
        ):
            wanted = held._replace(background=wanted.background)
        change = _change(held, wanted)
        held = wanted if more else None
        return f"{change}{text}{move}" if more else f"{change}{text}\x1b[0m{move}"

    return _SEGMENT.sub(shorter, output)


@lru_cache(4096)
def _look(code: str) -> Look:
    """What a whole SGR sets."""
    attributes, colour, background = set[str](), "", ""
    parts = code.split(";")
    while parts:
        part = parts.pop(0)
        if part in ("38", "48"):
            taken = 4 if parts[:1] == ["2"] else 2  # an RGB triple, or a number
            whole = ";".join([part, *parts[:taken]])
            parts = parts[taken:]
            colour, background = (whole, background) if part == "38" else (colour, whole)
        elif part.isdecimal() and (30 <= int(part) <= 39 or 90 <= int(part) <= 97):
            colour = "" if part == "39" else part
        elif part.isdecimal() and (40 <= int(part) <= 49 or 100 <= int(part) <= 107):
            background = "" if part == "49" else part
        else:
            attributes.add(part)
    return Look(frozenset(attributes), colour, background)


@lru_cache(4096)
def _change(held: Look | None, wanted: Look) -> str:
    """The SGR from one style to another."""
    if held == wanted:
        return ""
    before = held or Look()
    added = sorted(wanted.attributes - before.attributes)
    codes: list[str] = []
    if (
        before.attributes - wanted.attributes
    ):  # each has another code that ends it; starting afresh is as short
        codes, before, added = ["0"], Look(), sorted(wanted.attributes)
    codes += added
    if wanted.colour != before.colour:
        codes.append(wanted.colour or "39")
    if wanted.background != before.background:
        codes.append(wanted.background or "49")
    return f"\x1b[{';'.join(codes)}m" if codes else ""
