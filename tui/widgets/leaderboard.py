"""The leaderboard: rows of the best configurations, laid out again only when they or the size differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.events import Resize

from ..board import Row, in_order, matches, rising
from ..export import Sheet
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
from ..verdicts import status_mark, status_words
from .table import GAP, Column, Table, TableRow

MOST_ROWS = 50  # nobody reads further down; `sessions export` has the rest


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

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "sort(1)", "Sort by the next column", show=False, id="board.sort"),
        Binding("O", "sort(-1)", "Sort by the column before", show=False, id="board.sort_back"),
        Binding("i", "invert", "Invert the order", show=False, id="board.invert"),
    ]
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

`o` and `O` sort by the next column and the one before, a click on a heading by that one; `i` inverts. The
ranks stay. `/` filters: `tied`, `reg_cap=0`, `items>2`, `regs<64`, `speedup>1.2`, `!paired`, words; all
must hold. A filter also finds configurations that failed, as `incorrect` or `failed`, with a letter in place
of the rank (**C** compile error, **I** incorrect…). `e` saves the table, with exact numbers in the CSV.
"""
    FILTER_HINT = "reg_cap=0  items>2  speedup>1.2  tied  failed  !paired"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._all: tuple[Row, ...] = ()
        self._failed: tuple[Row, ...] = ()
        self._total = 0
        self._shown: tuple[Row, ...] = ()
        self._ranks: dict[str, str] = {}
        self.sorted_by = COLUMNS[0].name
        self.inverted = False
        self.filter = ""
        self.border_title = "Leaderboard"

    def show(self, rows: Sequence[Row], total: int, failed: Sequence[Row] = ()) -> None:
        """Show the best `MOST_ROWS` of `rows` (best first) of `total` configurations tried; those that
        `failed` where a filter finds them."""
        kept, lost = tuple(rows[:MOST_ROWS]), tuple(failed)
        self._total = total
        if (kept, lost) != (self._all, self._failed):
            self._all, self._failed = kept, lost
            self._ranks = dict(zip((row.key for row in kept), ranks(kept), strict=True))
            self._choose()
        else:
            self._tell()

    def set_filter(self, text: str) -> None:
        """Show only rows for which all words of it hold."""
        if text != self.filter:
            self.filter = text
            self._choose()

    def action_sort(self, direction: int) -> None:
        """Sort by another column."""
        names = [column.name for column in COLUMNS]
        self._sort_by(names[(names.index(self.sorted_by) + direction) % len(names)])

    def action_invert(self) -> None:
        """Invert the order."""
        self.inverted = not self.inverted
        self._choose()

    def on_table_heading_clicked(self, message: Table.HeadingClicked) -> None:
        """Sort by that column; if it is sorted by it, the other way round."""
        name = COLUMNS[message.column].name
        if name == self.sorted_by:
            self.action_invert()
        else:
            self._sort_by(name)

    def _sort_by(self, name: str) -> None:
        self.sorted_by, self.inverted = name, False
        self._choose()

    def _choose(self) -> None:
        """Filter and sort, and lay the rows out."""
        rows = [row for row in self._all if matches(row, self.filter)]
        if self.filter.strip():
            rows += [row for row in self._failed if matches(row, self.filter)]
        self._shown = tuple(in_order(rows, self.sorted_by, inverted=self.inverted))
        self._tell()
        self._lay_out()

    def _tell(self) -> None:
        title = f"Leaderboard, best {len(self._all)} of {self._total}" if self._total else "Leaderboard"
        tied = sum(row.tied for row in self._all)
        parts = [title, f"{tied} tied for the best" if tied > 1 else ""]
        if self.sorted_by != COLUMNS[0].name or self.inverted:
            parts.append(f"by {self.sorted_by}{', inverted' if self.inverted else ''}")
        parts.append(f"/{self.filter}: {len(self._shown)}" if self.filter.strip() else "")
        words = " · ".join(part for part in parts if part)
        if words != self._named:
            self._named = words
            self.border_title = words

    _named = ""

    def exported(self) -> Sheet | None:
        """The rows that are shown, with exact numbers in the CSV."""
        sheet = super().exported()
        if sheet is None:
            return None
        return replace(sheet, values=[_values(self._rank(row), row) for row in self._shown])

    def _rank(self, row: Row) -> str:
        return self._ranks.get(row.key) or status_mark(row.status)

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
        if self.sorted_by != COLUMNS[0].name or self.inverted:
            place = next(i for i, c in enumerate(COLUMNS) if c.name == self.sorted_by)
            columns[place] = _marked(columns[place], "▲" if rising(self.sorted_by) ^ self.inverted else "▼")
        best = self._all[0].score_ms if self._all else None
        self.fill(
            columns,
            [
                TableRow(row.key, _cells(rank, row, config, best), strong=rank in ("1", "=1"))
                for row, config in zip(self._shown, configs, strict=True)
                for rank in [self._rank(row)]
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
        room = max(0, self.size.width - 6)
        words = "" if row is None else short_config(row.config, room)
        if row is not None and row.message:
            words = clip(f"{status_words(row.status)}: {' '.join(row.message.split())}", room)
        self.border_subtitle = words


def _marked(column: Column, sign: str) -> Column:
    """The column with a sign in its heading that it is sorted by."""
    name = column.name.rstrip(".")
    return replace(column, name=f"{name[: column.width - 1]}{sign}")


def _values(rank: str, row: Row) -> dict[str, Any]:
    low, high = row.speedup_ci or (None, None)
    return {
        "rank": rank,
        "candidate": row.key,
        **row.config,
        "status": row.status,
        "time_ms": row.score_ms,
        "speedup": row.speedup,
        "speedup_low": low,
        "speedup_high": high,
        "vendor_ratio": row.vendor_ratio,
        "floor_ratio": row.floor_ratio,
        "registers": row.registers,
        "occupancy": row.occupancy,
        "notes": row.words,
        "message": row.message,
    }


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
