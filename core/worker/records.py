"""Matching CUPTI's kernel records to what was launched. Pure functions over plain data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class RecordMismatch(Exception):
    """The records aren't those of the launches: some were lost, or somebody else launched something."""


def latest(rows: Sequence[tuple[str, int, int]], first: str) -> Sequence[tuple[str, int, int]]:
    """The rows, sorted by start, from the last one named `first` on; none if there is no such row."""
    for index in range(len(rows) - 1, -1, -1):
        if rows[index][0] == first:
            return rows[index:]
    return []


def match(
    names: Sequence[str],
    starts: NDArray[np.uint64],
    ends: NDArray[np.uint64],
    expected: Sequence[str],
) -> NDArray[np.int64]:
    """Start and end (ns) of every expected kernel, in launch order: shape (len(expected), 2).

    The launches came from one stream, so sorting by start gives their order; it must be exactly the expected
    one, by count and by name, and kernels must not overlap. Raises RecordMismatch.
    """
    if len(names) != len(expected):
        raise RecordMismatch(f"{len(names)} kernel records for {len(expected)} launches")
    order = np.argsort(starts, kind="stable")
    times = np.stack([starts, ends], axis=1).astype(np.int64)[order]
    for position, (index, name) in enumerate(zip(order, expected, strict=True)):
        if names[index] != name:
            raise RecordMismatch(f"record {position} is of kernel {names[index]!r}, not of {name!r}")
    if len(times) and (np.any(times[:, 0] <= 0) or np.any(times[:, 1] < times[:, 0])):
        raise RecordMismatch("a kernel record has no times")
    if np.any(times[1:, 0] < times[:-1, 1]):
        raise RecordMismatch("kernel records of one stream overlap")
    return times


def spans(times: NDArray[np.int64], marks: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    """Milliseconds from the first start to the last end of each group `[first, last)` of launches."""
    if not marks:
        return np.empty(0)
    first, last = np.array(marks, dtype=np.int64).T
    return (times[last - 1, 1] - times[first, 0]) / 1e6
