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
# The palette of Okabe and Ito for stages, in the same order of usual names; its yellow is for waiting.
SAFE = ("#56b4e9", "#009e73", "#cc79a7", "#e69f00", "#d55e00", "#0072b2", "#999999")
SAFE_WAITING = "#f0e442"
DARK_INK, LIGHT_INK = "#0f1317", "#ffffff"
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


class _Chosen:
    safe = False


def use_safe(safe: bool) -> None:
    """Draw stages in the palette of Okabe and Ito from now on, or in the usual one."""
    _Chosen.safe = safe


def colours(stages: Sequence[str], *, safe: bool | None = None) -> list[str]:
    """A colour a stage, "#rrggbb"; where there are too few they repeat, and the letters tell them apart.

    `safe`: those that are told apart with a colour-vision deficiency (None: as `use_safe` chose).
    """
    chosen = _Chosen.safe if safe is None else safe
    palette, wait_colour = (SAFE, SAFE_WAITING) if chosen else (COLOURS, WAITING)
    waiting = next((i for i, name in enumerate(stages) if _waits(name)), None)
    usual = {USUAL[name] for name in stages if name in USUAL}
    free = [colour for i, colour in enumerate(palette) if i not in usual]
    found, used = [], 0
    for i, name in enumerate(stages):
        if i == waiting:
            found.append(wait_colour)
        elif name in USUAL:
            found.append(palette[USUAL[name]])
        else:
            found.append(free[used % len(free)])
            used += 1
    return found


def _waits(name: str) -> bool:
    return any(word in name.lower() for word in WAIT_WORDS)


def ink(colour: str) -> str:
    """The colour of letters on a stage's colour: dark or light, whichever reads better."""
    return DARK_INK if luminance(colour) > 0.179 else LIGHT_INK


def luminance(colour: str) -> float:
    """Relative luminance of "#rrggbb", 0 to 1 (WCAG 2.2)."""
    parts = (byte / 255 for byte in bytes.fromhex(colour[1:]))
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def blend(colour: str, towards: str, share: float) -> str:
    """`colour` moved towards another by a share, both "#rrggbb"."""
    a, b = (bytes.fromhex(c[1:]) for c in (colour, towards))
    return "#" + bytes(round(x + (y - x) * share) for x, y in zip(a, b, strict=True)).hex()
