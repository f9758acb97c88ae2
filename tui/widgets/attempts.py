"""The attempts of a run that tries sources: a table, and a strip of statuses where there are no times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from rich.text import Text
from textual.binding import BindingType
from textual.events import Resize
from textual.widgets import Static

from ..export import Exported, Sheet
from ..format import NONE, clip, interval, speedup, time_text
from ..verdicts import status_mark, status_tone, status_words
from .table import GAP, Column, Table, TableRow

LEAST_IDEA = 18
WIDE = 100  # columns from which on statuses are written out


@dataclass(frozen=True)
class AttemptRow:
    """One attempt. `words`: what the frame says of it while it is marked."""

    number: int
    parent: int | None = None
    repairs: int | None = None
    idea: str = ""
    status: str | None = None
    kept: bool | None = None
    score_ms: float | None = None
    speedup: float | None = None
    speedup_ci: tuple[float, float] | None = None
    best: bool = False
    precision: str = ""
    words: str = ""


class Attempts(Table):
    """Attempts in order, following the newest while the cursor is on the last row."""

    HELP = """\
### Attempts

One row a source that was tried. **from**: the attempt that it changes; *↻* means that it repairs it. The
status is a letter and a colour: **✔** ok, **C** compile error, **L** launch error, **E** runtime error,
**M** out of memory, **T** timeout, **I** incorrect, **F** faster than its physical floor (so not believed),
**H** throttled, **S** sandbox error, **U** unsupported on this device, **R** restricted, **X** cancelled,
**…** not judged yet. **time**: the geometric mean of the sizes' medians; **speedup** is over the baseline,
with its 95% interval. A precision in brackets is not the workload's own: it is measured, and never the best.
**K** was kept: its win is above noise; **–** was not. The marked attempt's reason or summary is in the
frame's lower edge. **m** picks an attempt, and **s** on another shows what changed between the two; without
a pick, what changed from the one that it was made from.
"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: tuple[AttemptRow, ...] = ()
        self._timed = True
        self.picked: int | None = None
        self.border_title = "Attempts"

    def show(self, rows: Sequence[AttemptRow], *, timed: bool) -> None:
        """Show all rows; `timed`: the device measures."""
        shown = tuple(rows)
        if shown == self._shown and timed == self._timed:
            return
        follow = self.cursor >= len(self._shown) - 1
        self._shown, self._timed = shown, timed
        kept = sum(row.kept is True for row in shown)
        failed = sum(status_tone(row.status) == "bad" for row in shown)
        words = [f"Attempts, {len(shown)}", f"{kept} kept", f"{failed} failed" if failed else ""]
        self.border_title = " · ".join([w for w in words if w] + ([] if timed else ["emulated, no times"]))
        self._lay_out()
        if follow:
            self.action_jump(-1)
        self.call_after_refresh(self.reveal)  # the size that it gets first is not the one that it keeps

    @property
    def marked(self) -> AttemptRow | None:
        """The row under the cursor."""
        return self._shown[self.cursor] if self.cursor < len(self._shown) else None

    def exported(self) -> Sheet | None:
        """All attempts, with exact numbers in the CSV."""
        sheet = super().exported()
        return None if sheet is None else replace(sheet, values=[asdict(row) for row in self._shown])

    def pick(self) -> int | None:
        """Pick the marked attempt to compare others with, or end that; the number picked."""
        row = self.marked
        self.picked = None if row is None or self.picked == row.number else row.number
        self._lay_out()
        return self.picked

    def on_resize(self, event: Resize) -> None:
        self._lay_out()
        self.call_after_refresh(self.reveal)

    def on_table_moved(self) -> None:
        self._describe()

    def _lay_out(self) -> None:
        room = self.scrollable_content_region.width - 2  # the cursor's sign
        wide = room >= WIDE
        digits = max([2, *(len(str(row.number)) for row in self._shown)])
        columns = [
            Column("#", digits + 1, right=True),
            Column("from", max(4, digits + 1), right=True),
            Column("status", 15) if wide else Column("", 1),
        ]
        if self._timed:
            columns += [Column("time", 8, right=True), Column("speedup", 7, right=True)]
            columns.append(Column("95% interval", 14))
        columns.append(Column("kept", 4) if wide else Column("", 1))
        used = sum(column.width + len(GAP) for column in columns)
        columns.append(Column("idea", max(LEAST_IDEA, room - used)))
        best = next((row.score_ms for row in self._shown if row.best), None)
        self.fill(columns, [self._cells(row, wide, best) for row in self._shown])
        self._describe()

    def _cells(self, row: AttemptRow, wide: bool, best_ms: float | None) -> TableRow:
        number = f"◆{row.number}" if row.number == self.picked else f"{row.number}"
        origin = row.repairs if row.repairs is not None else row.parent
        parent = NONE if origin is None else f"↻{origin}" if row.repairs is not None else f"{origin}"
        mark = status_mark(row.status)
        status = f"{mark} {status_words(row.status)}" if wide and row.status else mark
        kept = "" if row.kept is None else "K" if row.kept else "–"
        cells = [number, parent, status]
        tones = ["", "dim", status_tone(row.status)]
        if self._timed:
            cells += [time_text(row.score_ms, best_ms), speedup(row.speedup), interval(row.speedup_ci)]
            tones += ["", "", "dim"]
        idea = " ".join(row.idea.split())
        cells += [kept, f"[{row.precision}] {idea}" if row.precision else idea]
        tones += ["good" if row.kept else "dim", ""]
        return TableRow(f"{row.number}", tuple(cells), strong=row.best, tones=tuple(tones))

    def _describe(self) -> None:
        row = self.marked
        self.border_subtitle = "" if row is None else clip(row.words, max(0, self.size.width - 6))


class StatusStrip(Static, Exported, can_focus=True):
    """A letter an attempt, for a device that measures no times."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"strip--good", "strip--bad", "strip--dim"}
    BINDINGS: ClassVar[list[BindingType]] = [Exported.BINDING]
    HELP = """\
### Statuses

One letter an attempt, in order. The device is **emulated**: kernels run on the CPU, for correctness only, so
there are no times to draw. **✔** is correct; the other letters are counted and named below the strip.
"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self.border_title = "Status per attempt"
        self.border_subtitle = "emulated: no times"
        self._statuses: tuple[str | None, ...] = ()

    def show(self, statuses: Sequence[str | None]) -> None:
        """Show these, in order."""
        if tuple(statuses) != self._statuses:
            self._statuses = tuple(statuses)
            self._draw()

    def exported(self) -> Sheet | None:
        """What `e` saves: each attempt's status."""
        rows = [(f"{i}", status_words(status)) for i, status in enumerate(self._statuses, 1)]
        return Sheet("Status per attempt", ("attempt", "status"), rows, (True, False)) if rows else None

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_attached:
            self.call_after_refresh(self._draw)  # in the new theme's colours

    def on_resize(self, event: Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        width = self.content_size.width
        if not width:
            return
        text = Text(no_wrap=True)
        each = max(1, width // 2)
        styles = {tone: self.get_component_rich_style(f"strip--{tone}") for tone in ("good", "bad", "dim")}
        for i, status in enumerate(self._statuses):
            text.append(status_mark(status), styles[status_tone(status)])
            text.append("\n" if (i + 1) % each == 0 else " ")
        counts = Counter(self._statuses)
        text.append("\n\n" if self._statuses else "no attempt yet")
        for status, count in counts.most_common():
            text.append(f"{status_mark(status)} ", styles[status_tone(status)])
            text.append(f"{count} {status_words(status)}\n")
        self.update(text, layout=False)
