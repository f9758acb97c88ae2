"""The timeline pane: warps as rows, time to the right, one strip a row, drawn once a change."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from ...telemetry.trace.timeline import Timeline
from ..export import Exported
from ..lanes import DEEPEST, EVERY, NESTED, Floats, Ints, build, first_steps
from ..memory import give_back
from ..palette import letters
from ..trace_saved import TraceSaved
from .timeline_strips import GUTTER, WIDE_GUTTER, TimelineStrips

ROOMY = 74  # columns of the pane from which on the gutter has CTA, SM and warp
STEPS = 6  # of a warp's loop that are shown at first


class TimelinePane(Widget, Exported, can_focus=True):
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

A row a warp, time to the right. A column is painted in the stage that ran longest there, with a strip for
the second (without colours: its small letter); where less than half of it was busy, a low bar in that
stage's colour says how much. The name (or its letter) stands in the longer ranges, with the loop index. A
thin line parts two ranges of one stage. Rows marked **~** are token ranges, **→** async stages from issue
to completion, **◆** marks and values. **╱** in red: events were dropped, so what ran there is unknown. At
the bottom is the whole trace, under a bar that says which part of it is on the screen: at first a loop's
first steps, **f** shows all.

The mouse wheel zooms at the pointer (with shift it pans, with ctrl it scrolls), dragging pans, a click sets
the cursor.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Exported.BINDING,
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
        """The cursor, the choice or the view of `pane` changed."""

        def __init__(self, pane: TimelinePane) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, timeline: Timeline, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.timeline = timeline
        self.levels = DEEPEST
        self.extras = True
        give_back()  # what decoding took
        self.lanes = build(timeline)
        give_back()
        self.low, self.high = self.lanes.low, self.lanes.high
        self.view = (self.low, self.high)
        self.top = 0
        self.lane = 0
        self.time = self.low
        self.chosen: int | None = None  # the slice under the cursor
        self.focus_stage: int | None = None
        self.letters = letters(timeline.stages)
        self._strips: list[Strip] | None = None
        self._drag: tuple[float, float] | None = None
        self._dragged = False
        self._index_marks()
        self._painter = TimelineStrips(self)
        first = self.lanes.neighbour(0, self.low - 1, 1) if self.lanes.count else None
        self.time = self.low if first is None else first
        self.choose()

    def _index_marks(self) -> None:
        """Marks by warp and time, on an axis on which the warps follow each other."""
        marks = self.timeline.marks
        self._step = self.high - self.low + 1.0
        key = marks.row * self._step + (marks.time_ns - self.low)
        self._mark_order = np.argsort(key)
        self._mark_key = key[self._mark_order]

    def extend(self, low: float, high: float) -> None:
        """Let the axis reach from `low` to `high` ns: further than the trace, as one beside it does."""
        self.low, self.high = min(low, self.low), max(high, self.high)
        self.view = (self.low, self.high)
        self._index_marks()

    def follow(self, view: tuple[float, float], time: float, lane: int | None, below: int) -> None:
        """Show what another pane shows, and say nothing of it. `lane`: where the cursor goes, None: stays;
        `below`: so many rows below the top."""
        self.view = view
        self.time = time
        if lane is not None:
            self.lane = lane
            self.top = max(0, min(lane - below, self.lanes.count - self.body))
        self.choose()
        self._strips = None
        self.refresh()

    def lane_like(self, row: int, other: TimelinePane) -> int:
        """The lane of a warp that shows what the other pane's cursor is on; the warp's first if none does."""
        mine, theirs = self.lanes, other.lanes
        lanes = np.flatnonzero(mine.row == row)
        kind, sub = theirs.kind[other.lane], theirs.sub[other.lane]
        same = lanes[(mine.kind[lanes] == kind) & (mine.sub[lanes] == sub)]
        return int(same[0] if len(same) else lanes[0])

    # Geometry

    @property
    def label_width(self) -> int:
        """Columns left of the time axis."""
        return WIDE_GUTTER if self.content_size.width >= ROOMY else GUTTER

    @property
    def columns(self) -> int:
        """Columns of the time axis."""
        return max(1, self.content_size.width - self.label_width)

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

    def show_start(self) -> None:
        """Show the first steps of the loop that the cursor's warp runs; all where it has hardly more."""
        span = None if self.row is None else first_steps(self.timeline, self.row, STEPS)
        if span is not None and span[1] - span[0] < 0.6 * (self.high - self.low):
            self.set_view(*span)

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

    def marked(self, rows: Ints, edges: Floats) -> NDArray[np.bool_]:
        """(rows, columns): where warps have marks between the edges."""
        at = np.searchsorted(self._mark_key, rows[:, None] * self._step + (edges - self.low)[None, :])
        return np.diff(at, axis=1) > 0

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
        del self.lanes  # a million ranges are big columns: never two of them
        self.lanes = build(self.timeline, self.levels, self.extras)
        give_back()
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
        self.post_message(self.Moved(self))

    def exported(self) -> TraceSaved | None:
        """What is on the screen."""
        last = min(self.top + self.body, self.lanes.count)
        if not self.lanes.count:
            return None
        return TraceSaved(self.timeline, self.lanes, self.top, last, *self.view, self.letters)

    # Drawing

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips = None
        self._painter.forget()

    def on_resize(self, event: events.Resize) -> None:
        self.top = max(0, min(self.top, self.lanes.count - self.body))
        self.place()

    def render_line(self, y: int) -> Strip:
        """One row of the frame."""
        width, height = self.content_size
        if self._strips is None or len(self._strips) != height:
            self._strips = self._painter.frame(width, height)
        return self._strips[y] if y < len(self._strips) else Strip.blank(width, self.rich_style)

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
        if offset is None or offset.x < self.label_width:
            return None
        return self.view[0] + (offset.x - self.label_width + 0.01) * self.column_ns

    def on_mouse_down(self, event: events.MouseDown) -> None:
        offset = event.get_content_offset(self)
        if offset is None or event.button != 1:
            return
        if offset.y > self.body and self.map_rows and offset.x >= self.label_width:
            middle = self.low + (offset.x - self.label_width) / self.columns * (self.high - self.low)
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
