"""Readings of both clocks in a raw trace: each warp's header's, and those in its end records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import layout

Ints = NDArray[np.int64]
_DRAWN = 300_000  # records looked at where there are more: their ends give readings enough
_PERIOD = 1 << (layout.TIME_SHIFT + layout.TIME_BITS)  # ns
NOMINAL = 0.5  # ns a cycle, where readings say nothing


@dataclass(frozen=True)
class EndReadings:
    """[n] each: a warp's row, cycles since its clock_begin, and the timer, ns, floored to 2^TIME_SHIFT.

    The timer was read some unknown while after the cycle.
    """

    row: Ints
    cycle: Ints
    time: NDArray[np.uint64]


def anchors(time: Any, clock: Any, sm: Any, gap: Any) -> NDArray[Any]:
    """`layout.ANCHOR`s of columns."""
    made = np.empty(np.shape(time), layout.ANCHOR)
    made["time"], made["clock"], made["sm"], made["gap"] = time, clock, sm, gap
    return made


def during(anchors: NDArray[Any], headers: NDArray[Any]) -> NDArray[np.bool_]:
    """Which readings were made beside the launch, not before or after it."""
    first, last = headers["time_begin"].min(), max(headers["time_begin"].max(), headers["time_end"].max())
    return (anchors["time"] > first) & (anchors["time"] <= last)


def begun_beside(beside: NDArray[Any], headers: NDArray[Any]) -> bool:
    """Whether the launch began while another kernel read the clocks, not when that had ended: it had to wait.

    `beside`: its readings, all 0 where it made none. True if there is nothing to tell it by.
    """
    if not headers.size or not beside["time"].any():
        return True
    return bool(headers["time_begin"].min() <= beside["time"].max())


def of_headers(headers: NDArray[Any]) -> NDArray[Any]:
    """The anchors at the warps' begins, then those at the ends of the warps that ended."""
    ends = headers[headers["magic"] == layout.MAGIC_CLOSED]
    return np.concatenate(
        [
            anchors(headers["time_begin"], headers["clock_begin"], headers["sm"], headers["gap_begin"]),
            anchors(ends["time_end"], ends["clock_end"], ends["sm"], ends["gap_end"]),
        ]
    )


def of_ends(
    cells: NDArray[np.uint64], rows: Ints, headers: NDArray[Any], counts: Ints, last: Ints
) -> EndReadings:
    """The readings in end records; none if all these records' payloads are 0, as older kernels wrote.

    `cells`: see `chunk.Chunk`; `headers`, `counts`, `last` of the `rows`. Rows longer than 2^32 cycles, whose
    records' clocks are not unwrapped yet, are left out.
    """
    none = EndReadings(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64))
    usable = np.flatnonzero((counts > 0) & (last < 1 << 32))
    if not usable.size:
        return none
    width = int(counts[usable].max())
    columns = np.arange(width)
    share = _DRAWN / (usable.size * width)
    if share < 1:  # drawn at random: a stride may miss the end records of a loop altogether
        columns = np.flatnonzero(np.random.default_rng(0).random(width) < share)
        if not columns.size:
            columns = np.array([width // 2])
    if usable.size * columns.size > 2 * _DRAWN:
        usable = usable[:: usable.size * columns.size // _DRAWN]
    part = np.ascontiguousarray(cells[rows[usable][:, None], columns]).view("<u4")
    part = part.reshape(usable.size, columns.size, 2)
    word = part[..., 1]
    at_row, at_column = np.nonzero(
        ((word >> np.uint32(30)) == layout.KIND_END) & (columns < counts[usable][:, None])
    )
    payload = (word[at_row, at_column] & np.uint32(layout.PAYLOAD_MASK)).astype(np.int64)
    if not payload.any():
        return none
    row = usable[at_row]
    head = headers[row]
    cycle = (part[at_row, at_column, 0] - head["clock_begin"].astype(np.uint32)).astype(np.int64)
    inside = cycle <= last[row]  # others are out of order, hence not to be trusted
    row, head, cycle, payload = row[inside], head[inside], cycle[inside], payload[inside]
    closed = head["magic"] == layout.MAGIC_CLOSED
    length = np.where(closed, head["clock_end"] - head["clock_begin"], 0).astype(np.float64)
    took = np.where(closed, head["time_end"] - head["time_begin"], 0).astype(np.float64)
    rate = np.where(length > 0, took / np.maximum(length, 1.0), NOMINAL)
    # The multiple of the period that lies nearest to where the header's readings put the record.
    since = (payload << layout.TIME_SHIFT) - (head["time_begin"] % _PERIOD).astype(np.int64)
    since += np.rint((rate * cycle - since) / _PERIOD).astype(np.int64) * _PERIOD
    return EndReadings(row, cycle, head["time_begin"] + since.view(np.uint64))
