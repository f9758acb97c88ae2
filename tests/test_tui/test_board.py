"""Sorting and filtering the leaderboard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.tui.board import Row, in_order, matches, rising
from warpdeck.tui.widgets.leaderboard import COLUMNS

FAST = Row("a", {"block_size": 256, "reg_cap": 0}, "ok", 0.5, 2.0, (1.9, 2.1), 1.2, 0.8, 40, 0.75, tied=True)
SLOW = Row("b", {"block_size": 64, "reg_cap": 32}, "ok", 1.0, 1.0, None, 0.6, None, 32, 0.5, paired=True)
BAD = Row("c", {"block_size": 64, "reg_cap": 0}, "compile_error", message="ptxas: too many registers")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("", "abc"),
        ("tied", "a"),
        ("!tied", "bc"),
        ("block_size=64", "bc"),
        ("block=64 reg_cap=32", "b"),
        ("block>64", "a"),
        ("block<=64 !failed", "b"),
        ("failed", "c"),
        ("compile", "c"),
        ("PTXAS", "c"),
        ("speedup>1.5", "a"),
        ("!speedup>1.5", "bc"),
        ("regs<40", "b"),
        ("time>=0.5", "ab"),
        ("block=x", ""),
        ("nothing=1", ""),
        ("!", "abc"),
    ],
)
def test_filters(wanted: str, found: str) -> None:
    assert "".join(row.key for row in (FAST, SLOW, BAD) if matches(row, wanted)) == found


@given(st.text(max_size=20))
def test_any_text_is_a_filter(text: str) -> None:
    for row in (FAST, SLOW, BAD):
        assert matches(row, text) in (True, False)


@pytest.mark.parametrize("column", [column.name for column in COLUMNS])
def test_each_column_sorts_and_what_has_no_value_comes_last(column: str) -> None:
    rows = [BAD, SLOW, FAST]
    for inverted in (False, True):
        ordered = in_order(rows, column, inverted=inverted)
        assert sorted(row.key for row in ordered) == ["a", "b", "c"]
        if column not in ("#", "config", "notes"):
            assert BAD in ordered[-2 if column in ("95% interval", "floor") else -1 :]
    if column in ("time", "speedup", "vendor"):
        assert in_order(rows, column, inverted=False)[0] is FAST
        assert in_order(rows, column, inverted=True)[0] is SLOW
    assert rising("time") and not rising("speedup")
