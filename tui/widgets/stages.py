"""The stages of a trace: how often, how long, what share, how uneven. Two lines a stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
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

from ...telemetry.trace.summary import Range, Stage
from ..braille import bar
from ..export import Exported, Sheet
from ..format import clip
from ..palette import colours, ink
from ..trace_view import count_words, time_words
from .table import Column, Table, TableRow

LINES = 2  # a stage


@dataclass(frozen=True)
class StageRow:
    """A stage's sums, and which of the timeline's stages it is."""

    sums: Stage
    stage: int


LONGEST = (
    Column("stage", 8),
    Column("warp", 7),
    Column("lasts", 8, right=True),
    Column("from", 9, right=True),
)
HEADINGS = (("count", 7), ("p50", 9), ("p95", 9), ("total", 9), ("imb.", 6))


def _figures(sums: Stage) -> tuple[str, ...]:
    """Count, percentiles, total, imbalance: as under HEADINGS."""
    return (
        count_words(sums.count),
        time_words(sums.p50_ns, 3),
        time_words(sums.p95_ns, 3),
        time_words(sums.total_ns, 3),
        f"{sums.imbalance_warps:.2f}",
    )


def _columns(cells: Sequence[str], width: int) -> str:
    """Cells under the headings, as many as there is room for."""
    text = ""
    for cell, (_, room) in zip(cells, HEADINGS, strict=True):
        if len(text) + room <= width:
            text += f"{cell:>{room}}"
    return text


class LongestPane(Table):
    """The longest waits (of a trace whose stages are named so, else the longest ranges of any)."""

    HELP = """\
### Longest waits

The longest ranges of stages that are named like waits; of any stage where none is. **enter** shows one.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "Go to", id="longest.choose", tooltip="Show the marked range"),
    ]

    class Asked(Message):
        """enter, or a second click."""

        def __init__(self, range: Range) -> None:
            super().__init__()
            self.range = range

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.ranges: tuple[Range, ...] = ()
        self.border_title = "Longest waits"

    def show(self, ranges: Sequence[Range]) -> None:
        """Replace the rows."""
        self.ranges = tuple(ranges)
        rows = [
            TableRow(
                str(i),
                (r.stage, f"{r.cta}.w{r.warp}", time_words(r.duration_ns, 3), time_words(r.start_ns, 4)),
            )
            for i, r in enumerate(self.ranges)
        ]
        self.fill(LONGEST, rows)

    def action_choose(self) -> None:
        """Show the marked one."""
        if self.cursor < len(self.ranges):
            self.post_message(self.Asked(self.ranges[self.cursor]))

    def on_table_chosen(self) -> None:
        self.action_choose()


class StagePane(ScrollView, Exported, can_focus=True):
    """A list of stages, one of them marked."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"stages--marked", "stages--small"}
    HELP = """\
### Stages

How much of the warps' time each stage takes: its share (without what is nested in it; async stages run
beside the others), how many ranges, median and 95th percentile of one, the time of all together, and
**imb.**, the busiest warp's time over the mean warp's: 1.00 is even. **enter** goes to the marked stage's
longest range and makes the other stages faint.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Exported.BINDING,
        Binding("down,j", "move(1)", "Down", show=False, id="stages.down"),
        Binding("up,k", "move(-1)", "Up", show=False, id="stages.up"),
        Binding("g,home", "move(-1000)", "First", show=False, id="stages.first"),
        Binding("G,end", "move(1000)", "Last", show=False, id="stages.last"),
        Binding(
            "enter", "choose", "Go to", id="stages.choose", tooltip="Go to the marked stage's longest range"
        ),
    ]
    cursor: reactive[int] = reactive(0)

    class Chosen(Message):
        """enter or a second click on a stage."""

        def __init__(self, stage: int) -> None:
            super().__init__()
            self.stage = stage

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: tuple[StageRow, ...] = ()
        self.letters: Sequence[str] = ()
        self.names: Sequence[str] = ()
        self.colours: Sequence[str] = ()
        self.border_title = "Stages"

    def show(self, rows: Sequence[StageRow], names: Sequence[str], letters: Sequence[str]) -> None:
        """Replace the rows; `names` and `letters` are those of all of the timeline's stages."""
        self.rows = tuple(rows)
        self.names, self.letters, self.colours = names, letters, colours(names)
        self.virtual_size = Size(1, LINES * len(self.rows) + 1)
        self.refresh(layout=True)  # it is as high as its rows

    def exported(self) -> Sheet | None:
        """All stages, with every figure of theirs."""
        if not self.rows:
            return None
        names = ("stage", *(name for name, _ in HEADINGS), "share")
        rows = [(r.sums.name, *_figures(r.sums), f"{100 * r.sums.share:.1f}%") for r in self.rows]
        right = (False, *[True] * (len(names) - 1))
        return Sheet("Stages", names, rows, right, [asdict(r.sums) for r in self.rows])

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.colours = colours(self.names)

    def watch_cursor(self) -> None:
        """Keep the marked stage visible."""
        top, height = self.scroll_offset.y, self.scrollable_content_region.height - 1
        first = LINES * self.cursor
        if first < top or first + LINES > top + height:
            self.scroll_to(y=first if first < top else first + LINES - height, animate=False, immediate=True)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Half a stage."""
        width = self.scrollable_content_region.width
        if y == 0:
            small = self.get_component_rich_style("stages--small")
            heading = _columns([name for name, _ in HEADINGS], width)
            return Strip([Segment(heading, small)]).adjust_cell_length(width, small)
        index, half = divmod(y - 1 + self.scroll_offset.y, LINES)
        if index >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        marked = index == self.cursor
        style = self.get_component_rich_style("stages--marked") if marked else self.rich_style
        small = style if marked else self.get_component_rich_style("stages--small")
        return (self._head if half == 0 else self._tail)(self.rows[index], width, style, small)

    def _head(self, row: StageRow, width: int, style: Style, small: Style) -> Strip:
        """Letter and name, share as a bar and in words."""
        colour = self.colours[row.stage]
        swatch = Style(color=ink(colour), bgcolor=colour, bold=True)
        share = f"{100 * row.sums.share:5.1f}%"
        name = min(12, max(6, width - 22))
        room = max(0, width - name - len(share) - 6)
        filled = bar(row.sums.share, room)
        return Strip(
            [
                Segment(f" {self.letters[row.stage]} ", swatch),
                Segment(f" {clip(row.sums.name, name):<{name}} ", style),
                Segment(filled, Style(color=colour, bgcolor=style.bgcolor)),
                Segment(f"{share} ", style),
            ]
        ).adjust_cell_length(width, style)

    def _tail(self, row: StageRow, width: int, style: Style, small: Style) -> Strip:
        """Count, percentiles, total, imbalance, under their headings."""
        return Strip([Segment(_columns(_figures(row.sums), width), small)]).adjust_cell_length(width, style)

    def action_move(self, rows: int) -> None:
        """Mark another stage."""
        self.cursor = min(max(self.cursor + rows, 0), max(0, len(self.rows) - 1))

    def action_choose(self) -> None:
        """Choose the marked one."""
        if self.rows:
            self.post_message(self.Chosen(self.rows[self.cursor].stage))

    def on_click(self, event: Click) -> None:
        """A click marks a stage; a click on the marked one chooses it."""
        offset = event.get_content_offset(self)
        index = -1 if offset is None else (offset.y - 1 + self.scroll_offset.y) // LINES
        if index == self.cursor:
            self.action_choose()
        elif 0 <= index < len(self.rows):
            self.cursor = index
