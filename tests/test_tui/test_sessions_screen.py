"""The Sessions screen over sessions on disk, what opens from it, and comparing, exporting, importing."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from warpdeck.sessions import alive
from warpdeck.sessions.listing import SessionInfo
from warpdeck.sessions.store import SessionStore
from warpdeck.tui.app import WarpdeckApp
from warpdeck.tui.screens.compare import CompareScreen
from warpdeck.tui.screens.help import HelpScreen
from warpdeck.tui.screens.run import RunScreen
from warpdeck.tui.screens.sessions import SessionsScreen, matches
from warpdeck.tui.settings import Settings
from warpdeck.tui.widgets.table import Table

Opener = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
def start(kit: Any) -> Opener:
    @asynccontextmanager
    async def opened(
        sessions: Path, size: tuple[int, int] = (120, 40), *, readonly: bool = False
    ) -> AsyncIterator[Any]:
        screen = SessionsScreen(sessions, interval=None)
        app = WarpdeckApp(screen, Settings(readonly=readonly))
        async with app.run_test(size=size, notifications=True) as pilot:
            console = kit.console(app, pilot, screen)
            await console.settle()
            yield console

    return opened


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_it_lists_sessions_with_their_state_and_device(
    tmp_path: Path, kit: Any, start: Opener, size: tuple[int, int]
) -> None:
    kit.write(tmp_path, kit.events(60, end=True), "softmax-random-1")
    kit.write(tmp_path, kit.events(30), "softmax-random-2")
    (tmp_path / "softmax-random-2" / "run.lock").touch()
    (tmp_path / "broken").mkdir()
    async with start(tmp_path, size) as console:
        text = console.text
        assert "3 sessions, 0 running" in text
        done = next(line for line in console.lines if "finished" in line)
        assert "softmax" in done and "1.27×" in done and "recorded on NVIDIA H200, 2026-11-20" in done
        assert "✘ interrupted" in text
        assert "! damaged" in text


async def test_no_sessions_yet(tmp_path: Path, start: Opener) -> None:
    async with start(tmp_path / "none") as console:
        assert "no sessions yet" in console.text
        assert "Open" not in console.lines[-1]
        await console.press("enter", "r", "y", "m", "c", "e", "delete")
        assert console.app.screen is console.screen


async def test_an_ended_session_opens_at_its_end_and_goes_back(
    tmp_path: Path, kit: Any, start: Opener
) -> None:
    kit.write(tmp_path, kit.events(60, end=True))
    async with start(tmp_path) as console:
        await console.press("enter")
        run = console.app.screen
        assert isinstance(run, RunScreen)
        await run.tick()
        await console.settle()
        assert "REPLAY · softmax" in console.lines[0] and "✔ finished" in console.lines[1]
        await console.press("5")
        assert re.search(r"step [345]\d/60", console.lines[1])  # it plays on, as fast as the clock
        await console.press("q")
        assert console.app.screen is console.screen
        await console.press("q")
        assert console.app._exit


async def test_replay_begins_at_the_start(tmp_path: Path, kit: Any, start: Opener) -> None:
    kit.write(tmp_path, kit.events(60, end=True))
    async with start(tmp_path) as console:
        await console.press("r")
        run = console.app.screen
        assert isinstance(run, RunScreen)
        await run.tick()
        assert run.state.step < 5


async def test_a_run_that_goes_on_is_joined(tmp_path: Path, kit: Any, start: Opener) -> None:
    folder = kit.write(tmp_path, kit.events(60))
    lock = alive.RunLock.acquire(folder)
    try:
        async with start(tmp_path) as console:
            assert "1 session, 1 running" in console.text
            await console.press("enter")
            run = console.app.screen
            assert isinstance(run, RunScreen)
            await run.tick()
            await console.settle()
            assert "attached · softmax" in console.lines[0]
            await console.press("q", "y")
            assert console.app.screen is console.screen
    finally:
        lock.release()


async def test_a_damaged_session_says_what_is_wrong(tmp_path: Path, start: Opener) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "session.db").write_bytes(b"nothing of the sort")
    async with start(tmp_path) as console:
        assert "is not a session" in console.text
        await console.press("enter")
        assert console.app.screen is console.screen
        assert "can't open it" in console.text


async def test_help_and_copy(tmp_path: Path, kit: Any, start: Opener) -> None:
    kit.write(tmp_path, kit.events(5))
    async with start(tmp_path) as console:
        await console.press("y")
        assert console.app.clipboard == "softmax-random-1"
        await console.press("question_mark")
        assert isinstance(console.app.screen, HelpScreen)
        assert "joined" in console.dialog


async def test_what_changes_is_read_again(tmp_path: Path, kit: Any, start: Opener) -> None:
    events = kit.events(60, end=True)
    kit.write(tmp_path, events, "ended")
    lock = alive.RunLock.acquire(kit.write(tmp_path, kit.events(30), "going"))
    async with start(tmp_path) as console:
        assert "2 sessions, 1 running" in console.text
        await console.poll()
        lock.release()  # it died: no event says so
        with SessionStore.open(tmp_path / "ended", writable=True) as store:
            last = events[-1].t
            store.append("state", {"state": "running", "reason": ""}, last)
            store.append("state", {"state": "failed", "reason": "no space left"}, last + 1)
        await console.poll()
        assert "✘ interrupted" in console.text and "✘ failed" in console.text
        shutil.rmtree(tmp_path / "ended")
        await console.poll()
        assert "1 session, 0 running" in console.text and "failed" not in console.text


SIZES = [(80, 24), (120, 40)]


@pytest.fixture
def three(tmp_path: Path, kit: Any) -> Path:
    """A folder of three sessions, one of them damaged; the last one is the newest."""
    home = tmp_path / "sessions"
    kit.write(home, kit.events(60, end=True), "softmax-random-1")
    kit.write(home, kit.events(20, kit.live, end=True), "softmax-random-2")
    (home / "broken").mkdir()
    (home / "broken" / "session.db").write_bytes(b"nothing of the sort")
    for age, name in enumerate(("softmax-random-2", "softmax-random-1", "broken")):
        stamp = home / name / "created"
        stamp.touch()
        os.utime(stamp, (kit.start - age * 100, kit.start - age * 100))
    return home


def keys(console: Any) -> list[str]:
    return [row.key for row in console.screen.query_one(Table).rows]


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def footer(console: Any) -> None:
    """It is composed anew after what it shows has changed."""
    for _ in range(3):
        await console.settle()


@pytest.mark.parametrize("size", SIZES)
async def test_snapshots(
    three: Path,
    start: Opener,
    size: tuple[int, int],
    snapshot_text: Any,
    utc: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(three)
    async with start(Path(), size) as console:
        await console.press("m", "m")
        await footer(console)
        assert len(console.lines) == size[1]
        snapshot_text(f"sessions-{size[0]}x{size[1]}", console.text)
        await console.press("c")
        await footer(console)
        snapshot_text(f"sessions-compare-{size[0]}x{size[1]}", console.text)


async def test_sorting(three: Path, start: Opener) -> None:
    async with start(three) as console:
        assert keys(console) == ["softmax-random-2", "softmax-random-1", "broken"]
        assert "started ▼" in console.text
        await console.press("O")
        assert keys(console) == ["broken", "softmax-random-2", "softmax-random-1"]
        shown = []
        for _ in range(7):
            await console.press("o")
            shown.append(next(word for word in console.lines[3].split("  ") if "▼" in word or "▲" in word))
        assert [words.split()[0] for words in shown] == [
            *("state", "workload", "best", "device", "agent", "steps", "started"),
        ]
        await console.press(*"oooooo")
        assert "steps ▼" in console.text
        assert keys(console) == ["softmax-random-1", "softmax-random-2", "broken"]


async def test_filtering_as_it_is_typed(three: Path, start: Opener) -> None:
    async with start(three) as console:
        await console.press("slash", *"RECORDED")
        assert keys(console) == ["softmax-random-1"] and "1 with 'RECORDED'" in console.text
        await console.press("enter", "m", "slash")
        assert console.screen.query_one("#prompt").has_focus
        await console.press("escape")
        assert len(keys(console)) == 3 and "1 marked" in console.text
        await console.press("escape")
        assert "marked" not in console.lines[1]
        await console.press("slash", *"damaged")
        assert keys(console) == ["broken"]


def test_words_match_in_any_column() -> None:
    info = SessionInfo("gemm-llm-1", "gemm", "llm", "NVIDIA H200 (cuda:0)", None, 3, 1.5, "failed")
    assert matches(info, "") and matches(info, "GEMM h200 fail") and not matches(info, "gemm tpe")


async def test_comparing_needs_two(three: Path, start: Opener) -> None:
    async with start(three) as console:
        assert "Compare" not in console.lines[-1]
        await console.press("m", "j")
        assert "Compare" not in console.lines[-1]  # a damaged one under the cursor doesn't count
        await console.press("k", "c")
        compare = console.app.screen
        assert isinstance(compare, CompareScreen)
        await footer(console)
        assert "2 sessions" in console.text and "recorded on NVIDIA H200" in console.text
        assert "the devices differ: times can't be compared" in console.text
        shown = len(compare.query_one(Table).rows)
        await console.press("d")
        assert len(compare.query_one(Table).rows) < shown and "only those are shown" in console.text
        await console.press("y")
        assert console.app.clipboard.startswith("\tsoftmax-random-1\tsoftmax-random-2\n") or (
            console.app.clipboard.startswith("\tsoftmax-random-2\tsoftmax-random-1\n")
        )
        await console.press("q")
        assert console.app.screen is console.screen


async def test_deleting_asks_first(three: Path, start: Opener) -> None:
    async with start(three) as console:
        await console.press("delete")
        assert "Delete this session? softmax-random-2" in console.dialog
        await console.press("n")
        assert (three / "softmax-random-2").exists()
        await console.press("m", "m", "delete")
        assert "Delete these 2 sessions?" in console.dialog
        await console.press("y")
        assert sorted(path.name for path in three.iterdir()) == ["broken"]
        assert keys(console) == ["broken"] and "deleted 2 sessions" in console.text
        await console.press("D", "y")
        assert not list(three.iterdir())


async def test_a_running_session_is_not_deleted(three: Path, start: Opener) -> None:
    lock = alive.RunLock.acquire(three / "softmax-random-2")
    try:
        async with start(three) as console:
            await console.press("m", "m", "delete")
            assert console.app.screen is console.screen
            assert "softmax-random-2 still runs; stop it first" in console.text
    finally:
        lock.release()
    assert (three / "softmax-random-1").exists() and (three / "softmax-random-2").exists()


@pytest.mark.parametrize("size", SIZES)
async def test_exporting_every_form_and_importing_one(
    three: Path, start: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    monkeypatch.chdir(tmp_path)
    async with start(three, size) as console:
        for turns, suffix in enumerate((".html", ".json", ".csv", ".tar.gz")):
            await console.press("e", *["right"] * turns)
            assert console.app.screen.query_one("#answer").value == f"softmax-random-2{suffix}"
            await console.press("enter")
            await footer(console)
            assert console.app.screen is console.screen, console.dialog
            assert (tmp_path / f"softmax-random-2{suffix}").stat().st_size > 100
        await console.press("e")
        assert "it exists already" in str(console.app.screen.query_one("#meaning").render())
        await console.press("escape")
        await console.press("i", *"nowhere.tar.gz", "enter")
        assert "there is no such file" in str(console.app.screen.query_one("#meaning").render())
        prompt = console.app.screen.query_one("#answer")
        prompt.value = str(tmp_path / "softmax-random-2.tar.gz")
        await console.press("enter")
        await footer(console)
        assert "exists already" in str(console.app.screen.query_one("#meaning").render())
        await console.press("down", *"again", "enter")
        await footer(console)
        assert console.app.screen is console.screen
        assert "again" in keys(console) and console.screen.marked.id == "again"


async def test_the_list_is_saved_as_any_table(
    three: Path, start: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with start(three) as console:
        await console.press("E")
        assert await console.told("sessions-1.svg")
    rows = (tmp_path / "sessions-1.csv").read_text().splitlines()
    assert len(rows) == 4 and "softmax" in rows[1]


async def test_a_damaged_session_is_not_exported(three: Path, start: Opener) -> None:
    async with start(three) as console:
        await console.press("G", "e")
        assert console.screen.marked.id == "broken" and console.app.screen is console.screen
        assert "is not a session" in console.screen.marked.error  # shown as far as its path leaves room
        assert "broken" in console.text


async def test_read_only_changes_nothing(three: Path, start: Opener) -> None:
    async with start(three, readonly=True) as console:
        for key, words in (
            ("delete", "doesn't delete sessions"),
            ("n", "doesn't start runs"),
            ("i", "doesn't import sessions"),
            ("e", "doesn't write files"),
        ):
            await console.press(key)
            assert console.app.screen is console.screen and words in console.text
        await console.press("enter")
        assert isinstance(console.app.screen, RunScreen)
