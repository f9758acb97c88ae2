"""A part of a timeline to be saved: a picture of the rows on the screen, and their ranges as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..sessions.drawing import Drawing, text_width
from ..telemetry.trace.timeline import Timeline
from .charts import csv_text
from .lanes import ASYNC, NESTED, NONE, TOKEN, Lanes
from .palette import colours
from .trace_view import axis, device_words, time_words

COLUMNS, ROW, LEFT, TOP = 800, 12, 96, 40
INK, FAINT, ALIVE = "#202020", "#606870", "#e4e8ec"
KINDS = {NESTED: "range", TOKEN: "token", ASYNC: "async"}
HEADING = ("cta", "warp", "sm", "stage", "kind", "depth", "start_ns", "end_ns", "payload", "end_missing")


@dataclass(frozen=True, eq=False)
class TraceSaved:
    """Lanes `first` to `last - 1` of a timeline between `low` and `high`, ns."""

    timeline: Timeline
    lanes: Lanes
    first: int
    last: int
    low: float
    high: float
    letters: Sequence[str]

    @property
    def title(self) -> str:
        """Workload, variant, device, and which part."""
        meta = self.timeline.meta
        names = [str(meta[key]) for key in ("workload", "variant", "case") if meta.get(key)]
        parts = [*names, device_words(meta.get("device")), f"{time_words(self.high - self.low)} from "]
        return " · ".join(part for part in parts if part) + time_words(self.low)

    def csv(self) -> str:
        """The ranges of these rows' warps that lie, in part, in this time; sorted as the trace is."""
        t = self.timeline
        s, warps = t.slices, t.warps
        wanted = np.zeros(len(warps.cta), dtype=bool)
        wanted[self.lanes.row[self.first : self.last]] = True
        at = np.flatnonzero(wanted[s.row] & (s.start_ns < self.high) & (s.end_ns > self.low))
        row = s.row[at]
        columns = (
            warps.cta[row].tolist(),
            warps.warp[row].tolist(),
            warps.sm[row].tolist(),
            [t.stages[i] for i in s.stage[at].tolist()],
            [KINDS.get(kind, "") for kind in s.kind[at].tolist()],
            s.depth[at].tolist(),
            s.start_ns[at].tolist(),
            s.end_ns[at].tolist(),
            s.payload[at].tolist(),
            (s.flags[at] & 1).tolist(),
        )
        return csv_text(HEADING, zip(*columns, strict=True))

    def drawing(self) -> Drawing:
        """A row a lane, a colour a stage; the legend has its letter too."""
        count, stages = self.last - self.first, self.timeline.stages
        fills = colours(stages)
        height = TOP + ROW * count + 20
        drawing = Drawing(max(LEFT + COLUMNS + 12, text_width(self.title) + 20), height, self.title)
        drawing.text(10, 8, self.title, INK)
        x = LEFT
        for letter, name, fill in zip(self.letters, stages, fills, strict=True):
            drawing.rectangle(x, 21, 9, 9, fill)
            drawing.text(x + 12, 21, f"{letter} {name}", FAINT)
            x += 24 + text_width(f"{letter} {name}")
        edges = np.linspace(self.low, self.high, COLUMNS + 1)
        cover = self.lanes.cover(self.first, self.last, edges)
        warps = self.timeline.warps
        for i in range(count):
            row, y = int(self.lanes.row[self.first + i]), TOP + ROW * i
            drawing.text(10, y + 2, f"cta {warps.cta[row]} w{warps.warp[row]}", FAINT)
            alive = np.clip((np.array([warps.start_ns[row], warps.end_ns[row]]) - self.low), 0, None)
            a, b = np.clip(alive / (self.high - self.low) * COLUMNS, 0, COLUMNS).round().astype(int).tolist()
            drawing.rectangle(LEFT + a, y, max(0, b - a), ROW - 2, ALIVE)
            shown = np.where(cover.busy[i] >= 0.05, cover.stage[i], NONE)
            starts = np.flatnonzero(np.r_[True, shown[1:] != shown[:-1]]).tolist()
            for start, end in zip(starts, [*starts[1:], COLUMNS], strict=True):
                stage = int(shown[start])
                if stage != NONE:
                    drawing.rectangle(LEFT + start, y, end - start, ROW - 2, fills[stage])
        for column, label in axis(self.low, self.high, COLUMNS // 6):
            drawing.text(LEFT + column * 6, TOP + ROW * count + 4, label, FAINT)
        return drawing
