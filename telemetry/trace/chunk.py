"""One chunk of rows, decoded in cycles: everything but the conversion to nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import layout
from .errors import TraceError
from .pairing import Problems, pair_fifo, pair_nested
from .rows import where

Ints = NDArray[np.int64]
_BEGIN, _START, _ISSUE = 0, 1, 2  # Slices.kind


@dataclass(frozen=True)
class Ranges:
    """Slices in cycles since their rows' clock_begin; rows within the chunk."""

    row: NDArray[np.int32]
    stage: NDArray[np.int16]
    start: NDArray[Any]
    end: NDArray[Any]  # of end_row
    depth: NDArray[np.int16]
    payload: NDArray[np.int32]
    kind: NDArray[np.uint8]
    flags: NDArray[np.uint8]
    end_row: NDArray[np.int32]


@dataclass(frozen=True)
class Instants:
    """Marks, likewise."""

    row: NDArray[np.int32]
    stage: NDArray[np.int16]
    time: NDArray[Any]
    payload: NDArray[np.int32]
    value: NDArray[np.float64]


class Chunk:
    """Rows of whole CTAs. `cells` [all rows, capacity] are a raw trace's records as 64-bit numbers.

    `full` [rows]: records found no room, so that what has no end is no mistake.
    """

    def __init__(
        self,
        cells: NDArray[np.uint64],
        rows: Ints,
        headers: NDArray[Any],
        counts: Ints,
        last: Ints,
        full: NDArray[np.bool_],
        first_row: int,
        stages: int,
    ) -> None:
        self.headers, self.counts, self.last, self.full = headers, counts, last, full
        self.first_row, self.stages = first_row, stages
        self.starts = np.cumsum(counts) - counts
        flat = self._flat(cells, rows)
        self.word = np.ascontiguousarray(flat[:, 1])
        self.row = np.repeat(np.arange(rows.size, dtype=np.int32), counts)
        self.name = (self.word >> np.uint32(layout.PAYLOAD_BITS)) & np.uint32(layout.MAX_NAMES)
        self.plain = not self.word.size or int(self.word.max()) >> 30 <= layout.KIND_END
        if self.plain:
            self.kind = (self.word >> np.uint32(30)).astype(np.uint8)
            self.raw = np.zeros(0, np.int64)
        else:
            self._classify()
        self._check_names()
        self.raw_records = np.bincount(self.row[self.raw], minlength=rows.size)
        self.bits = flat[self.raw, 0]
        self.notes: list[str] = []
        # Of async stages, whose other half may be in a full row or an untraced warp: issues, and all halves.
        self.elsewhere, self.halves = np.zeros(0, np.int64), 0
        self.cycle = self._unwrapped(flat[:, 0])

    def _flat(self, cells: NDArray[np.uint64], rows: Ints) -> NDArray[np.uint32]:
        """[records kept, 2] clock and word."""
        most = int(self.counts.max()) if rows.size else 0
        one = rows.size and int(rows[-1]) - int(rows[0]) == rows.size - 1 and (np.diff(rows) == 1).all()
        block = cells[rows[0] : rows[-1] + 1, :most] if one else cells[rows, :most]
        if (self.counts == most).all():
            flat = np.ascontiguousarray(block).reshape(-1)
        else:
            flat = block[np.arange(most) < self.counts[:, None]]
        return flat.view("<u4").reshape(-1, 2)

    def _classify(self) -> None:
        """`kind`: 0 to 2 as recorded, then 3 + the sub-kind of the extended ones."""
        kind = (self.word >> np.uint32(30)).astype(np.uint8)
        sub = ((self.word >> np.uint32(layout.SUB_SHIFT)) & np.uint32(7)).astype(np.uint8)
        self.kind = np.where(kind == layout.KIND_EXTENDED, sub + np.uint8(3), kind)
        self.raw = np.flatnonzero(self.kind == 3 + layout.SUB_RAW)

    def _check_names(self) -> None:
        """TraceError for a stage that the trace doesn't name."""
        if not self.name.size:
            return
        name = self.name
        if self.raw.size:
            name = name.copy()
            name[self.raw] = self.stages and 1
        if int(name.max()) > self.stages or int(name.min()) == 0:
            at = int(np.flatnonzero((name > self.stages) | (name == 0))[0])
            row = int(self.row[at])
            raise TraceError(
                f"trace: record {at - int(self.starts[row])} of {where(self.headers[row])} has stage id "
                f"{int(self.name[at])}; the trace names {self.stages}: of another program, or overwritten"
            )

    def _unwrapped(self, clock: NDArray[np.uint32]) -> NDArray[Any]:
        """Cycles since each row's begin: uint32 where no row is longer than that, else int64."""
        begin = self.headers["clock_begin"].astype(np.uint32)  # the low half
        short = bool((self.last < 1 << 32).all())
        cycle: NDArray[Any] = clock - np.repeat(begin, self.counts)
        if self.raw.size:  # their clock is a number; give them the time of the record before
            before = np.arange(cycle.size)
            before[self.raw] = -1
            before = np.maximum.accumulate(before)[self.raw]
            cycle[self.raw] = np.where(before >= self.starts[self.row[self.raw]], cycle[before], 0)
        if not short:
            cycle = cycle.astype(np.int64)
            for row in np.flatnonzero(self.last >= 1 << 32):
                part = slice(self.starts[row], self.starts[row] + self.counts[row])
                cycle[part] = unwrap(cycle[part])
        self._check_order(cycle)
        return cycle

    def _check_order(self, cycle: NDArray[Any]) -> None:
        """Note, and put right, rows whose records are not in the order of time or lie outside the warp's."""
        back = np.flatnonzero(cycle[1:] < cycle[:-1]) + 1
        back = back[self.row[back] == self.row[back - 1]]
        filled = np.flatnonzero(self.counts)
        final = self.starts[filled] + self.counts[filled] - 1
        beyond = filled[cycle[final].astype(np.int64) > self.last[filled]]
        for row in np.union1d(self.row[back], beyond):
            part = slice(self.starts[row], self.starts[row] + self.counts[row])
            cycle[part] = np.minimum(np.maximum.accumulate(cycle[part]), self.last[row])
            self.notes.append(
                f"the records of {where(self.headers[row])} are not in the order of its clock; "
                f"its times are not to be trusted"
            )
        lost = filled[(self.last[filled] - cycle[final].astype(np.int64)) >> 32 > 0]
        for row in lost:
            self.notes.append(
                f"{where(self.headers[row])} recorded nothing for more than 2^32 cycles; "
                f"where within its time the later records lie is unknown"
            )

    def decode(self, problems: Problems) -> tuple[Ranges, Instants]:
        """Pair everything. `problems` gets what has no partner."""
        self.problems = problems
        self.partner = np.full(self.word.size, -1, np.int32)
        self.forced = np.zeros(0, np.int64)
        if self.plain:
            level = self._nested(self.kind, self.name, self.counts, None)
            begins = np.flatnonzero(self.kind == 0)
            kind = np.zeros(begins.size, np.uint8)
        else:
            nested = np.flatnonzero(self.kind <= layout.KIND_END)
            counts = np.bincount(self.row[nested], minlength=self.counts.size)
            level = np.zeros(self.word.size, np.int32)
            level[nested] = self._nested(self.kind[nested], self.name[nested], counts, nested)
            for start, stop, asynchronous in ((layout.SUB_START, layout.SUB_STOP, False),
                                              (layout.SUB_ISSUE, layout.SUB_DONE, True)):  # fmt: skip
                self._extended(start + 3, stop + 3, asynchronous)
            class_of = np.full(11, 255, np.uint8)
            class_of[[0, 3 + layout.SUB_START, 3 + layout.SUB_ISSUE]] = _BEGIN, _START, _ISSUE
            kind = class_of[self.kind]
            begins = np.flatnonzero(kind != 255)
            kind = kind[begins]
        instants = self._instants()
        problems.flush()
        return self._ranges(begins, kind, level[begins]), instants

    def _ranges(self, begins: Ints, kind: NDArray[np.uint8], level: NDArray[np.int32]) -> Ranges:
        row, word, end_at = self.row[begins], self.word[begins], self.partner[begins]
        payload = word & np.uint32(layout.PAYLOAD_MASK)
        end_row, flags = row, np.zeros(begins.size, np.uint8)
        if not self.plain:
            payload = np.where(kind != _BEGIN, payload & np.uint32(layout.ARGUMENT_MASK), payload)
        unended = end_at < 0
        if unended.any():
            flags[unended] = 1
            end = np.where(unended, self._known()[row], self.cycle[end_at].astype(np.int64))
            at = np.searchsorted(begins, self.elsewhere)
            end[at] = self.cycle[self.elsewhere]
        else:
            end = self.cycle[end_at]
        if self.forced.size:
            flags[np.searchsorted(begins, self.forced)] = 1
        if not self.plain:
            end_row = np.where(unended, row, self.row[end_at])
        return Ranges(
            row,
            (self.name[begins] - np.uint32(1)).astype(np.int16),
            self.cycle[begins],
            end,
            np.minimum(level, 32767).astype(np.int16),
            payload.astype(np.int32),
            kind,
            flags,
            end_row,
        )

    def _known(self) -> Ints:
        """[rows] how far it is known what ran: to the warp's end, in a full row to its last record."""
        final = self.starts + self.counts - 1
        known = self.last.copy()
        filled = self.full & (self.counts > 0)
        known[filled] = self.cycle[final[filled]]
        return known

    def _nested(self, kind: NDArray[np.uint8], name: Any, counts: Ints, at: Ints | None) -> NDArray[np.int32]:
        """Pair nested ranges; `at`: their positions among all records. Returns their levels."""
        found = pair_nested(kind, name, counts)

        def place(positions: Ints) -> Ints:
            return positions if at is None else at[positions]

        self.partner[place(found.begins)] = place(found.ends)
        self.forced = place(found.forced)
        if self.forced.size:
            ends = self.partner[self.forced].astype(np.int64)
            self._problem(self.forced, "begin without end", ends, found.crossing - 1)
        unended = place(found.unended)
        self._problem(unended[~self.full[self.row[unended]]], "begin without end")
        self._problem(place(found.unbegun), "end without begin")
        return found.levels

    def _problem(self, at: Ints, text: str, when: Ints | None = None, others: Ints | None = None) -> None:
        if at.size:
            cycles = self.cycle[at if when is None else when].astype(np.int64)
            stages = self.name[at].astype(np.int64) - 1
            self.problems.add(self.row[at] + np.int64(self.first_row), cycles, stages, text, others)

    def _extended(self, start: int, stop: int, asynchronous: bool) -> None:
        """Pair token ranges within a row, async stages within a CTA."""
        at = np.flatnonzero(self.kind == start), np.flatnonzero(self.kind == stop)
        if not at[0].size and not at[1].size:
            return
        key = [(self.name[p].astype(np.int64) << 17) | (self.word[p] & layout.ARGUMENT_MASK) for p in at]
        if asynchronous:
            cta = self.headers["cta"].astype(np.int64)
            group = [cta[self.row[p]] for p in at]
            since = (self.headers["clock_begin"] - self.headers["clock_begin"].min()).astype(np.int64)
            time = [since[self.row[p]] + self.cycle[p] for p in at]
        else:
            group = [self.row[p].astype(np.int64) for p in at]
            time = list(at)
        partner, paired = pair_fifo((key[0], key[1]), (group[0], group[1]), (time[0], time[1]))
        self.partner[at[0]] = np.where(partner >= 0, at[1][partner] if at[1].size else -1, -1)
        lone, unbegun = at[0][partner < 0], at[1][~paired]
        if asynchronous:
            excused = self._incomplete_ctas()
            self.elsewhere = lone[excused[self.row[lone]]]
            self.halves = self.elsewhere.size + int(excused[self.row[unbegun]].sum())
            unbegun = unbegun[~excused[self.row[unbegun]]]
        else:
            excused = self.full
        self._problem(lone[~excused[self.row[lone]]], "begin without end")
        self._problem(unbegun, "end without begin")

    def _incomplete_ctas(self) -> NDArray[np.bool_]:
        """[rows] whether the CTA has a full row, or warps that were not traced."""
        _, cta, rows = np.unique(self.headers["cta"], return_inverse=True, return_counts=True)
        some_full = np.bincount(cta, weights=self.full) > 0
        return some_full[cta] | (rows[cta] < self.headers["warps"])

    def _instants(self) -> Instants:
        """Marks and values. A value whose second record found no room is NaN."""
        if self.plain:
            at = np.zeros(0, np.int64)
        else:
            at = np.flatnonzero((self.kind == layout.KIND_MARK) | (self.kind - 3 <= layout.SUB_VALUE_F32))
        kind = self.kind[at]
        value = np.full(at.size, np.nan)
        headers = np.flatnonzero(kind != layout.KIND_MARK)
        if headers.size or self.raw.size:
            self._values(at, kind, value, headers)
        payload = np.where(kind == layout.KIND_MARK, self.word[at] & np.uint32(layout.PAYLOAD_MASK), 0)
        stage = (self.name[at] - np.uint32(1)).astype(np.int16)
        return Instants(self.row[at], stage, self.cycle[at], payload.astype(np.int32), value)

    def _values(self, at: Ints, kind: NDArray[np.uint8], value: NDArray[np.float64], headers: Ints) -> None:
        number = at[headers] + 1
        inside = number < self.word.size
        inside[inside] = self.kind[number[inside]] == 3 + layout.SUB_RAW
        inside[inside] = self.row[number[inside]] == self.row[number[inside] - 1]
        bits = self.bits[np.searchsorted(self.raw, number[inside])]
        which = kind[headers[inside]]
        with np.errstate(invalid="ignore"):  # a signalling NaN
            floats = bits.view(np.float32).astype(np.float64)
        signed = bits.view(np.int32).astype(np.float64)
        value[headers[inside]] = np.where(
            which == 3 + layout.SUB_VALUE_F32,
            floats,
            np.where(which == 3 + layout.SUB_VALUE_I32, signed, bits.astype(np.float64)),
        )
        lone = at[headers[~inside]]
        self._problem(lone[~self.full[self.row[lone]]], "value without its number")
        stray = self.raw[~np.isin(self.raw, number[inside])]
        if stray.size:
            rows, cycles = self.row[stray] + np.int64(self.first_row), self.cycle[stray].astype(np.int64)
            self.problems.add(rows, cycles, np.full(stray.size, -1), "number without its value")


def unwrap(low: NDArray[Any]) -> Ints:
    """Cycles since the begin from their low 32 bits, in order: each step is less than 2^32."""
    steps = np.diff(low.astype(np.int64), prepend=0) & 0xFFFFFFFF
    return np.cumsum(steps)
