"""Lanes against a plain reading of the same slices, and what columns are painted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import trace_synthetic
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.telemetry.trace.decode import decode
from warpdeck.telemetry.trace.timeline import Timeline
from warpdeck.tui import lanes as lanes_module
from warpdeck.tui.lanes import ASYNC, DEEPEST, EVERY, MOST_SLOTS, NESTED, NONE, TOKEN, build
from warpdeck.tui.palette import blend, colours, letters
from warpdeck.tui.timeline_paint import IDLE, OUTSIDE, STAGE, UNKNOWN, Grid, Look, hairline, paint

STAGES = ("load", "wait", "compute", "store")


@st.composite
def programs(draw: st.DrawFn) -> Timeline:
    """A few warps that begin and end ranges at random, properly nested."""
    builder = trace_synthetic.Builder(STAGES)
    for warp in range(draw(st.integers(1, 3))):
        with builder.warp(cta=0, warp=warp, at_ns=draw(st.integers(0, 50))) as w:
            open_: list[str] = []
            for step in draw(st.lists(st.integers(-1, 3), max_size=24)):
                w.step(draw(st.integers(0, 400)))
                if step >= 0 and len(open_) < 5:
                    open_.append(STAGES[step])
                    w.begin(STAGES[step])
                elif open_:
                    w.end(open_.pop())
            while open_:
                w.end(open_.pop())
    return decode(builder.build())


def innermost(timeline: Timeline, row: int, low: float, high: float) -> dict[int, float]:
    """Nanoseconds of each stage as the innermost one in a stretch of a warp, the slow way."""
    s = timeline.slices
    mine = [i for i in range(len(s.row)) if s.row[i] == row and s.kind[i] == NESTED]
    points = sorted({low, high} | {t for i in mine for t in (s.start_ns[i], s.end_ns[i]) if low < t < high})
    found: dict[int, float] = {}
    for a, b in itertools.pairwise(points):
        covering = [i for i in mine if s.start_ns[i] <= a and b <= s.end_ns[i]]
        if covering:
            stage = int(s.stage[max(covering, key=lambda i: s.depth[i])])
            found[stage] = found.get(stage, 0.0) + b - a
    return found


@given(programs(), st.integers(1, 12), st.floats(0, 0.9), st.floats(0.01, 1))
def test_a_column_names_what_ran_longest_in_it(
    timeline: Timeline, columns: int, start: float, share: float
) -> None:
    lanes = build(timeline)
    span = lanes.high - lanes.low
    low = lanes.low + start * span
    high = min(lanes.high, low + share * span)
    edges = np.linspace(low, high, columns + 1)
    cover = lanes.cover(0, lanes.count, edges)
    for lane in range(lanes.count):
        for column in range(columns):
            a, b = edges[column], edges[column + 1]
            truth = innermost(timeline, int(lanes.row[lane]), a, b)
            assert cover.busy[lane, column] == pytest.approx(sum(truth.values()) / (b - a), abs=1e-6)
            if cover.stage[lane, column] == NONE:
                assert sum(truth.values()) <= 1e-6 * (b - a)
            else:
                named = truth.get(int(cover.stage[lane, column]), 0.0)
                assert named == pytest.approx(max(truth.values(), default=0.0), rel=1e-6, abs=1e-6)
            others = sorted(truth.values())[-2:-1] or [0.0]
            assert cover.part[lane, column] == pytest.approx(others[0] / (b - a), abs=1e-6)
            if cover.second[lane, column] != NONE:
                also = truth.get(int(cover.second[lane, column]), 0.0)
                assert also == pytest.approx(others[0], rel=1e-6, abs=1e-6)
                assert cover.second[lane, column] != cover.stage[lane, column]


@given(programs(), st.floats(0, 1))
def test_the_slice_at_a_time_is_the_innermost(timeline: Timeline, share: float) -> None:
    lanes, s = build(timeline), timeline.slices
    time = lanes.low + share * (lanes.high - lanes.low)
    for lane in range(lanes.count):
        inside = [
            i
            for i in range(len(s.row))
            if s.row[i] == lanes.row[lane] and s.start_ns[i] <= time < s.end_ns[i]
        ]
        found = lanes.slice_at(lane, time)
        if inside:
            assert found is not None and s.depth[found] == max(s.depth[i] for i in inside)
        else:
            assert found is None


@given(programs())
def test_segments_of_a_lane_never_overlap(timeline: Timeline) -> None:
    for levels in (DEEPEST, EVERY, 0, 1):
        lanes = build(timeline, levels)
        for lane in range(lanes.count):
            groups = np.flatnonzero(lanes.group_lane == lane)
            at = np.concatenate(
                [np.arange(lanes.group_first[g], lanes.group_first[g + 1]) for g in groups]
                or [np.zeros(0, int)]
            )
            order = at[np.argsort(lanes.start[at])]
            ends = lanes.start[order] + lanes.length[order]
            assert (lanes.start[order][1:] >= ends[:-1] - 1e-6).all()


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), max_size=40), st.booleans())
def test_overlapping_ranges_get_lanes_of_their_own(ranges: list[tuple[int, int]], fifo: bool) -> None:
    ranges.sort()
    start = np.array([a for a, _ in ranges], dtype=np.float64)
    end = start + (30.0 if fifo else np.array([n for _, n in ranges], dtype=np.float64))
    slot = lanes_module._slots(np.zeros(len(start), np.int32), start, end)
    for k in range(MOST_SLOTS):
        mine = np.flatnonzero(slot == k)
        assert (start[mine][1:] >= end[mine][:-1]).all()
    for i in np.flatnonzero(slot == NONE):  # only where as many as there are lanes run already
        assert ((start <= start[i]) & (end > start[i]) & (slot != NONE)).sum() >= MOST_SLOTS


def test_tokens_and_async_stages_lie_below_their_warp() -> None:
    lanes = build(decode(trace_synthetic.loops(ctas=2, warps=2, iterations=5, shape="mixed")))
    for row in range(4):
        kinds = lanes.kind[lanes.row == row].tolist()
        assert kinds[0] == NESTED and TOKEN in kinds and ASYNC in kinds
        assert kinds == sorted(kinds)
    without = build(decode(trace_synthetic.loops(ctas=2, warps=2, iterations=5, shape="mixed")), extras=False)
    assert set(without.kind.tolist()) == {NESTED}


def test_every_depth_has_a_lane_and_slices_are_found_in_it() -> None:
    timeline = decode(trace_synthetic.loops(ctas=1, warps=1, iterations=3, shape="nested"))
    lanes, s = build(timeline, EVERY), timeline.slices
    assert lanes.count == int(s.depth.max()) + 1
    for i in range(len(s.row)):
        lane = lanes.lane_of(0, NESTED, float(s.start_ns[i]), int(s.depth[i]), i)
        assert lane is not None and lane == s.depth[i]
        assert lanes.slice_at(lane, float(s.start_ns[i])) == i


def test_the_neighbours_of_a_time() -> None:
    builder = trace_synthetic.Builder(STAGES)
    with builder.warp() as w:
        w.begin("load").step(100).end("load").step(100).begin("wait").step(100).end("wait")
    timeline = decode(builder.build())
    lanes, starts = build(timeline), timeline.slices.start_ns
    assert lanes.neighbour(0, -1.0, 1) == starts[0]
    assert lanes.neighbour(0, starts[0], 1) == starts[1]
    assert lanes.neighbour(0, starts[1], 1) is None
    assert lanes.neighbour(0, starts[1], -1) == starts[0]
    assert lanes.neighbour(0, starts[0], -1) is None


def painted(timeline: Timeline, columns: int, look: Look, unknown: bool = False) -> Grid:
    lanes = build(timeline)
    edges = np.linspace(lanes.low, lanes.high, columns + 1)
    cover = lanes.cover(0, lanes.count, edges)
    shape = cover.stage.shape
    item = np.where(cover.item != NONE, 7, NONE)
    return paint(
        cover,
        look,
        alive=np.ones(shape, dtype=bool),
        unknown=np.full(shape, unknown),
        lit=np.zeros(shape, dtype=bool),
        payload=item,
    )


def text_of(grid: Grid, row: int = 0) -> str:
    return grid.text[row].tobytes().decode("utf-32-le")


def one_warp() -> Timeline:
    builder = trace_synthetic.Builder(STAGES)
    with builder.warp() as w:
        w.begin("load").step(590).end("load").step(390).begin("compute").step(590).end("compute").step(390)
    return decode(builder.build())


def test_names_and_numbers_stand_in_ranges_with_room() -> None:
    grid = painted(one_warp(), 64, Look(STAGES, letters(STAGES)))
    text = text_of(grid)
    assert " load 7 " in text and " compute 7 " in text
    assert (grid.ground[0] == STAGE + 0).sum() >= 17 and (grid.ground[0] == STAGE + 2).sum() >= 17
    assert (grid.ground[0] == IDLE).sum() >= 20


def test_without_colours_letters_fill_the_ranges() -> None:
    text = text_of(painted(one_warp(), 40, Look(STAGES, letters(STAGES), plain=True)))
    assert "LLLLLLLLLL" in text and "CCCCCCCCCC" in text and set(text) <= set("lLcC ")
    faint = text_of(painted(one_warp(), 40, Look(STAGES, letters(STAGES), focus=0, plain=True)))
    assert "LLLLLLLLLL" in faint and "··········" in faint and "C" not in faint


def test_a_short_range_never_vanishes() -> None:
    builder = trace_synthetic.Builder(STAGES)
    with builder.warp() as w:
        w.step(50_000).begin("store").step(5).end("store").step(51_000)
    grid = painted(decode(builder.build()), 40, Look(STAGES, letters(STAGES)))
    bars = [c for c in text_of(grid) if c in "▁▂▃▄"]
    assert bars == ["▁"]
    assert STAGE + 3 in grid.ink[0]


def test_a_short_wait_within_another_stage_shows_in_every_column() -> None:
    builder = trace_synthetic.Builder(STAGES)
    with builder.warp() as w:
        w.begin("load")
        for _ in range(20):
            w.step(90).begin("wait").step(30).end("wait")
        w.end("load")
    timeline = decode(builder.build())
    grid = painted(timeline, 10, Look(timeline.stages, "lw"))
    assert text_of(grid) == "▎" * 10  # a quarter of each column
    wait, load = STAGE + STAGES.index("wait"), STAGE + STAGES.index("load")
    assert (grid.ink == wait).all() and (grid.ground == load).all()
    faint = painted(timeline, 10, Look(timeline.stages, "lw", focus=STAGES.index("wait")))
    assert (faint.ink == wait).all() and (faint.ground == load + 2 * len(timeline.stages)).all()
    assert text_of(painted(timeline, 10, Look(timeline.stages, "lw", plain=True))) == "w" * 10


def test_dropped_stretches_are_hatched_and_focus_makes_others_faint() -> None:
    grid = painted(one_warp(), 40, Look(STAGES, letters(STAGES), focus=2), unknown=True)
    assert "╱" in text_of(grid) and UNKNOWN in grid.ink[0]
    assert STAGE + 0 not in grid.ground[0] and STAGE + 2 * len(STAGES) in grid.ground[0]
    assert STAGE + 2 in grid.ground[0]


def test_the_hairline_leaves_words_alone() -> None:
    grid = painted(one_warp(), 64, Look(STAGES, letters(STAGES)))
    at = text_of(grid).index("load")
    hairline(grid, 0, at)
    assert "load" in text_of(grid)
    assert grid.ink[0, at] == OUTSIDE
    hairline(grid, 0, 999)  # off the screen


def test_borders_between_stages_are_drawn_to_an_eighth() -> None:
    builder = trace_synthetic.Builder(STAGES)
    with builder.warp() as w:
        w.begin("load").step(99_500).end("load").begin("wait").step(298_500).end("wait")
    grid = painted(decode(builder.build()), 30, Look(STAGES, letters(STAGES)))
    assert any(c in text_of(grid) for c in "▏▎▍▌▋▊▉")


@given(st.lists(st.text(max_size=8), max_size=40))
def test_letters_and_colours_of_any_names(names: list[str]) -> None:
    found = letters(names)
    assert len(found) == len(names) == len(colours(names))
    assert all(len(letter) == 1 for letter in found)
    if len(names) <= 36:
        assert len(set(found)) == len(names)


def test_usual_stages_have_the_same_colours_in_every_trace() -> None:
    one = dict(zip(names := ("load", "wait", "compute", "mma", "store"), colours(names), strict=True))
    other = dict(zip(names := ("compute", "fetch", "wait", "load"), colours(names), strict=True))
    assert all(one[name] == other[name] for name in ("load", "wait", "compute"))
    assert len(set(one.values())) == len(one) and len(set(other.values())) == len(other)


def test_blend() -> None:
    assert blend("#000000", "#ffffff", 0.5) == "#808080"
    assert blend("#123456", "#ffffff", 0.0) == "#123456"
