"""Diffs of sources: complete, in order, and along lines that look alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.tui.diff import Diff, compare, emphasis
from warpdeck.tui.format import shown_lines
from warpdeck.tui.syntax import PARTS, highlight

lines = st.lists(
    st.sampled_from(["", "{", "}", "int i = 0;", "int j = 1;", "return i;", "for (;;)"]), max_size=25
)


def sides(diff: Diff, rows: Any) -> tuple[list[int], list[int]]:
    """Indices of the old and the new lines that rows show, folds spread out."""
    olds: list[int] = []
    news: list[int] = []
    for row in rows:
        count = row.hidden if row.kind == "…" else 1
        if row.old is not None and row.kind != "+":
            olds += range(row.old, row.old + count)
        if row.new is not None and row.kind != "-":
            news += range(row.new, row.new + count)
    return olds, news


@given(lines, lines, st.booleans(), st.sampled_from([None, 0, 1, 3]))
def test_every_line_is_shown_once_and_in_order(
    old: list[str], new: list[str], split: bool, context: int | None
) -> None:
    diff = compare(old, new)
    view = diff.view(split=split, context=context)
    assert sides(diff, view.rows) == (list(range(len(old))), list(range(len(new))))
    for row in view.rows:
        if row.kind in "=…":
            assert row.old is not None and row.new is not None
            span = row.hidden or 1
            assert old[row.old : row.old + span] == new[row.new : row.new + span]
    changed = [i for i, row in enumerate(view.rows) if row.kind not in "=…"]
    assert list(view.hunks) == [i for i in changed if i - 1 not in changed]
    assert diff.added - diff.removed == len(new) - len(old)
    assert (diff.added, diff.removed) == (0, 0) or old != new


@given(st.text(max_size=60), st.text(max_size=60))
def test_what_is_not_emphasised_is_the_same(old: str, new: str) -> None:
    def rest(line: str, spans: Any) -> str:
        for start, end in reversed(spans):
            assert 0 <= start < end <= len(line)
            line = line[:start] + line[end:]
        return line

    before, after = emphasis(old, new)
    assert "".join(rest(old, before).split()) == "".join(rest(new, after).split())


def test_changed_lines_find_each_other() -> None:
    old = ["int a = 1;", "float sum = 0.0f;", "sum += x[i];"]
    new = ["#pragma unroll", "int a = 2;", "double total = 0.0;", "sum += x[i] * y[i];"]
    rows = compare(old, new).view(split=True).rows
    assert [(row.old, row.new) for row in rows if row.kind == "~"] == [(0, 1), (1, 2), (2, 3)]


def test_words_stand_out() -> None:
    before, after = emphasis("    int row = threadIdx.x;", "    int row = threadIdx.x / 32;")
    assert before == ()
    assert [("    int row = threadIdx.x / 32;")[a:b] for a, b in after] == ["/ 32"]


def test_a_large_source_is_compared_along_its_statements() -> None:
    old = [line for i in range(1250) for line in (f"float v{i} = x[{i}];", "{", f"y[{i}] = v{i};", "}")]
    new = list(old)
    for i in range(0, 5000, 100):
        new[i] = new[i].replace("float", "double")
    del new[2500:2504]
    diff = compare(old, new)
    assert (diff.added, diff.removed) == (50 - 1, 50 - 1 + 4)
    assert len(diff.view(split=False).hunks) == 50


def test_sources_become_lines_that_can_be_shown() -> None:
    assert shown_lines("a\r\n\tb\x1b[2J\n") == ("a", "    b\N{REPLACEMENT CHARACTER}[2J")
    assert shown_lines("") == ()


@given(
    st.text(alphabet=st.sampled_from(list("ab\"'/*\n {};#0 ")), max_size=200),
    st.sampled_from(["a.cu", "a.py", "a.x"]),
)
def test_syntax_covers_every_line(text: str, file: str) -> None:
    shown = shown_lines(text)
    runs = highlight(shown, file)
    assert len(runs) == len(shown)
    for line, parts in zip(shown, runs, strict=True):
        ends = [end for end, _ in parts]
        assert ends == sorted(set(ends)) and ((ends or [0])[-1] == len(line))
        assert all(part in ("", *PARTS) for _, part in parts)


@pytest.mark.parametrize(
    ("file", "line", "parts"),
    [
        (
            "k.cu",
            '__global__ void k(float x) { return 1; } // why "so"',
            {"keyword", "type", "number", "comment"},
        ),
        ("k.cu", "#define N 32", {"directive"}),
        ("k.py", "def f(x): return 'a'", {"keyword", "function", "string"}),
    ],
)
def test_languages(file: str, line: str, parts: set[str]) -> None:
    assert {part for _, part in highlight([line], file)[0]} >= parts


def test_a_comment_goes_on_over_lines() -> None:
    runs = highlight(["/* a", "b */ int c;"], "k.cu")
    assert runs[0] == ((4, "comment"),) and runs[1][0] == (4, "comment")
