"""Colours and letters of stages. The letter is the second cue; without colours it is the only one."""

from __future__ import annotations

from collections.abc import Sequence

# Apart in hue and in lightness, for dark text on them; the red of errors is not among them.
COLOURS = (
    "#6ea8e8",
    "#6cc08b",
    "#b59be6",
    "#56bfc4",
    "#e0935a",
    "#d98aa8",
    "#a9b665",
    "#c4a07a",
    "#8fa0b8",
)
WAITING = "#e9bd5a"  # what a timeline is opened to find
WAIT_WORDS = ("wait", "sync", "barrier", "stall", "idle")
_SPARE = "abcdefghijklmnopqrstuvwxyz0123456789"


def letters(stages: Sequence[str]) -> list[str]:
    """A letter a stage, different while the alphabet lasts: of its own name if one is free, lower case."""
    taken: set[str] = set()
    found = []
    for name in stages:
        own = [c for c in name.lower() if c.isascii() and c.isalnum()]
        letter = next((c for c in [*own, *_SPARE] if c not in taken), "?")
        taken.add(letter)
        found.append(letter)
    return found


def colours(stages: Sequence[str]) -> list[str]:
    """A colour a stage, "#rrggbb"; beyond nine they repeat, and the letters tell them apart."""
    found, used = [], 0
    waiting = False
    for name in stages:
        if not waiting and any(word in name.lower() for word in WAIT_WORDS):
            waiting = True
            found.append(WAITING)
        else:
            found.append(COLOURS[used % len(COLOURS)])
            used += 1
    return found


def blend(colour: str, towards: str, share: float) -> str:
    """`colour` moved towards another by a share, both "#rrggbb"."""
    a, b = (bytes.fromhex(c[1:]) for c in (colour, towards))
    return "#" + bytes(round(x + (y - x) * share) for x, y in zip(a, b, strict=True)).hex()
