"""The leaderboard: rows of the best configurations, laid out again only when they or the size differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textual.events import Resize

from ..format import NONE, clip, config_text, interval, percent, ratio, time_text
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
        """The status column: the status, and in words what the marks mean."""
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
        return ", ".join([self.status, *notes])


# The most important come first, since a narrow terminal cuts the right end off.
LEAST_CONFIG = 16
COLUMNS = (
    Column("#", 2),
    Column("config", LEAST_CONFIG),  # takes what the others leave
    Column("score", 9, right=True),
    Column("speedup", 7, right=True),
    Column("95% interval", 12),
    Column("status", 16),
    Column("vendor", 6, right=True),
    Column("floor", 5, right=True),
    Column("regs", 4, right=True),
    Column("occ.", 4, right=True),
)


def ranks(rows: Sequence[Row]) -> list[str]:
    """ "1", "2"…; with "=" where a row is tied with the best: "=1"."""
    tied = sum(r.tied for r in rows) > 1
    return ["=1" if tied and row.tied else f"{i}" for i, row in enumerate(rows, start=1)]


class Leaderboard(Table):
    """Best configurations, best first. Arrows and hjkl move; `y` copies the marked one."""

    HELP = """\
### Leaderboard

The best configurations, by the geometric mean of their median times over all sizes. **speedup** is
against the baseline, with its 95% interval where one is known. **=1** and the word *tied* mark
configurations that can't be told apart from the best; *same code* marks one that compiled to the
same binary as another and was measured once; *paired* marks a finalist, measured again at the end in
turns with the baseline, which makes its interval narrower. **vendor**: vendor's time / this time (above
1: faster than the vendor's library). **floor**: the physical floor / this time (1 is the limit). **regs**
registers a thread, **occ.** theoretical occupancy. A long configuration is shown whole in the frame's
lower edge.
"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: tuple[Row, ...] = ()
        self.border_title = "Leaderboard"

    def show(self, rows: Sequence[Row], total: int) -> None:
        """Show the best `MOST_ROWS` of `rows` (best first) of `total` configurations tried."""
        shown = tuple(rows[:MOST_ROWS])
        self.border_title = f"Leaderboard, best {len(shown)} of {total}" if total else "Leaderboard"
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
        heading = "config"
        # Values alone, in the knobs' order, say more than a cut name; but all rows alike.
        named = all(len(config_text(row.config)) <= width for row in self._shown)
        if not named:
            heading = ",".join(self._shown[0].config)
        columns = [Column(heading, width) if c.name == "config" else c for c in COLUMNS]
        self.fill(
            columns,
            [
                TableRow(row.key, _cells(rank, row, named), strong=rank in ("1", "=1"))
                for rank, row in zip(ranks(self._shown), self._shown, strict=True)
            ],
        )
        self._describe()

    def _config_width(self, room: int) -> int:
        """A width that makes the visible part end at a column's edge; `config` takes what is left over."""
        config, fixed = LEAST_CONFIG, -len(GAP)
        for column in COLUMNS:
            fixed += len(GAP) + (0 if column.name == "config" else column.width)
            if fixed + LEAST_CONFIG > room:
                return config - 2  # for the sign that there is more to the right
            config = room - fixed
        return min(config, max([LEAST_CONFIG, *(len(config_text(r.config)) for r in self._shown)]))

    def _describe(self) -> None:
        row = self.marked
        self.border_subtitle = (
            "" if row is None else clip(config_text(row.config), max(0, self.size.width - 6))
        )


def _cells(rank: str, row: Row, named: bool) -> tuple[str, ...]:
    return (
        rank,
        config_text(row.config) if named else ",".join(str(v) for v in row.config.values()),
        time_text(row.score_ms),
        ratio(row.speedup),
        interval(row.speedup_ci),
        row.words,
        ratio(row.vendor_ratio),
        NONE if row.floor_ratio is None else f"{row.floor_ratio:.2f}",
        NONE if row.registers is None else str(row.registers),
        percent(row.occupancy),
    )
