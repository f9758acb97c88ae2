"""The leaderboard: rows of the best configurations, laid out again only when they or the size differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textual.events import Resize

from ..format import (
    NONE,
    clip,
    config_text,
    interval,
    percent,
    ratio,
    short_config,
    shorten_one,
    speedup,
    time_text,
)
from .table import GAP, Column, Table, TableRow

MOST_ROWS = 50  # nobody reads further down; `sessions export` has the rest


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


# The most important come first, since a narrow terminal cuts the right end off.
LEAST_CONFIG = 16
COLUMNS = (
    Column("#", 2),
    Column("config", LEAST_CONFIG),  # takes what the others leave
    Column("time", 8, right=True),
    Column("speedup", 7, right=True),
    Column("95% interval", 14),
    Column("vendor", 6, right=True),
    Column("floor", 5, right=True),
    Column("regs", 4, right=True),
    Column("occ.", 4, right=True),
    Column("notes", 12),
)
# The columns up to this one are worth more than knobs' names.
ESSENTIAL = "95% interval"


def ranks(rows: Sequence[Row]) -> list[str]:
    """ "1", "2"…; with "=" where a row is tied with the best: "=1"."""
    tied = sum(r.tied for r in rows) > 1
    return ["=1" if tied and row.tied else f"{i}" for i, row in enumerate(rows, start=1)]


def knob_table(configs: Sequence[Mapping[str, Any]], width: int) -> tuple[str, list[str]]:
    """(heading, a text for each configuration) in at most `width` characters where that can be.

    A column a knob, its name shortened as far as the room asks and the names stay different; where that
    isn't enough, the values alone, in the knobs' order.
    """
    names = list(configs[0]) if configs else []
    if not names or any(list(config) != names for config in configs):
        return "config", [clip(config_text(config), width) for config in configs]
    values = [[str(config[name]) for name in names] for config in configs]
    needed = [max(map(len, column)) for column in zip(*values, strict=True)]
    while sum(max(n, len(name)) for n, name in zip(needed, names, strict=True)) + len(names) - 1 > width:
        shorter = shorten_one(names, [i for i, name in enumerate(names) if len(name) > needed[i]])
        if shorter is None:
            return "config", [clip(",".join(row), width) for row in values]
        names = shorter
    columns = [Column(name, max(n, len(name)), right=True) for n, name in zip(needed, names, strict=True)]
    lines = [" ".join(c.cell(cell) for c, cell in zip(columns, row, strict=True)) for row in [names, *values]]
    return lines[0], lines[1:]


class Leaderboard(Table):
    """Best configurations, best first. Arrows and hjkl move; `y` copies the marked one."""

    HELP = """\
### Leaderboard

The best configurations. **time**: the median, or the geometric mean of the sizes' medians. **speedup** is
against the baseline, with its 95% interval where one is known. **=1** and the word *tied* mark
configurations that can't be told apart from the best; *same code* marks one that compiled to the
same binary as another and was measured once; *paired* marks a finalist, measured again at the end in
turns with the baseline: its time, speedup and interval are from there. **vendor**: vendor's time / this
time (above 1: faster than the vendor's library). **floor**: the physical floor / this time (100% is the
limit). **regs**: registers a thread; **occ.**: theoretical occupancy. Knobs' names are shortened where
there is no room; the marked configuration is shown whole in the frame's lower edge.
"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: tuple[Row, ...] = ()
        self.border_title = "Leaderboard"

    def show(self, rows: Sequence[Row], total: int) -> None:
        """Show the best `MOST_ROWS` of `rows` (best first) of `total` configurations tried."""
        shown = tuple(rows[:MOST_ROWS])
        title = f"Leaderboard, best {len(shown)} of {total}" if total else "Leaderboard"
        tied = sum(row.tied for row in rows)
        self.border_title = f"{title} · {tied} tied for the best" if tied > 1 else title
        if shown != self._shown:
            self._shown = shown
            self._lay_out()

    @property
    def marked(self) -> Row | None:
        """The row under the cursor."""
        return self._shown[self.cursor] if self.cursor < len(self._shown) else None

    def on_resize(self, event: Resize) -> None:
        self._lay_out()

    def on_table_moved(self) -> None:
        self._describe()

    def _lay_out(self) -> None:
        room = self.scrollable_content_region.width - 2  # the cursor's sign
        width = self._config_width(room)
        heading, configs = knob_table([row.config for row in self._shown], width)
        columns = [Column(heading, width) if c.name == "config" else c for c in COLUMNS]
        best = self._shown[0].score_ms if self._shown else None
        self.fill(
            columns,
            [
                TableRow(row.key, _cells(rank, row, config, best), strong=rank in ("1", "=1"))
                for rank, row, config in zip(ranks(self._shown), self._shown, configs, strict=True)
            ],
        )
        self._describe()

    def _config_width(self, room: int) -> int:
        """A width that makes the visible part end at a column's edge; `config` takes what is left over."""
        configs = [row.config for row in self._shown]
        fixed, width, essential = -len(GAP), room, True
        for column in COLUMNS:
            fixed += len(GAP) + (0 if column.name == "config" else column.width)
            left = room - fixed
            named = not configs or knob_table(configs, left)[0] != "config"
            if left < LEAST_CONFIG or not (essential or named):
                return width - 2  # for the sign that there is more to the right
            width, essential = left, essential and column.name != ESSENTIAL
        heading, cells = knob_table(configs, width)
        return min(width, max(LEAST_CONFIG, *map(len, [heading, *cells])))

    def _describe(self) -> None:
        row = self.marked
        self.border_subtitle = "" if row is None else short_config(row.config, max(0, self.size.width - 6))


def _cells(rank: str, row: Row, config: str, best_ms: float | None) -> tuple[str, ...]:
    return (
        rank,
        config,
        time_text(row.score_ms, best_ms),
        speedup(row.speedup),
        interval(row.speedup_ci),
        ratio(row.vendor_ratio),
        percent(row.floor_ratio),
        NONE if row.registers is None else str(row.registers),
        percent(row.occupancy),
        row.words,
    )
