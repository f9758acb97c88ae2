"""Two traces beside each other: the same rows at the same times, and the stages' differences."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import numpy as np
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Resize
from textual.widgets import Static

from ...telemetry.trace.summary import Summary, summarise
from ...telemetry.trace.timeline import Timeline
from .. import trace_compare, trace_view
from ..format import clip
from ..memory import give_back
from ..others import short_of, title_of
from ..trace_compare import StageChange
from ..widgets.footer import Footer
from ..widgets.table import Table, TableRow
from ..widgets.timeline import TimelinePane
from .counters import laid_out
from .leaving import gone
from .zooming import Zooming

LEAST_ROOM = 5  # columns of a stage's name


class ChangePane(Table):
    """The stages of both, what changed most first."""

    HELP = """\
### Stages of both

A warp's mean time in each stage in the first and the second trace (what is nested in it not counted), and
the change: **▲** slower, **▼** faster; then how many ranges, median and 95th percentile of one, share of all
warps' time and imbalance, as first→second where they differ. **enter** makes the other stages faint.
"""


class CompareTimelineScreen(Zooming):
    """Two traces on one time axis. They don't change: there are no timers."""

    HELP = """\
### Two traces

The first trace above (or left of) the second: one time axis, from each launch's first warp on. What is shown
of one is shown of the other, and the cursor stays at the same CTA and warp while **c** has them linked; a
warp that the other trace lacks is left where it is. **x** exchanges the two, **s** shows the stages alone.
"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "swap", "Swap", id="traces.swap", tooltip="Exchange the two traces"),
        Binding("c", "link", "Link", id="traces.link", tooltip="Move both together, or each alone"),
        Binding("tab", "other_pane", "Other", key_display="tab", id="traces.tab", tooltip="The next pane"),
        Binding("s", "stages", "Stages", id="traces.stages", tooltip="The stages alone, or all"),
        Binding(
            "enter", "choose", "Highlight", show=False, id="traces.choose", tooltip="Highlight the stage"
        ),
        Binding("y", "copy", "Copy", show=False, id="traces.copy", tooltip="Copy what got slower"),
        Binding("question_mark", "help", "Help", key_display="?", id="traces.help"),
        Binding("escape", "clear", "Clear", show=False, id="traces.clear", tooltip="All stages as they are"),
        Binding("q", "leave", "Back", id="traces.quit"),
    ]

    def __init__(self, before: Timeline, after: Timeline) -> None:
        super().__init__()
        self.timelines = [before, after]
        self.panes = [TimelinePane(before, id="first"), TimelinePane(after, id="second")]
        self.linked = True
        self._sums: list[Summary] = []
        self._changes: list[StageChange] = []
        self._said: list[str] = []
        low, high = min(pane.low for pane in self.panes), max(pane.high for pane in self.panes)
        for pane in self.panes:
            pane.extend(low, high)

    @property
    def names(self) -> tuple[str, str]:
        """Short names that tell the two apart."""
        a, b = (timeline.meta for timeline in self.timelines)
        names = short_of(a, b), short_of(b, a)
        return names if names[0] != names[1] else (f"{names[0]} (1)", f"{names[1]} (2)")

    @property
    def export_caption(self) -> str:
        """What a saved pane is of, with the device and whether it was recorded."""
        return " · against · ".join(trace_view.title_line(t, 70) for t in reversed(self.timelines))

    def compose(self) -> ComposeResult:
        yield Static("", id="title", markup=False)
        yield Static("", id="old", markup=False)
        yield Static("", id="new", markup=False)
        yield Static("", id="verdict", markup=False)
        with Container(id="pair"):
            yield from self.panes
        yield ChangePane(id="changes")
        yield Footer()
        yield Static("", id="tiny", markup=False)

    def on_mount(self) -> None:
        self.query_one("#verdict", Static).update("adding up…")
        self.panes[0].focus()
        self.panes[0].show_start()
        self._follow(self.panes[0])
        self._describe()
        self.run_worker(self._sum_up())

    async def _sum_up(self) -> None:
        sums = [await asyncio.to_thread(summarise, timeline) for timeline in self.timelines]
        give_back()
        if not gone(self):
            self._sums = sums
            self._compare()

    def _compare(self) -> None:
        """The stages' table and the words, from the sums."""
        if self._sums:
            before, after = self._sums
            self._changes = trace_compare.stage_changes(before, after)
            self._said = trace_compare.said(before, after, self.names)
            self._fill()
        self._describe()

    def _fill(self) -> None:
        table = self.query_one(ChangePane)
        rows = []
        for change in self._changes:
            delta = change.delta_ns
            tone = (
                ""
                if abs(delta) < 0.5 or not (change.before and change.after)
                else "bad"
                if delta > 0
                else "good"
            )
            rows.append(TableRow(change.name, change.cells, tones=("", "", "", tone, "", "", "", "", "")))
        room = table.scrollable_content_region.width
        right = (False, *[True] * (len(trace_compare.HEAD) - 1))
        table.border_title = "Stages, what changed a warp's time most first"
        table.fill(
            laid_out(trace_compare.HEAD, right, [row.cells for row in rows], room, last=LEAST_ROOM), rows
        )

    def on_resize(self, event: Resize) -> None:
        width, height = event.size
        self.query_one("#tiny", Static).update(f"warpdeck needs 60×16, this terminal is {width}×{height}")
        self._describe()
        self.call_after_refresh(self._fill)

    def _describe(self) -> None:
        width = max(0, self.size.width - 2)
        workload = str(self.timelines[1].meta.get("workload") or "trace")
        devices = dict.fromkeys(trace_view.device_words(t.meta.get("device")) for t in self.timelines)
        linked = "" if self.linked else " · not linked"
        title = " · ".join(["Timelines", workload, *(d for d in devices if d)]) + linked
        self.query_one("#title", Static).update(clip(title, width))
        for number, name, timeline in ((1, "old", self.timelines[0]), (2, "new", self.timelines[1])):
            words = f"{number}  {title_of(timeline.meta)} · {trace_view.cost_line(timeline, width)}"
            self.query_one(f"#{name}", Static).update(clip(words, width), layout=False)
        if self._said:
            short = [clip(" · ".join(self._said), width)] if self.has_class("-short") else self._said
            self.query_one("#verdict", Static).update("\n".join(clip(line, width) for line in short))
        for number, pane in enumerate(self.panes, start=1):
            self._frame(number, pane)

    def _frame(self, number: int, pane: TimelinePane) -> None:
        """What the cursor is on, in the pane's frame."""
        timeline = pane.timeline
        room = max(0, pane.size.width - 6)
        words = "no range here"
        if pane.chosen is not None:
            words = trace_view.slice_words(timeline, pane.chosen)[0]
        where = "" if pane.row is None else trace_view.place_words(timeline, pane.row)
        pane.border_title = clip(f"{number} {self.names[number - 1]} · {words}", room)
        low, high = pane.view
        pane.border_subtitle = clip(
            f"{where} · {trace_view.shown_words(high - low, pane.high - pane.low)}", room
        )

    # Linked

    @on(TimelinePane.Moved)
    def _moved(self, event: TimelinePane.Moved) -> None:
        if event.pane in self.panes:
            self._follow(event.pane)
            self._describe()

    def _follow(self, pane: TimelinePane) -> None:
        """Show the same times and the same warp in the other pane."""
        if not self.linked:
            return
        other = self.panes[1 - self.panes.index(pane)]
        lane = None
        if pane.row is not None:
            mine, theirs = pane.timeline.warps, other.timeline.warps
            same = (theirs.cta == mine.cta[pane.row]) & (theirs.warp == mine.warp[pane.row])
            rows = np.flatnonzero(same)
            lane = other.lane_like(int(rows[0]), pane) if len(rows) else None
        other.follow(pane.view, pane.time, lane, pane.lane - pane.top)

    # Keys

    def action_swap(self) -> None:
        """Exchange the two."""
        focused = next((i for i, pane in enumerate(self.panes) if pane is self.focused), 0)
        first, second = self.panes
        self.query_one("#pair").move_child(second, before=first)
        self.panes = [second, first]
        self.timelines.reverse()
        self._sums.reverse()
        self._compare()
        self.panes[focused].focus()

    def action_link(self) -> None:
        """Together or alone."""
        self.linked = not self.linked
        self._follow(next((pane for pane in self.panes if pane is self.focused), self.panes[0]))
        self._describe()

    def action_other_pane(self) -> None:
        """The next pane that is shown."""
        order = [pane for pane in (*self.panes, self.query_one(ChangePane)) if pane.region.area]
        at = next((i for i, pane in enumerate(order) if pane is self.focused), -1)
        if order:
            order[(at + 1) % len(order)].focus()

    def action_stages(self) -> None:
        """The stages alone, or all."""
        self.toggle_class("-stages")
        table = self.query_one(ChangePane)
        (table if self.has_class("-stages") else self.panes[0]).focus()

    def action_choose(self) -> None:
        """Make the other stages faint in both."""
        name = self.query_one(ChangePane).marked_key
        for pane in self.panes:
            names = pane.timeline.stages
            pane.highlight(names.index(name) if name in names else None)

    @on(Table.Chosen)
    def _chosen(self) -> None:
        self.action_choose()

    def action_clear(self) -> None:
        """All as they are."""
        for pane in self.panes:
            pane.highlight(None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """enter belongs to the stages only while they have the focus."""
        return action != "choose" or isinstance(self.focused, ChangePane)

    def action_copy(self) -> None:
        """Copy the words."""
        self.app.copy_to_clipboard("\n".join(self._said))
        self.notify("copied what got slower")

    def action_help(self) -> None:
        """Help for the focused pane."""
        from .help import HelpScreen

        self.app.push_screen(HelpScreen(self))

    def action_leave(self) -> None:
        """Back."""
        self.dismiss()
