"""Where slices lie on tracks: lanes for those that overlap, and the order of their begins and ends."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import TraceError

Ints = NDArray[np.int64]
_DEEP = 32  # levels; below, a pass over the slices for each


def assign(row: Any, kind: Any, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Spread the slices that don't nest (kind > 0) over lanes in which none overlap.

    Returns [slices] each one's lane (0 for nested ones, which need none) and [lanes] each lane's row.
    Slices come sorted by row and start.
    """
    lane = np.zeros(row.size, np.int64)
    rows: list[int] = []
    free: list[tuple[int, int]] = []  # (when, lane) of the current row
    current = -1
    at = np.flatnonzero(kind > 0)
    at = at[np.lexsort((start[at], row[at]))]
    for i, r, begin, stop in zip(
        at.tolist(), row[at].tolist(), start[at].tolist(), end[at].tolist(), strict=True
    ):
        if r != current:
            current, free = r, []
        if free and free[0][0] <= begin:
            _, mine = heapq.heappop(free)
        else:
            mine = len(rows)
            rows.append(r)
        lane[i] = mine
        heapq.heappush(free, (stop, mine))
    return lane, np.array(rows, np.int64)


def event_order(track: Ints, depth: Any, kind: Any, start: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Begins and ends, track by track, such that they nest: (slice, whether its end) of each event.

    Slices come sorted by row and start, equal starts in program order. Times alone can't give the order:
    many may be the same.
    """
    order = np.lexsort((np.arange(track.size), start, track)) if (kind > 0).any() else np.arange(track.size)
    track, level = track[order], np.where(kind == 0, depth, 0)[order].astype(np.int64)
    n = track.size
    fresh = np.diff(track, prepend=-1) != 0
    jump = np.diff(level, prepend=-1)
    if (jump > 1).any() or (level[fresh] != 0).any():
        raise TraceError("ranges that don't nest can't be written")
    index = np.arange(n)
    following = _next_not_deeper(level, fresh)
    # Before a begin stand the begins before it, and the ends of all these but of the `level` open ones.
    begins = 2 * index - level
    ends = 2 * following - level - 1
    slice_of, is_end = np.empty(2 * n, np.int64), np.empty(2 * n, bool)
    slice_of[begins], is_end[begins] = order, False
    slice_of[ends], is_end[ends] = order, True
    return slice_of, is_end


def _next_not_deeper(level: Ints, fresh: NDArray[np.bool_]) -> Ints:
    """[n] the next slice on no deeper level, at the latest the next track's first."""
    n = level.size
    following = np.full(n, n, np.int64)
    deepest = int(level.max()) if n else 0
    for d in range(min(deepest, _DEEP) + 1):
        at = np.flatnonzero((level <= d) | fresh)
        mine = level[at] == d
        following[at[mine]] = np.append(at[1:], n)[mine]
    if deepest > _DEEP:
        stack: list[int] = []
        for i, d in enumerate(level.tolist()):
            while stack and int(level[stack[-1]]) >= d:
                following[stack.pop()] = i
            stack.append(i)
    return following
