"""The Timeline screen: what every warp did when, from one launch's trace."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

import numpy as np
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Key, Resize
from textual.widgets import Input, Static

from ...sessions.paths import ARTIFACTS
from ...telemetry.trace.summary import summarise
from ...telemetry.trace.timeline import Timeline
from .. import others, trace_view
from ..lanes import DEEPEST, EVERY, Ints
from ..memory import give_back
from ..others import Baseline, Choice
from ..widgets.footer import Footer
from ..widgets.stages import LongestPane, StagePane, StageRow
from ..widgets.timeline import TimelinePane
from .leaving import gone
from .zooming import Zooming

LONGEST = 50  # ranges in the list of the longest


class TimelineScreen(Zooming):
    """One trace. It is data that doesn't change: there are no timers."""

    HELP = TimelinePane.HELP
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "Search", key_display="/", id="trace.search", tooltip="Search a stage"),
        Binding("n", "next(1)", "Next", key_display="nN", id="trace.next", tooltip="Next range of the stage"),
        Binding("N", "next(-1)", "Previous", show=False, id="trace.previous"),
        Binding(
            "x", "longest(1)", "Longest", id="trace.longest", tooltip="The longest range, then the next one"
        ),
        Binding("X", "longest(-1)", "Longer", show=False, id="trace.longer"),
        Binding("colon", "warp", "Warp", key_display=":", id="trace.warp", tooltip="Go to a CTA and warp"),
        Binding(
            "P", "problem", "Problems", show=False, id="trace.problem", tooltip="The next mispaired range"
        ),
        Binding("s", "stages", "Stages", id="trace.stages", tooltip="Show the stages or not"),
        Binding("o", "compare", "Compare", id="trace.compare", tooltip="Compare with another trace"),
        Binding("tab", "other_pane", "Other pane", show=False, id="trace.tab"),
        Binding("y", "copy", "Copy", show=False, id="trace.copy", tooltip="Copy what the cursor is on"),
        Binding(
            "r", "rerun", "Copy rerun", id="trace.rerun", tooltip="Copy the command that traces all events"
        ),
        Binding("escape", "clear", "Clear", show=False, id="trace.clear", tooltip="End the search"),
        Binding("question_mark", "help", "Help", key_display="?", id="trace.help"),
        Binding("q", "leave", "Back", id="trace.quit"),
    ]

    def __init__(
        self, timeline: Timeline, *, folder: Path | None = None, baseline: Baseline | None = None
    ) -> None:
        super().__init__()
        self.timeline = timeline
        self.folder, self.baseline = folder, baseline  # of the run that it belongs to, if it does
        self.pane = TimelinePane(timeline, id="timeline")
        self._asked = ""  # what the prompt asks for: "stage" or "warp"
        self._stage: int | None = None
        self._found: dict[tuple[int, str], Ints] = {}
        self._rank = -1
        self._problem = -1
        self._place: tuple[int | None, str] = (-1, "")  # what the search found last, and which of how many

    @property
    def export_folder(self) -> Path | None:
        """Where saved panes go: to the session's own files."""
        return None if self.folder is None else self.folder / ARTIFACTS

    @property
    def export_caption(self) -> str:
        """What a saved pane is of, with the device and whether it was recorded."""
        return trace_view.title_line(self.timeline, 110)

    def compose(self) -> ComposeResult:
        yield Static("", id="title", markup=False)
        yield Static("", id="progress", markup=False)
        yield Static("", id="alert", markup=False)
        with Horizontal(id="traced"):
            yield self.pane
            with Vertical(id="sums"):
                yield StagePane(id="stages")
                yield LongestPane(id="longest")
        yield Static("", id="details", markup=False)
        yield Input(id="prompt", compact=True)
        yield Footer()
        yield Static("", id="tiny", markup=False)

    def on_mount(self) -> None:
        self.run_worker(self._sum_up())
        self.query_one("#prompt").display = False
        self.pane.focus()
        self.pane.show_start()
        self._describe()

    async def _sum_up(self) -> None:
        """Fill the stage pane: percentiles of a million ranges take a moment."""
        summary = await asyncio.to_thread(summarise, self.timeline, longest=LONGEST)
        give_back()
        if not gone(self):
            names = list(self.timeline.stages)
            rows = [StageRow(stage, names.index(stage.name)) for stage in summary.stages]
            self.query_one(StagePane).show(rows, names, self.pane.letters)
            self.query_one(LongestPane).show(summary.longest)

    def on_resize(self, event: Resize) -> None:
        width = event.size.width
        self.query_one("#tiny", Static).update(
            f"warpdeck needs 60×16, this terminal is {width}×{event.size.height}"
        )
        self.query_one("#title", Static).update(trace_view.title_line(self.timeline, width - 2))
        self.query_one("#progress", Static).update(trace_view.cost_line(self.timeline, width - 2))
        alert = self.query_one("#alert", Static)
        words = trace_view.alert_line(self.timeline, width - 2)
        alert.update(words)
        alert.display = bool(words)
        alert.set_class(bool(self.timeline.dropped), "-dropped")
        self._describe()

    @on(TimelinePane.Moved)
    def _describe(self) -> None:
        """The details of what the cursor is on, and the pane's frame."""
        pane = self.pane
        if not pane.is_attached:
            return
        low, high = pane.view
        levels = {DEEPEST: "innermost ranges", EVERY: "every depth"}.get(
            pane.levels, f"depth {pane.levels} only"
        )
        found, words = self._place
        pane.border_title = f"Timeline · {words if found == pane.chosen else levels}"
        last = min(pane.top + pane.body, pane.lanes.count)
        hidden = f" · {pane.lanes.hidden} overlap too much to be shown" if pane.lanes.hidden else ""
        rows = f"rows {pane.top + 1}–{last} of {pane.lanes.count}" if pane.lanes.count else "no rows"
        pane.border_subtitle = f"{rows} · {trace_view.shown_words(high - low, pane.high - pane.low)}{hidden}"
        details = self.query_one("#details", Static)
        details.update("\n".join(self._details()), layout=False)

    def _details(self) -> list[str]:
        pane, timeline = self.pane, self.timeline
        if pane.row is None:
            return [
                "Nothing was traced. A traced CTA must exist in the grid, and its kernel must have markers."
            ]
        resolution = max(min(pane.column_ns, 10.0), timeline.clock.tick_ns, 0.1)
        now = f"cursor {trace_view.instant_words(pane.time, resolution)}"
        if pane.chosen is not None:
            first, second = trace_view.slice_words(timeline, pane.chosen)
            lines = [f"{first} · {now}", second]
        else:
            lines = [f"no range here · {now}", trace_view.place_words(timeline, pane.row)]
        marks = pane.marks_here()
        return [*lines, trace_view.marks_words(timeline, marks)] if marks else lines

    # Search

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what there is something for."""
        if action in ("search", "next", "longest"):
            return bool(len(self.timeline.slices.row))
        if action == "rerun":
            return self.timeline.dropped > 0
        if action == "problem":
            return bool(self.timeline.mispaired)
        return True

    def _ask(self, what: str, placeholder: str) -> None:
        self._asked = what
        prompt = self.query_one("#prompt", Input)
        prompt.value = ""
        prompt.placeholder = placeholder
        prompt.display = True
        prompt.focus()

    def action_search(self) -> None:
        """Ask for a stage."""
        names = ", ".join(self.timeline.stages)
        self._ask("stage", f"/ stage: {names}")

    def action_warp(self) -> None:
        """Ask for a warp."""
        self._ask("warp", ": CTA or CTA.WARP, as 3 or 3.1")

    @on(Input.Changed, "#prompt")
    def _typed(self, event: Input.Changed) -> None:
        if self._asked == "stage":
            self.pane.highlight(match_stage(self.timeline.stages, event.value))

    @on(Input.Submitted, "#prompt")
    def _answered(self, event: Input.Submitted) -> None:
        asked, text = self._asked, event.value.strip()
        self._close_prompt()
        if asked == "stage":
            stage = match_stage(self.timeline.stages, text)
            if stage is None:
                self.pane.highlight(self._stage)
                if text:
                    self.notify(f"no stage is named {text!r}", severity="warning", markup=False)
                return
            self._take_stage(stage)
            self.action_next(1)
        else:
            self._go_to_warp(text)

    def on_key(self, event: Key) -> None:
        """escape leaves the prompt."""
        if event.key == "escape" and self._asked:
            event.stop()
            self._close_prompt()
            self.pane.highlight(self._stage)

    def _close_prompt(self) -> None:
        self._asked = ""
        self.query_one("#prompt").display = False
        self.pane.focus()

    def _take_stage(self, stage: int | None) -> None:
        self._stage, self._rank = stage, -1
        self.pane.highlight(stage)

    def _of_stage(self, stage: int, by: str) -> Ints:
        """Slices of a stage, by start or the longest first; sorted once."""
        key = (stage, by)
        if key not in self._found:
            s = self.timeline.slices
            mine = np.flatnonzero(s.stage == stage)
            order = s.start_ns[mine] if by == "start" else s.start_ns[mine] - s.end_ns[mine]
            self._found[key] = mine[np.argsort(order, kind="stable")]
        return self._found[key]

    def _current_stage(self) -> int | None:
        if self._stage is None and self.pane.chosen is not None:
            return int(self.timeline.slices.stage[self.pane.chosen])
        return self._stage

    def action_next(self, direction: int) -> None:
        """To the next or previous range, in time, of the stage searched for (else the one at the cursor)."""
        stage = self._current_stage()
        if stage is None:
            self.notify("/ searches a stage first", severity="warning")
            return
        found = self._of_stage(stage, "start")
        if not len(found):
            self.notify(f"no range of {self.timeline.stages[stage]} was recorded", severity="warning")
            return
        starts, chosen = self.timeline.slices.start_ns[found], self.pane.chosen
        here = np.flatnonzero(found == (-1 if chosen is None else chosen))
        if len(here):
            at = int(here[0]) + direction
        else:
            at = int(np.searchsorted(starts, self.pane.time, side="left")) - (direction < 0)
        if not 0 <= at < len(found):
            at %= len(found)
            self.notify("from the start again" if direction > 0 else "from the end again")
        self.pane.reveal(int(found[at]))
        self._say_place(stage, f"{at + 1} of {len(found)}")

    def action_longest(self, direction: int) -> None:
        """To the stage's longest range, then the second longest…"""
        stage = self._current_stage()
        if stage is None:
            self.notify("/ searches a stage first", severity="warning")
            return
        if self._stage is None:
            self._take_stage(stage)
        found = self._of_stage(stage, "length")
        if not len(found):
            self.notify(f"no range of {self.timeline.stages[stage]} was recorded", severity="warning")
            return
        self._rank = min(max(self._rank + direction, 0), len(found) - 1)
        self.pane.reveal(int(found[self._rank]), fit=True)
        words = "the longest" if not self._rank else f"{self._rank + 1}. longest"
        self._say_place(stage, f"{words} of {len(found)}")

    def _say_place(self, stage: int, words: str) -> None:
        self._place = self.pane.chosen, f"{self.timeline.stages[stage]}: {words}"
        self._describe()

    @on(StagePane.Chosen)
    def _stage_chosen(self, event: StagePane.Chosen) -> None:
        self._take_stage(event.stage)
        self.action_longest(1)
        self.pane.focus()

    @on(LongestPane.Asked)
    def _range_asked(self, event: LongestPane.Asked) -> None:
        s, warps, wanted = self.timeline.slices, self.timeline.warps, event.range
        mine = (s.start_ns == wanted.start_ns) & (s.payload == wanted.payload)
        mine &= (warps.cta[s.row] == wanted.cta) & (warps.warp[s.row] == wanted.warp)
        mine &= s.stage == self.timeline.stages.index(wanted.stage)
        self.pane.reveal(int(np.flatnonzero(mine)[0]), fit=True)
        self.pane.focus()

    def _go_to_warp(self, text: str) -> None:
        cta, _, warp = text.partition(".")
        warps = self.timeline.warps
        if not cta.isdecimal() or not (warp or "0").isdecimal():
            self.notify(f"{text!r} is not CTA or CTA.WARP, as 3 or 3.1", severity="warning", markup=False)
            return
        mine = warps.cta == int(cta)
        if warp:
            mine = mine & (warps.warp == int(warp))
        rows = np.flatnonzero(mine)
        if not len(rows):
            known = np.unique(warps.cta)
            span = f"{known[0]} to {known[-1]}" if len(known) else "none"
            self.notify(f"warp {text} was not traced (CTAs: {span})", severity="warning", markup=False)
            return
        self.pane.place(int(np.searchsorted(self.pane.lanes.row, rows[0])))

    def action_problem(self) -> None:
        """To the next mispaired range."""
        problems = self.timeline.mispaired
        self._problem = (self._problem + 1) % len(problems)
        problem, warps = problems[self._problem], self.timeline.warps
        rows = np.flatnonzero((warps.cta == problem.cta) & (warps.warp == problem.warp))
        if len(rows):
            self.pane.place(int(np.searchsorted(self.pane.lanes.row, rows[0])), problem.time_ns)
        self.notify(
            f"{problem.stage}: {problem.problem}",
            title=f"mispaired {self._problem + 1} of {self.timeline.mispaired_count}",
            severity="warning",
            markup=False,
        )

    def action_clear(self) -> None:
        """End the search."""
        self._take_stage(None)

    def action_stages(self) -> None:
        """Show or hide the stages; where there is no room beside the timeline, in its place."""
        self.toggle_class("-stages")
        shown = self.query_one("#sums").display
        (self.query_one(StagePane) if shown and not self.pane.display else self.pane).focus()

    def action_other_pane(self) -> None:
        """The focus to the next pane that is shown."""
        panes = [self.pane, self.query_one(StagePane), self.query_one(LongestPane)]
        shown = [pane for pane in panes if pane.display and pane.region.area] or panes[:1]
        at = shown.index(self.focused) if self.focused in shown else -1
        shown[(at + 1) % len(shown)].focus()

    def action_copy(self) -> None:
        """Copy the details."""
        text = "\n".join(self._details())
        self.app.copy_to_clipboard(text)
        self.notify("copied the details", markup=False)

    def action_rerun(self) -> None:
        """Copy the command that traces the same with room for every event."""
        command = trace_view.rerun_command(self.timeline)
        self.app.copy_to_clipboard(command)
        self.notify(f"copied: {command}", markup=False)

    def action_compare(self) -> None:
        """Ask with which, and show both."""
        from .pick import PickScreen

        def answered(found: Timeline | None) -> None:
            if found is not None:
                from .timeline_compare import CompareTimelineScreen

                self.app.push_screen(CompareTimelineScreen(found, self.timeline))

        pick: PickScreen[Timeline] = PickScreen(
            "Compare with", self._traces, others.trace_in, lambda c: others.is_baseline(c, self.baseline)
        )
        self.app.push_screen(pick, answered)

    def _traces(self) -> list[Choice[Timeline]]:
        """In a thread: what this can be compared with."""
        return others.traces(self.timeline.meta, self.folder, self.baseline)

    def action_help(self) -> None:
        """Help."""
        from .help import HelpScreen

        self.app.push_screen(HelpScreen(self))

    def action_leave(self) -> None:
        """Back; what was told of this screen goes with it."""
        self.app.clear_notifications()
        self.dismiss()


def match_stage(stages: tuple[str, ...], text: str) -> int | None:
    """The stage meant: of that name, else one that starts with it, else one that contains it."""
    wanted = text.strip().lower()
    if not wanted:
        return None
    names = [name.lower() for name in stages]
    for fits in (str.__eq__, str.startswith, str.__contains__):
        for index, name in enumerate(names):
            if fits(name, wanted):
                return index
    return None
