"""Timelines as CSV, a row a range or mark, and our own files back.

The first row below the head has the kind `trace` and, as JSON in the column `stage`, what is not in rows.
Times are nanoseconds with three decimals.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import document, files
from .errors import TraceError
from .timeline import Marks, Slices, Timeline, Warps

HEAD = (
    "kind",
    "cta",
    "warp",
    "sm",
    "stage",
    "start_ns",
    "end_ns",
    "depth",
    "payload",
    "value",
    "unended",
    "end_warp",
)
_FIRST = ",".join(HEAD).encode()


def write(timeline: Timeline, path: str | Path) -> None:
    """Write a file. TraceError if it can't be written."""
    path = Path(path)
    with files.named(path):
        head = document.text(document.dump(timeline))
    files.write(path, _lines(timeline, head))


def read(path: str | Path) -> Timeline:
    """Read a file that `write` wrote. TraceError for any other."""
    path = Path(path)
    data = files.read(path)
    with files.named(path):
        return parse(data)


def recognises(data: bytes) -> bool:
    """Whether a file begins as ours do."""
    return data.startswith(_FIRST)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r') else text


def _lines(timeline: Timeline, head: str) -> Iterator[bytes]:
    yield _FIRST + b"\n"
    yield f"trace,,,,{_quoted(head)},,,,,,,\n".encode()
    names = [_quoted(name) for name in timeline.stages]
    w, s, m = timeline.warps, timeline.slices, timeline.marks
    columns = [w.cta[s.row], w.warp[s.row], w.sm[s.row], s.stage, s.start_ns, s.end_ns, s.depth, s.payload]
    columns += [s.flags, w.warp[s.end_row], s.kind]
    for cta, warp, sm, stage, start, end, depth, payload, flags, end_warp, kind in zip(
        *(c.tolist() for c in columns), strict=True
    ):
        yield (
            f"{document.KINDS[kind]},{cta},{warp},{sm},{names[stage]},{start:.3f},{end:.3f},{depth},{payload},,"
            f"{flags},{end_warp}\n"
        ).encode()
    columns = [w.cta[m.row], w.warp[m.row], w.sm[m.row], m.stage, m.time_ns, m.payload, m.value]
    for cta, warp, sm, stage, time, payload, value in zip(*(c.tolist() for c in columns), strict=True):
        kind, number = ("mark", "") if math.isnan(value) else ("value", repr(value))
        yield f"{kind},{cta},{warp},{sm},{names[stage]},{time:.3f},,,{payload},{number},,\n".encode()


def parse(data: bytes) -> Timeline:
    """A timeline from a file's bytes. TraceError if `write` didn't write them."""
    try:
        text = data.decode()
        if not text.endswith("\n"):
            raise TraceError("cut off in its last line")
        # A cell may be as long as the file, but the module's limit is the whole process's.
        lines = text.split("\n", 2)
        (first,) = csv.reader(io.StringIO(lines[0]))
        head = lines[1]
        if tuple(first) != HEAD or not head.startswith("trace,,,,"):
            raise ValueError
        cell = head[len("trace,,,,") : -len(",,,,,,,")]
        if cell.startswith('"'):
            cell = cell[1:-1].replace('""', '"')
        rows = list(csv.reader(io.StringIO(lines[2], newline="")))
    except (UnicodeDecodeError, csv.Error, ValueError, IndexError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError("corrupt: not a table that warpdeck wrote") from None

    def make(warps: Warps, stages: tuple[str, ...]) -> tuple[Slices, Marks]:
        try:
            return _tables(rows, warps, stages)
        except (KeyError, ValueError, IndexError, OverflowError):
            raise TraceError("corrupt: a row lacks what it needs") from None

    return document.load(document.parse(cell), make)


def _tables(rows: list[list[str]], warps: Warps, stages: tuple[str, ...]) -> tuple[Slices, Marks]:
    ids = {name: i for i, name in enumerate(stages)}
    places = {place: i for i, place in enumerate(zip(warps.cta.tolist(), warps.warp.tolist(), strict=True))}
    slices: list[tuple[float, ...]] = []
    marks: list[tuple[float, ...]] = []
    for line in rows:
        kind, cta, warp, _, stage, start, end, depth, payload, value, unended, end_warp = line
        row, id = places[int(cta), int(warp)], ids[stage]
        if kind in ("mark", "value"):
            marks.append((row, id, float(start), int(payload), float(value) if value else math.nan))
            continue
        code, other = document.KINDS.index(kind), places[int(cta), int(end_warp)]
        slices.append(
            (row, id, float(start), float(end), int(depth), int(payload), code, int(unended), other)
        )
    names = ("row", "stage", "start_ns", "end_ns", "depth", "payload", "kind", "flags", "end_row")
    columns = np.array(slices, np.float64).reshape(-1, len(names)).T
    table = np.array(marks, np.float64).reshape(-1, 5).T
    return (
        document.make_slices(**dict(zip(names, columns, strict=True))),
        document.make_marks(**dict(zip(("row", "stage", "time_ns", "payload", "value"), table, strict=True))),
    )
