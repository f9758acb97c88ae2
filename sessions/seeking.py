"""Where in a session's log a user's words point: "12", "1:30", "40%", "attempt 3", a bookmark's name."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..core.errors import UsageError
from .bookmarks import Bookmark


class Unit(StrEnum):
    """What a target counts."""

    STEP = "step"
    SECONDS = "seconds"
    SHARE = "share"
    EVENT = "event"
    ATTEMPT = "attempt"
    BOOKMARK = "bookmark"


HELP = "a step (12), a time (1:30, 90s, +10s), a share (40%), event 7, attempt 3, a bookmark's name"
_COUNT = re.compile(r"(step|event|attempt|s|e|a)?\s*#?\s*(\d{1,9})")
_CLOCK = re.compile(r"(?:(\d{1,4}):)?(\d{1,4}):(\d{1,2}(?:\.\d+)?)")
_SPAN = re.compile(r"([+-]?)(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_LETTERS = {"": Unit.STEP, "s": Unit.STEP, "step": Unit.STEP, "e": Unit.EVENT, "event": Unit.EVENT}
_ENDS = {"start": 0.0, "begin": 0.0, "end": 1.0}


@dataclass(frozen=True)
class Target:
    """A place in a log. `value`: a number of the unit's; seconds from the log's start, a share 0..1; of a
    bookmark its event's number. `relative`: seconds from where the replay is."""

    unit: Unit
    value: float
    relative: bool = False

    @property
    def words(self) -> str:
        """What it means, for people."""
        if self.unit is Unit.SHARE:
            return f"{100 * self.value:g}% of the log"
        if self.unit is Unit.SECONDS:
            sign = ("−" if self.value < 0 else "+") if self.relative else ""
            return f"{sign}{abs(self.value):g} seconds {'from here' if self.relative else 'from the start'}"
        return f"{self.unit} {self.value:.0f}" if self.unit is not Unit.BOOKMARK else "a bookmark"


def parse(text: str, bookmarks: Sequence[Bookmark] = ()) -> Target:
    """The place that a text means. Numbers alone are steps.

    Raises:
        UsageError: it means none; the message says what would.
    """
    words = " ".join(text.split()).lower()
    named = [b for b in bookmarks if b.name.lower() == words] or [
        b for b in bookmarks if words and b.name.lower().startswith(words)
    ]
    if words in _ENDS:
        return Target(Unit.SHARE, _ENDS[words])
    if found := _COUNT.fullmatch(words):
        return Target(_LETTERS.get(found[1] or "", Unit.ATTEMPT), float(found[2]))
    if found := _CLOCK.fullmatch(words):
        hours, minutes, seconds = (float(part or 0) for part in found.groups())
        return Target(Unit.SECONDS, 3600 * hours + 60 * minutes + seconds)
    if found := _SPAN.fullmatch(words):
        seconds = float(found[2]) * _UNITS[found[3]]
        return Target(Unit.SECONDS, -seconds if found[1] == "-" else seconds, relative=bool(found[1]))
    if (found := _SHARE.fullmatch(words)) and float(found[1]) <= 100:
        return Target(Unit.SHARE, float(found[1]) / 100)
    if named:
        return Target(Unit.BOOKMARK, named[0].seq)
    raise UsageError(f"{text.strip()!r} is no place in this log: {HELP}" if words else f"type {HELP}")


def clamp(seconds: float, length: float) -> float:
    """A position within a log, seconds."""
    return min(max(seconds, 0.0), length) if math.isfinite(seconds) else length
