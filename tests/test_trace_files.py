"""Files of traces: what is written comes back, others read it alike, and damage is one plain error."""

from __future__ import annotations

import json
import lzma
import struct
import tracemalloc
import zlib
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import trace_synthetic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_synthetic import Builder, Machine

from warpdeck.telemetry.trace import chrome, document, files, layout, perfetto, store, table
from warpdeck.telemetry.trace.decode import decode
from warpdeck.telemetry.trace.errors import TraceError
from warpdeck.telemetry.trace.timeline import RawTrace, Timeline

STAGES = ("load", 'wa"it, ü\n', "compute")
FORMATS: dict[str, ModuleType] = {"pftrace": perfetto, "json": chrome, "csv": table}
no_reset = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

steps = st.sampled_from([-10, -10, -9, 0, 1, 500])  # -10: at the same cycle as the record before
verbs = st.sampled_from(["begin", "end", "mark", "start", "stop", "issue", "done", "value", "close top"])
programs = st.lists(
    st.lists(st.tuples(steps, verbs, st.sampled_from(STAGES), st.integers(0, 3)), max_size=30),
    min_size=1,
    max_size=5,
)
NUMBERS = (7, -3, 1.5, float("inf"))


def perform(program: list[list[tuple[int, str, str, int]]], capacity: int | None = None) -> RawTrace:
    """Two warps a CTA, CTAs on two SMs; the last warp never ends."""
    builder = Builder(STAGES, Machine(2, seed=4))
    for i, lines in enumerate(program):
        w = builder.warp(cta=i // 2 * 5, warp=i % 2, sm=i // 2 % 2, at_ns=3.7 * i, warps=2)
        open_ranges: list[str] = []
        w.step(10)
        for step, verb, name, argument in lines:
            if verb == "close top" and not open_ranges:
                continue
            w.step(step)
            if verb == "close top":
                w.end(open_ranges.pop())
            elif verb == "value":
                w.value(name, NUMBERS[argument])
            elif verb == "end":
                w.end(name)
                open_ranges = open_ranges[: open_ranges.index(name)] if name in open_ranges else open_ranges
            elif verb in ("begin", "mark"):
                getattr(w, verb)(name, argument * 300_000)
                open_ranges += [name] * (verb == "begin")
            else:
                getattr(w, verb)(name, argument)
        if i < len(program) - 1 or i == 0:
            w.close()
    return builder.build(capacity, meta={"kernel": "k<int>", "params": {"n": 3}, "date": None, "π": [1.5]})


def loops(shape: str = "mixed", **more: Any) -> RawTrace:
    return trace_synthetic.loops(3, 2, 6, shape, **more)


# -- raw traces -------------------------------------------------------------------------------------------


def same(a: RawTrace, b: RawTrace) -> bool:
    width = b.records.shape[1]
    kept = np.arange(width) < np.minimum(a.headers["count"], a.records.shape[1])[:, None]
    kept |= (a.headers["magic"] == layout.MAGIC_OPEN)[:, None]
    return (
        bool((a.headers == b.headers).all())
        and bool((a.records[:, :width][kept] == b.records[kept]).all())
        and bool((a.anchors == b.anchors).all())
        and (a.stages, dict(a.meta)) == (b.stages, dict(b.meta))
    )


@given(programs, st.sampled_from([None, 0, 3, 17]))
@no_reset
def test_raw_traces_come_back(tmp_path: Path, program: Any, capacity: int | None) -> None:
    raw = perform(program, capacity)
    path = tmp_path / "t.wdtrace"
    store.save(raw, path)
    back = store.load(path)
    assert same(raw, back)
    timelines_equal(decode(raw), store.open_timeline(path), 0)


def test_raw_traces_are_small_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    raw = trace_synthetic.loops(16, 4, 200, "nested")
    store.save(raw, tmp_path / "a")
    store.save(raw, tmp_path / "b")
    data = (tmp_path / "a").read_bytes()
    assert data == (tmp_path / "b").read_bytes()
    assert len(data) < 1.5 * raw.records.size  # of 8 bytes a record; the clocks alone have 8 random bits
    none = trace_synthetic.loops(16, 4, 200, "nested", capacity=0)
    store.save(none, tmp_path / "none")
    assert store.load(tmp_path / "none").records.shape == (64, 0)
    assert decode(store.load(tmp_path / "none")).dropped == 64 * 1600


def rewritten(data: bytes, change: Any, body: Any = None) -> bytes:
    """A file with another JSON head or records, and the checksum that belongs to them."""
    _, version, _, length = struct.unpack_from("<8sIII", data)
    head, packed = json.loads(data[20 : 20 + length]), data[20 + length :]
    change(head)
    if body is not None:
        packed = lzma.compress(body(lzma.decompress(packed)))
    text = json.dumps(head).encode()
    return struct.pack("<8sIII", store.MAGIC, version, zlib.crc32(text + packed), len(text)) + text + packed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda h: h.update(records=1 << 29, width=1 << 25), "claims 536870912 records"),
        (lambda h: h.update(records=1 << 27), "another number of records"),
        (lambda h: h.update(rows=1 << 35), "claims"),
        (lambda h: h.update(width=1 << 30), "claims"),
        (lambda h: h.update(width=7), "don't add up"),
        (lambda h: h.update(rows=-1), "head"),
        (lambda h: h.update(rows=True), "head"),
        (lambda h: h.update(stages=[1]), "head"),
        (lambda h: h.update(stages=3), "head"),
        (lambda h: h.update(meta=[]), "head"),
        (lambda h: h.pop("anchors"), "head"),
    ],
)
def test_what_a_head_claims_is_not_believed(tmp_path: Path, change: Any, words: str) -> None:
    path = tmp_path / "t.wdtrace"
    store.save(loops(), path)
    path.write_bytes(rewritten(path.read_bytes(), change))
    tracemalloc.start()
    with pytest.raises(TraceError, match=words) as caught:
        store.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)
    assert peak < 40e6


@given(st.data())
@settings(no_reset, max_examples=150)
def test_damaged_raw_traces_give_one_error(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "t.wdtrace"
    store.save(loops(), path)
    good = path.read_bytes()
    path.write_bytes(damaged(data, good))
    with pytest.raises(TraceError) as caught:
        store.load(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


@given(st.data())
@settings(no_reset, max_examples=150)
def test_records_of_any_bytes_with_a_right_checksum_decode_or_give_one_error(
    tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "t.wdtrace"
    store.save(loops(), path)
    path.write_bytes(rewritten(path.read_bytes(), lambda _: None, lambda body: damaged(data, body)))
    try:
        timeline = store.open_timeline(path)
    except TraceError as error:
        assert "\n" not in str(error)
        return
    assert (timeline.slices.end_ns >= timeline.slices.start_ns).all()


def damaged(data: st.DataObject, good: bytes) -> bytes:
    """Cut off, with a bit turned, with bytes replaced, or something else."""
    how = data.draw(st.sampled_from(["cut", "bit", "bytes", "noise", "more"]))
    if how == "cut":
        return good[: data.draw(st.integers(0, len(good) - 1))]
    if how == "noise":
        return good[: data.draw(st.sampled_from([0, 8, 20]))] + data.draw(st.binary(max_size=200))
    if how == "more":
        return good + data.draw(st.binary(min_size=1, max_size=20))
    at = data.draw(st.integers(0, len(good) - 1))
    if how == "bit":
        return good[:at] + bytes([good[at] ^ 1 << data.draw(st.integers(0, 7))]) + good[at + 1 :]
    noise = data.draw(st.binary(min_size=1, max_size=8))
    changed = good[:at] + noise + good[at + len(noise) :]
    return changed if changed != good else good[:at]


# -- timelines --------------------------------------------------------------------------------------------


def timelines_equal(a: Timeline, b: Timeline, within: float) -> None:
    """The same but for `within` ns."""
    for group in ("warps", "slices", "marks"):
        for name in getattr(a, group).__dataclass_fields__:
            x, y = (getattr(getattr(t, group), name) for t in (a, b))
            assert x.shape == y.shape and x.dtype == y.dtype, (group, name)
            if name in ("start_ns", "end_ns", "time_ns"):
                assert np.abs(x - y).max(initial=0) <= within, (group, name)
            else:
                assert np.array_equal(x, y, equal_nan=name == "value"), (group, name, x, y)
    assert (a.stages, a.mispaired, a.mispaired_count, a.clock) == (
        *(b.stages, b.mispaired, b.mispaired_count, b.clock),
    )
    assert (dict(a.meta), a.notes) == (dict(b.meta), b.notes)


def canonical(timeline: Timeline) -> Timeline:
    """In the order of whole nanoseconds, ranges of one warp that begin together in a fixed one."""
    s, m = timeline.slices, timeline.marks
    start, end, time = np.rint(s.start_ns), np.rint(s.end_ns), np.rint(m.time_ns)
    by_slice = np.lexsort((s.end_row, end, s.payload, s.stage, s.flags, s.depth, s.kind, start, s.row))
    by_mark = np.lexsort((m.value, m.payload, m.stage, time, m.row))
    return Timeline(
        timeline.stages,
        timeline.warps,
        type(s)(*(getattr(s, f)[by_slice] for f in s.__dataclass_fields__)),
        type(m)(*(getattr(m, f)[by_mark] for f in m.__dataclass_fields__)),
        *(timeline.mispaired, timeline.mispaired_count, timeline.clock, timeline.meta, timeline.notes),
    )


@pytest.mark.parametrize("kind", FORMATS)
@given(program=programs, capacity=st.sampled_from([None, 9]))
@settings(no_reset, max_examples=60)
def test_timelines_come_back(tmp_path: Path, kind: str, program: Any, capacity: int | None) -> None:
    timeline = decode(perform(program, capacity))
    path = tmp_path / f"t.{kind}"
    FORMATS[kind].write(timeline, path)
    back = FORMATS[kind].read(path)
    timelines_equal(canonical(timeline), canonical(back), 0.501 if kind != "csv" else 0.00051)
    timelines_equal(back, store.open_timeline(path), 0)
    again = tmp_path / f"again.{kind}"
    FORMATS[kind].write(back, again)
    timelines_equal(canonical(back), canonical(FORMATS[kind].read(again)), 0)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_empty_timeline_comes_back(tmp_path: Path, kind: str) -> None:
    timeline = decode(Builder(()).build())
    path = tmp_path / f"t.{kind}"
    FORMATS[kind].write(timeline, path)
    timelines_equal(timeline, store.open_timeline(path), 0)


@pytest.mark.parametrize("kind", FORMATS)
@given(data=st.data())
@settings(no_reset, max_examples=120)
def test_damaged_timelines_open_or_give_one_error(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    path = tmp_path / f"t.{kind}"
    FORMATS[kind].write(decode(loops(capacity=40)), path)
    good = path.read_bytes()
    path.write_bytes(damaged(data, good))
    try:
        timeline = store.open_timeline(path)
    except TraceError as error:
        assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
        return
    assert (timeline.slices.end_ns >= timeline.slices.start_ns).all()
    assert timeline.slices.row.max(initial=0) < timeline.warps.cta.size


def test_numbers_without_end_are_refused(tmp_path: Path) -> None:
    """`1e999` is valid JSON, and no time."""
    path = tmp_path / "t.json"
    chrome.write(decode(loops()), path)
    found = json.loads(path.read_text())
    found["otherData"]["warpdeck"]["clock"]["uncertainty_ns"] = 123456789.5
    path.write_text(json.dumps(found).replace("123456789.5", "1e999"))
    with pytest.raises(TraceError, match="lacks what a trace needs"):
        store.open_timeline(path)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_cut_off_file_is_never_taken_for_a_whole_one(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t.{kind}"
    FORMATS[kind].write(decode(loops()), path)
    good = path.read_bytes()
    for size in {0, 1, 50, len(good) // 2, len(good) - 30, len(good) - 4}:
        path.write_bytes(good[:size])
        with pytest.raises(TraceError, match=str(path)):
            store.open_timeline(path)


def test_foreign_and_absent_files_give_one_error(tmp_path: Path) -> None:
    trace = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    foreign = trace.Trace()
    foreign.packet.add(timestamp=5, trusted_packet_sequence_id=1).track_event.type = 3
    cases = {
        "foreign.pftrace": (foreign.SerializeToString(), "not written by warpdeck"),
        "foreign.json": (b'{"traceEvents": []}', "not a trace written by warpdeck"),
        "list.json": (b"[1]", "not a trace written by warpdeck"),
        "other.csv": (b"a,b,c\n1,2,3\n", "not a trace"),
        "program.elf": (b"\x7fELF" + bytes(100), "not a trace"),
        "empty": (b"", "not a trace"),
        "newer.wdtrace": (store.MAGIC + struct.pack("<III", 9, 0, 0), "format version 9"),
        "deep.json": (b"[" * 100_000, "not a JSON document"),
    }
    for name, (data, words) in cases.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(TraceError) as caught:
            store.open_timeline(path)
        assert words in str(caught.value) and str(caught.value).startswith(f"{path}: ")
    for reader in (store.load, store.open_timeline, perfetto.read, chrome.read, table.read):
        for path in (tmp_path, tmp_path / "absent"):
            with pytest.raises(TraceError, match="can't be read"):
                reader(path)


@pytest.mark.parametrize("payload", [float("nan"), 1e308, -1.0, 2**70, 1 << 31])
def test_numbers_that_fit_no_column_are_refused(payload: float) -> None:
    one = {name: [0] for name in ("row", "stage", "depth", "kind", "flags", "end_row")}
    with pytest.raises(TraceError, match="impossible payload"):
        document.make_slices(**one, start_ns=[0.0], end_ns=[1.0], payload=[payload])


def test_files_without_end_are_refused(tmp_path: Path) -> None:
    endless = tmp_path / "endless.csv"
    endless.symlink_to("/dev/zero")
    large = tmp_path / "large.pftrace"
    with large.open("wb") as file:
        file.truncate(files.MAX_BYTES + 1)  # sparse
    for path in (endless, large):
        with pytest.raises(TraceError, match=rf"{path.name}: not a trace"):
            store.open_timeline(path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "t.pftrace"
    path.write_bytes(b"old")
    timeline = decode(loops())
    odd = Timeline(**{**timeline.__dict__, "meta": {"x": object()}})
    for module in FORMATS.values():
        with pytest.raises(TraceError, match=r"t\.pftrace: the trace's meta"):
            module.write(odd, path)

    def fails() -> Any:
        yield b"new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write(path, fails())
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(TraceError, match="can't be written"):
        perfetto.write(timeline, tmp_path / "no" / "folder")


# -- what others read -------------------------------------------------------------------------------------


def official(path: Path) -> tuple[Counter[Any], Counter[Any], dict[int, tuple[str, ...]]]:
    """(slices, instants, tracks) as Perfetto's own classes read a file, by the rules of TrackEvent.

    A slice is (track's path, name, start, end, depth, payload, flow ids); an instant (path, name, time, …).
    """
    proto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = proto.Trace()
    trace.ParseFromString(path.read_bytes())
    names: dict[str, dict[int, str]] = {"categories": {}, "names": {}, "annotations": {}}
    parents: dict[int, int] = {}
    titles: dict[int, str] = {}
    events = []
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1
        for kind, entries in (
            ("categories", packet.interned_data.event_categories),
            ("names", packet.interned_data.event_names),
            ("annotations", packet.interned_data.debug_annotation_names),
        ):
            names[kind] |= {entry.iid: entry.name for entry in entries}
        if packet.HasField("track_descriptor"):
            about = packet.track_descriptor
            assert about.uuid not in titles
            titles[about.uuid], parents[about.uuid] = about.name, about.parent_uuid
        if packet.HasField("track_event"):
            assert packet.sequence_flags == 2
            events.append((packet.timestamp, packet.track_event))

    def path_of(uuid: int) -> tuple[str, ...]:
        return (*(path_of(parents[uuid]) if parents[uuid] else ()), titles[uuid])

    slices, instants = Counter[Any](), Counter[Any]()
    stacks: dict[int, list[Any]] = {}
    for time, event in sorted(events, key=lambda e: e[0]):
        notes = {names["annotations"][a.name_iid]: a for a in event.debug_annotations}
        about = tuple(sorted((k, a.int_value, a.double_value, a.bool_value) for k, a in notes.items()))
        flows = tuple(event.flow_ids), tuple(event.terminating_flow_ids)
        category = names["categories"][event.category_iids[0]] if event.category_iids else ""
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == 1:
            stack.append((names["names"][event.name_iid], category, time, about, flows))
        elif event.type == 2:
            name, category, start, about, flows = stack.pop()
            assert start <= time
            slices[path_of(event.track_uuid), name, category, start, time, len(stack), about, flows] += 1
        else:
            instants[
                path_of(event.track_uuid), names["names"][event.name_iid], category, time, about, flows
            ] += 1
    assert not any(stacks.values())
    return slices, instants, {uuid: path_of(uuid) for uuid in titles}


@given(program=programs)
@settings(no_reset, max_examples=60)
def test_perfettos_own_classes_read_the_same(tmp_path: Path, program: Any) -> None:
    timeline = decode(perform(program))
    path = tmp_path / "t.pftrace"
    perfetto.write(timeline, path)
    slices, instants, tracks = official(path)
    s, m, w = timeline.slices, timeline.marks, timeline.warps
    assert sum(slices.values()) == s.row.size
    launch = "k<int>"

    def place(row: int) -> tuple[str, ...]:
        return launch, f"SM {w.sm[row]}", f"CTA {w.cta[row]}", f"warp {w.warp[row]}"

    assert {place(row) for row in range(w.cta.size)} <= set(tracks.values())
    expected = Counter[Any]()
    for i in range(s.row.size):
        kind = ("range", "token", "async")[s.kind[i]]
        expected[
            *(place(s.row[i]), STAGES[s.stage[i]], kind, round(s.start_ns[i]), round(s.end_ns[i])),
            *(int(s.depth[i]), int(s.payload[i]), bool(s.flags[i])),
        ] += 1
    found = Counter[Any]()
    annotation = {"range": "payload", "token": "token", "async": "flow"}
    for (track, name, kind, start, end, depth, about, _), count in slices.items():
        values = {k: (number, flag) for k, number, _, flag in about}
        payload = values.get(annotation[kind], (0, False))[0]
        assert (len(track) == 5) == (kind != "range")  # on a lane below the warp's track
        assert kind == "range" or depth == 0
        found[track[:4], name, kind, start, end, depth, payload, "unended" in values] += count
    assert found == expected
    starts = {flows[0][0]: end for (*_, end, _, _, flows) in slices for _ in flows[0]}
    ends = {flows[1][0]: (track, time) for (track, _, _, time, _, flows) in instants if flows[1]}
    assert set(starts) == set(ends) and len(starts) == int(((s.kind == 2) & (s.flags == 0)).sum())
    assert all(ends[flow][1] == end for flow, end in starts.items())
    assert Counter(t for t, _ in ends.values()) == Counter(
        place(r) for r in s.end_row[(s.kind == 2) & (s.flags == 0)]
    )
    marks = Counter[Any]()
    for i in range(m.row.size):
        value = float(m.value[i])
        note = ("value", 0, value, False) if value == value else ("payload", int(m.payload[i]), 0.0, False)
        about = () if note[0] == "payload" and not m.payload[i] else (note,)
        kind = "value" if value == value else "mark"
        marks[place(m.row[i]), STAGES[m.stage[i]], kind, round(m.time_ns[i]), about] += 1
    assert Counter({k[:5]: n for k, n in instants.items() if k[2] != "done"}) == marks


def test_chrome_json_is_what_its_readers_expect(tmp_path: Path) -> None:
    timeline = decode(loops())
    path = tmp_path / "t.json"
    chrome.write(timeline, path)
    text = path.read_text()
    document = json.loads(text)
    by_kind = Counter(e["ph"] for e in document["traceEvents"])
    kinds = np.bincount(timeline.slices.kind, minlength=3)
    assert by_kind["X"] == kinds[0] and by_kind["b"] == by_kind["e"] == kinds[1] + kinds[2]
    assert by_kind["i"] == timeline.marks.row.size
    exact = [
        line.split('"ts":')[1].split(",")[0].rstrip("}") for line in text.splitlines() if '"ts":' in line
    ]
    assert all(len(number.split(".")[1]) == 3 for number in exact)
    late = Timeline(**{**timeline.__dict__, "slices": _moved(timeline, 40_000_000_123.0)})
    chrome.write(late, path)
    first = next(e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X")
    assert round(first["ts"] * 1000) == round(late.slices.start_ns[0])  # as float32 it would be 4 µs off


def _moved(timeline: Timeline, ns: float) -> Any:
    s = timeline.slices
    return type(s)(**{**s.__dict__, "start_ns": s.start_ns + ns, "end_ns": s.end_ns + ns})


def test_csv_is_a_table(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    timeline = decode(loops())
    path = tmp_path / "t.csv"
    table.write(timeline, path)
    frame = pandas.read_csv(path)
    assert tuple(frame.columns) == table.HEAD
    counts = frame["kind"].value_counts()
    kinds = np.bincount(timeline.slices.kind, minlength=3)
    assert (counts["range"], counts["token"], counts["async"]) == tuple(kinds)
    ranges = frame[frame["kind"] == "range"]
    total = float((ranges["end_ns"] - ranges["start_ns"]).sum())
    nested = timeline.slices.kind == 0
    length = (timeline.slices.end_ns - timeline.slices.start_ns)[nested].sum()
    assert total == pytest.approx(length, abs=0.001 * kinds[0])
    assert len(frame) == 1 + timeline.slices.row.size + timeline.marks.row.size
