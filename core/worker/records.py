"""Matching CUPTI's kernel records to what was launched. Pure functions over plain data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Record = tuple[str, int, int]  # kernel's name, start and end in ns


class RecordMismatch(Exception):
    """The records aren't those of the launches: some were lost, or somebody else launched something."""


def latest(rows: Sequence[Record], first: str) -> Sequence[Record]:
    """The rows, sorted by start, from the last one named `first` on; none if there is no such row."""
    for index in range(len(rows) - 1, -1, -1):
        if rows[index][0] == first:
            return rows[index:]
    return []


def match(rows: Sequence[Record], expected: Sequence[str]) -> None:
    """Check that records, in any order, are those of the expected kernels launched one after another.

    The launches came from one stream, so that sorting by start gives their order; it must be exactly the
    expected one, by count and by name, and kernels must not overlap. Raises RecordMismatch.
    """
    if len(rows) != len(expected):
        raise RecordMismatch(f"{len(rows)} kernel records for {len(expected)} launches")
    before = 0
    for position, ((found, start, end), name) in enumerate(zip(by_start(rows), expected, strict=True)):
        if found != name:
            raise RecordMismatch(f"record {position} is of kernel {found!r}, not of {name!r}")
        if start <= 0 or end < start:
            raise RecordMismatch("a kernel record has no times")
        if start < before:
            raise RecordMismatch("kernel records of one stream overlap")
        before = end


def by_start(rows: Sequence[Record]) -> list[Record]:
    """Sorted by start."""
    return sorted(rows, key=lambda row: row[1])


def spans(rows: Sequence[Record], marks: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    """Milliseconds from the first start to the last end of each group `[first, last)` of sorted records."""
    return np.array([(rows[last - 1][2] - rows[first][1]) / 1e6 for first, last in marks], dtype=np.float64)
