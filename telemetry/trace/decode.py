"""Rows of records to a timeline: exact counts, ranges paired, cycles on one axis of nanoseconds.

Rows go through in chunks of whole CTAs that fit the processor's cache. Whatever is well formed is paired by
sorting; only rows whose nesting is broken are walked record by record (`pairing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import layout
from .chunk import Chunk, Instants, Ranges, unwrap
from .clock import convert
from .conversion import Conversion
from .pairing import Problems
from .readings import of_ends
from .rows import begun, kept, validate, where
from .timeline import Marks, Mispaired, RawTrace, Slices, Timeline, Warps

_CHUNK = 1 << 17  # records; about 2 MB in work
_MAX_LISTED = 100
_MAX_NOTES = 20
_MANY_LATE = 0.05  # of the readings in end records
Ints = NDArray[np.int64]


def decode(raw: RawTrace) -> Timeline:
    """Decode a launch's trace. TraceError if the bytes can't be a trace.

    Ranges without their own end are closed and flagged: where their warp ends, which counts as mispaired; of
    a warp whose row was full at its last record, since what ran then is unknown; at its issue where an async
    stage's other half may lie in a full row or an untraced warp.
    """
    validate(raw)
    rows = begun(raw)
    headers, counts = raw.headers[rows], kept(raw)[rows]
    capacity = raw.records.shape[1]
    cells = np.ascontiguousarray(raw.records).view("<u8").reshape(raw.records.shape)
    closed = headers["magic"] == layout.MAGIC_CLOSED
    last = _last_cycles(cells, rows, headers, counts, closed)
    ends = of_ends(cells, rows, headers, counts, last)
    conversion = convert(headers, raw.anchors, last, raw.meta, ends)
    dropped = np.where(closed, np.maximum(headers["count"].astype(np.int64) - capacity, 0), 0)
    full = (dropped > 0) | (~closed & (counts == capacity))
    problems, raw_records = Problems(_MAX_LISTED), np.zeros(rows.size, np.int64)
    parts: list[tuple[Slices, Marks]] = []
    notes: list[str] = []
    elsewhere = 0
    for part in _chunks(headers["cta"], counts):
        chunk = Chunk(
            cells,
            rows[part],
            headers[part],
            counts[part],
            last[part],
            full[part],
            part.start,
            len(raw.stages),
        )
        parts.append(_timed(*chunk.decode(problems), conversion, part))
        raw_records[part] = chunk.raw_records
        notes += chunk.notes
        elsewhere += chunk.halves
    each = np.arange(rows.size)
    warps = Warps(
        headers["cta"].astype(np.int32),
        headers["warp"].astype(np.int32),
        headers["sm"].astype(np.int32),
        conversion.ns(each, 0),
        conversion.ns(each, last),
        counts - raw_records,
        dropped,
        closed,
    )
    listed = tuple(
        Mispaired(
            int(warps.cta[p.row]),
            int(warps.warp[p.row]),
            raw.stages[p.stage] if p.stage >= 0 else "",
            float(conversion.ns(p.row, p.cycle)),
            p.text(raw.stages),
        )
        for p in problems.listed
    )
    return Timeline(
        raw.stages,
        warps,
        _joined(Slices, [slices for slices, _ in parts]),
        _joined(Marks, [marks for _, marks in parts]),
        listed,
        problems.count,
        conversion.clock,
        raw.meta,
        (
            *_open_warps(headers, closed, full),
            *_shortened(notes),
            *_unpaired_elsewhere(elsewhere),
            *_late(conversion, ends.row.size),
        ),
    )


def _open_warps(headers: NDArray[Any], closed: NDArray[np.bool_], full: NDArray[np.bool_]) -> list[str]:
    count = int(np.count_nonzero(~closed))
    if not count:
        return []
    first = where(headers[~closed][0])
    notes = [f"{count} warps never reached their end marker (first: {first}); they end at their last record"]
    unknown = int(np.count_nonzero(~closed & full))
    if unknown:
        notes.append(f"{unknown} of these had full rows; what they dropped is unknown and not in the count")
    return notes


def _unpaired_elsewhere(count: int) -> list[str]:
    if not count:
        return []
    return [
        f"{count} issues or completions have their other half in a warp that is not in the trace, or full"
    ]


def _late(conversion: Conversion, readings: int) -> list[str]:
    if conversion.late <= _MANY_LATE * readings:
        return []
    return [f"{conversion.late} of {readings} readings of the timer came too late to tell the clock's rate"]


def _shortened(notes: list[str]) -> list[str]:
    more = len(notes) - _MAX_NOTES
    return [*notes[:_MAX_NOTES], f"and {more} more warps like these"] if more > 0 else notes


def _last_cycles(
    cells: NDArray[np.uint64], rows: Ints, headers: NDArray[Any], counts: Ints, closed: NDArray[np.bool_]
) -> Ints:
    """[warps] cycles from a warp's begin to its end, or to the last record of one that never ended."""
    last = np.where(closed, headers["clock_end"] - headers["clock_begin"], 0).astype(np.int64)
    for i in np.flatnonzero(~closed & (counts > 0)):
        records = cells[rows[i], : counts[i]].view("<u4").reshape(-1, 2)
        number = layout.word(layout.KIND_EXTENDED, 0, layout.SUB_RAW << layout.SUB_SHIFT)
        clocks = records[records[:, 1] != number, 0]
        if clocks.size:
            last[i] = unwrap(clocks - headers["clock_begin"][i].astype(np.uint32))[-1]
    return last


def _chunks(cta: NDArray[np.uint32], counts: Ints) -> Iterator[slice]:
    """Slices of rows: whole CTAs, about as many as have _CHUNK records."""
    if not cta.size:
        return
    firsts = np.flatnonzero(np.diff(cta, prepend=np.uint32(cta[0] ^ 1)) != 0)
    before = (np.cumsum(counts) - counts)[firsts]
    at = 0
    while at < firsts.size:
        after = max(int(np.searchsorted(before, before[at] + _CHUNK, side="right")), at + 1)
        yield slice(int(firsts[at]), int(firsts[after]) if after < firsts.size else cta.size)
        at = after


def _timed(ranges: Ranges, instants: Instants, conversion: Conversion, part: slice) -> tuple[Slices, Marks]:
    """Rows of the whole trace, and nanoseconds."""
    first = np.int32(part.start)

    def ns(row: NDArray[np.int32], cycle: NDArray[Any]) -> NDArray[np.float64]:
        return conversion.ns(row + first, cycle)

    begin, end = ns(ranges.row, ranges.start), ns(ranges.end_row, ranges.end)
    if ranges.end_row is not ranges.row:
        np.maximum(end, begin, out=end)  # two warps' own clocks may disagree
    row = ranges.row + first
    slices = Slices(
        row,
        ranges.stage,
        begin,
        end,
        ranges.depth,
        ranges.payload,
        ranges.kind,
        ranges.flags,
        row if ranges.end_row is ranges.row else ranges.end_row + first,
    )
    time = ns(instants.row, instants.time)
    return slices, Marks(instants.row + first, instants.stage, time, instants.payload, instants.value)


_DTYPES = {
    "row": "i4",
    "stage": "i2",
    "depth": "i2",
    "payload": "i4",
    "kind": "u1",
    "flags": "u1",
    "end_row": "i4",
}


def _joined(columns: type[Any], parts: list[Any]) -> Any:
    """Parts of a table, one after the other."""
    names = [f.name for f in fields(columns)]
    if not parts:
        return columns(*(np.zeros(0, _DTYPES.get(name, "f8")) for name in names))
    return columns(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
