"""Which end belongs to which begin: nested ranges, token ranges, async stages.

All positions are indices into a chunk's records in program order, row after row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
_MAX_LEVEL = 65535  # deeper rows are walked


@dataclass(frozen=True, order=True)
class Problem:
    """A begin or end without its partner. `stage` -1: none; `other`: the stage that ends inside it."""

    row: int
    cycle: int
    stage: int
    kind: str
    other: int = -1

    def text(self, stages: tuple[str, ...]) -> str:
        """In words."""
        if self.other >= 0:
            return f"ends {stages[self.other]} inside {stages[self.stage]}"
        return self.kind


@dataclass
class Problems:
    """All are counted, the first `limit` listed, by row and time."""

    limit: int
    count: int = 0
    listed: list[Problem] = field(default_factory=list)
    _pending: list[Problem] = field(default_factory=list)

    def add(self, rows: Ints, cycles: Ints, stages: Ints, kind: str, others: Ints | None = None) -> None:
        """Problems of one kind in one chunk, in any order."""
        self.count += len(rows)
        room = self.limit - len(self.listed)
        first = np.lexsort((cycles, rows))[:room]
        for i in first:
            other = -1 if others is None else int(others[i])
            self._pending.append(Problem(int(rows[i]), int(cycles[i]), int(stages[i]), kind, other))

    def flush(self) -> None:
        """The chunk is through."""
        self.listed += sorted(self._pending)[: self.limit - len(self.listed)]
        self._pending.clear()


@dataclass(frozen=True)
class Nested:
    """Pairs as positions. `forced`: begins that another range's end closed; `crossing`: its stage."""

    begins: Ints
    ends: Ints
    unended: Ints  # begins still open at the row's end
    unbegun: Ints  # ends
    forced: Ints
    crossing: Ints
    levels: NDArray[np.int32]  # of each event given


def pair_nested(is_end: NDArray[np.uint8], name: NDArray[np.uint32], counts: Ints) -> Nested:
    """Pair begins (0) and ends (1) of rows of `counts` events each, by depth.

    Sorted by depth, stably, begins and ends of a row alternate. Rows with an end too many, or whose names
    then differ, are walked.
    """
    after = np.cumsum(np.where(is_end, np.int8(-1), np.int8(1)), dtype=np.int32)
    level = after - (1 - is_end.astype(np.int32))
    stops = np.cumsum(counts)
    total = (
        np.where(stops > 0, after[np.maximum(stops, 1) - 1], 0) if after.size else np.zeros(len(counts), int)
    )
    even = not total.any()
    if not even:
        level -= np.repeat(np.concatenate([[0], total[:-1]]), counts).astype(np.int32)
    bad = np.zeros(len(counts), bool)
    if level.size and (int(level.min()) < 0 or int(level.max()) > _MAX_LEVEL):
        wrong = np.flatnonzero((level < 0) | (level > _MAX_LEVEL))
        bad[np.searchsorted(stops, wrong, side="right")] = True
    begins, ends, unended = _by_level(level, is_end, even and not bad.any(), _events_of(~bad, counts))
    differ = np.flatnonzero(name[begins] != name[ends])
    if differ.size:
        bad[np.searchsorted(stops, begins[differ], side="right")] = True
        begins, ends, unended = _by_level(level, is_end, False, _events_of(~bad, counts))
    if not bad.any():
        none = np.zeros(0, np.int64)
        return Nested(begins, ends, unended, none, none, none, level)
    return _with_walked(begins, ends, unended, level, is_end, name, stops, np.flatnonzero(bad))


def _events_of(rows: NDArray[np.bool_], counts: Ints) -> Ints | None:
    """Positions of these rows' events; None for all."""
    return None if rows.all() else np.flatnonzero(np.repeat(rows, counts))


def _by_level(
    level: NDArray[np.int32], is_end: NDArray[np.uint8], even: bool, events: Ints | None
) -> tuple[Ints, Ints, Ints]:
    """(begins, ends, begins without an end) of well-nested rows; `even`: every begin has its end."""
    if events is not None:
        level = level[events]
    deepest = int(level.max()) if level.size else 0
    if deepest == 0:
        order = np.arange(level.size)
    else:
        order = np.argsort(level.astype(np.uint8 if deepest < 256 else np.uint16), kind="stable")
    if events is not None:
        order = events[order]
    if even:
        return order[0::2], order[1::2], order[:0]
    is_begin = is_end[order] == 0
    followed = np.zeros(order.size, bool)
    followed[:-1] = is_begin[:-1] & ~is_begin[1:]
    at = np.flatnonzero(followed)
    return order[at], order[at + 1], order[is_begin & ~followed]


def _with_walked(
    begins: Ints,
    ends: Ints,
    unended: Ints,
    level: NDArray[np.int32],
    is_end: NDArray[np.uint8],
    name: NDArray[np.uint32],
    stops: Ints,
    rows: Ints,
) -> Nested:
    """Add the rows whose nesting is broken, event by event.

    An end closes the innermost open range of its name; those inside that one are closed with it, forced.
    """
    more: tuple[list[int], ...] = ([], [], [], [], [], [])
    more_begins, more_ends, more_unended, unbegun, forced, crossing = more
    for row in rows:
        first = int(stops[row - 1]) if row else 0
        part = slice(first, int(stops[row]))
        stack: list[tuple[int, int]] = []
        open_by_name: dict[int, int] = {}
        depths = []
        for position, (end, id) in enumerate(
            zip(is_end[part].tolist(), name[part].tolist(), strict=True), first
        ):
            depths.append(len(stack))
            if not end:
                stack.append((position, id))
                open_by_name[id] = open_by_name.get(id, 0) + 1
            elif not open_by_name.get(id):
                unbegun.append(position)
            else:
                while True:
                    begin, top = stack.pop()
                    open_by_name[top] -= 1
                    more_begins.append(begin)
                    more_ends.append(position)
                    if top == id:
                        break
                    forced.append(begin)
                    crossing.append(id)
        level[part] = depths
        more_unended += [begin for begin, _ in stack]

    def both(fast: Ints, slow: list[int]) -> Ints:
        return np.concatenate([fast, np.array(slow, np.int64)])

    none = np.zeros(0, np.int64)
    return Nested(
        both(begins, more_begins),
        both(ends, more_ends),
        both(unended, more_unended),
        both(none, unbegun),
        both(none, forced),
        both(none, crossing),
        level,
    )


def pair_fifo(
    key: tuple[Ints, Ints], group: tuple[Ints, Ints], time: tuple[Ints, Ints]
) -> tuple[Ints, NDArray[np.bool_]]:
    """Pair starts with stops of the same key and group, first with first; a stop needs a start before it.

    Each argument is (of the starts, of the stops). Keys are below 2^27, groups below 2^31; both sides come
    sorted by group. Returns for each start its stop or -1, and for each stop whether it has a start.
    """
    partner = np.full(key[0].size, -1, np.int64)
    paired = np.zeros(key[1].size, bool)
    a, b = (_order(key[i], group[i], time[i]) for i in (0, 1))
    ka, kb = key[0][a], key[1][b]
    ga, gb = group[0][a], group[1][b]
    ta, tb = time[0][a], time[1][b]
    if a.size == b.size and (ka == kb).all() and (ga == gb).all() and (ta <= tb).all():
        partner[a] = b
        paired[:] = True
        return partner, paired
    both = np.concatenate([ka * (1 << 31) + ga, kb * (1 << 31) + gb])
    found, id = np.unique(both, return_inverse=True)
    ia, ib = id[: a.size], id[a.size :]
    na, nb = np.bincount(ia, minlength=found.size), np.bincount(ib, minlength=found.size)
    first_a, first_b = np.cumsum(na) - na, np.cumsum(nb) - nb
    rank = np.arange(b.size) - first_b[ib]
    match = first_a[ib] + rank
    fits = rank < na[ib]
    fits[fits] = ta[match[fits]] <= tb[fits]
    clean = np.ones(found.size, bool)
    clean[ib[~fits]] = False
    good = clean[ib]
    partner[a[match[good]]] = b[good]
    paired[b[good]] = True
    for g in np.flatnonzero(~clean):
        next_a, stop_a = int(first_a[g]), int(first_a[g] + na[g])
        for j in range(int(first_b[g]), int(first_b[g] + nb[g])):
            if next_a < stop_a and ta[next_a] <= tb[j]:
                partner[a[next_a]] = b[j]
                paired[b[j]] = True
                next_a += 1
    return partner, paired


def _order(key: Ints, group: Ints, time: Ints) -> Ints:
    """By key, group, time. Radix passes over the key; times are nearly always in order already."""
    order = np.argsort((key & 0xFFFF).astype(np.uint16), kind="stable")
    high = (key >> 16).astype(np.uint16)
    if high.size and (high != high[0]).any():
        order = order[np.argsort(high[order], kind="stable")]
    k, g, t = key[order], group[order], time[order]
    if ((t[1:] < t[:-1]) & (k[1:] == k[:-1]) & (g[1:] == g[:-1])).any():
        return np.lexsort((time, group, key))
    return order
