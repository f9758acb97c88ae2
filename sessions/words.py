"""Numbers and configurations in words, for reports and comparisons. Total: what isn't known is a dash."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

NONE = "–"
# What commands a terminal, or turns the direction of the text after it.
_COMMANDS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_BREAKS = dict.fromkeys(map(ord, "\t\n\r"))


def time_text(ms: Any) -> str:
    """A latency: "16.03 µs", "1.204 ms"."""
    if not isinstance(ms, int | float) or not math.isfinite(ms):
        return NONE
    scale, unit = (1e3, "µs") if abs(ms) < 1 else (1.0, "ms") if abs(ms) < 1000 else (1e-3, "s")
    value = ms * scale
    whole = len(str(int(abs(value))))
    return f"{value:.{max(0, min(3, 4 - whole))}f} {unit}"


def ratio_text(value: Any, digits: int = 3) -> str:
    """A factor: "1.421×"."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return NONE
    return f"{value:.{digits if abs(value) < 10 else 1}f}×"


def interval_text(ends: Any) -> str:
    """ "1.403 to 1.441"; a dash where an end is unknown."""
    if not isinstance(ends, Sequence) or len(ends) != 2 or any(not isinstance(e, int | float) for e in ends):
        return NONE
    return f"{ends[0]:.3f} to {ends[1]:.3f}"


def percent_text(share: Any) -> str:
    """ "38%"."""
    return f"{100 * share:.0f}%" if isinstance(share, int | float) and math.isfinite(share) else NONE


def config_text(config: Mapping[str, Any]) -> str:
    """ "block_size=256 reg_cap=0"."""
    return " ".join(f"{name}={value}" for name, value in config.items())


def tame(text: Any) -> str:
    """A text of others, as it may be shown on a terminal; tabs and ends of lines stay."""
    return _COMMANDS.sub(" ", str(text))


def one_line(text: Any) -> str:
    """A text of others on one line: whatever has no shape of its own is a space."""
    return "".join(c if c.isprintable() else " " for c in str(text).strip())


def cells(text: str) -> str:
    """The part of a line that is about to be painted, without what commands a terminal. It fills as many
    cells as a terminal's arithmetic gave it: such a character has none, half of a surrogate pair has one."""
    return _COMMANDS.sub(_cell, text.translate(_BREAKS))


def _cell(found: re.Match[str]) -> str:
    return "\ufffd" if "\ud800" <= found[0] <= "\udfff" else ""


def clipped(text: Any, most: int) -> str:
    """At most so many characters, and how many there were if it was cut."""
    words = str(text)
    return words if len(words) <= most else f"{words[:most]}… ({len(words):,} characters)"
