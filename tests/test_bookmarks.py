"""Bookmarks beside a session's log, and the words that a place in a log is asked for with."""

from __future__ import annotations

import json
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warpdeck.core.errors import UsageError, WarpdeckError
from warpdeck.sessions.bookmarks import FILE, MOST_NAME, Bookmark, Bookmarks
from warpdeck.sessions.seeking import Target, Unit, parse


def mark(name: str, seq: int = 5) -> Bookmark:
    return Bookmark(name, seq, seq // 2, float(seq))


def test_they_are_kept_in_the_logs_order(tmp_path: Path) -> None:
    marks = Bookmarks(tmp_path)
    assert marks.read() == ()
    marks.add(mark("late", 90))
    marks.add(mark("early", 3))
    assert [b.name for b in Bookmarks(tmp_path).read()] == ["early", "late"]
    assert [path.name for path in tmp_path.iterdir()] == [FILE]  # nothing temporary is left


def test_one_of_the_same_name_moves(tmp_path: Path) -> None:
    marks = Bookmarks(tmp_path)
    marks.add(mark("Win", 3))
    assert marks.add(mark("win", 8)) == (mark("win", 8),)
    assert marks.remove("win") == () and marks.remove("win") == ()


def test_two_consoles_do_not_lose_each_others(tmp_path: Path) -> None:
    one, other = Bookmarks(tmp_path), Bookmarks(tmp_path)
    one.add(mark("a", 1))
    assert [b.name for b in other.add(mark("b", 2))] == ["a", "b"]


@pytest.mark.parametrize("name", ["", "  \n\t ", "\x1b\x07"])
def test_a_bookmark_needs_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="needs a name"):
        Bookmarks(tmp_path).add(mark(name))


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"bookmarks": 3}', '{"bookmarks": [{"name": "a"}]}', '{"bookmarks": [[]]}', "\x00" * 9]
    + [json.dumps({"bookmarks": [{"name": "a", "seq": 1, "step": 1, "position": p}]}) for p in (-1, "nan")],
)
def test_damage_is_said_and_overwrites_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    for act in (Bookmarks(tmp_path).read, lambda: Bookmarks(tmp_path).add(mark("a"))):
        with pytest.raises(WarpdeckError, match="is damaged; move it away"):
            act()
    assert (tmp_path / FILE).read_text() == text


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(WarpdeckError, match=r"can't write .*No such file"):
        Bookmarks(tmp_path / "gone").add(mark("a"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.text(max_size=200), st.integers(0, 10**9), st.floats(0, 1e9))
def test_any_name_comes_back_as_one_printable_line(tmp_path: Path, name: str, seq: int, at: float) -> None:
    try:
        (kept,) = Bookmarks(tmp_path).add(Bookmark(name, seq, 7, at))
    except UsageError:
        assert not any(c.isprintable() and not c.isspace() for c in name)
        return
    assert kept.name.isprintable() and 0 < len(kept.name) <= MOST_NAME
    assert Bookmarks(tmp_path).read() == (kept,)
    (tmp_path / FILE).unlink()


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("12", Target(Unit.STEP, 12)),
        ("step 12", Target(Unit.STEP, 12)),
        ("#12", Target(Unit.STEP, 12)),
        ("s12", Target(Unit.STEP, 12)),
        ("event 7", Target(Unit.EVENT, 7)),
        ("E7", Target(Unit.EVENT, 7)),
        ("attempt 3", Target(Unit.ATTEMPT, 3)),
        ("a3", Target(Unit.ATTEMPT, 3)),
        ("1:30", Target(Unit.SECONDS, 90)),
        ("1:00:02.5", Target(Unit.SECONDS, 3602.5)),
        ("90s", Target(Unit.SECONDS, 90)),
        ("1.5 min", Target(Unit.SECONDS, 90)),
        ("2h", Target(Unit.SECONDS, 7200)),
        ("+10s", Target(Unit.SECONDS, 10, relative=True)),
        ("-500ms", Target(Unit.SECONDS, -0.5, relative=True)),
        ("40%", Target(Unit.SHARE, 0.4)),
        (" End ", Target(Unit.SHARE, 1.0)),
        ("First Win", Target(Unit.BOOKMARK, 40)),
        ("first", Target(Unit.BOOKMARK, 40)),
    ],
)
def test_places(text: str, target: Target) -> None:
    assert parse(text, [mark("first win", 40), mark("end", 3)]) == target


@pytest.mark.parametrize(
    "text", ["", "x", "101%", "-3", "1:2:3:4", "step", "5 parsecs", "∞", "1e9", "\x1b[A"]
)
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(UsageError, match="a bookmark's name"):
        parse(text)


@given(st.text(string.printable + "−٣½", max_size=20))
def test_garbage_is_a_place_or_refused_in_one_line(text: str) -> None:
    try:
        target = parse(text)
    except UsageError as error:
        assert "\n" not in str(error)
    else:
        assert abs(target.value) < 1e9 * 3600 and target.words
