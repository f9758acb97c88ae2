"""Decoding traces: ranges paired and counted exactly, clocks unwrapped, against a walk through the rows."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import trace_synthetic
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_synthetic import Builder, Machine, Warp

from warpdeck.telemetry.trace import layout
from warpdeck.telemetry.trace.decode import decode
from warpdeck.telemetry.trace.errors import TraceError
from warpdeck.telemetry.trace.summary import summarise, table
from warpdeck.telemetry.trace.timeline import RawTrace, Timeline

STAGES = ("load", "wait", "compute")


def problems(timeline: Timeline) -> list[tuple[int, str, str]]:
    return [(m.warp, m.stage, m.problem) for m in timeline.mispaired]


def slices(timeline: Timeline) -> list[tuple[Any, ...]]:
    """(warp, stage, depth, payload, kind, flags, end's warp), in order."""
    s, w = timeline.slices, timeline.warps
    return [
        (int(w.warp[r]), timeline.stages[g], int(d), int(p), int(k), int(f), int(w.warp[e]))
        for r, g, d, p, k, f, e in zip(
            s.row, s.stage, s.depth, s.payload, s.kind, s.flags, s.end_row, strict=True
        )
    ]


def test_nested_ranges_marks_and_values() -> None:
    builder = Builder(STAGES)
    with builder.warp(cta=3, warp=1, sm=2) as w:
        w.begin("load", 7).step(200).begin("wait").step(50).end("wait").end("load")
        w.mark("compute", 1_000_000).value("wait", 3_000_000_000).value("wait", -5).value("load", 0.25)
        w.begin("compute", 8).step(90).end("compute")
    timeline = decode(builder.build())
    assert slices(timeline) == [
        (1, "load", 0, 7, 0, 0, 1),
        (1, "wait", 1, 0, 0, 0, 1),
        (1, "compute", 0, 8, 0, 0, 1),
    ]
    assert timeline.mispaired_count == 0 and timeline.dropped == 0 and timeline.events == 10
    assert [timeline.stages[i] for i in timeline.marks.stage] == ["compute", "wait", "wait", "load"]
    assert timeline.marks.payload.tolist() == [1_000_000, 0, 0, 0]
    assert np.isnan(timeline.marks.value[0])
    assert timeline.marks.value[1:].tolist() == [3e9, -5, 0.25]
    assert (timeline.warps.cta[0], timeline.warps.warp[0], timeline.warps.sm[0]) == (3, 1, 2)
    duration = (timeline.slices.end_ns - timeline.slices.start_ns) * timeline.clock.ghz
    assert duration == pytest.approx([280, 60, 100])


def test_rows_are_sorted_and_those_never_begun_are_no_warps() -> None:
    builder = Builder(STAGES)
    for cta, warp in ((2, 1), (0, 0), (2, 0), (1, 3)):
        with builder.warp(cta=cta, warp=warp) as w:
            w.begin("load").end("load")
    timeline = decode(builder.build())
    assert list(zip(timeline.warps.cta.tolist(), timeline.warps.warp.tolist(), strict=True)) == [
        *((0, 0), (1, 3), (2, 0), (2, 1)),
    ]
    empty = decode(Builder(STAGES).build())
    assert empty.events == 0 and empty.span_ns == 0 and empty.slices.row.size == 0
    assert summarise(empty).stages == ()


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (["end load"], [("load", "end without begin")]),
        (["begin load", "end wait"], [("load", "begin without end"), ("wait", "end without begin")]),
        (["begin load", "begin wait", "end load"], [("wait", "ends load inside wait")]),
        (
            ["begin load", "begin wait", "end load", "end wait"],
            [("wait", "ends load inside wait"), ("wait", "end without begin")],
        ),
        (["begin load", "begin wait"], [("load", "begin without end"), ("wait", "begin without end")]),
        (["begin load", "end load", "end load", "begin wait", "end wait"], [("load", "end without begin")]),
        (["start load", "start load", "stop load"], [("load", "begin without end")]),
        (["stop load", "start load"], [("load", "end without begin"), ("load", "begin without end")]),
        (["done wait", "issue wait"], [("wait", "end without begin"), ("wait", "begin without end")]),
        (["header", "mark load"], [("load", "value without its number")]),
        (["mark load", "number"], [("", "number without its value")]),
    ],
)
def test_what_has_no_partner_is_counted_and_located(
    program: list[str], expected: list[tuple[str, str]]
) -> None:
    builder = Builder(STAGES)
    with builder.warp(warp=0) as good:
        good.begin("compute", 1).end("compute")
    with builder.warp(warp=5, at_ns=100) as w:
        for line in program:
            _perform(w, line)
    timeline = decode(builder.build())
    assert timeline.mispaired_count == len(expected)
    assert sorted(problems(timeline)) == sorted((5, stage, text) for stage, text in expected)
    open_ones = timeline.slices.flags == 1
    assert (timeline.slices.end_ns <= timeline.warps.end_ns[timeline.slices.row] + 1e-9).all()
    begun = sum(line.split()[0] in ("begin", "start", "issue") for line in program)
    assert timeline.slices.row.size == 1 + begun
    assert open_ones.sum() == sum(
        text.startswith(("begin without", "ends")) for _, text in expected
    ) and timeline.warps.events.tolist() == [2, len(program) - program.count("number")]


def _perform(w: Warp, line: str) -> None:
    verb, _, name = line.partition(" ")
    if verb == "header":
        w.extended("load", layout.SUB_VALUE_U32)
    elif verb == "number":
        w.raw(5)
    elif verb in ("begin", "end", "mark"):
        getattr(w, verb)(name)
    else:
        getattr(w, verb)(name, 4)


def test_a_full_row_counts_what_it_dropped_and_calls_nothing_mispaired() -> None:
    builder = Builder(STAGES)
    with builder.warp() as w:
        w.begin("load", 1).begin("wait", 2).end("wait").start("compute", 9).value("wait", 1.0)
        w.stop("compute", 9).end("load")
    raw = builder.build(capacity=5)
    timeline = decode(raw)
    assert timeline.dropped == 3 and timeline.events == 5 and timeline.mispaired_count == 0
    assert [s[1:6] for s in slices(timeline)] == [
        *(("load", 0, 1, 0, 1), ("wait", 1, 2, 0, 0), ("compute", 0, 9, 1, 1)),
    ]
    assert np.isnan(timeline.marks.value).all() and timeline.marks.value.size == 1
    assert timeline.slices.end_ns[[0, 2]] == pytest.approx(timeline.marks.time_ns[0])  # no record is later
    none = decode(builder.build(capacity=0))
    assert none.dropped == 8 and none.events == 0


def test_what_ran_when_a_row_was_full_is_not_guessed() -> None:
    """Neither total, percentiles nor longest waits count what the open ranges may have lasted."""
    builder = Builder(STAGES)
    with builder.warp(warps=2) as w:
        w.begin("compute").step(100).issue("load", 1)
        for i in range(100):
            w.begin("wait", i).step(100).end("wait").step(100)
        w.end("compute")
    timeline = decode(builder.build(capacity=9))  # the last record is the begin of the fourth wait
    compute, wait, load = (
        next(s for s in summarise(timeline).stages if s.name == n) for n in ("compute", "wait", "load")
    )
    ghz = timeline.clock.ghz
    assert (compute.count, wait.count, load.count) == (1, 4, 1) and timeline.dropped == 194
    assert wait.total_ns == pytest.approx(3 * 110 / ghz) and wait.p50_ns == pytest.approx(110 / ghz)
    assert wait.share < 0.02 and compute.share < 0.04 and load.total_ns == 0
    longest = summarise(timeline).longest
    assert [round(r.duration_ns * ghz) for r in longest] == [110, 110, 110]


def test_a_warp_that_never_ended_ends_at_its_last_record() -> None:
    builder = Builder(STAGES)
    w = builder.warp()
    w.step(100).begin("load").step(500).begin("wait").step(40)
    with builder.warp(warp=1) as other:
        other.step(2000)
    timeline = decode(builder.build(capacity=3))
    assert timeline.warps.closed.tolist() == [False, True]
    assert timeline.warps.end_ns[0] == pytest.approx(610 / timeline.clock.ghz, rel=1e-6)
    assert timeline.slices.flags.tolist() == [1, 1] and timeline.mispaired_count == 2
    assert "1 warps never reached their end marker (first: warp 0 of CTA 0)" in timeline.notes[0]
    assert len(timeline.notes) == 1
    full = decode(builder.build(capacity=2))
    assert full.mispaired_count == 0 and full.slices.flags.tolist() == [1, 1]
    assert "1 of these had full rows" in full.notes[1]


def test_clocks_of_32_bits_are_unwrapped_over_many_wraps() -> None:
    machine = Machine(2)
    builder = Builder(STAGES, machine)
    steps = [(1 << 32) - 20, 3_000_000_000, 5, (1 << 31) + 7]
    cycles = []
    for sm in (0, 1):
        with builder.warp(cta=sm, sm=sm) as w:
            for step in steps:
                w.begin("load").step(step).value("wait", 1).end("load")
                cycles.append(step + 10 + 10)
            w.step(100)
    timeline = decode(builder.build())
    duration = (timeline.slices.end_ns - timeline.slices.start_ns) * timeline.clock.ghz
    assert duration == pytest.approx(cycles, rel=1e-7, abs=1e-4)
    assert timeline.notes == ()
    builder = Builder(STAGES, machine)
    with builder.warp() as w:
        w.begin("load").step((1 << 32) + 5).end("load")
    assert "recorded nothing for more than 2^32 cycles" in decode(builder.build()).notes[0]
    w = builder.warp(warp=1)  # no end, and long
    w.begin("load").step(4_000_000_000).end("load").step(4_000_000_000).mark("load")
    timeline = decode(builder.build())
    length = timeline.warps.end_ns[1] - timeline.warps.start_ns[1]
    assert length * timeline.clock.ghz == pytest.approx(8_000_000_020)


def test_records_against_the_clock_are_noted_and_stay_within_the_warp() -> None:
    builder = Builder(STAGES)
    with builder.warp() as w:
        w.begin("load").step(100).end("load").step(-90).begin("wait").end("wait").step(500)
    timeline = decode(builder.build())
    assert "not in the order of its clock" in timeline.notes[0]
    assert (timeline.slices.end_ns >= timeline.slices.start_ns).all()
    assert (timeline.slices.end_ns <= timeline.span_ns).all()


def test_tokens_overlap_and_async_stages_cross_warps() -> None:
    builder = Builder(STAGES)
    with builder.warp(warp=0) as producer:
        for i in range(6):
            producer.issue("load", i % 2).start("wait", i).step(300)
            if i:
                producer.stop("wait", i - 1)
        producer.stop("wait", 5)
    with builder.warp(warp=1, at_ns=5) as consumer:
        for i in range(6):
            consumer.step(310).done("load", i % 2)
    with builder.warp(cta=1, warp=0, sm=1) as other:  # the same flows in another CTA
        other.issue("load", 0).step(5).issue("load", 0).step(5).done("load", 0).done("load", 0)
    timeline = decode(builder.build())
    assert timeline.mispaired_count == 0
    got = slices(timeline)
    assert [s for s in got if s[4] == 2][:6] == [(0, "load", 0, i % 2, 2, 0, 1) for i in range(6)]
    assert [s for s in got if s[4] == 1] == [(0, "wait", 0, i, 1, 0, 0) for i in range(6)]
    flows = timeline.slices.kind == 2
    length = (timeline.slices.end_ns - timeline.slices.start_ns)[flows]
    assert (length > 0).all()
    assert length[6:] * timeline.clock.ghz == pytest.approx([25 + 0, 25 - 5 + 0], abs=6)


def test_an_async_half_in_an_untraced_warp_is_not_called_mispaired() -> None:
    builder = Builder(STAGES)
    with builder.warp(warp=1, warps=4) as w:
        w.done("load", 0).done("load", 1).issue("wait", 2)
    timeline = decode(builder.build())
    assert timeline.mispaired_count == 0 and timeline.slices.flags.tolist() == [1]
    assert timeline.notes[0].startswith("3 issues or completions have their other half in a warp")


@pytest.mark.parametrize("shape", trace_synthetic.SHAPES)
@pytest.mark.parametrize("capacity", [None, 37, 1])
def test_loops_decode_completely(shape: str, capacity: int | None) -> None:
    raw = trace_synthetic.loops(5, 3, 40, shape, capacity=capacity, seed=3)
    timeline = decode(raw)
    attempted = int(raw.headers["count"].sum())
    numbers = raw.records["word"] == layout.word(3, 0, layout.SUB_RAW << layout.SUB_SHIFT)
    stored = attempted if capacity is None else 15 * capacity
    assert timeline.events == stored - numbers.sum()
    assert timeline.dropped == attempted - stored
    assert timeline.mispaired_count == 0
    assert (timeline.slices.flags.sum() > 0) <= (capacity is not None)
    assert timeline.slices.flags.sum() == 0 or capacity is not None
    s = timeline.slices
    order = np.lexsort((np.arange(s.row.size), s.start_ns, s.row))
    assert (order == np.arange(s.row.size)).all()


# -- against a walk ---------------------------------------------------------------------------------------


@dataclass
class Walked:
    """What a straightforward reading of the rows gives: {begin: end or None}, and what has no partner."""

    ranges: dict[tuple[int, int], tuple[int, int] | None] = field(default_factory=dict)
    unbegun: int = 0
    forced: int = 0

    @property
    def mispaired(self) -> int:
        return self.unbegun + self.forced + sum(end is None for end in self.ranges.values())


def walk(rows: list[list[tuple[int, int, int, int]]]) -> Walked:
    """Rows of one CTA: (cycle, kind or 3 + sub-kind, name, argument)."""
    found = Walked()
    asynchronous: list[tuple[int, int, int, bool, tuple[int, int]]] = []
    for r, row in enumerate(rows):
        stack: list[tuple[tuple[int, int], int]] = []
        tokens: dict[tuple[int, int], deque[tuple[int, int]]] = defaultdict(deque)
        for i, (cycle, kind, name, argument) in enumerate(row):
            if kind == 0:
                stack.append(((r, i), name))
                found.ranges[r, i] = None
            elif kind == 1:
                if name not in [n for _, n in stack]:
                    found.unbegun += 1
                    continue
                while True:
                    begin, top = stack.pop()
                    found.ranges[begin] = (r, i)
                    if top == name:
                        break
                    found.forced += 1
            elif kind == 3 + layout.SUB_START:
                tokens[name, argument].append((r, i))
                found.ranges[r, i] = None
            elif kind == 3 + layout.SUB_STOP:
                if tokens[name, argument]:
                    found.ranges[tokens[name, argument].popleft()] = (r, i)
                else:
                    found.unbegun += 1
            else:
                issue = kind == 3 + layout.SUB_ISSUE
                asynchronous.append((cycle, r, i, issue, (name, argument)))
                if issue:
                    found.ranges[r, i] = None
    flows: dict[tuple[int, int], deque[tuple[int, int]]] = defaultdict(deque)
    for _, r, i, issue, key in sorted(asynchronous, key=lambda a: (a[0], not a[3])):
        if issue:
            flows[key].append((r, i))
        elif flows[key]:
            found.ranges[flows[key].popleft()] = (r, i)
        else:
            found.unbegun += 1
    return found


kinds = st.sampled_from([0, 0, 1, 1, *(3 + s for s in range(layout.SUB_START, layout.SUB_DONE + 1))])
programs = st.lists(
    st.lists(st.tuples(st.integers(1, 40), kinds, st.integers(1, 3), st.integers(0, 2)), max_size=25),
    min_size=1,
    max_size=4,
)


@given(programs)
@settings(max_examples=300, deadline=None)
def test_any_program_pairs_as_a_walk_through_it_does(program: list[list[tuple[int, int, int, int]]]) -> None:
    builder = Builder(STAGES)
    rows = []
    for warp, steps in enumerate(program):
        row = []
        with builder.warp(warp=warp) as w:
            for step, kind, name, argument in steps:
                w.step(step)
                row.append((w.now, kind, name, argument))
                if kind < 3:
                    w.record(kind, name, argument)
                else:
                    w.extended(name, kind - 3, argument)
        rows.append(row)
    expected = walk(rows)
    timeline = decode(builder.build())
    assert timeline.mispaired_count == expected.mispaired
    assert len(timeline.mispaired) == min(expected.mispaired, 100)
    cycle = {(r, i): record[0] for r, row in enumerate(rows) for i, record in enumerate(row)}
    ends = [
        (r, end[0] if end else r, cycle[end] if end else builder.warps[r].now)
        for (r, i), end in sorted(expected.ranges.items())
    ]
    s = timeline.slices
    assert s.row.tolist() == [e[0] for e in ends]
    assert s.end_row.tolist() == [e[1] for e in ends]
    true = np.array([builder.true_ns(builder.warps[e[1]], e[2]) for e in ends])
    assert np.abs(s.end_ns - true).max(initial=0) < timeline.clock.uncertainty_ns * 2
    assert (s.end_ns >= s.start_ns).all()


# -- impossible bytes -------------------------------------------------------------------------------------


def _changed(raw: RawTrace, name: str, value: int, row: int = 0) -> RawTrace:
    headers = raw.headers.copy()
    headers[name][row] = value
    return RawTrace(headers, raw.records, raw.anchors, raw.stages, raw.meta)


def test_impossible_traces_give_one_line() -> None:
    raw = trace_synthetic.loops(1, 2, 3)
    start = int(raw.headers["clock_begin"][0])
    for broken, words in (
        (_changed(raw, "magic", 5), "row 0 begins with 0x5"),
        (_changed(raw, "clock_end", start - 1), "warp 0 of CTA 0 ends before it begins"),
        (_changed(raw, "cta", 1 << 31), "cta number"),
        (_changed(raw, "clock_end", start + (1 << 60)), "2^53 apart"),
        (RawTrace(raw.headers[:1], raw.records, raw.anchors, raw.stages), "1 headers but 2 rows"),
        (RawTrace(raw.headers, raw.records, raw.anchors, raw.stages[:2]), "has stage id"),
        (RawTrace(raw.headers, raw.records["word"], raw.anchors, raw.stages), "records have type"),
        (RawTrace(raw.headers, raw.records, raw.anchors, ("x",) * 1024), "1024 stages"),
    ):
        with pytest.raises(TraceError, match="trace: ") as caught:
            decode(broken)
        assert words in str(caught.value) and "\n" not in str(caught.value)


@given(st.binary(min_size=0, max_size=400), st.integers(0, 3), st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_any_bytes_decode_or_give_a_trace_error(noise: bytes, rows: int, capacity: int) -> None:
    size = rows * (layout.HEADER_BYTES + capacity * layout.RECORD_BYTES)
    data = np.resize(np.frombuffer(noise or b"\0", np.uint8), size)
    headers = data[: rows * layout.HEADER_BYTES].view(layout.HEADER).copy()
    headers["magic"] = [(0, layout.MAGIC_OPEN, layout.MAGIC_CLOSED)[int(m) % 3] for m in headers["magic"]]
    for name in ("time_begin", "clock_begin", "time_end", "clock_end"):
        headers[name] %= 1 << 40
    headers["clock_end"] += headers["clock_begin"]
    headers["time_end"] += headers["time_begin"]
    for name in ("cta", "warp", "sm"):
        headers[name] %= 9
    records = data[rows * layout.HEADER_BYTES :].view(layout.RECORD).reshape(rows, capacity).copy()
    records["word"] &= ~np.uint32(0x3FC << 20)  # names 0 to 3
    raw = RawTrace(headers, records, np.zeros(0, layout.ANCHOR), STAGES)
    try:
        timeline = decode(raw)
    except TraceError as error:
        assert "\n" not in str(error)
        return
    s = timeline.slices
    assert (s.end_ns >= s.start_ns).all() and np.isfinite(s.end_ns).all()
    assert len(timeline.mispaired) == min(timeline.mispaired_count, 100)
    assert summarise(timeline).to_json()["mispaired"] == timeline.mispaired_count


# -- summary ----------------------------------------------------------------------------------------------


def test_a_summary_adds_up() -> None:
    builder = Builder(STAGES, Machine(2))
    for cta, sm, waits in ((0, 0, (100, 300)), (1, 1, (200,))):
        for warp in (0, 1):
            with builder.warp(cta=cta, warp=warp, sm=sm, at_ns=50.0 * warp) as w:
                for i, wait in enumerate(waits):
                    w.begin("load", i).step(20 * (1 + warp)).end("load")
                    w.begin("wait", i).step(wait - 10).end("wait")
                w.value("compute", 2.0 * warp).mark("compute", 1)
                w.step(50)
    raw = builder.build(meta={"overhead": {"ratio": 1.002}})
    timeline = decode(raw)
    summary = summarise(timeline, longest=2)
    ghz = timeline.clock.ghz
    load, wait = summary.stages
    assert (load.name, load.count, wait.name, wait.count) == ("load", 6, "wait", 6)
    assert wait.total_ns == pytest.approx(2 * (100 + 300 + 200) / ghz)
    assert wait.p50_ns == pytest.approx(200 / ghz) and wait.p95_ns == pytest.approx(300 / ghz)
    lifetime = float((timeline.warps.end_ns - timeline.warps.start_ns).sum())
    assert wait.self_ns == pytest.approx(wait.total_ns)  # nothing is nested in it
    assert wait.share == pytest.approx(wait.self_ns / lifetime)
    assert wait.imbalance_warps == pytest.approx(400 / 300)
    assert wait.imbalance_ctas == pytest.approx(800 / 600)
    assert [(r.stage, r.cta, r.payload) for r in summary.longest] == [("wait", 0, 1), ("wait", 0, 1)]
    assert summary.longest[0].duration_ns == pytest.approx(300 / ghz)
    (marks,) = summary.marks
    assert (marks.name, marks.count, marks.values, marks.mean, marks.maximum) == ("compute", 8, 4, 1.0, 2.0)
    document = summary.to_json()
    assert document["overhead"] == {"ratio": 1.002} and document["uncertainty_ns"] > 0
    rows = table(summary)
    assert len(rows) == 3 and {len(row) for row in rows} == {9} and rows[2][:2] == ("wait", "6")


def test_shares_of_nested_stages_add_up() -> None:
    builder = Builder(STAGES, Machine(1))
    with builder.warp(cta=0, warp=0, sm=0, at_ns=0.0) as w:
        w.begin("compute")
        for i in range(3):
            w.step(100).begin("wait", i).step(40).begin("load").step(10).end("load").step(40).end("wait")
        w.step(100).end("compute")
    timeline = decode(builder.build())
    sums = {s.name: s for s in summarise(timeline).stages}
    ghz = timeline.clock.ghz
    assert sums["load"].self_ns == pytest.approx(sums["load"].total_ns)
    assert sums["wait"].self_ns == pytest.approx(sums["wait"].total_ns - sums["load"].total_ns)
    assert sums["compute"].self_ns == pytest.approx(sums["compute"].total_ns - sums["wait"].total_ns)
    assert sums["compute"].self_ns >= 400 / ghz
    inside = sum(s.self_ns for s in sums.values())
    assert inside == pytest.approx(sums["compute"].total_ns)
