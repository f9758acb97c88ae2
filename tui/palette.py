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
# Usual names have their colours in every trace, so that two variants can be compared at a glance.
USUAL = {"load": 0, "compute": 1, "store": 2, "copy": 3, "reduce": 5}
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
    waiting = next((i for i, name in enumerate(stages) if _waits(name)), None)
    usual = {USUAL[name] for name in stages if name in USUAL}
    free = [colour for i, colour in enumerate(COLOURS) if i not in usual]
    found, used = [], 0
    for i, name in enumerate(stages):
        if i == waiting:
            found.append(WAITING)
        elif name in USUAL:
            found.append(COLOURS[USUAL[name]])
        else:
            found.append(free[used % len(free)])
            used += 1
    return found


def _waits(name: str) -> bool:
    return any(word in name.lower() for word in WAIT_WORDS)


def blend(colour: str, towards: str, share: float) -> str:
    """`colour` moved towards another by a share, both "#rrggbb"."""
    a, b = (bytes.fromhex(c[1:]) for c in (colour, towards))
    return "#" + bytes(round(x + (y - x) * share) for x, y in zip(a, b, strict=True)).hex()
