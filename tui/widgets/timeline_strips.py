"""How the timeline pane is drawn: a whole frame at once, kept until something in it changes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ..lanes import ASYNC, NESTED, NONE, TOKEN, Floats
from ..palette import blend, colours
from ..timeline_paint import IDLE, INK, OUTSIDE, SOLID, STAGE, TEXT, Grid, Look, hairline, mark, paint
from ..trace_view import axis, instant_words, time_words

if TYPE_CHECKING:
    from .timeline import TimelinePane

WIDE_GUTTER, GUTTER = 16, 10
_HEADS = {WIDE_GUTTER: " cta   sm  warp ", GUTTER: " cta warp "}
DARK = "#0f1317"  # of what is written on a stage
_TAGS = {TOKEN: "~", ASYNC: "→"}


class TimelineStrips:
    """Draws a pane. Grids are kept by what they show, styles by their colours."""

    def __init__(self, pane: TimelinePane) -> None:
        self.pane = pane
        self._grid: tuple[object, Grid] | None = None
        self._map: tuple[object, list[Strip]] | None = None
        self._styles: dict[int, Style] = {}
        warps, slices, marks = pane.timeline.warps, pane.timeline.slices, pane.timeline.marks
        self._odd = np.unique(warps.cta, return_inverse=True)[1] % 2 == 1
        self._numbered = np.zeros(max(1, len(pane.timeline.stages)), dtype=bool)
        self._numbered[slices.stage[slices.payload != 0]] = True
        # Buffers keep what came first: after a warp's last record, all is unknown where any were dropped.
        self._known_until = warps.end_ns.copy()
        self._known_until[warps.dropped > 0] = pane.low
        crossing = slices.kind == ASYNC  # its end is a record of the warp that completes it
        seen = np.where((slices.flags & 1) | crossing, slices.start_ns, slices.end_ns)
        done = crossing & (slices.flags & 1 == 0)
        for row, times in (
            (slices.row, seen),
            (slices.end_row[done], slices.end_ns[done]),
            (marks.row, marks.time_ns),
        ):
            mine = warps.dropped[row] > 0
            np.maximum.at(self._known_until, row[mine], times[mine])

    def forget(self) -> None:
        """Draw everything anew: the colours changed."""
        self._grid = self._map = None
        self._styles.clear()

    @property
    def palette(self) -> list[str]:
        """Colours by code."""
        outside = self._colour("timeline--axis", ground=True)
        base = [
            outside,
            self._colour("timeline--idle", ground=True),
            self._colour("timeline--unknown"),
            self._colour("timeline--text"),
            DARK,
        ]
        stages = colours(self.pane.timeline.stages) or [outside]
        return [
            *base,
            *stages,
            *(blend(c, "#ffffff", 0.5) for c in stages),
            *(blend(c, outside, 0.75) for c in stages),
        ]

    def _colour(self, name: str, ground: bool = False) -> str:
        style = self.pane.get_component_rich_style(name)
        colour = style.bgcolor if ground else style.color
        return colour.get_truecolor().hex if colour else "#000000"

    @property
    def look(self) -> Look:
        """How stages are shown now."""
        pane = self.pane
        return Look(pane.timeline.stages, pane.letters, pane.focus_stage, pane.app.no_color)

    def frame(self, width: int, height: int) -> list[Strip]:
        """All rows of the pane."""
        pane = self.pane
        if not height or width <= pane.label_width:
            return []
        if not pane.lanes.count:
            return self._words("no warp was traced", width, height)
        grid = self._lanes_grid().copy()
        hairline(grid, pane.lane - pane.top, pane.column)
        strips = [self._axis()]
        body = self._grid_strips(grid)
        for i in range(pane.body):
            lane = pane.top + i
            if lane < pane.lanes.count:
                strips.append(Strip([self._gutter(lane), *body[i]], width))
            else:
                strips.append(Strip.blank(width, pane.get_component_rich_style("timeline--axis")))
        return [*strips, *self._minimap()][:height]

    def _words(self, words: str, width: int, height: int) -> list[Strip]:
        style = self.pane.get_component_rich_style("timeline--axis")
        blank = Strip.blank(width, style)
        middle = Strip([Segment(words[:width].center(width), style)], width)
        return [middle if y == height // 2 else blank for y in range(height)]

    def _lanes_grid(self) -> Grid:
        pane = self.pane
        last = min(pane.top + pane.body, pane.lanes.count)
        key = (pane.view, pane.top, last, pane.columns, pane.focus_stage, pane.chosen, id(pane.lanes))
        if self._grid is None or self._grid[0] != key:
            self._grid = key, self._draw(pane.top, last)
        return self._grid[1]

    def _draw(self, first: int, last: int) -> Grid:
        pane = self.pane
        lanes, warps, slices = pane.lanes, pane.timeline.warps, pane.timeline.slices
        edges = pane.edges()
        cover = lanes.cover(first, last, edges)
        row = lanes.row[first:last]
        begin, end = edges[None, :-1], edges[None, 1:]
        alive = (warps.start_ns[row][:, None] < end) & (warps.end_ns[row][:, None] > begin)
        unknown = alive & (warps.dropped[row] > 0)[:, None] & (begin >= self._known_until[row][:, None])
        has = cover.item != NONE
        number = np.full(cover.stage.shape, NONE, dtype=np.int64)
        lit = np.zeros(cover.stage.shape, dtype=bool)
        if has.any():
            mine = lanes.slice[cover.item[has]]
            number[has] = np.where(self._numbered[slices.stage[mine]], slices.payload[mine], NONE)
            if pane.chosen is not None:
                lit[has] = mine == pane.chosen
        grid = paint(cover, self.look, alive=alive, unknown=unknown, lit=lit, payload=number)
        main = np.r_[first == 0 or lanes.row[first - 1] != row[0], row[1:] != row[:-1]]
        mark(grid, pane.marked(row, edges) & main[:, None])
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
        lit = self.pane.app.no_color and STAGE + stages <= ground < STAGE + 2 * stages
        plain = self.pane.app.no_color
        style = Style(
            color=palette[TEXT] if plain and ink in (OUTSIDE, INK) and ground != TEXT else palette[ink],
            bgcolor=palette[IDLE] if plain and ground >= STAGE else palette[ground],
            reverse=lit,
        )
        self._styles[code] = style
        return style

    def _gutter(self, lane: int) -> Segment:
        pane = self.pane
        lanes, warps = pane.lanes, pane.timeline.warps
        row, kind = int(lanes.row[lane]), int(lanes.kind[lane])
        first = lane == pane.top or lanes.row[lane - 1] != row
        new_cta = first and (lane == pane.top or warps.cta[lanes.row[lane - 1]] != warps.cta[row])
        sub = int(lanes.sub[lane])
        if kind == NESTED:
            label = f"w{warps.warp[row]}" if sub == 0 or first else f" ·{sub}"
            label += "" if warps.closed[row] else "!"
        else:
            label = f" {_TAGS[kind]}{sub}"
        cta = str(warps.cta[row]) if new_cta else ""
        pointer = "▸" if lane == pane.lane else " "
        if pane.label_width == WIDE_GUTTER:
            text = f"{cta:>4} {warps.sm[row] if new_cta else '':>4} {pointer}{label:<5} "
        else:
            text = f"{cta:>3} {pointer}{label:<4} "
        name = (
            "timeline--cursor"
            if lane == pane.lane
            else "timeline--odd"
            if self._odd[row]
            else "timeline--gutter"
        )
        return Segment(text[: pane.label_width], pane.get_component_rich_style(name))

    def _axis(self) -> Strip:
        pane = self.pane
        style = pane.get_component_rich_style("timeline--axis")
        line = [" "] * pane.columns
        cursor = f"▼{instant_words(pane.time, pane.column_ns)}"
        start = min(pane.column, pane.columns - len(cursor))
        if start < pane.column:
            cursor = cursor[1:] + "▼"  # there is no room to the right of it
            start = pane.column - len(cursor) + 1
        shown = 0 <= pane.column < pane.columns and start >= 0
        for column, label in axis(*pane.view, pane.columns):
            text = f"╷{label}"[: pane.columns - column]
            if shown and column < start + len(cursor) + 1 and start < column + len(text) + 1:
                text = "╷"  # the cursor's own time takes its place
            line[column : column + len(text)] = text
        if shown:
            line[start : start + len(cursor)] = cursor
        return Strip(
            [Segment(_HEADS[pane.label_width] + "".join(line), style)], pane.label_width + pane.columns
        )

    def _minimap(self) -> list[Strip]:
        pane = self.pane
        if not pane.map_rows:
            return []
        bands = pane.map_rows - 1
        key = (pane.columns, bands, pane.focus_stage)
        style = pane.get_component_rich_style("timeline--axis")
        if self._map is None or self._map[0] != key:
            whole = np.linspace(pane.low, pane.high, pane.columns + 1)
            halves = 1 if pane.app.no_color else 2
            codes = self._bands(bands * halves, whole)
            pad = Segment(" " * pane.label_width, style)
            strips = [
                Strip([pad, *line], pane.label_width + pane.columns)
                for line in self._grid_strips(self._map_grid(codes, halves))
            ]
            self._map = key, strips
        low, high = ((t - pane.low) / (pane.high - pane.low) * pane.columns for t in pane.view)
        a = min(math.floor(low + 1e-6), pane.columns - 1)
        b = max(a + 1, min(pane.columns, math.ceil(high - 1e-6)))
        bar = "─" * a + "━" * (b - a) + "─" * (pane.columns - b)
        head = f"{time_words(pane.view[1] - pane.view[0], 3):>{pane.label_width - 1}} "
        text = pane.get_component_rich_style("timeline--text")
        line = [Segment(head + bar[:a], style), Segment(bar[a:b], text), Segment(bar[b:], style)]
        return [Strip(line, pane.label_width + pane.columns), *self._map[1]]

    def _bands(self, bands: int, edges: Floats) -> NDArray[np.int64]:
        """(bands, columns): the busiest innermost stage of some warps; NONE where nearly nothing ran."""
        lanes = self.pane.lanes
        nested = lanes.kind == NESTED
        found = np.full((bands, len(edges) - 1), NONE, dtype=np.int64)
        for band, rows in enumerate(np.array_split(np.unique(lanes.row), bands)):
            if not len(rows):
                continue
            shown = rows[:: max(1, len(rows) // 16)]  # a few speak for many
            totals = np.zeros((max(1, len(self.pane.timeline.stages)), len(edges) - 1))
            for row in shown.tolist():
                a, b = np.searchsorted(lanes.row, [row, row + 1])
                b = a + int(nested[a:b].sum())
                cover = lanes.cover(int(a), int(b), edges)
                stage = np.full(len(edges) - 1, NONE, dtype=np.int64)
                for names, busy in zip(cover.stage, cover.busy, strict=True):  # the outermost first
                    stage = np.where(busy >= SOLID, names, stage)
                at = np.flatnonzero(stage != NONE)
                totals[stage[at], at] += 1
            best = totals.argmax(axis=0)
            found[band] = np.where(totals.max(axis=0) > 0, best, NONE)
        return found

    def _map_grid(self, stages: NDArray[np.int64], halves: int) -> Grid:
        colour = np.where(stages == NONE, IDLE, STAGE + stages)
        if self.pane.focus_stage is not None:
            faint = (stages != NONE) & (stages != self.pane.focus_stage)
            colour = np.where(faint, colour + 2 * self.look.stages, colour)
        if halves == 2:
            upper, lower = colour[0::2], colour[1::2]
            text = np.full(upper.shape, ord("▀"), dtype=np.uint32)
            same = upper == lower
            text[same] = ord(" ")
            return Grid(text, np.where(same, OUTSIDE, upper), lower)
        letter = np.append(self.look.letter_codes, ord(" ")).astype(np.uint32)
        return Grid(letter[stages], np.full_like(colour, INK), colour)
