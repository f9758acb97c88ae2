"""The timeline pane: warps as rows, time to the right, one strip a row, drawn once a change."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from ...telemetry.trace.timeline import Timeline
from ..lanes import ASYNC, DEEPEST, EVERY, NESTED, NONE, TOKEN, Floats, build
from ..palette import blend, colours, letters
from ..timeline_paint import IDLE, OUTSIDE, STAGE, TEXT, Grid, Look, hairline, mark, paint
from ..trace_view import axis, time_words

WIDE_GUTTER, GUTTER = 16, 10
ROOMY = 74  # columns of the pane from which on the gutter has CTA, SM and warp
_HEADS = {WIDE_GUTTER: " cta   sm  warp  ", GUTTER: " cta warp "}
_TAGS = {TOKEN: "~", ASYNC: "→"}


class TimelinePane(Widget, can_focus=True):
    """A timeline, its cursor and its view. `show` replaces the trace."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "timeline--axis",
        "timeline--idle",
        "timeline--unknown",
        "timeline--text",
        "timeline--gutter",
        "timeline--odd",
        "timeline--cursor",
    }
    HELP = """\
### Timeline

A row a warp, time to the right. A column is painted in the stage that ran longest there; where less than
half of it was busy, a low bar in that stage's colour says how much. The name (or its letter) stands in the
longer ranges, with the loop index. A thin line parts two ranges of one stage. Rows marked **~** are token
ranges, **→** async stages from issue to completion, **◆** marks and values. **╱** in red: events were
dropped, so what ran there is unknown. At the bottom is the whole trace, under a bar that says which part is on the
screen.

The mouse wheel zooms at the pointer (with shift it pans, with ctrl it scrolls), dragging pans, a click sets
the cursor.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "step(-1)", "Left", key_display="←", show=False, id="timeline.left"),
        Binding("right,l", "step(1)", "Right", key_display="→", show=False, id="timeline.right"),
        Binding("up,k", "row(-1)", "Warp above", show=False, id="timeline.up"),
        Binding("down,j", "row(1)", "Warp below", show=False, id="timeline.down"),
        Binding("H,shift+left", "pan(-1)", "Pan left", show=False, id="timeline.pan_left"),
        Binding("L,shift+right", "pan(1)", "Pan right", show=False, id="timeline.pan_right"),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False, id="timeline.page_up"),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False, id="timeline.page_down"),
        Binding("g", "edge_row(0)", "First warp", show=False, id="timeline.first"),
        Binding("G", "edge_row(-1)", "Last warp", show=False, id="timeline.last"),
        Binding("home,0", "edge_time(0)", "Start of the trace", show=False, id="timeline.start"),
        Binding("end,dollar_sign", "edge_time(1)", "End of the trace", show=False, id="timeline.end"),
        Binding(
            "plus,equals_sign", "zoom(0.5)", "Zoom", key_display="+-", id="timeline.in", tooltip="Zoom in"
        ),
        Binding("minus", "zoom(2)", "Zoom out", show=False, id="timeline.out"),
        Binding("f", "fit", "Fit", id="timeline.fit", tooltip="Show the whole trace"),
        Binding("enter", "fit_slice", "Fit slice", show=False, id="timeline.fit_slice"),
        Binding("right_square_bracket", "slice(1)", "Next slice", show=False, id="timeline.next"),
        Binding("left_square_bracket", "slice(-1)", "Previous slice", show=False, id="timeline.previous"),
        Binding("d", "levels", "Depth", id="timeline.levels", tooltip="Innermost, every depth, or one depth"),
        Binding(
            "a",
            "extras",
            "Async",
            show=False,
            id="timeline.extras",
            tooltip="Token and async lanes on or off",
        ),
    ]

    class Moved(Message):
        """The cursor, the choice or the view changed."""

    def __init__(self, timeline: Timeline, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.timeline = timeline
        self.levels = DEEPEST
        self.extras = True
        self.lanes = build(timeline)
        self.low, self.high = self.lanes.low, self.lanes.high
        self.view = (self.low, self.high)
        self.top = 0
        self.lane = 0
        self.time = self.low
        self.chosen: int | None = None  # the slice under the cursor
        self.focus_stage: int | None = None
        self.letters = letters(timeline.stages)
        self._strips: list[Strip] | None = None
        self._grid: tuple[object, Grid] | None = None
        self._map: tuple[object, list[Strip]] | None = None
        self._styles: dict[int, Style] = {}
        self._drag: tuple[float, float] | None = None
        self._dragged = False
        warps, slices, marks = timeline.warps, timeline.slices, timeline.marks
        self._step = self.high - self.low + 1.0
        key = marks.row * self._step + (marks.time_ns - self.low)
        self._mark_order = np.argsort(key)
        self._mark_key = key[self._mark_order]
        self._numbered = np.zeros(max(1, len(timeline.stages)), dtype=bool)
        self._numbered[slices.stage[slices.payload != 0]] = True
        # Buffers keep what came first: after a warp's last record, all is unknown where any were dropped.
        self._known_until = warps.end_ns.copy()
        self._known_until[warps.dropped > 0] = self.low
        seen = np.where(slices.flags & 1, slices.start_ns, slices.end_ns)
        for row, times in ((slices.row, seen), (marks.row, marks.time_ns)):
            mine = warps.dropped[row] > 0
            np.maximum.at(self._known_until, row[mine], times[mine])
        self.choose()

    # Geometry

    @property
    def gutter(self) -> int:
        """Columns left of the time axis."""
        return WIDE_GUTTER if self.content_size.width >= ROOMY else GUTTER

    @property
    def columns(self) -> int:
        """Columns of the time axis."""
        return max(1, self.content_size.width - self.gutter)

    @property
    def map_rows(self) -> int:
        """Rows of the minimap, its bar among them."""
        height = self.content_size.height
        return 3 if height >= 22 else 2 if height >= 9 else 0

    @property
    def body(self) -> int:
        """Rows for lanes."""
        return max(1, self.content_size.height - 1 - self.map_rows)

    @property
    def column_ns(self) -> float:
        """Nanoseconds a column."""
        return (self.view[1] - self.view[0]) / self.columns

    @property
    def column(self) -> int:
        """The cursor's column; outside of 0…columns - 1 if it is not on the screen."""
        return math.floor((self.time - self.view[0]) / self.column_ns + 1e-9)

    def edges(self) -> Floats:
        """Times of the columns' edges, (columns + 1)."""
        return np.linspace(*self.view, self.columns + 1)

    # What is shown

    @property
    def row(self) -> int | None:
        """The cursor's warp, as an index of `Warps`."""
        return int(self.lanes.row[self.lane]) if self.lane < self.lanes.count else None

    def set_view(self, low: float, high: float) -> None:
        """Show the times from `low` to `high` ns, as far as the trace has them and a column can be drawn."""
        whole = self.high - self.low
        least = min(whole, max(1e-3, self.timeline.clock.tick_ns / 8) * self.columns)
        span = min(max(high - low, least), whole)
        middle = (low + high) / 2
        start = min(max(middle - span / 2, self.low), self.high - span)
        self.view = (start, start + span)
        self._redraw()

    def zoom_at(self, factor: float, time: float) -> None:
        """Change the span by a factor, with `time` where it is on the screen."""
        low, high = self.view
        whole = self.high - self.low
        span = min((high - low) * factor, whole)
        share = (time - low) / (high - low)
        self.set_view(time - share * span, time + (1 - share) * span)

    def place(self, lane: int | None = None, time: float | None = None, chosen: int | None = None) -> None:
        """Move the cursor, and the view as far as it must to show it. `chosen`: the slice meant there."""
        if lane is not None:
            self.lane = min(max(lane, 0), max(0, self.lanes.count - 1))
        if time is not None:
            self.time = min(max(time, self.low), self.high)
        self.top = min(max(self.top, self.lane - self.body + 1), self.lane)
        low, high = self.view
        if not low <= self.time < high:
            start = self.time - (high - low - self.column_ns if self.time >= high else 0.0)
            self.set_view(start, start + high - low)
        self.choose(chosen)
        self._redraw()

    def choose(self, index: int | None = None) -> None:
        """Choose a slice, or the one under the cursor."""
        if index is None and self.lane < self.lanes.count:
            half = self.column_ns / 2
            for time in (self.time, self.time + half):
                index = self.lanes.slice_at(self.lane, time)
                if index is not None:
                    break
        self.chosen = index

    def marks_here(self, most: int = 3) -> list[int]:
        """Marks of the cursor's warp within its column."""
        row = self.row
        if row is None:
            return []
        at = row * self._step + (self.time - self.low)
        a, b = np.searchsorted(self._mark_key, [at, at + self.column_ns])
        return self._mark_order[a : min(b, a + most)].tolist()

    def reveal(self, index: int, *, fit: bool = False) -> None:
        """Bring a slice to the cursor. `fit`: zoom so that it takes a third of the width; else only as far as
        it needs to be seen."""
        s = self.timeline.slices
        start, end = float(s.start_ns[index]), float(s.end_ns[index])
        lane = self._lane_of(index)
        if lane is None:
            self.levels, self.extras = DEEPEST, True
            self.rebuild()
            lane = self._lane_of(index)
        length = max(end - start, self.timeline.clock.tick_ns)
        low, high = self.view
        if fit or length < 2 * self.column_ns:
            self.set_view(start - length, end + length)
        elif not (low <= start and end <= high):
            span = max(high - low, 1.25 * length)
            middle = start + min(length, span * 0.4) / 2
            self.set_view(middle - span / 2, middle + span / 2)
        if lane is not None and not self.top <= lane < self.top + self.body:
            self.top = max(0, min(lane - self.body // 3, self.lanes.count - self.body))
        self.place(lane, start, chosen=index)

    def _lane_of(self, index: int) -> int | None:
        s = self.timeline.slices
        return self.lanes.lane_of(
            int(s.row[index]), int(s.kind[index]), float(s.start_ns[index]), int(s.depth[index]), index
        )

    def rebuild(self) -> None:
        """Lanes again, after a change of what they show; the cursor stays at its warp."""
        row = self.row
        self.lanes = build(self.timeline, self.levels, self.extras)
        self._map = None
        if row is not None:
            self.lane = int(np.searchsorted(self.lanes.row, row))
        self.top = min(self.top, max(0, self.lanes.count - self.body))
        self.place()

    def highlight(self, stage: int | None) -> None:
        """Make every other stage faint; None: all as they are."""
        self.focus_stage = stage
        self._redraw()

    def _redraw(self) -> None:
        self._strips = None
        self.refresh()
        self.post_message(self.Moved())

    # Drawing

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips = self._grid = self._map = None
        self._styles.clear()

    def on_resize(self, event: events.Resize) -> None:
        self.top = max(0, min(self.top, self.lanes.count - self.body))
        self.place()

    def render_line(self, y: int) -> Strip:
        """One row of the frame."""
        width, height = self.content_size
        if self._strips is None or len(self._strips) != height:
            self._strips = self._paint(width, height)
        return self._strips[y] if y < len(self._strips) else Strip.blank(width, self.rich_style)

    @property
    def palette(self) -> list[str]:
        """Colours by code."""
        outside = self._colour("timeline--axis", ground=True)
        base = [
            outside,
            self._colour("timeline--idle", ground=True),
            self._colour("timeline--unknown"),
            self._colour("timeline--text"),
        ]
        stages = colours(self.timeline.stages) or [outside]
        return [
            *base,
            *stages,
            *(blend(c, "#ffffff", 0.5) for c in stages),
            *(blend(c, outside, 0.75) for c in stages),
        ]

    def _colour(self, name: str, ground: bool = False) -> str:
        style = self.get_component_rich_style(name)
        colour = style.bgcolor if ground else style.color
        return colour.get_truecolor().hex if colour else "#000000"

    @property
    def look(self) -> Look:
        """How stages are shown now."""
        return Look(self.timeline.stages, self.letters, self.focus_stage, self.app.no_color)

    def _paint(self, width: int, height: int) -> list[Strip]:
        if not height or width <= self.gutter:
            return []
        if not self.lanes.count:
            return self._words("no warp was traced", width, height)
        grid = self._lanes_grid().copy()
        hairline(grid, self.lane - self.top, self.column)
        strips = [self._axis()]
        body = self._grid_strips(grid)
        for i in range(self.body):
            lane = self.top + i
            if lane < self.lanes.count:
                strips.append(Strip([self._gutter(lane), *body[i]], width))
            else:
                strips.append(Strip.blank(width, self.get_component_rich_style("timeline--axis")))
        return [*strips, *self._minimap()][:height]

    def _words(self, words: str, width: int, height: int) -> list[Strip]:
        style = self.get_component_rich_style("timeline--axis")
        blank = Strip.blank(width, style)
        middle = Strip([Segment(words[:width].center(width), style)], width)
        return [middle if y == height // 2 else blank for y in range(height)]

    def _lanes_grid(self) -> Grid:
        last = min(self.top + self.body, self.lanes.count)
        key = (self.view, self.top, last, self.columns, self.focus_stage, self.chosen, id(self.lanes))
        if self._grid is None or self._grid[0] != key:
            self._grid = key, self._draw(self.top, last)
        return self._grid[1]

    def _draw(self, first: int, last: int) -> Grid:
        lanes, warps, slices = self.lanes, self.timeline.warps, self.timeline.slices
        edges = self.edges()
        cover = lanes.cover(first, last, edges)
        row = lanes.row[first:last]
        begin, end = edges[None, :-1], edges[None, 1:]
        alive = (warps.start_ns[row][:, None] < end) & (warps.end_ns[row][:, None] > begin)
        lost = (warps.dropped[row] > 0) & (lanes.kind[first:last] == NESTED)
        unknown = alive & lost[:, None] & (begin >= self._known_until[row][:, None])
        has = cover.item != NONE
        number = np.full(cover.stage.shape, NONE, dtype=np.int64)
        lit = np.zeros(cover.stage.shape, dtype=bool)
        if has.any():
            mine = lanes.slice[cover.item[has]]
            number[has] = np.where(self._numbered[slices.stage[mine]], slices.payload[mine], NONE)
            if self.chosen is not None:
                lit[has] = mine == self.chosen
        grid = paint(cover, self.look, alive=alive, unknown=unknown, lit=lit, payload=number)
        if len(self._mark_key):
            at = np.searchsorted(self._mark_key, row[:, None] * self._step + (edges - self.low)[None, :])
            main = np.r_[True, row[1:] != row[:-1]] & (lanes.sub[first:last] == 0)
            mark(grid, (np.diff(at, axis=1) > 0) & main[:, None])
        return grid

    def _grid_strips(self, grid: Grid) -> list[list[Segment]]:
        """Runs of equal colours, row by row."""
        codes = self.look.codes
        ids = grid.ink * codes + grid.ground
        edges = np.ones(ids.shape, dtype=bool)
        edges[:, 1:] = ids[:, 1:] != ids[:, :-1]
        columns = ids.shape[1]
        rows = []
        styles = self._styles
        for line, own, starts in zip(grid.text, ids, edges, strict=True):
            text = line.tobytes().decode("utf-32-le")
            at = np.flatnonzero(starts)
            places = at.tolist()
            found = []
            for a, b, style in zip(places, [*places[1:], columns], own[at].tolist(), strict=True):
                found.append(Segment(text[a:b], styles.get(style) or self._style(style, codes)))
            rows.append(found)
        return rows

    def _style(self, code: int, codes: int) -> Style:
        """A style by its code; all are made at the first."""
        palette = self.palette
        ink, ground = divmod(code, codes)
        # Without colours, the chosen slice is told by its reversed letters.
        stages = self.look.stages
        lit = self.app.no_color and STAGE + stages <= ground < STAGE + 2 * stages
        plain = self.app.no_color
        style = Style(
            color=palette[TEXT] if plain and ink == OUTSIDE and ground != TEXT else palette[ink],
            bgcolor=palette[IDLE] if plain and ground >= STAGE else palette[ground],
            reverse=lit,
        )
        self._styles[code] = style
        return style

    def _gutter(self, lane: int) -> Segment:
        lanes, warps = self.lanes, self.timeline.warps
        row, kind = int(lanes.row[lane]), int(lanes.kind[lane])
        first = lane == self.top or lanes.row[lane - 1] != row
        new_cta = first and (lane == self.top or warps.cta[lanes.row[lane - 1]] != warps.cta[row])
        sub = int(lanes.sub[lane])
        if kind == NESTED:
            label = f"w{warps.warp[row]}" if sub == 0 or first else f" ·{sub}"
            label += "" if warps.closed[row] else "!"
        else:
            label = f" {_TAGS[kind]}{sub}"
        cta = str(warps.cta[row]) if new_cta else ""
        pointer = "▸" if lane == self.lane else " "
        if self.gutter == WIDE_GUTTER:
            text = f"{cta:>4} {warps.sm[row] if new_cta else '':>4} {pointer}{label:<5} "
        else:
            text = f"{cta:>3} {pointer}{label:<4} "
        odd = np.searchsorted(np.unique(warps.cta), warps.cta[row]) % 2
        name = "timeline--cursor" if lane == self.lane else "timeline--odd" if odd else "timeline--gutter"
        return Segment(text[: self.gutter], self.get_component_rich_style(name))

    def _axis(self) -> Strip:
        style = self.get_component_rich_style("timeline--axis")
        line = [" "] * self.columns
        for column, label in axis(*self.view, self.columns):
            text = f"╷{label}"[: self.columns - column]
            line[column : column + len(text)] = text
        if 0 <= self.column < self.columns:
            line[self.column] = "▼"
        return Strip([Segment(_HEADS[self.gutter] + "".join(line), style)], self.gutter + self.columns)

    def _minimap(self) -> list[Strip]:
        if not self.map_rows:
            return []
        bands = self.map_rows - 1
        key = (self.columns, bands, self.focus_stage)
        style = self.get_component_rich_style("timeline--axis")
        if self._map is None or self._map[0] != key:
            whole = np.linspace(self.low, self.high, self.columns + 1)
            halves = 1 if self.app.no_color else 2
            codes = self._bands(bands * halves, whole)
            pad = Segment(" " * self.gutter, style)
            strips = [
                Strip([pad, *line], self.gutter + self.columns)
                for line in self._grid_strips(self._map_grid(codes, halves))
            ]
            self._map = key, strips
        low, high = ((t - self.low) / (self.high - self.low) * self.columns for t in self.view)
        a = min(math.floor(low + 1e-6), self.columns - 1)
        b = max(a + 1, min(self.columns, math.ceil(high - 1e-6)))
        bar = "─" * a + "━" * (b - a) + "─" * (self.columns - b)
        head = f"{time_words(self.view[1] - self.view[0], 3):>{self.gutter - 1}} "
        text = self.get_component_rich_style("timeline--text")
        line = [Segment(head + bar[:a], style), Segment(bar[a:b], text), Segment(bar[b:], style)]
        return [Strip(line, self.gutter + self.columns), *self._map[1]]

    def _bands(self, bands: int, edges: Floats) -> NDArray[np.int64]:
        """(bands, columns): the busiest stage of some warps; NONE where nearly nothing ran."""
        lanes = self.lanes
        main = np.flatnonzero(lanes.kind == NESTED)
        found = np.full((bands, len(edges) - 1), NONE, dtype=np.int64)
        for band, mine in enumerate(np.array_split(main, bands)):
            if not len(mine):
                continue
            shown = mine[:: max(1, len(mine) // 16)]  # a few speak for many
            totals = np.zeros((max(1, len(self.timeline.stages)), len(edges) - 1))
            for lane in shown.tolist():
                cover = lanes.cover(lane, lane + 1, edges)
                at = np.flatnonzero(cover.stage[0] != NONE)
                totals[cover.stage[0, at], at] += cover.busy[0, at]
            best = totals.argmax(axis=0)
            busy = totals[best, np.arange(len(best))] > 0.05 * len(shown)
            found[band] = np.where(busy, best, NONE)
        return found

    def _map_grid(self, stages: NDArray[np.int64], halves: int) -> Grid:
        colour = np.where(stages == NONE, IDLE, STAGE + stages)
        if self.focus_stage is not None:
            faint = (stages != NONE) & (stages != self.focus_stage)
            colour = np.where(faint, colour + 2 * self.look.stages, colour)
        if halves == 2:
            upper, lower = colour[0::2], colour[1::2]
            text = np.full(upper.shape, ord("▀"), dtype=np.uint32)
            same = upper == lower
            text[same] = ord(" ")
            return Grid(text, np.where(same, OUTSIDE, upper), lower)
        letter = np.append(self.look.letter_codes, ord(" ")).astype(np.uint32)
        return Grid(letter[stages], np.zeros_like(colour), colour)

    # Keys

    def action_step(self, columns: int) -> None:
        """The cursor by columns."""
        low, _ = self.view
        self.place(time=low + (self.column + columns + 0.01) * self.column_ns)

    def action_row(self, rows: int) -> None:
        """The cursor by lanes."""
        self.place(self.lane + rows)

    def action_pan(self, direction: int) -> None:
        """The view by half a screen, the cursor with it."""
        before = self.view[0]
        half = (self.view[1] - self.view[0]) / 2 * direction
        self.set_view(self.view[0] + half, self.view[1] + half)
        self.place(time=self.time + self.view[0] - before)

    def action_page(self, direction: int) -> None:
        """By a screen of lanes."""
        self.top = max(0, min(self.top + direction * self.body, self.lanes.count - self.body))
        self.place(self.lane + direction * self.body)

    def action_edge_row(self, row: int) -> None:
        """To the first (0) or the last (-1) lane."""
        self.place(0 if row == 0 else self.lanes.count - 1)

    def action_edge_time(self, end: int) -> None:
        """To the start (0) or the end (1) of the trace."""
        self.place(time=self.high - self.column_ns / 2 if end else self.low)

    def action_zoom(self, factor: float) -> None:
        """About the cursor."""
        self.zoom_at(factor, self.time)
        self.choose()

    def action_fit(self) -> None:
        """Everything."""
        self.set_view(self.low, self.high)

    def action_fit_slice(self) -> None:
        """Zoom to the chosen slice."""
        if self.chosen is not None:
            self.reveal(self.chosen, fit=True)

    def action_slice(self, direction: int) -> None:
        """To the next or the previous slice of the lane."""
        time = self.lanes.neighbour(self.lane, self.time, direction)
        if time is not None:
            index = self.lanes.slice_at(self.lane, time)
            self.place(time=time, chosen=index)

    def action_levels(self) -> None:
        """Innermost ranges, then a lane a depth, then each depth alone."""
        s = self.timeline.slices
        nested = s.depth[s.kind == NESTED]
        deepest = int(nested.max()) if len(nested) else 0
        order = [DEEPEST, EVERY, *range(deepest + 1)] if deepest else [DEEPEST]
        self.levels = order[(order.index(self.levels) + 1) % len(order)]
        self.rebuild()

    def action_extras(self) -> None:
        """Token and async lanes on or off."""
        self.extras = not self.extras
        self.rebuild()

    # Mouse

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, -1)

    def _wheel(self, event: events.MouseEvent, direction: int) -> None:
        event.stop()
        if event.ctrl:
            self.top = max(0, min(self.top + 3 * direction, self.lanes.count - self.body))
            self.place(min(max(self.lane, self.top), self.top + self.body - 1))
        elif event.shift:
            shift = direction * 8 * self.column_ns
            self.set_view(self.view[0] + shift, self.view[1] + shift)
        else:
            at = self._time_at(event)
            self.zoom_at(1.25 if direction > 0 else 0.8, self.time if at is None else at)

    def _time_at(self, event: events.MouseEvent) -> float | None:
        offset = event.get_content_offset(self)
        if offset is None or offset.x < self.gutter:
            return None
        return self.view[0] + (offset.x - self.gutter + 0.01) * self.column_ns

    def on_mouse_down(self, event: events.MouseDown) -> None:
        offset = event.get_content_offset(self)
        if offset is None or event.button != 1:
            return
        if offset.y > self.body and self.map_rows and offset.x >= self.gutter:
            middle = self.low + (offset.x - self.gutter) / self.columns * (self.high - self.low)
            half = (self.view[1] - self.view[0]) / 2
            self.set_view(middle - half, middle + half)
            return
        self._drag, self._dragged = (event.screen_x, self.view[0]), False
        self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._drag is None:
            return
        moved = event.screen_x - self._drag[0]
        if moved:
            self._dragged = True
            start = self._drag[1] - moved * self.column_ns
            self.set_view(start, start + self.view[1] - self.view[0])

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._drag is None:
            return
        self._drag = None
        self.release_mouse()
        offset = event.get_content_offset(self)
        if not self._dragged and offset is not None and 1 <= offset.y <= self.body:
            self.place(self.top + offset.y - 1, self._time_at(event))
