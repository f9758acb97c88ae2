"""The start screen over sessions on disk."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from warpdeck.sessions import alive
from warpdeck.sessions.store import SessionStore
from warpdeck.tui.app import WarpdeckApp
from warpdeck.tui.screens.help import HelpScreen
from warpdeck.tui.screens.run import RunScreen
from warpdeck.tui.screens.sessions import SessionsScreen

Opener = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
def start(kit: Any) -> Opener:
    @asynccontextmanager
    async def opened(sessions: Path, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Any]:
        screen = SessionsScreen(sessions, interval=None)
        app = WarpdeckApp(screen)
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
        assert "warpdeck tune softmax" in text


async def test_no_sessions_yet(tmp_path: Path, start: Opener) -> None:
    async with start(tmp_path / "none") as console:
        assert "no sessions yet" in console.text
        assert "warpdeck tune softmax" in console.text
        assert "Open" not in console.lines[-1]
        await console.press("enter", "r", "y")
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
