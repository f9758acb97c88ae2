"""The leaderboard: a DataTable that is rebuilt only when its rows differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.events import Resize
from textual.widgets import DataTable

from ..format import NONE, clip, config_text, interval, percent, ratio, time_text

MOST_ROWS = 50  # a DataTable costs 60 µs a cell; nobody reads further down, `sessions export` has the rest


@dataclass(frozen=True)
class Row:
    """One configuration. `tied`: statistically as good as the best."""

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
                ("same code", self.same_as is not None),
            )
            if holds
        ]
        return ", ".join([self.status, *notes])


# Heading, width; the most important come first, since a narrow terminal cuts the right end off.
COLUMNS = (
    ("#", 3),
    ("config", 0),  # takes what the others leave
    ("score", 9),
    ("speedup", 7),
    ("95% interval", 12),
    ("status", 15),
    ("vendor", 6),
    ("floor", 5),
    ("regs", 4),
    ("occ.", 4),
)
LEAST_CONFIG = 16


def ranks(rows: Sequence[Row]) -> list[str]:
    """ "1", "2"…; with "=" where a row is tied with the best: "=1"."""
    tied = sum(r.tied for r in rows) > 1
    return ["=1" if tied and row.tied else f"{i}" for i, row in enumerate(rows, start=1)]


class Leaderboard(DataTable[Text], can_focus=True):
    """Best configurations, best first. Arrows and hjkl move; `y` copies the marked one."""

    BINDING_GROUP_TITLE = "Leaderboard"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "Down", show=False, id="table.down"),
        Binding("k", "cursor_up", "Up", show=False, id="table.up"),
        Binding("h", "scroll_columns(-1)", "Scroll left", show=False, id="table.left"),
        Binding("l", "scroll_columns(1)", "Scroll right", show=False, id="table.right"),
        Binding("g", "scroll_top", "First row", show=False, id="table.first"),
        Binding("G", "scroll_bottom", "Last row", show=False, id="table.last"),
    ]
    HELP = """\
### Leaderboard

The best configurations, by the geometric mean of their median times over all sizes. **speedup** is
against the baseline, with its 95% interval where one is known. **=1** and the word *tied* mark
configurations that can't be told apart from the best; *same code* marks one that compiled to the
same binary as another and was measured once. **vendor**: vendor's time / this time (above 1: faster than
the vendor's library). **floor**: the physical floor / this time (1 is the limit). **regs** registers a
thread, **occ.** theoretical occupancy. A long configuration is shown whole in the frame's lower edge.
"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=False, cell_padding=1)
        self._rows: tuple[Row, ...] = ()
        self._widths: tuple[int, ...] = ()
        self.border_title = "Leaderboard"
        self.fixed_columns = 1

    def show(self, rows: Sequence[Row], total: int) -> None:
        """Show the best `MOST_ROWS` of `rows` (best first) of `total` configurations tried."""
        shown = tuple(rows[:MOST_ROWS])
        self.border_title = f"Leaderboard, best {len(shown)} of {total}" if total else "Leaderboard"
        if shown != self._rows:
            self._rows = shown
            self._rebuild()

    @property
    def marked(self) -> Row | None:
        """The row under the cursor."""
        return self._rows[self.cursor_row] if 0 <= self.cursor_row < len(self._rows) else None

    def action_scroll_columns(self, direction: int) -> None:
        """Scroll sideways."""
        self.scroll_relative(x=12 * direction, animate=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Left and right scroll, except in a replay, where they belong to the replay bar."""
        return not (action in ("cursor_left", "cursor_right") and self.screen.has_class("-replay"))

    def action_cursor_left(self) -> None:
        """Scroll left."""
        self.action_scroll_columns(-1)

    def action_cursor_right(self) -> None:
        """Scroll right."""
        self.action_scroll_columns(1)

    def on_resize(self, event: Resize) -> None:
        if self._column_widths() != self._widths:
            self._rebuild()

    def on_data_table_row_highlighted(self) -> None:
        self._describe()

    def _column_widths(self) -> tuple[int, ...]:
        """Widths that make the visible part end at a column's edge; `config` takes what is left over."""
        room = self.scrollable_content_region.width
        longest = max((len(config_text(r.config)) for r in self._rows), default=0)
        config = LEAST_CONFIG
        fixed = 0
        for _, width in COLUMNS:
            fixed += width + 2 * self.cell_padding
            if fixed + LEAST_CONFIG > room:
                break
            config = room - fixed
        whole = fixed + LEAST_CONFIG <= room
        config = min(config, max(LEAST_CONFIG, longest)) if whole else config
        return tuple(width or config for _, width in COLUMNS)

    def _rebuild(self) -> None:
        if not self.size.width:
            return
        marked = self._rows_key()
        widths = self._column_widths()
        with self.app.batch_update():
            if widths != self._widths:
                self.clear(columns=True)
                self._widths = widths
                for (name, _), width in zip(COLUMNS, widths, strict=True):
                    self.add_column(name, width=width, key=name)
            else:
                self.clear()
            config_width = widths[1]
            for rank, row in zip(ranks(self._rows), self._rows, strict=True):
                self.add_row(*_cells(rank, row, config_width), key=row.key)
            keys = [r.key for r in self._rows]
            if marked in keys:
                self.cursor_coordinate = Coordinate(keys.index(marked), 0)
        self._describe()

    def _rows_key(self) -> str | None:
        """Key of the row under the cursor before a rebuild, so that the cursor stays on it."""
        if not self.row_count or self.cursor_row <= 0:
            return None  # the first row is where the cursor starts: it stays at the top
        return self.coordinate_to_cell_key(Coordinate(self.cursor_row, 0)).row_key.value

    def _describe(self) -> None:
        row = self.marked
        self.border_subtitle = (
            "" if row is None else clip(config_text(row.config), max(0, self.size.width - 6))
        )


def _cells(rank: str, row: Row, config_width: int) -> list[Text]:
    config = config_text(row.config)
    if len(config) > config_width:  # values alone, in the knobs' order, say more than a cut name
        config = clip(",".join(str(v) for v in row.config.values()), config_width)
    style = "bold" if rank in ("1", "=1") else ""
    right = {"justify": "right", "style": style}
    return [
        Text(rank, style=style),
        Text(config, style=style),
        Text(time_text(row.score_ms), **right),  # pyright: ignore[reportArgumentType]
        Text(ratio(row.speedup), **right),  # pyright: ignore[reportArgumentType]
        Text(interval(row.speedup_ci)),
        Text(row.words, style=style),
        Text(ratio(row.vendor_ratio), justify="right"),
        Text(NONE if row.floor_ratio is None else f"{row.floor_ratio:.2f}", justify="right"),
        Text(NONE if row.registers is None else str(row.registers), justify="right"),
        Text(percent(row.occupancy), justify="right"),
    ]
