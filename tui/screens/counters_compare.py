"""Two launches' counters beside each other: what changed, most first, and what that says."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.events import Resize
from textual.widgets import Static

from ...telemetry.ncu import roofline
from ...telemetry.ncu.counters import Counters
from .. import counters_compare as compare
from .. import counters_view as view
from ..format import clip
from ..others import short_of, title_of
from ..trace_view import device_words
from ..widgets.bars import DiagnosisPane, PairPane
from ..widgets.footer import Footer
from ..widgets.plot import Plot
from ..widgets.table import Table, TableRow
from .counters import CountersTable, laid_out
from .zooming import Zooming

SAID_HELP = """\
### What changed

What became of the time, then the changes that explain it, the largest first, each with the values it rests
on. Times under the profiler are of one replayed launch: they show a direction, and no ranking.
"""
PAIRS_HELP = """\
### Speed of light of both

The share of each unit's peak: the upper bar is the first launch's, the lower one the second's.
"""
CHANGES_HELP = """\
### Changes

Every quantity of both launches, what changed most first: in doublings, or in tens of percentage points.
**+** is better and **−** worse where that can be said of a counter alone. **a** adds all of Nsight Compute's
own counters, **x** exchanges the two launches.
"""
NAMES = ("quantity", "first", "second", "change", "meaning")


class CompareCountersScreen(Zooming):
    """Two profiles. They don't change: there are no timers."""

    HELP = SAID_HELP
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "swap", "Swap", id="compare.swap", tooltip="Exchange the two launches"),
        Binding(
            "a", "every", "All counters", id="compare.every", tooltip="All counters by name, or only ours"
        ),
        Binding("p", "next_pane", "Next pane", id="compare.pane", tooltip="Show the next pane in the middle"),
        Binding("y", "copy", "Copy", show=False, id="compare.copy", tooltip="Copy what changed"),
        Binding("question_mark", "help", "Help", key_display="?", id="compare.help"),
        Binding("q,escape", "leave", "Back", id="compare.quit"),
    ]

    def __init__(self, before: Counters, after: Counters) -> None:
        super().__init__()
        self.pair = (before, after)
        self._every = False
        self._said: list[tuple[str, str]] = []
        self.add_class("-middle-pairs")

    @property
    def names(self) -> tuple[str, str]:
        """Short names that tell the two apart."""
        before, after = self.pair
        names = short_of(before.meta, after.meta), short_of(after.meta, before.meta)
        return names if names[0] != names[1] else (f"{names[0]} (1)", f"{names[1]} (2)")

    @property
    def export_caption(self) -> str:
        """What a saved pane is of, with the device and whether it was recorded."""
        return " · against · ".join(view.title_line(counters, 70) for counters in reversed(self.pair))

    def compose(self) -> ComposeResult:
        yield Static("", id="title", markup=False)
        yield Static("", id="old", markup=False)
        yield Static("", id="new", markup=False)
        yield DiagnosisPane("What changed", SAID_HELP, id="said")
        with Horizontal(id="both"):
            yield PairPane("Speed of light", PAIRS_HELP, id="pairs")
            yield Plot(
                "Roofline", empty=view.NO_ROOFLINE, unit="", x_label="flop/byte", powers=True, id="roofline"
            )
        yield CountersTable("Changes", CHANGES_HELP, id="changes")
        yield Footer()
        yield Static("", id="tiny", markup=False)

    def on_mount(self) -> None:
        self._show()
        self.query_one("#changes").focus()

    def _show(self) -> None:
        before, after = self.pair
        names = self.names
        self._said = compare.said(before, after, names)
        self.query_one("#said", DiagnosisPane).show(self._said)
        rows = zip(view.speed_rows(before), view.speed_rows(after), strict=True)
        occupancy = zip(view.occupancy_rows(before), view.occupancy_rows(after), strict=True)
        self.query_one("#pairs", PairPane).show([*rows, *occupancy], names)
        points = [roofline.point(counters) for counters in self.pair]
        series = view.roofline_series(
            points[1], roofline.roofs(after, points[1]), points[0], (names[1], names[0])
        )
        self.query_one("#roofline", Plot).show(series)
        self._describe()
        self._fill()

    def _describe(self) -> None:
        width = max(0, self.size.width - 2)
        before, after = self.pair
        workload = str(after.meta.get("workload") or after.kernel)
        devices = dict.fromkeys(device_words(c.meta.get("device")) for c in self.pair)
        words = " · ".join([f"Counters · {workload}", *(d for d in devices if d)])
        if len(devices) > 1:
            words += " · two devices: rates differ by that too"
        self.query_one("#title", Static).update(clip(words, width))
        for sign, name, counters in (("1", "old", before), ("2", "new", after)):
            line = f"{sign}  {title_of(counters.meta)} · {view.cost_line(counters, width)}"
            self.query_one(f"#{name}", Static).update(clip(line, width))

    def _fill(self) -> None:
        table = self.query_one("#changes", CountersTable)
        found = compare.changes(*self.pair, every=self._every)
        rows = []
        for change in found:
            sign = "" if change.better is None else "+ " if change.better else "− "
            label, first, second, words = change.cells
            cells = (label, first, second, f"{sign}{words}", view.metrics.meaning(change.name))
            tone = "" if change.better is None else "good" if change.better else "bad"
            tones = ("", "", "", tone, "") if change.weight else ("dim",) * 5
            rows.append(TableRow(change.name, cells, tones=tones))
        changed = sum(change.weight >= compare.LEAST for change in found)
        table.border_title = f"Changes · {changed} of {len(found)} quantities, the largest first"
        room = table.scrollable_content_region.width
        right = (False, True, True, True, False)
        table.fill(laid_out(NAMES, right, [row.cells for row in rows], room), rows)
        self._describe_row()

    @on(CountersTable.Resized)
    def _lay_out(self) -> None:
        self._describe()
        self._fill()

    def on_resize(self, event: Resize) -> None:
        width, height = event.size
        self.query_one("#tiny", Static).update(f"warpdeck needs 60×16, this terminal is {width}×{height}")

    @on(Table.Moved)
    def _describe_row(self) -> None:
        table = self.query_one("#changes", CountersTable)
        name = table.marked_key or ""
        meaning = view.metrics.meaning(name)
        table.border_subtitle = clip(f"{name}: {meaning}" if meaning else name, max(0, table.size.width - 6))

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what there is something for."""
        return action != "next_pane" or self.has_class("-narrow") or self.has_class("-slim")

    def action_swap(self) -> None:
        """Exchange the two."""
        self.pair = (self.pair[1], self.pair[0])
        self._show()

    def action_every(self) -> None:
        """Ours or all counters."""
        self._every = not self._every
        self._fill()

    def action_next_pane(self) -> None:
        """Bars or the roofline, where there is room for one."""
        self.toggle_class("-middle-pairs", "-middle-roofline")

    def action_copy(self) -> None:
        """Copy what changed."""
        self.app.copy_to_clipboard("\n".join(f"{text} ({why})" if why else text for text, why in self._said))
        self.notify("copied what changed")

    def action_help(self) -> None:
        """Help for the focused pane."""
        from .help import HelpScreen

        self.app.push_screen(HelpScreen(self))

    def action_leave(self) -> None:
        """Back."""
        self.dismiss()
