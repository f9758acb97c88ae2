"""Plots: what is drawn, and that nothing a run can log breaks the drawing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.tui.braille import (
    BLANK,
    BRAILLE,
    Frame,
    Series,
    Shape,
    bar,
    draw,
    log_labels,
    log_ticks,
    tick_labels,
    ticks,
)

finite = st.floats(-1e9, 1e9, allow_nan=False)
anything = st.one_of(finite, st.sampled_from([float("nan"), float("inf"), float("-inf")]))


def picture(frame: Frame | None) -> list[str]:
    assert frame is not None
    return list(frame.text)


def dots_of(frame: Frame, index: int) -> int:
    """Braille dots in the cells that a series owns."""
    return sum(
        (ord(c) - BRAILLE).bit_count()
        for row, owners in zip(frame.text, frame.owner, strict=True)
        for c, owner in zip(row, owners, strict=True)
        if owner == index and BRAILLE <= ord(c) < BRAILLE + 256
    )


@given(
    y=st.lists(anything, max_size=300),
    shape=st.sampled_from(list(Shape)),
    width=st.integers(0, 130),
    height=st.integers(0, 40),
)
def test_every_series_draws_into_exactly_the_room_it_has(
    y: list[float], shape: Shape, width: int, height: int
) -> None:
    series = [Series.of(np.arange(len(y)), y, shape, "a", "a"), Series.of([0], [1.0], Shape.DASHES, "b", "b")]
    frame = draw([s for s in series if len(s.x)], width, height)
    if frame is None:
        return
    assert len(frame.text) == height
    assert {len(row) for row in frame.text} == {width}
    assert frame.owner.shape == (height, width)


@given(low=finite, span=st.floats(1e-6, 1e9), most=st.integers(1, 12))
def test_ticks_are_few_inside_and_evenly_spaced(low: float, span: float, most: int) -> None:
    high = low + span
    found = ticks(low, high, most)
    assert len(found) <= most
    slack = 1e-6 * max(abs(low), abs(high), 1.0)
    assert all(low - slack <= t <= high + slack for t in found)
    assert len(set(np.round(np.diff(found), 9))) <= 1 or np.ptp(np.diff(found)) <= slack


def test_tick_labels_tell_ticks_apart_in_few_characters() -> None:
    assert tick_labels([0.0, 0.5, 1.0]) == ["0.0", "0.5", "1.0"]
    assert tick_labels([0, 20_000, 40_000]) == ["0", "20k", "40k"]
    assert tick_labels([1.0, 2.0]) == ["1", "2"]
    assert tick_labels([]) == []


def test_a_failure_is_a_cross_at_its_step() -> None:
    series = [
        Series.of([5.0], [np.nan], Shape.RUG, "failed", "failed"),
        Series.of(range(11), range(11), Shape.LINE, "each", "each"),
    ]
    frame = draw(series, 60, 10)
    bottom = picture(frame)[7]
    assert bottom.count("×") == 1
    assert bottom.index("×") == pytest.approx(32, abs=2)


def test_stairs_hold_their_value_until_the_next_point() -> None:
    frame = draw([Series.of([0, 9, 10], [0, 0, 1], Shape.STAIRS, "best", "best")], 40, 8)
    rows = [row.replace("┤", "│").partition("│")[2] for row in picture(frame)[:6]]
    # Flat along the bottom until the last step, then up: only the last columns reach the top row.
    assert " " not in rows[5]
    assert rows[0][:-4].strip() == ""
    assert rows[0][-1] != " "


def test_dense_data_keep_a_single_spike() -> None:
    y = np.zeros(10_000)
    y[4321] = 1.0
    frame = draw([Series.of(np.arange(10_000), y, Shape.LINE, "a", "a")], 80, 10)
    top = picture(frame)[0]
    assert any(BRAILLE < ord(c) < BRAILLE + 256 for c in top)


def test_few_points_are_drawn_as_round_marks_and_many_as_dots() -> None:
    few = draw([Series.of(range(20), range(20), Shape.DOTS, "a", "a")], 60, 10)
    many = draw([Series.of(range(2000), range(2000), Shape.DOTS, "a", "a")], 60, 10)
    assert few is not None and many is not None
    assert "•" in "".join(few.text)
    assert "•" not in "".join(many.text)
    assert dots_of(many, 0) > 0


def test_the_later_series_owns_a_shared_cell() -> None:
    line = Series.of([0, 10], [1, 1], Shape.LINE, "a", "a")
    frame = draw([line, Series.of([0, 10], [1, 1], Shape.LINE, "b", "b")], 40, 8)
    assert frame is not None
    assert set(np.unique(frame.owner)) == {BLANK, 1}


@pytest.mark.parametrize(
    ("fraction", "drawn"),
    [(0.0, "········"), (0.5, "████····"), (1.0, "████████"), (7.0, "████████"), (-1, "········")],
)
def test_bar(fraction: float, drawn: str) -> None:
    assert bar(fraction, 8) == drawn


@given(fraction=st.floats(-2, 3), width=st.integers(0, 40))
def test_a_bar_has_its_width(fraction: float, width: int) -> None:
    assert len(bar(fraction, width)) == width


def test_axes_say_what_they_measure() -> None:
    series = [Series.of(np.arange(1, 121), np.linspace(1, 2, 120), Shape.DOTS, "a", "a")]
    rows = picture(draw(series, 38, 11, x_label="step", y_unit="×"))
    assert "1.5×┤" in "\n".join(rows)
    assert rows[-1].split() == ["step", "50", "100"]


def test_the_two_constants_look_different() -> None:
    x = np.arange(50)
    series = [
        Series.of(x, 1 + x / 50, Shape.DOTS, "a", "a"),
        Series.of([0], [1.0], Shape.DASHES, "b", "b"),
        Series.of([0], [2.0], Shape.DOTTED, "c", "c"),
    ]
    frame = draw(series, 60, 12)
    assert frame is not None
    assert dots_of(frame, 1) > 1.5 * dots_of(frame, 2) > 0


@given(st.floats(-9, 9), st.floats(0.01, 12), st.integers(2, 12))
def test_logarithmic_ticks_lie_within_and_ascend(low: float, span: float, most: int) -> None:
    found = log_ticks(low, low + span, most)
    assert len(found) <= most and found == sorted(set(found))
    assert all(low - 1e-9 <= value <= low + span + 1e-9 for value in found)


def test_a_logarithmic_axis_says_the_values() -> None:
    assert log_labels(log_ticks(0.0, 3.0, 12)) == [
        "1",
        "2",
        "5",
        "10",
        "20",
        "50",
        "100",
        "200",
        "500",
        "1000",
    ]
    assert log_labels([4.0, 6.0, -3.0, 8.0]) == ["10000", "1000000", "0.001", "1e+08"]
    frame = draw([Series.of([1, 2], [1.0, 3.0], Shape.DOTS, "a", "each")], 40, 12, y_unit="µs", log_y=True)
    assert frame is not None and any("100µs┤" in row for row in frame.text)
