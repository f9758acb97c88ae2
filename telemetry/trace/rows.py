"""The rows of a raw trace: which are warps, how many records each kept, and whether they make sense."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import layout
from .errors import TraceError
from .timeline import RawTrace

# Beyond this, float64 no longer holds a clock's difference exactly; 104 days in nanoseconds.
_MAX_SPAN = 1 << 53


def validate(raw: RawTrace) -> None:
    """TraceError if the arrays don't have the layout's types and shapes, or a header is impossible."""
    for name, array, dtype, dimensions in (
        ("headers", raw.headers, layout.HEADER, 1),
        ("records", raw.records, layout.RECORD, 2),
        ("anchors", raw.anchors, layout.ANCHOR, 1),
    ):
        if array.dtype != dtype or array.ndim != dimensions:
            raise TraceError(f"trace: {name} have type {array.dtype}, {array.ndim}-d: not this layout")
    if raw.records.shape[0] != raw.headers.shape[0]:
        raise TraceError(f"trace: {raw.headers.shape[0]} headers but {raw.records.shape[0]} rows of records")
    if len(raw.stages) > layout.MAX_NAMES:
        raise TraceError(f"trace: {len(raw.stages)} stages; at most {layout.MAX_NAMES} have an id")
    magic = raw.headers["magic"]
    strange = (magic != 0) & (magic != layout.MAGIC_OPEN) & (magic != layout.MAGIC_CLOSED)
    if strange.any():
        row = int(strange.argmax())
        raise TraceError(
            f"trace: row {row} begins with {int(magic[row]):#x}, which no warp writes: memory of something "
            f"else, or a newer layout"
        )


def begun(raw: RawTrace) -> NDArray[np.int64]:
    """Rows in which a warp began, by CTA, then warp. TraceError for an impossible header."""
    rows = np.flatnonzero(raw.headers["magic"] != 0)
    head = raw.headers[rows]
    order = np.lexsort((head["warp"], head["cta"]))
    rows, head = rows[order], head[order]
    for field in ("cta", "warp", "sm"):
        if rows.size and int(head[field].max()) >= 1 << 31:
            raise TraceError(f"trace: a {field} number of {int(head[field].max())} is impossible")
    closed = head["magic"] == layout.MAGIC_CLOSED
    back = closed & ((head["clock_end"] < head["clock_begin"]) | (head["time_end"] < head["time_begin"]))
    if back.any():
        raise TraceError(f"trace: {where(head[back][0])} ends before it begins")
    times = [head["time_begin"], head["time_end"][closed], raw.anchors["time"]]
    _check_span(np.concatenate(times), "globaltimer")
    _check_span(
        np.concatenate([head["clock_begin"], head["clock_end"][closed], raw.anchors["clock"]]), "clock"
    )
    return rows


def _check_span(values: NDArray[Any], what: str) -> None:
    if values.size and int(values.max()) - int(values.min()) > _MAX_SPAN:
        raise TraceError(f"trace: readings of {what} are more than 2^53 apart: not the clocks of one launch")


def where(header: Any) -> str:
    """A header's warp, for messages."""
    return f"warp {int(header['warp'])} of CTA {int(header['cta'])}"


def kept(raw: RawTrace) -> NDArray[np.int64]:
    """Records that mean something, per row.

    A warp that never ended wrote no count; its records go up to the first zero word, which no record has.
    """
    capacity = raw.records.shape[1]
    count = np.minimum(raw.headers["count"].astype(np.int64), capacity)
    magic = raw.headers["magic"]
    count[magic == 0] = 0
    for row in np.flatnonzero(magic == layout.MAGIC_OPEN):
        empty = raw.records["word"][row] == 0
        count[row] = int(empty.argmax()) if empty.any() else capacity
    return count
