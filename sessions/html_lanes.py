"""A trace in the report: stages by warp, drawn as the timeline draws them, and the stages' sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..telemetry.trace.summary import summarise, table
from ..telemetry.trace.timeline import Timeline
from . import html_elements as html
from .html_elements import Html, tag
from .words import clipped, time_text

ROWS = 48  # warps drawn, evenly chosen of all
COLUMNS = 640  # units of the picture, each one colour
ROW = 8
NESTED = 0
STAGES = 64  # listed
COLOURS = 9  # classes s0 to s8 of the style sheet
LETTERED, MOST_LETTERS = 16, 800  # units of a run that gets its letter; letters altogether
PAD = 6
NAMES = 96  # characters of a row's name


@dataclass(frozen=True)
class Trace:
    """A trace that the session holds. `subject`: what it is of, in words."""

    file: Path
    timeline: Timeline
    subject: str


def traced(trace: Trace) -> Html:
    """The picture, its legend, the table of stages and what is to be said about the clock."""
    timeline, summary = trace.timeline, summarise(trace.timeline)
    head, *rows = table(summary)
    overhead = timeline.meta.get("overhead") or {}
    cost = f"{100 * (overhead['ratio'] - 1):+.1f}%" if overhead else "not measured"
    if recording := overhead.get("recording"):
        cost += f", {100 * (recording['ratio'] - 1):+.1f}% where it records"
    said = html.facts(
        [
            ("trace of", trace.subject),
            ("file", trace.file.name),
            ("span", time_text(summary.span_ns / 1e6)),
            ("warps", f"{summary.warps:,} of {summary.ctas:,} CTAs"),
            ("events", f"{summary.events:,}, {summary.dropped:,} dropped, {summary.mispaired:,} mispaired"),
            ("clock", f"±{summary.uncertainty_ns:.3g} ns ({summary.method})"),
            ("cost of tracing", cost),
        ]
    )
    notes = (
        tag("ul", [tag("li", clipped(note, 400)) for note in summary.notes[:20]]) if summary.notes else None
    )
    return html.render(
        [said, lanes(timeline), html.table(head, rows[:STAGES], right=range(1, len(head))), notes]
    )


def lanes(timeline: Timeline) -> Html:
    """Each warp's innermost stage over time, as coloured rows with a legend."""
    warps, slices = timeline.warps, timeline.slices
    count, span = len(warps.cta), timeline.span_ns
    if not count or span <= 0:
        return Html()
    chosen = np.unique(np.linspace(0, count - 1, min(count, ROWS)).round().astype(int))
    by_stage: dict[int, list[str]] = {}
    names: list[Html] = []
    marks: list[Html] = []
    signs = letters(timeline.stages)
    nested = np.flatnonzero(slices.kind == NESTED)
    rows = slices.row[nested]
    for place, row in enumerate(chosen.tolist()):
        low, high = np.searchsorted(rows, (row, row + 1))
        cover = innermost(timeline, nested[low:high], span)
        y = place * ROW + ROW // 2
        for stage, begin, length in _runs(cover):
            by_stage.setdefault(stage, []).append(f"M{begin} {y}h{length}")
            if length >= LETTERED and len(marks) < MOST_LETTERS:
                at = {"x": begin + length // 2, "y": y + 2.5, "text_anchor": "middle", "class_": "letter"}
                marks.append(tag("text", signs[stage], **at))
        if place % max(1, len(chosen) // 12) == 0:
            label = f"cta {warps.cta[row]} warp {warps.warp[row]}"
            names.append(tag("text", label, x=NAMES - 6, y=y + PAD + 3, text_anchor="end", class_="tick"))
    height = len(chosen) * ROW
    drawn = [
        tag(
            "path",
            tag("title", timeline.stages[stage]),
            d=Html("".join(parts)),
            class_=f"lane s{stage % COLOURS}",
        )
        for stage, parts in sorted(by_stage.items())
    ]
    time = [
        tag("text", words, x=NAMES + share * COLUMNS, y=height + PAD + 14, text_anchor=anchor, class_="tick")
        for share, words, anchor in (
            (0.0, "0", "start"),
            (0.5, time_text(span / 2e6), "middle"),
            (1.0, time_text(span / 1e6), "end"),
        )
    ]
    svg = tag(
        "svg",
        tag("title", "stages of the traced warps"),
        names,
        tag("g", drawn, marks, transform=f"translate({NAMES} {PAD})"),
        time,
        viewBox=f"0 0 {NAMES + COLUMNS + 8} {height + PAD + 20}",
        role="img",
        aria_label="stages by warp and time",
        class_="lanes",
    )
    legend = [
        tag("li", tag("span", signs[i], class_=f"swatch s{i % COLOURS}"), timeline.stages[i])
        for i in sorted(by_stage)
    ]
    words = f"{len(chosen)} of {count:,} warps; the innermost stage in each 1/{COLUMNS} of the span"
    return tag("figure", tag("figcaption", tag("b", words), tag("ul", legend, class_="legend")), svg)


def letters(stages: Sequence[str]) -> list[str]:
    """A capital a stage, of its own name if one is free; the second cue beside its colour."""
    found: list[str] = []
    for name in stages:
        own = [c for c in name.upper() if c.isascii() and c.isalnum()]
        found.append(
            next((c for c in [*own, *"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"] if c not in found), "?")
        )
    return found


def innermost(timeline: Timeline, which: NDArray[Any], span: float) -> NDArray[np.int64]:
    """The deepest stage at the centre of each column, -1 where there is none.

    `which`: indices of one warp's nested slices, in their order (start, then depth).
    """
    slices = timeline.slices
    centres = (np.arange(COLUMNS) + 0.5) * span / COLUMNS
    cover = np.full(COLUMNS, -1, np.int64)
    start, end, stage = slices.start_ns[which], slices.end_ns[which], slices.stage[which]
    for depth in np.unique(slices.depth[which]).tolist():  # a warp's slices of one depth don't overlap
        level = np.flatnonzero(slices.depth[which] == depth)
        place = np.searchsorted(start[level], centres, "right") - 1
        inside = (place >= 0) & (centres < end[level][np.maximum(place, 0)])
        cover[inside] = stage[level][place[inside]]
    return cover


def _runs(cover: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """(stage, first column, columns) of what is covered."""
    starts = np.flatnonzero(np.r_[True, np.diff(cover) != 0])
    lengths = np.diff(np.r_[starts, len(cover)])
    return [
        (stage, begin, length)
        for stage, begin, length in zip(
            cover[starts].tolist(), starts.tolist(), lengths.tolist(), strict=True
        )
        if stage >= 0
    ]
