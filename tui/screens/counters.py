"""The Counters screen: what the hardware counted in one launch, and what that says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.events import Resize
from textual.message import Message
from textual.widgets import Static

from ...core.errors import WarpdeckError
from ...sessions.paths import ARTIFACTS
from ...telemetry.ncu import diagnosis, hotspots, roofline
from ...telemetry.ncu.counters import Counters
from .. import counters_view as view
from .. import others
from ..memory_flow import flow
from ..others import Baseline, Choice
from ..source_files import of_counters
from ..widgets.bars import BarPane, DiagnosisPane
from ..widgets.flow import FlowPane
from ..widgets.footer import Footer
from ..widgets.plot import Plot
from ..widgets.table import GAP, Column, Table, TableRow
from .leaving import gone
from .zooming import Zooming

MIDDLE, BOTTOM = ("speed", "roofline", "flow", "stalls"), ("lines", "metrics")
PANES = ("diagnosis", "speed", "roofline", "stalls", *BOTTOM, "flow")  # by number

DIAGNOSIS_HELP = """\
### Diagnosis

What the counters say, most important first. Below each sentence stand the counters it rests on, with their
values. A rule says nothing where a counter of it is missing; the last sentence names what was not collected.
"""
SPEED_HELP = """\
### Speed of light and occupancy

How much of each unit's peak the launch used. The highest bar, bold, is what limits it; all low means that
warps wait: see the stalls. **Achieved** occupancy is how many warps were active, of the most an SM can hold;
**theoretical** is what the launch allows, and below it stands which resource limits that.
"""
STALLS_HELP = """\
### Stall reasons

The sampler looks at one warp after another and notes why it did not issue an instruction. Shares are of all
samples that were stalls.
"""
LINES_HELP = """\
### Hot lines

Source lines by their share of the samples, with the reason most of them had. **i** shows single machine
instructions instead, then lines of PTX, and lines again.
"""
METRICS_HELP = """\
### Counters

Every quantity that was read, with what it means; then those that are missing, with the reason. **a** adds
all of Nsight Compute's own counters by name.
"""
HOT = {"lines": "source", "instructions": "machine instruction", "PTX": "PTX"}  # and the last column's head
LEAST_LAST = 16  # columns of the last column, which takes what the others leave
MOST_NAME = (
    30  # columns of a name, unless a third of the room is more: some of Nsight Compute's are very long
)


def laid_out(
    names: Sequence[str],
    right: Sequence[bool],
    rows: Sequence[tuple[str, ...]],
    room: int,
    last: int = LEAST_LAST,
) -> list[Column]:
    """Columns as wide as their cells, the last one as wide as the room that is left, at least `last`."""
    columns = []
    for i, (name, aligned) in enumerate(zip(names, right, strict=True)):
        needed = max([len(name), *(len(cells[i]) for cells in rows)])
        if i == len(names) - 1:
            used = 2 + sum(c.width + len(GAP) for c in columns)
            needed = max(last, room - used)
            columns.append(Column(name, needed, right=aligned))
        else:
            columns.append(Column(name, min(needed, max(MOST_NAME, room // 3)), right=aligned))
    return columns


class CountersTable(Table):
    """A table with its own help."""

    def __init__(self, title: str, help: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.border_title = title
        self.help_text = help

    class Resized(Message):
        """The table has another width."""

    def on_resize(self, event: Resize) -> None:
        self.post_message(self.Resized())

    @property
    def HELP(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] # Textual's is a class's
        """Shown by `?`."""
        return self.help_text


class CountersScreen(Zooming):
    """One launch's counters. They don't change: there are no timers."""

    HELP = DIAGNOSIS_HELP
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "i", "instructions", "Instructions", id="counters.spots", tooltip="Instructions, PTX, or lines"
        ),
        Binding(
            "a", "every", "All counters", id="counters.every", tooltip="All counters by name, or only ours"
        ),
        Binding(
            "p", "next_pane", "Next pane", id="counters.pane", tooltip="Show the next pane in the middle"
        ),
        Binding("t", "next_table", "Table", id="counters.table", tooltip="Show the other table"),
        Binding("m", "flow", "Memory", id="counters.flow", tooltip="Memory flow or roofline"),
        Binding(
            "s",
            "source",
            "Source",
            id="counters.source",
            tooltip="The hot line in its source, beside its SASS",
        ),
        Binding("o", "compare", "Compare", id="counters.compare", tooltip="Compare with another launch"),
        Binding("y", "copy", "Copy", id="counters.copy", tooltip="Copy the diagnosis"),
        Binding("question_mark", "help", "Help", key_display="?", id="counters.help"),
        Binding("q", "leave", "Back", id="counters.quit"),
        *(
            Binding(str(n), f"pane({n})", f"Focus {PANES[n - 1]}", show=False, id=f"counters.{n}")
            for n in range(1, len(PANES) + 1)
        ),
    ]

    def __init__(
        self, counters: Counters, *, folder: Path | None = None, baseline: Baseline | None = None
    ) -> None:
        super().__init__()
        self.counters = counters
        self.folder, self.baseline = folder, baseline  # of the run that it belongs to, if it does
        self._rival: Counters | None = None  # the baseline's profile
        self._said = diagnosis.diagnose(counters)
        self._lines, self._ptx = hotspots.by_line(counters), hotspots.by_ptx(counters)
        self._point = roofline.point(counters)
        self._hot = "lines"
        self._every = False
        self.add_class(
            "-middle-speed", "-show-roofline", "-bottom-lines" if self._lines else "-bottom-metrics"
        )

    @property
    def export_folder(self) -> Path | None:
        """Where saved panes go: to the session's own files."""
        return None if self.folder is None else self.folder / ARTIFACTS

    @property
    def export_caption(self) -> str:
        """What a saved pane is of, with the device and whether it was recorded."""
        return view.title_line(self.counters, 110)

    def compose(self) -> ComposeResult:
        yield Static("", id="title", markup=False)
        yield Static("", id="progress", markup=False)
        yield DiagnosisPane("Diagnosis", DIAGNOSIS_HELP, id="diagnosis")
        with Horizontal(id="middle"):
            yield BarPane("Speed of light", SPEED_HELP, id="speed")
            yield Plot(
                "Roofline",
                empty=view.NO_ROOFLINE,
                unit="",
                x_label="flop/byte",
                powers=True,
                id="roofline",
            )
            yield FlowPane(id="flow")
            yield BarPane("Stall reasons", STALLS_HELP, id="stalls")
        with Horizontal(id="tables"):
            yield CountersTable("Hot lines", LINES_HELP, id="lines")
            yield CountersTable("Counters", METRICS_HELP, id="metrics")
        yield Footer()
        yield Static("", id="tiny", markup=False)

    def on_mount(self) -> None:
        counters = self.counters
        self.query_one("#diagnosis", DiagnosisPane).show(
            [(said.text, view.evidence_words(said)) for said in self._said]
        )
        self.query_one("#speed", BarPane).show(
            [
                ("", view.speed_rows(counters), ""),
                ("Occupancy", view.occupancy_rows(counters), view.limiter_words(counters)),
            ]
        )
        stalls = view.stall_rows(counters)
        self.query_one("#stalls", BarPane).show(
            [("", stalls, "" if stalls else "not sampled; the metric sets stalls and full have them")]
        )
        self.query_one("#flow", FlowPane).show(flow(counters))
        self._draw_roofline()
        self.query_one("#diagnosis").focus()
        if self.baseline is not None:
            self.run_worker(self._find_baseline())

    async def _find_baseline(self) -> None:
        """Bring the baseline's point into the roofline, if it was profiled."""
        choices = await asyncio.to_thread(self._profiles)
        choice = next((c for c in choices if others.is_baseline(c, self.baseline)), None)
        if choice is not None and not gone(self):
            self._rival = choice.load()
            self._draw_roofline()

    def _profiles(self) -> list[Choice[Counters]]:
        """In a thread: what this can be compared with."""
        try:
            return others.profiles(self.counters.meta, self.folder, self.baseline)
        except WarpdeckError:
            return []  # the screen asks for a path then

    def _draw_roofline(self) -> None:
        rival = None if self._rival is None else roofline.point(self._rival)
        series = view.roofline_series(self._point, roofline.roofs(self.counters, self._point), rival)
        self.query_one("#roofline", Plot).show(series)

    def on_resize(self, event: Resize) -> None:
        width = event.size.width
        self.query_one("#tiny", Static).update(
            f"warpdeck needs 60×16, this terminal is {width}×{event.size.height}"
        )
        self.query_one("#title", Static).update(view.title_line(self.counters, width - 2))
        self.query_one("#progress", Static).update(view.cost_line(self.counters, width - 2))

    @property
    def _listed(self) -> list[hotspots.Line]:
        """The lines that the table shows; [] where it shows instructions."""
        return {"lines": self._lines, "PTX": self._ptx}.get(self._hot, [])

    def _fill_lines(self) -> None:
        table, counters = self.query_one("#lines", CountersTable), self.counters
        if self._hot == "instructions":
            spots = sorted(counters.hotspots, key=lambda spot: (-spot.samples, spot.address))
            rows = [TableRow(f"{s.address}", view.spot_cells(s, counters)) for s in spots]
        else:
            rows = [TableRow(f"{x.file}:{x.line} {x.ptx}", view.line_cells(x)) for x in self._listed]
        table.border_title = f"Hot {self._hot}"
        if not rows:
            table.border_title = "Hot lines: not sampled; the metric sets stalls and full have them"
        room = table.scrollable_content_region.width
        names = ("line", "share", "samples", "most wait for", HOT[self._hot])
        right = (False, True, True, False, False)
        table.fill(laid_out(names, right, [row.cells for row in rows], room), rows)
        self._describe_line()

    def _fill_metrics(self) -> None:
        table = self.query_one("#metrics", CountersTable)
        rows = [TableRow(name, cells) for name, cells in view.metric_cells(self.counters, every=self._every)]
        table.border_title = (
            f"Counters · {len(self.counters.metrics)} read, {len(self.counters.missing)} missing"
        )
        room = table.scrollable_content_region.width
        cells = [row.cells for row in rows]
        table.fill(laid_out(("quantity", "value", "meaning"), (False, True, False), cells, room), rows)
        self._describe_metric()

    @on(CountersTable.Resized)
    def _lay_out(self, event: CountersTable.Resized) -> None:
        plot = self.query_one("#roofline", Plot)
        words = view.roofline_words(self._point, max(20, plot.size.width - 13))
        plot.border_title = f"Roofline · {words}"
        self._fill_lines()
        self._fill_metrics()

    @on(Table.Moved)
    def _describe(self, event: Table.Moved) -> None:
        self._describe_line()
        self._describe_metric()

    def _describe_line(self) -> None:
        table = self.query_one("#lines", CountersTable)
        words = ""
        if table.cursor < len(self._listed):
            line = self._listed[table.cursor]
            reasons = ", ".join(f"{r.replace('_', ' ')} {100 * share:.0f}%" for r, share in line.top())
            words = f"{line.place or 'unknown line'}: {reasons or 'no stalls'}"
        table.border_subtitle = view.clip(words, max(0, table.size.width - 6))

    def _describe_metric(self) -> None:
        table = self.query_one("#metrics", CountersTable)
        name = table.marked_key or ""
        meaning = view.metrics.meaning(name)
        words = f"{name}: {meaning}" if meaning else name
        table.border_subtitle = view.clip(words, max(0, table.size.width - 6))

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what there is something for."""
        if action == "next_pane":
            return self.has_class("-narrow") or self.has_class("-slim")
        if action == "next_table":
            return not self.has_class("-xwide")
        if action == "source":
            return bool(self.counters.meta.get("workload") and self.counters.meta.get("variant"))
        if action == "instructions":
            return bool(self.counters.hotspots)
        return True

    def action_instructions(self) -> None:
        """Lines, machine instructions, lines of PTX in turn."""
        kinds = [kind for kind in HOT if kind != "PTX" or self._ptx]
        self._hot = kinds[(kinds.index(self._hot) + 1) % len(kinds)]
        self._fill_lines()
        self._show("lines")

    def action_every(self) -> None:
        """Ours or all counters."""
        self._every = not self._every
        self._fill_metrics()
        self._show("metrics")

    def action_pane(self, number: int) -> None:
        """Focus a pane by its number."""
        self._show(PANES[number - 1])

    def action_next_pane(self) -> None:
        """The next of the middle's panes, where there is room for one."""
        now = next(i for i, name in enumerate(MIDDLE) if self.has_class(f"-middle-{name}"))
        self._show(MIDDLE[(now + 1) % len(MIDDLE)])

    def action_next_table(self) -> None:
        """The other table."""
        self._show("metrics" if self.has_class("-bottom-lines") else "lines")

    def action_flow(self) -> None:
        """The memory flow or the roofline."""
        self._show("roofline" if self.focused is self.query_one("#flow") else "flow")

    def action_source(self) -> None:
        """The source with its heat and its machine code, at the marked line."""
        from .code import CodeScreen  # the lexers are loaded when they are needed

        table = self.query_one("#lines", CountersTable)
        line = self._listed[table.cursor].line if table.cursor < len(self._listed) else 0
        sources, version = of_counters(self.counters, self.folder)
        self.app.push_screen(CodeScreen(sources, version, line=line))

    def action_compare(self) -> None:
        """Ask with which, and show both."""
        from .pick import PickScreen

        def answered(found: Counters | None) -> None:
            if found is not None:
                from .counters_compare import CompareCountersScreen

                self.app.push_screen(CompareCountersScreen(found, self.counters))

        pick: PickScreen[Counters] = PickScreen(
            "Compare with", self._profiles, others.profile_in, lambda c: others.is_baseline(c, self.baseline)
        )
        self.app.push_screen(pick, answered)

    def _show(self, name: str) -> None:
        if self.maximized is not None:
            self.minimize()
        if name in ("roofline", "flow"):  # they share a place where there is no room for both
            self.set_class(name == "roofline", "-show-roofline")
            self.set_class(name == "flow", "-show-flow")
        for group, names in (("middle", MIDDLE), ("bottom", BOTTOM)):
            if name in names:
                for other in names:
                    self.set_class(other == name, f"-{group}-{other}")
        self.call_after_refresh(self.query_one(f"#{name}").focus)

    def action_copy(self) -> None:
        """Copy the diagnosis."""
        self.app.copy_to_clipboard("\n".join(said.text for said in self._said))
        self.notify("copied the diagnosis")

    def action_help(self) -> None:
        """Help for the focused pane."""
        from .help import HelpScreen

        self.app.push_screen(HelpScreen(self))

    def action_leave(self) -> None:
        """Back; what was told of this screen goes with it."""
        self.app.clear_notifications()
        self.dismiss()
