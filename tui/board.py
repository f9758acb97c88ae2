"""The leaderboard's rows: what they say, how they are sorted and filtered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .format import config_text
from .verdicts import status_words

# What a filter can compare beside knobs.
NUMBERS = {
    "time": "score_ms",
    "speedup": "speedup",
    "vendor": "vendor_ratio",
    "floor": "floor_ratio",
    "regs": "registers",
    "occ": "occupancy",
}
_COMPARISON = re.compile(r"(!?)([\w.-]+)(<=|>=|=|<|>)(.+)")


@dataclass(frozen=True)
class Row:
    """One configuration. `tied`: statistically as good as the best; `paired`: its speedup comes from
    samples interleaved with the baseline's."""

    key: str
    config: Mapping[str, Any]
    status: str
    score_ms: float | None = None
    speedup: float | None = None
    speedup_ci: tuple[float, float] | None = None
    vendor_ratio: float | None = None
    floor_ratio: float | None = None
    registers: int | None = None
    occupancy: float | None = None
    tied: bool = False
    paired: bool = False
    same_as: str | None = None
    baseline: bool = False
    message: str = ""  # why it failed

    @property
    def words(self) -> str:
        """The notes: in words what the marks mean. A status is told unless it is "ok"."""
        notes = [
            word
            for word, holds in (
                ("baseline", self.baseline),
                ("tied", self.tied),
                ("paired", self.paired),
                ("same code", self.same_as is not None),
            )
            if holds
        ]
        return ", ".join(notes if self.status == "ok" else [self.status, *notes])


def rising(column: str) -> bool:
    """Whether a column is sorted from its least value up: the better ones come first."""
    return column in ("#", "config", "time", "regs", "notes")


def in_order(rows: Sequence[Row], column: str, *, inverted: bool) -> list[Row]:
    """Rows sorted by a column, best first; those that have no value come last either way."""
    if column == "#":
        return list(reversed(rows)) if inverted else list(rows)

    def value(row: Row) -> Any:
        if column == "config":
            return [(isinstance(v, str), v) for v in row.config.values()]
        if column == "notes":
            return row.words or None
        if column == "95% interval":
            return row.speedup_ci and row.speedup_ci[0]
        return getattr(row, NUMBERS[column.rstrip(".")])

    known = [row for row in rows if value(row) is not None]
    known.sort(key=value, reverse=inverted is rising(column))
    return [*known, *(row for row in rows if value(row) is None)]


def matches(row: Row, wanted: str) -> bool:
    """Whether all words of a filter hold for a row: comparisons of knobs and of `NUMBERS`, or parts of what
    it says; "!" before a word denies it. A knob may be named by its first letters."""
    text = f"{config_text(row.config)} {row.words} {status_words(row.status)} {row.message}".lower()
    text += "" if row.status == "ok" else " failed"
    return all(_holds(row, word, text) for word in wanted.split())


def _holds(row: Row, word: str, text: str) -> bool:
    found = _COMPARISON.fullmatch(word)
    if found is None:
        bare = word.removeprefix("!").lower()
        return (bare in text) is not (word.startswith("!") and bool(bare))
    no, name, sign, value = found.groups()
    mine = [v for knob, v in row.config.items() if knob == name] or [
        v for knob, v in row.config.items() if knob.startswith(name)
    ]
    if name in NUMBERS:
        mine = [getattr(row, NUMBERS[name])]
    return any(_compares(v, sign, value) for v in mine) is not bool(no)


def _compares(mine: Any, sign: str, value: str) -> bool:
    if sign == "=":
        return str(mine).lower() == value.lower() or (
            _number(mine) is not None and _number(mine) == _number(value)
        )
    a, b = _number(mine), _number(value)
    if a is None or b is None:
        return False
    return {"<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b}[sign]


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
