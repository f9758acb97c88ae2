"""Raw traces in files (`.wdtrace`), and opening any file of a trace.

    8 bytes    0x89 "WDTRACE"
    3 × u32    version, CRC-32 of all that follows, length of the JSON
    JSON       {"rows", "records", "anchors", "width", "stages", "meta"}
    xz         headers, records kept a row (u32), anchors, words (u32), clocks, values (u32)

Only records that mean something are kept. Headers, anchors and clocks are stored byte by byte (all first
bytes, then all second ones …), clocks as differences from the record before: a few bits each are noise, the
rest compresses away. The same trace gives the same bytes.

Version 2 is what `trace_host.h` writes: JSON {"rows", "row_bytes", "capacity", "anchors", "stages", "meta"},
then rows and anchors as they are.
"""

from __future__ import annotations

import json
import lzma
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import chrome, files, layout, perfetto, table
from .decode import decode
from .document import require_sound
from .errors import TraceError
from .rows import kept, validate
from .timeline import RawTrace, Timeline

MAGIC = b"\x89WDTRACE"
VERSION = 1
_ROWS = 2
_HEAD = struct.Struct("<8sIII")
_NUMBER = layout.word(layout.KIND_EXTENDED, 0, layout.SUB_RAW << layout.SUB_SHIFT)
_LARGE = 4 << 20  # bytes; beyond, compression is chosen for speed
_MAX_BYTES = 4 << 30  # of a trace in memory
_MEMORY = 256 << 20  # for xz


def save(raw: RawTrace, path: str | Path) -> None:
    """Write a trace. TraceError if it isn't one or the file can't be written."""
    validate(raw)
    counts = kept(raw)
    # One record wider than the fullest row if there was room for it: a row that never ended wasn't full.
    width = min(int(counts.max(initial=0)) + 1, raw.records.shape[1])
    flat = np.ascontiguousarray(raw.records[:, :width][np.arange(width) < counts[:, None]])
    number = flat["word"] == _NUMBER
    begins = np.repeat(raw.headers["clock_begin"].astype(np.uint32), counts)[~number]
    clock = flat["clock"][~number]
    row = np.repeat(np.arange(counts.size), counts)[~number]
    before = np.concatenate([clock[:1], clock[:-1]])
    fresh = np.diff(row, prepend=-1) != 0
    body = b"".join(
        (
            _planes(raw.headers),
            counts.astype("<u4").tobytes(),
            _planes(raw.anchors),
            flat["word"].tobytes(),
            _planes(clock - np.where(fresh, begins, before)),
            flat["clock"][number].tobytes(),
        )
    )
    document = {
        "rows": int(counts.size),
        "records": int(counts.sum()),
        "anchors": int(raw.anchors.size),
        "width": width,
        "stages": list(raw.stages),
        "meta": dict(raw.meta),
    }
    try:
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise TraceError(f"{path}: the trace's meta can't be written as JSON: {error}") from None
    packed = lzma.compress(body, check=lzma.CHECK_NONE, preset=6 if len(body) < _LARGE else 1)
    head = _HEAD.pack(MAGIC, VERSION, zlib.crc32(packed, zlib.crc32(text)), len(text))
    files.write(Path(path), (head, text, packed))


def load(path: str | Path) -> RawTrace:
    """Read a trace. Its records are about as wide as the fullest row, whatever there was room for.

    TraceError for a file that is missing, cut off, damaged, of a newer version, or something else.
    """
    path = Path(path)
    data = files.read(path)
    with files.named(path):
        return _parse(data)


def open_timeline(path: str | Path) -> Timeline:
    """Read a `.wdtrace`, Perfetto, Chrome JSON or CSV file of ours, whichever its content is."""
    path = Path(path)
    data = files.read(path)
    with files.named(path):
        if data.startswith(MAGIC):
            return decode(_parse(data))
        for reader in (perfetto, chrome, table):
            if reader.recognises(data):
                return reader.parse(data)
    raise TraceError(
        f"{path}: not a trace; expected a .wdtrace, or a Perfetto, Chrome JSON or CSV file written by "
        f"`warpdeck trace -o`"
    )


def _parse(data: bytes) -> RawTrace:
    if not data.startswith(MAGIC):
        raise TraceError("not a .wdtrace file; a timeline in another format needs open_timeline")
    if len(data) < _HEAD.size:
        raise TraceError("cut off within its first bytes; record the trace again")
    _, version, crc, length = _HEAD.unpack_from(data)
    if version not in (VERSION, _ROWS):
        raise TraceError(f"is of format version {version}, this warpdeck reads {_ROWS}; update warpdeck")
    rest = memoryview(data)[_HEAD.size :]
    if zlib.crc32(rest) != crc or length > len(rest):
        raise TraceError("damaged or cut off (the checksum differs); record the trace again")
    try:
        document = json.loads(bytes(rest[:length]))
        plain = ("rows", "row_bytes", "capacity", "anchors")
        sizes = plain if version == _ROWS else ("rows", "records", "anchors", "width")
        counts = [_count(document, key) for key in sizes]
        stages, meta = document["stages"], document["meta"]
        if not isinstance(meta, dict) or not all(isinstance(s, str) for s in stages):
            raise TypeError
        json.dumps(meta, allow_nan=False)  # no number is infinite or none: other formats hold no such
    except (ValueError, TypeError, KeyError, RecursionError):
        raise TraceError("corrupt: its JSON head isn't a trace's") from None
    require_sound(meta)
    if version == _ROWS:
        rows, row_bytes, capacity, anchors = counts
        return _of_rows(rest[length:], rows, row_bytes, capacity, anchors, tuple(stages), meta)
    rows, records, anchors, width = counts
    size = rows * (layout.HEADER_BYTES + 4) + anchors * layout.ANCHOR.itemsize + records * layout.RECORD_BYTES
    if size > _MAX_BYTES or rows * width * layout.RECORD_BYTES > max(64 * size, 1 << 26):
        raise TraceError(f"corrupt: claims {records} records in {rows} rows of up to {width}")
    return _unpack(_decompressed(rest[length:], size), rows, records, anchors, width, tuple(stages), meta)


def _of_rows(
    body: memoryview,
    rows: int,
    row_bytes: int,
    capacity: int,
    anchors: int,
    stages: tuple[str, ...],
    meta: dict[str, Any],
) -> RawTrace:
    """Rows as a kernel left them, one after the other, and then the readings of the clocks."""
    used = layout.HEADER_BYTES + layout.RECORD_BYTES * capacity
    if row_bytes < used or len(body) != rows * row_bytes + anchors * layout.ANCHOR.itemsize:
        raise TraceError("corrupt: it doesn't hold the rows and readings that it says")
    table = np.frombuffer(body[: rows * row_bytes], np.uint8).reshape(rows, row_bytes)
    headers = table[:, : layout.HEADER_BYTES].copy().view(layout.HEADER)[:, 0]
    records = table[:, layout.HEADER_BYTES : used].copy().view(layout.RECORD)
    read = np.frombuffer(body[rows * row_bytes :], layout.ANCHOR)
    raw = RawTrace(headers, records, read[read["time"] != 0], stages, meta)
    validate(raw)
    return raw


def _count(document: Any, key: str) -> int:
    value = document[key]
    if type(value) is not int or not 0 <= value < 1 << 40:
        raise TypeError
    return value


def _decompressed(packed: memoryview, size: int) -> bytes:
    """Exactly `size` bytes; what the file claims is never more than a limit for what it holds."""
    try:
        reader = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
        body = reader.decompress(packed, max_length=size + 1)
    except (lzma.LZMAError, EOFError, MemoryError):
        raise TraceError("corrupt: its records don't decompress") from None
    if len(body) != size:
        raise TraceError("corrupt: it holds another number of records than it says")
    return body


def _unpack(
    body: bytes,
    rows: int,
    records: int,
    anchors: int,
    width: int,
    stages: tuple[str, ...],
    meta: dict[str, Any],
) -> RawTrace:
    at = 0

    def take(dtype: Any, count: int, *, planes: bool = False) -> NDArray[Any]:
        nonlocal at
        size = np.dtype(dtype).itemsize * count
        part, at = body[at : at + size], at + size
        if not planes:
            return np.frombuffer(part, dtype)
        turned = np.frombuffer(part, np.uint8).reshape(-1, count).T if count else np.zeros(0, np.uint8)
        return np.frombuffer(turned.tobytes(), dtype).copy()

    headers = take(layout.HEADER, rows, planes=True)
    counts = take("<u4", rows).astype(np.int64)
    read = take(layout.ANCHOR, anchors, planes=True)
    if int(counts.sum()) != records or not 0 <= width - int(counts.max(initial=0)) <= 1:
        raise TraceError("corrupt: its rows don't add up to its records")
    word = take("<u4", records)
    number = word == _NUMBER
    steps = take("<u4", records - int(number.sum()), planes=True)
    clock = np.empty(records, np.uint32)
    clock[number] = take("<u4", int(number.sum()))
    clock[~number] = _undo(steps, headers, counts, number)
    dense = np.zeros((rows, width), layout.RECORD)
    where = np.arange(width) < counts[:, None]
    dense["clock"][where], dense["word"][where] = clock, word
    raw = RawTrace(headers, dense, read, stages, meta)
    validate(raw)
    if (kept(raw) != counts).any():
        raise TraceError("corrupt: its rows don't have the records that their headers count")
    return raw


def _undo(steps: NDArray[np.uint32], headers: NDArray[Any], counts: NDArray[np.int64], number: Any) -> Any:
    """Clocks from differences, each row's first from the warp's begin."""
    row = np.repeat(np.arange(counts.size), counts)[~number]
    total = np.cumsum(steps, dtype=np.uint32)
    first = np.flatnonzero(np.diff(row, prepend=-1) != 0)
    base = headers["clock_begin"].astype(np.uint32)[row[first]] - (total[first] - steps[first])
    return total + np.repeat(base, np.diff(first, append=row.size))


def _planes(array: NDArray[Any]) -> bytes:
    """All first bytes, then all second ones, …"""
    flat = np.ascontiguousarray(array)
    return flat.view(np.uint8).reshape(flat.size, -1).T.tobytes() if flat.size else b""
