"""Timelines as Perfetto traces (native TrackEvent protobuf, for ui.perfetto.dev), and our own ones back.

One process is the launch, under it SMs, CTAs and their warps, one track each. Nested ranges are slices on
their warp's track; token ranges and async stages, which may overlap, lie on lanes below it. An async stage
has a flow to an instant on the warp that saw it complete. Each range is one SLICE_BEGIN and one SLICE_END.
Times are whole nanoseconds. What the format has no place for is JSON in a metadata packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import document, files, protobuf
from .errors import TraceError
from .lanes import assign, event_order
from .pairing import pair_nested
from .protobuf import block, number
from .timeline import Marks, Slices, Timeline, Warps

# Field numbers of Trace, TracePacket, TrackEvent, …, from perfetto_trace.proto
_PACKET = 1
_CHROME_EVENTS, _TIMESTAMP, _SEQUENCE, _EVENT, _INTERNED, _FLAGS, _DESCRIPTOR = 5, 8, 10, 11, 12, 13, 60
_FIRST_ON_SEQUENCE = 87
_CATEGORY, _ANNOTATION, _TYPE, _NAME, _TRACK, _FLOW, _TERMINATING = 3, 4, 9, 10, 11, 47, 48
_SLICE_BEGIN, _SLICE_END, _INSTANT = 1, 2, 3
_EXPLICIT_ORDER = 3
_STATE_CLEARED, _NEEDS_STATE = 1, 2
_CATEGORIES = (*document.KINDS, "mark", "value", "done")
_MARK, _VALUE, _DONE = 3, 4, 5
_PAYLOADS = ("payload", "token", "flow", "payload", "value", "flow")  # a debug annotation's name, by category
_ANNOTATIONS = ("payload", "token", "flow", "value", "unended")
_CHUNK = 1 << 15  # events


@dataclass(frozen=True)
class _Events:
    """Columns. `category` and `stage` of a SLICE_END mean nothing."""

    time: NDArray[Any]
    track: NDArray[Any]
    type: NDArray[Any]
    category: NDArray[Any]
    stage: NDArray[Any]
    payload: NDArray[Any]
    value: NDArray[Any]
    unended: NDArray[Any]
    flow: NDArray[Any]  # 0: none


def write(timeline: Timeline, path: str | Path) -> None:
    """Write a trace. TraceError if the file can't be written."""
    path = Path(path)
    with files.named(path):
        events, lanes, first = _events(timeline)
        head = document.text(document.dump(timeline, lanes=lanes.tolist(), first_track=first))
    files.write(path, _packets(timeline, events, lanes, first, head))


def read(path: str | Path) -> Timeline:
    """Read a trace that `write` wrote. TraceError for any other file."""
    path = Path(path)
    data = files.read(path)
    with files.named(path):
        return parse(data)


def recognises(data: bytes) -> bool:
    """Whether a file looks like a Perfetto trace."""
    return data[:1] == bytes([_PACKET << 3 | protobuf.LENGTH])


def _groups(warps: Warps) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """(SMs, pairs of SM and CTA, first warp's track): tracks are the launch (1), SMs, CTAs, warps, lanes."""
    pairs = np.unique(np.stack([warps.sm, warps.cta], axis=1).astype(np.int64), axis=0).reshape(-1, 2)
    sms = np.unique(pairs[:, 0])
    return sms, pairs, 2 + sms.size + pairs.shape[0]


def _events(timeline: Timeline) -> tuple[_Events, NDArray[np.int64], int]:
    """All events in order of time, on a track in the order of nesting; each lane's row; the first track."""
    s, m = timeline.slices, timeline.marks
    rows = timeline.warps.cta.size
    _, _, first = _groups(timeline.warps)
    start, end = (np.maximum(np.rint(t), 0).astype(np.int64) for t in (s.start_ns, s.end_ns))
    lane, lane_rows = assign(s.row, s.kind, start, end)
    track = np.where(s.kind == 0, s.row, rows + lane) + first
    slice_of, is_end = event_order(track, s.depth, s.kind, start)
    flow = np.where(s.kind == 2, np.arange(1, s.row.size + 1), 0)
    done = np.flatnonzero((s.kind == 2) & (s.flags == 0))
    valued = ~np.isnan(m.value)
    none = np.zeros(done.size)
    order = slice_of, done, np.arange(m.row.size)

    def column(of_slices: Any, of_done: Any, of_marks: Any) -> NDArray[Any]:
        return np.concatenate([np.asarray(of_slices)[order[0]], of_done, of_marks])

    times = np.where(is_end, end[slice_of], start[slice_of])
    time = np.concatenate([times, end[done], np.maximum(np.rint(m.time_ns), 0).astype(np.int64)])
    kinds = np.where(is_end, _SLICE_END, _SLICE_BEGIN)
    instants = np.full(done.size + m.row.size, _INSTANT)
    events = (
        time,
        column(track, s.end_row[done] + first, m.row + first),
        np.concatenate([kinds, instants]).astype(np.uint8),
        column(s.kind, none + _DONE, np.where(valued, _VALUE, _MARK)).astype(np.uint8),
        column(s.stage, s.stage[done], m.stage),
        column(s.payload, s.payload[done], m.payload),
        column(np.zeros(s.row.size), none, m.value),
        column(s.flags == 1, none > 0, np.zeros(m.row.size, bool)),
        column(flow, flow[done], np.zeros(m.row.size, np.int64)),
    )
    by_time = np.argsort(time, kind="stable")
    return _Events(*(c[by_time] for c in events)), lane_rows, first


def _packets(
    timeline: Timeline, events: _Events, lanes: NDArray[np.int64], first: int, head: str
) -> Iterator[bytes]:
    names = b"".join(
        block(field, number(1, i) + block(2, name))
        for field, texts in ((1, _CATEGORIES), (2, timeline.stages), (3, _ANNOTATIONS))
        for i, name in enumerate(texts, 1)
    )
    state = block(_INTERNED, names) + number(_FLAGS, _STATE_CLEARED) + number(_FIRST_ON_SEQUENCE, 1)
    yield block(_PACKET, number(_SEQUENCE, 1) + state)
    metadata = block(2, block(1, "warpdeck") + block(5, head))
    yield block(_PACKET, number(_TIMESTAMP, 0) + number(_SEQUENCE, 1) + block(_CHROME_EVENTS, metadata))
    yield from _descriptors(timeline, lanes, first)
    for at in range(0, events.time.size, _CHUNK):
        part = slice(at, at + _CHUNK)
        yield _encoded(_Events(*(getattr(events, f)[part] for f in _Events.__dataclass_fields__)))


def _descriptors(timeline: Timeline, lanes: NDArray[np.int64], first: int) -> Iterator[bytes]:
    warps = timeline.warps
    sms, pairs, _ = _groups(warps)

    def track(uuid: int, parent: int, name: str, rank: int, more: bytes = b"") -> bytes:
        about = number(1, uuid) + block(2, name) + (number(5, parent) + number(12, rank) if parent else b"")
        packet = block(_DESCRIPTOR, about + more + number(11, _EXPLICIT_ORDER))
        return block(_PACKET, number(_SEQUENCE, 1) + packet)

    title = document.label(timeline)
    yield track(1, 0, title, 0, block(3, number(1, 1) + block(6, title)))
    for i, sm in enumerate(sms.tolist()):
        yield track(2 + i, 1, f"SM {sm}", sm)
    ctas = {}
    for i, (sm, cta) in enumerate(pairs.tolist(), 2 + sms.size):
        ctas[sm, cta] = i
        yield track(i, 2 + int(np.searchsorted(sms, sm)), f"CTA {cta}", cta)
    for row, (sm, cta, warp) in enumerate(
        zip(*(c.tolist() for c in (warps.sm, warps.cta, warps.warp)), strict=True)
    ):
        yield track(first + row, ctas[sm, cta], f"warp {warp}", warp)
    count: dict[int, int] = {}
    for i, row in enumerate(lanes.tolist()):
        count[row] = count.get(row, 0) + 1
        name = f"warp {int(warps.warp[row])} overlapping {count[row]}"
        yield track(first + warps.cta.size + i, first + row, name, count[row])


def _encoded(events: _Events) -> bytes:
    """Packets of one chunk of events."""
    n = events.time.size

    def tag(field: int, wire: int = protobuf.VARINT) -> protobuf.Column:
        return protobuf.constant(protobuf.varint(field << 3 | wire), n)

    def some(where: NDArray[np.bool_], *columns: protobuf.Column) -> list[protobuf.Column]:
        return [protobuf.only(c, where) for c in columns]

    named = events.type != _SLICE_END
    valued = named & (events.category == _VALUE)
    counted = named & ~valued & ((events.payload != 0) | (events.category <= 2) | (events.category == _DONE))
    which = np.array([_ANNOTATIONS.index(p) + 1 for p in _PAYLOADS], np.uint8)[events.category]
    integer = [tag(1), protobuf.varints(which), tag(4), protobuf.varints(events.payload)]
    double = protobuf.constant(number(1, _ANNOTATIONS.index("value") + 1) + b"\x29", n)
    mark = number(1, _ANNOTATIONS.index("unended") + 1) + number(2, 1)
    unended = named & events.unended
    starting, ending = named & (events.flow > 0) & ~unended, events.category == _DONE
    flow = protobuf.fixed64(events.flow.astype("<u8"))
    event = [
        *some(named, tag(_CATEGORY), protobuf.varints(events.category + 1)),
        *some(counted, tag(_ANNOTATION, 2), protobuf.varints(protobuf.lengths(integer)), *integer),
        *some(valued, tag(_ANNOTATION, 2), protobuf.constant(b"\x0b", n), double),
        *some(valued, protobuf.fixed64(events.value.astype("<f8"))),
        *some(unended, protobuf.constant(block(_ANNOTATION, mark), n)),
        tag(_TYPE),
        protobuf.varints(events.type),
        *some(named, tag(_NAME), protobuf.varints(events.stage + 1)),
        tag(_TRACK),
        protobuf.varints(events.track),
        *some(starting & ~ending, tag(_FLOW, protobuf.FIXED64), flow),
        *some(named & ending, tag(_TERMINATING, protobuf.FIXED64), flow),
    ]
    packet = [
        tag(_TIMESTAMP),
        protobuf.varints(events.time),
        protobuf.constant(number(_SEQUENCE, 1), n),
        tag(_EVENT, protobuf.LENGTH),
        protobuf.varints(protobuf.lengths(event)),
        *event,
        protobuf.constant(number(_FLAGS, _NEEDS_STATE), n),
    ]
    return protobuf.join([tag(_PACKET, protobuf.LENGTH), protobuf.varints(protobuf.lengths(packet)), *packet])


# -- back -------------------------------------------------------------------------------------------------


def parse(data: bytes) -> Timeline:
    """A timeline from a file's bytes. TraceError if `write` didn't write them."""
    start, stop = protobuf.packets(data, _PACKET)
    array = np.frombuffer(data, np.uint8)
    fields = protobuf.scan(array, start, stop)
    found = document.parse(_metadata(array, fields))
    lanes, first = found.get("lanes"), found.get("first_track")
    if not isinstance(lanes, list) or type(first) is not int or not all(type(x) is int for x in lanes):
        raise TraceError("corrupt: its head doesn't say which tracks are whose")
    times = fields.first(_TIMESTAMP, protobuf.VARINT, start.size, 0)

    def make(warps: Warps, stages: tuple[str, ...]) -> tuple[Slices, Marks]:
        owner, begin, end = fields.blocks(_EVENT)
        rows = np.concatenate([np.arange(warps.cta.size), np.array(lanes, np.int64)])
        return _tables(_columns(array, times[owner], begin, end, rows, first))

    return document.load(found, make)


def _metadata(data: NDArray[np.uint8], fields: protobuf.Fields) -> bytes:
    bundles = protobuf.scan(data, *fields.blocks(_CHROME_EVENTS)[1:])
    entries = protobuf.scan(data, *bundles.blocks(2)[1:])
    for _, start, stop in zip(*entries.blocks(5), strict=True):
        return data[start:stop].tobytes()
    raise TraceError("a Perfetto trace, but not written by warpdeck; open it at ui.perfetto.dev")


def _columns(
    data: NDArray[np.uint8],
    time: NDArray[np.uint64],
    begin: Any,
    end: Any,
    rows: NDArray[np.int64],
    first: int,
) -> tuple[_Events, NDArray[np.int64]]:
    """Events in the file's order, and the row that each one's track belongs to."""
    n = begin.size
    fields = protobuf.scan(data, begin, end)
    track = fields.first(_TRACK, protobuf.VARINT, n, 0).astype(np.int64) - first
    if (track < 0).any() or (track >= rows.size).any():
        raise TraceError("corrupt: an event lies on a track that is no warp's")
    owner, start, stop = fields.blocks(_ANNOTATION)
    notes = protobuf.scan(data, start, stop)
    name = notes.first(1, protobuf.VARINT, owner.size, 0)
    payload, value, unended = np.zeros(n, np.int64), np.full(n, np.nan), np.zeros(n, bool)
    value_at = name == _ANNOTATIONS.index("value") + 1
    unended_at = name == _ANNOTATIONS.index("unended") + 1
    other = ~value_at & ~unended_at
    payload[owner[other]] = notes.first(4, protobuf.VARINT, owner.size, 0).view(np.int64)[other]
    value[owner[value_at]] = notes.first(5, protobuf.FIXED64, owner.size, 0).view(np.float64)[value_at]
    unended[owner[unended_at]] = True
    flow = fields.first(_FLOW, protobuf.FIXED64, n, 0) + fields.first(_TERMINATING, protobuf.FIXED64, n, 0)
    category = fields.first(_CATEGORY, protobuf.VARINT, n, 0).astype(np.int64) - 1
    stage = fields.first(_NAME, protobuf.VARINT, n, 0).astype(np.int64) - 1
    kind = fields.first(_TYPE, protobuf.VARINT, n, 0).astype(np.int64)
    return _Events(
        time.astype(np.int64), track, kind, category, stage, payload, value, unended, flow.view(np.int64)
    ), rows[track]


def _tables(found: tuple[_Events, NDArray[np.int64]]) -> tuple[Slices, Marks]:
    events, row = found
    edges = np.flatnonzero((events.type == _SLICE_BEGIN) | (events.type == _SLICE_END))
    edges = edges[np.argsort(events.track[edges], kind="stable")]
    counts = np.bincount(events.track[edges]) if edges.size else np.zeros(0, np.int64)
    is_end = (events.type[edges] == _SLICE_END).astype(np.uint8)
    paired = pair_nested(is_end, np.zeros(edges.size, np.uint32), counts)
    if paired.unended.size or paired.unbegun.size:
        raise TraceError("damaged: a range has no begin or no end")
    order = np.argsort(paired.begins)
    begins = paired.begins[order]
    begin, end = edges[begins], edges[paired.ends[order]]
    kind = events.category[begin]
    if begin.size and not ((kind >= 0) & (kind <= 2)).all():
        raise TraceError("corrupt: a range of an unknown kind")
    done = np.flatnonzero((events.type == _INSTANT) & (events.category == _DONE))
    slices = document.make_slices(
        row=row[begin],
        stage=events.stage[begin],
        start_ns=events.time[begin],
        end_ns=events.time[end],
        depth=np.where(kind == 0, paired.levels[begins], 0),
        payload=events.payload[begin],
        kind=kind,
        flags=events.unended[begin],
        end_row=_completers(events, row, begin, done),
    )
    at = np.flatnonzero((events.type == _INSTANT) & (events.category != _DONE))
    marks = document.make_marks(
        row=row[at],
        stage=events.stage[at],
        time_ns=events.time[at],
        payload=events.payload[at],
        value=events.value[at],
    )
    return slices, marks


def _completers(events: _Events, row: NDArray[np.int64], begin: Any, done: Any) -> NDArray[np.int64]:
    """[slices] the row where the slice's flow ends, else its own."""
    made = row[begin].copy()
    flow = events.flow[begin]
    ends, at = np.unique(events.flow[done], return_index=True)
    if ends.size:
        place = np.minimum(np.searchsorted(ends, flow), ends.size - 1)
        hit = (ends[place] == flow) & (flow > 0)
        made[hit] = row[done[at[place[hit]]]]
    return made
