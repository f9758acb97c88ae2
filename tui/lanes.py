"""A trace's slices as lanes, to be drawn at any zoom: built once a trace, queried once a frame. No Textual.

A warp has a lane for its nested ranges (or one a depth), and as many for token ranges and for async stages
as overlap at once. The segments of a lane don't overlap. They are kept sorted by lane and stage (a *group*),
each with the time that all were busy before it, so that how long a stage ran within each column of the screen
is two binary searches: exact at every zoom, nothing is sampled, and the number of events hardly matters.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..telemetry.trace.timeline import Slices, Timeline

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NESTED, TOKEN, ASYNC = 0, 1, 2
DEEPEST, EVERY = -1, -2  # levels: the innermost range at each instant; a lane a depth
MOST_DEPTHS, MOST_SLOTS = 16, 8  # lanes a warp for depths; for overlapping token ranges, and for async stages
_WIDTH = MOST_DEPTHS + 2 * MOST_SLOTS
NONE = -1


@dataclass(frozen=True, eq=False)
class Cover:
    """What fills each column of some lanes, all (lanes, columns).

    `stage`: the one that ran longest there, NONE where nothing did; `busy`: the share of the column covered
    by any; `item`: the segment that covers the column from edge to edge, else NONE; `left` and `right`: the
    share of the column covered by the previous and by the next column's stage; `second`: the stage that ran
    longest after the first, NONE where there is none, and `part`, its share of the column.
    """

    stage: Ints
    busy: Floats
    item: Ints
    left: Floats
    right: Floats
    second: Ints
    part: Floats


@dataclass(frozen=True, eq=False)
class Lanes:
    """Lanes in display order, by warp. `row` [lanes] indexes the timeline's warps, `kind` says what they
    show, `sub` which of several. `low` and `high` bound every time, ns. `hidden`: slices that overlap
    MOST_SLOTS others and have no lane."""

    row: Ints
    kind: Ints
    sub: Ints
    low: float
    high: float
    hidden: int
    levels: int  # as `build` takes it
    group_lane: Ints
    group_stage: Ints
    group_first: Ints  # [groups + 1]
    start: Floats  # of the segments, as all below
    length: Floats
    before: Floats  # total length of all segments before
    slice: NDArray[np.int32]
    key: Floats  # place of the start on an axis on which the groups follow each other

    @property
    def count(self) -> int:
        """Number of lanes."""
        return len(self.row)

    @property
    def _step(self) -> float:
        return self.high - self.low + 1.0

    def _groups(self, first: int, last: int) -> tuple[int, int]:
        a, b = np.searchsorted(self.group_lane, [first, last])
        return int(a), int(b)

    def _locate(self, groups: slice, times: Floats) -> Ints:
        """(groups, times): the last segment that starts by then; the group's first if none does."""
        index = np.arange(groups.start, groups.stop, dtype=np.float64) * self._step
        found = np.searchsorted(self.key, index[:, None] + (times - self.low)[None, :], side="right") - 1
        return np.maximum(found, self.group_first[groups][:, None])

    def cover(self, first: int, last: int, edges: Floats) -> Cover:
        """What fills the columns between `edges` (columns + 1, ascending, ns) in lanes first to last - 1."""
        lanes, columns = last - first, len(edges) - 1
        a, b = self._groups(first, last)
        if a == b or columns < 1:
            empty = np.full((lanes, max(columns, 0)), NONE)
            zero = np.zeros(empty.shape)
            return Cover(empty, zero, empty, zero, zero, empty, zero)
        edges = np.clip(edges, self.low, self.high)
        widths = np.diff(edges)
        at = self._locate(slice(a, b), edges)
        busy = self.before[at] + np.clip(edges - self.start[at], 0.0, self.length[at])
        lane = self.group_lane[a:b] - first
        starts = np.searchsorted(lane, np.arange(lanes))
        rank = np.arange(b - a) - starts[lane] + 1
        most = int(rank.max()) + 1
        # Rank 0 is nothing at all.
        share = np.zeros((lanes, most, columns))
        with np.errstate(divide="ignore", invalid="ignore"):
            share[lane, rank] = np.nan_to_num(np.diff(busy, axis=1) / widths)
        total = np.minimum(share.sum(axis=1), 1.0)
        share[:, 0] = 1.0 - total
        # A column that is at all busy names what ran there, however short; `busy` says how much it was.
        best = share[:, 1:].argmax(axis=1) + 1
        best[total <= 1e-9] = 0
        names = np.full((lanes, most), NONE)
        names[lane, rank] = self.group_stage[a:b]
        here = np.arange(lanes)[:, None]
        column = np.arange(columns)[None, :]
        group = np.clip(starts[:, None] + best - 1, 0, b - a - 1)
        begin, end = at[group, column], at[group, column + 1]
        whole = (best > 0) & (begin == end) & (share[here, best, column] >= 0.999)
        solid = np.where(total >= 0.5, best, 0)
        left = np.concatenate([solid[:, :1], solid[:, :-1]], axis=1)
        right = np.concatenate([solid[:, 1:], solid[:, -1:]], axis=1)
        borders = share[here, left, column], share[here, right, column]
        share[here, best, column] = 0.0
        second = share[:, 1:].argmax(axis=1) + 1
        part = share[here, second, column]
        second[part <= 1e-9] = 0
        return Cover(
            names[here, best], total, np.where(whole, begin, NONE), *borders, names[here, second], part
        )

    def slice_at(self, lane: int, time: float) -> int | None:
        """The slice that a lane shows at a time."""
        a, b = self._groups(lane, lane + 1)
        if a == b or not self.low <= time <= self.high:
            return None
        at = self._locate(slice(a, b), np.array([time]))[:, 0]
        inside = (self.start[at] <= time) & (time < self.start[at] + self.length[at])
        return int(self.slice[at[inside][0]]) if inside.any() else None

    def neighbour(self, lane: int, time: float, direction: int) -> float | None:
        """Where the next (1) or the previous (-1) segment of a lane starts, from a time on."""
        a, b = self._groups(lane, lane + 1)
        found: list[float] = []
        for g in range(a, b):
            starts = self.start[self.group_first[g] : self.group_first[g + 1]]
            i = int(np.searchsorted(starts, time, side="right" if direction > 0 else "left"))
            i -= direction < 0
            if 0 <= i < len(starts):
                found.append(float(starts[i]))
        return (min(found) if direction > 0 else max(found)) if found else None

    def lane_of(self, row: int, kind: int, start: float, depth: int, slice_id: int) -> int | None:
        """The lane that shows a slice; None if none does."""
        if kind == NESTED and self.levels not in (DEEPEST, EVERY, depth):
            return None
        mine = np.flatnonzero((self.row == row) & (self.kind == kind))
        if kind == NESTED and len(mine) > 1:
            mine = mine[self.sub[mine] == min(depth, MOST_DEPTHS - 1)]
        if kind == NESTED:
            return int(mine[0]) if len(mine) else None
        return next((int(lane) for lane in mine if self.slice_at(int(lane), start) == slice_id), None)


def build(timeline: Timeline, levels: int = DEEPEST, extras: bool = True) -> Lanes:
    """Lanes of a timeline. `levels`: DEEPEST, EVERY, or the one depth to show; `extras`: with token ranges
    and async stages."""
    slices, rows = timeline.slices, len(timeline.warps.cta)
    nested = np.flatnonzero(slices.kind == NESTED)
    if levels == DEEPEST:
        of, start, end = _innermost(slices, nested)
        sub = np.zeros(len(of), dtype=np.int64)
    else:
        of = nested if levels == EVERY else nested[slices.depth[nested] == levels]
        start, end = slices.start_ns[of], slices.end_ns[of]
        depth = slices.depth[of].astype(np.int64)
        sub = np.minimum(depth, MOST_DEPTHS - 1) if levels == EVERY else np.zeros_like(depth)
    parts = [(of, start, end, sub)]
    hidden = 0
    for kind in (TOKEN, ASYNC) if extras else ():
        mine = np.flatnonzero(slices.kind == kind)
        slot = _slots(slices.row[mine], slices.start_ns[mine], slices.end_ns[mine])
        hidden += int((slot == NONE).sum())
        mine, slot = mine[slot != NONE], slot[slot != NONE]
        base = MOST_DEPTHS + (kind - 1) * MOST_SLOTS
        parts.append((mine, slices.start_ns[mine], slices.end_ns[mine], slot + base))
    parts = [p for p in parts if len(p[0])] or parts[:1]
    if len(parts) > 1:
        of = np.concatenate([p[0] for p in parts])
        start, end = np.concatenate([p[1] for p in parts]), np.concatenate([p[2] for p in parts])
        sub = np.concatenate([p[3] for p in parts])
    else:
        of, start, end, sub = parts[0]
    del parts, nested  # a million ranges are big columns: none is kept longer than it is needed
    keep = end > start  # an empty range has no place on the screen; the stage table counts it
    if not keep.all():
        of, start, end, sub = of[keep], start[keep], end[keep], sub[keep]
    place = slices.row[of].astype(np.int32) * np.int32(_WIDTH) + sub.astype(np.int32)
    del sub
    used = np.zeros(rows * _WIDTH, dtype=bool)
    used[place] = True
    used[np.arange(rows) * _WIDTH] |= ~used.reshape(rows, _WIDTH)[:, :MOST_DEPTHS].any(axis=1)
    shown = np.flatnonzero(used)
    lane = (np.cumsum(used, dtype=np.int32) - 1)[place]
    del place
    return _sorted(timeline, shown, lane, of, start, end, hidden, levels)


def _sorted(
    timeline: Timeline,
    shown: Ints,
    lane: NDArray[np.int32],
    of: Ints,
    start: Floats,
    end: Floats,
    hidden: int,
    levels: int,
) -> Lanes:
    """Segments into groups."""
    warps, marks = timeline.warps, timeline.marks
    every = [start, end, warps.start_ns, warps.end_ns, marks.time_ns]
    low = min([0.0, *(float(t.min()) for t in every if len(t))])
    high = max([low + 1.0, *(float(t.max()) for t in every if len(t))])
    step = high - low + 1.0
    stages = max(1, len(timeline.stages))
    code = lane * stages
    code += timeline.slices.stage[of]
    present = np.zeros(len(shown) * stages + 1, dtype=bool)
    present[code] = True
    codes = np.flatnonzero(present)
    group = (np.cumsum(present, dtype=np.int32) - 1)[code]
    del code
    first = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=len(codes)))])
    key: Floats = group.astype(np.float64)
    key *= step
    del group
    key += start
    key -= low
    order = np.argsort(key).astype(np.int32)
    length = (end - start)[order]
    before = np.cumsum(length)
    before -= length
    sub = shown % _WIDTH
    kind = np.where(sub < MOST_DEPTHS, NESTED, np.where(sub < MOST_DEPTHS + MOST_SLOTS, TOKEN, ASYNC))
    return Lanes(
        row=shown // _WIDTH,
        kind=kind,
        sub=np.where(sub < MOST_DEPTHS, sub, (sub - MOST_DEPTHS) % MOST_SLOTS),
        low=low,
        high=high,
        hidden=hidden,
        levels=levels,
        group_lane=codes // stages,
        group_stage=codes % stages,
        group_first=first.astype(np.int64),
        start=start[order],
        length=length,
        before=before,
        slice=of[order].astype(np.int32),
        key=key[order],
    )


def _innermost(slices: Slices, nested: Ints) -> tuple[Ints, Floats, Floats]:
    """(slice, start, end) of the stretches in which a slice is the innermost one.

    A slice is it from its start to its first child's, and from each child's end to the next child or to its
    own end.
    """
    if not len(nested):
        return nested, np.zeros(0), np.zeros(0)
    row, depth = slices.row[nested], slices.depth[nested]
    start, end = slices.start_ns[nested], slices.end_ns[nested]
    if not depth.any():
        return nested, start, end
    until = end.copy()
    child = (row[1:] == row[:-1]) & (depth[1:] > depth[:-1])
    until[:-1][child] = np.minimum(end[:-1][child], start[1:][child])
    of, starts, ends = [nested], [start], [until]
    outer = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max()) + 1):
        inner = np.flatnonzero(depth == level)
        if not len(inner) or not len(outer):
            break
        place = np.searchsorted(outer, inner) - 1
        parent = outer[np.maximum(place, 0)]
        known = (place >= 0) & (row[parent] == row[inner])
        last = end[parent].copy()
        sibling = parent[1:] == parent[:-1]
        last[:-1][sibling] = np.minimum(last[:-1][sibling], start[inner[1:]][sibling])
        of.append(nested[parent[known]])
        starts.append(end[inner][known])
        ends.append(last[known])
        outer = inner
    return np.concatenate(of), np.concatenate(starts), np.concatenate(ends)


def first_steps(timeline: Timeline, row: int, steps: int) -> tuple[float, float] | None:
    """(from, to) ns of about the first `steps` steps of a warp's loop; None if it runs less than twice that.

    A step is told by its stages: of those that ran often, the one that ran least often ran once a step.
    """
    s = timeline.slices
    mine = (s.row == row) & (s.kind == NESTED)
    counts = np.bincount(s.stage[mine], minlength=1)
    often = int(counts[counts * 4 >= counts.max()].min())
    if often < 2 * steps:
        return None
    first, last = float(s.start_ns[mine].min()), float(s.end_ns[mine].max())
    span = steps * (last - first) / often
    return first - span / 20, first + span


def _slots(row: NDArray[np.int32], start: Floats, end: Floats) -> Ints:
    """For ranges sorted by row and start, which of a row's lanes each takes; NONE beyond MOST_SLOTS."""
    count = len(row)
    slot = np.zeros(count, dtype=np.int64)
    if not count:
        return slot
    firsts = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
    lasts = np.r_[firsts[1:], count]
    for a, b in zip(firsts.tolist(), lasts.tolist(), strict=True):
        s, e = start[a:b], end[a:b]
        if (np.diff(e) >= 0).all():  # first in, first out: a pipeline's slots take turns
            at_once = int((np.arange(b - a) - np.searchsorted(e, s, side="right")).max()) + 1
            if at_once <= MOST_SLOTS:
                slot[a:b] = np.arange(b - a) % at_once
                continue
        slot[a:b] = _greedy(s.tolist(), e.tolist())
    return slot


def _greedy(start: list[float], end: list[float]) -> list[int]:
    """The lowest free slot for each range."""
    free, busy, found = list(range(MOST_SLOTS)), [], []
    for s, e in zip(start, end, strict=True):
        while busy and busy[0][0] <= s:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            found.append(NONE)
            continue
        slot = heapq.heappop(free)
        heapq.heappush(busy, (e, slot))
        found.append(slot)
    return found
