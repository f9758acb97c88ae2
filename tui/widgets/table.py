"""A table of text rows with a cursor.

Not Textual's DataTable: that styles each cell, which costs 30 ms and 11 KB of terminal output for one
rebuild of a full leaderboard. Here a row is one run of text: under 1 ms and 2 KB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ..export import Exported, Sheet
from ..format import clip

GAP = "  "


@dataclass(frozen=True)
class Column:
    """A heading, its width in characters, and whether its cells are aligned to the right."""

    name: str
    width: int
    right: bool = False

    def cell(self, text: str) -> str:
        """`text` in exactly the column's width."""
        cut = clip(text, self.width)
        return cut.rjust(self.width) if self.right else cut.ljust(self.width)


@dataclass(frozen=True)
class TableRow:
    """Cells in the columns' order. `key` identifies the row when the rows are replaced; `tones` colours cells
    ("good", "bad", "dim" or "")."""

    key: str
    cells: tuple[str, ...]
    strong: bool = False
    tones: tuple[str, ...] = ()


class Table(ScrollView, Exported, can_focus=True):
    """Rows under a heading that stays; one row is marked, with a sign as well as a colour."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "table--heading",
        "table--cursor",
        "table--strong",
        "table--good",
        "table--bad",
        "table--dim",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "Down", show=False, id="table.down"),
        Binding("up,k", "move(-1)", "Up", show=False, id="table.up"),
        Binding("l", "sideways(1)", "Scroll right", show=False, id="table.right"),
        Binding("h", "sideways(-1)", "Scroll left", show=False, id="table.left"),
        Binding("right", "arrow(1)", "Scroll right", show=False, id="table.arrow_right"),
        Binding("left", "arrow(-1)", "Scroll left", show=False, id="table.arrow_left"),
        Binding("pagedown", "page(1)", "Page down", show=False, id="table.page_down"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="table.page_up"),
        Binding("g,home", "jump(0)", "First row", show=False, id="table.first"),
        Binding("G,end", "jump(-1)", "Last row", show=False, id="table.last"),
        Exported.BINDING,
    ]

    cursor: reactive[int] = reactive(0)

    class Moved(Message):
        """The cursor is on another row."""

    class Chosen(Message):
        """A click on the marked row."""

    class HeadingClicked(Message):
        """A click on a column's heading."""

        def __init__(self, column: int) -> None:
            super().__init__()
            self.column = column  # its place

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.columns: tuple[Column, ...] = ()
        self.rows: tuple[TableRow, ...] = ()

    def fill(self, columns: Sequence[Column], rows: Sequence[TableRow]) -> None:
        """Replace everything. The cursor stays on its row, or at the top if it is there."""
        marked = self.marked_key if self.cursor > 0 else None
        self.columns, self.rows = tuple(columns), tuple(rows)
        width = 2 + sum(c.width for c in self.columns) + len(GAP) * max(0, len(self.columns) - 1)
        self.virtual_size = Size(width, len(self.rows) + 1)
        keys = [row.key for row in self.rows]
        self.cursor = keys.index(marked) if marked in keys else min(self.cursor, max(0, len(keys) - 1))
        self.refresh()

    @property
    def marked_key(self) -> str | None:
        """Key of the row under the cursor."""
        return self.rows[self.cursor].key if self.cursor < len(self.rows) else None

    def watch_cursor(self) -> None:
        self.reveal()
        self.post_message(self.Moved())
        self.refresh()

    def reveal(self) -> None:
        """Keep the cursor's row visible; the heading takes the first line."""
        body = max(1, self.scrollable_content_region.height - 1)
        if self.cursor < self.scroll_offset.y:
            self.scroll_to(y=self.cursor, animate=False, immediate=True)
        elif self.cursor >= self.scroll_offset.y + body:
            self.scroll_to(y=self.cursor - body + 1, animate=False, immediate=True)

    def render_line(self, y: int) -> Strip:
        """The heading, or a row."""
        left, top = self.scroll_offset
        width = self.scrollable_content_region.width
        index = top + y - 1
        if y and index >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        text, style = self._row(index) if y else self._heading()
        whole = self._whole_columns(left + width)
        if y == 0 and whole < len(text):
            text = f"{text[:whole]} ›"  # there is more to the right
        text = text[: whole + 2 * (y == 0)]
        tones = self.rows[index].tones if y and index != self.cursor else ()  # on that ground all is text
        segments = self._toned(text, style, tones) if any(tones) else [Segment(text, style)]
        return Strip(segments).crop_extend(left, left + width, style)

    def _toned(self, text: str, style: Style, tones: Sequence[str]) -> list[Segment]:
        """A row's text with its cells' colours, as long as it is."""
        segments, at = [Segment(text[:2], style)], 2
        for column, tone in zip(self.columns, tones, strict=True):
            end = at + column.width + len(GAP)
            colour = Style(color=self.get_component_rich_style(f"table--{tone}").color) if tone else None
            segments.append(Segment(text[at:end], style + colour if colour else style))
            at = end
        return [segment for segment in segments if segment.text]

    def _whole_columns(self, edge: int) -> int:
        """Where the last column ends that ends at or before `edge`: a cut number would mislead."""
        end = position = 2
        for column in self.columns:
            position += column.width
            if position > edge:
                return end
            end = position
            position += len(GAP)
        return end

    def _column_at(self, x: int) -> int | None:
        """Place of the column at a character of the heading."""
        end = 2
        for place, column in enumerate(self.columns):
            end += column.width + len(GAP)
            if x < end:
                return place
        return None

    def exported(self) -> Sheet | None:
        """All rows, as they read."""
        if not self.rows:
            return None
        title = str(self.border_title or self.id or "table")
        names = [column.name for column in self.columns]
        return Sheet(title, names, [row.cells for row in self.rows], [c.right for c in self.columns])

    def _heading(self) -> tuple[str, Style]:
        text = "  " + GAP.join(c.cell(c.name) for c in self.columns)
        return text, self.get_component_rich_style("table--heading")

    def _row(self, index: int) -> tuple[str, Style]:
        row = self.rows[index]
        marked = index == self.cursor
        text = GAP.join(c.cell(cell) for c, cell in zip(self.columns, row.cells, strict=True))
        name = "table--cursor" if marked else "table--strong" if row.strong else ""
        style = self.get_component_rich_style(name) if name else self.rich_style
        return ("▸ " if marked else "  ") + text, style

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Left and right scroll, except in a replay, where they belong to the replay bar; and a screen may
        export something else with the key that saves a table."""
        if action == "export":
            return not hasattr(self.screen, "action_export")
        return not (action == "arrow" and self.screen.has_class("-replay"))

    def action_move(self, rows: int) -> None:
        """Move the cursor."""
        self.cursor = min(max(self.cursor + rows, 0), max(0, len(self.rows) - 1))

    def action_page(self, direction: int) -> None:
        """Move the cursor by what is visible."""
        self.action_move(direction * max(1, self.scrollable_content_region.height - 2))

    def action_jump(self, row: int) -> None:
        """To the first (0) or the last (-1) row."""
        self.cursor = 0 if row == 0 else max(0, len(self.rows) - 1)

    def action_sideways(self, direction: int) -> None:
        """Scroll sideways."""
        self.scroll_relative(x=12 * direction, animate=False)

    def action_arrow(self, direction: int) -> None:
        """The same, with arrows."""
        self.action_sideways(direction)

    def on_click(self, event: Click) -> None:
        """A click marks a row; a click on the marked row chooses it."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        if offset.y == 0:
            column = self._column_at(self.scroll_offset.x + offset.x)
            if column is not None:
                self.post_message(self.HeadingClicked(column))
            return
        index = self.scroll_offset.y + offset.y - 1
        if index == self.cursor and self.marked_key is not None:
            self.post_message(self.Chosen())
        elif index < len(self.rows):
            self.cursor = index
