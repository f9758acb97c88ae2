"""Faults below the console: it stays usable, says what is wrong and recovers. Real sessions, real locks."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from test_tui.conftest import LIVE, Console, FakeSource, opened, run_events, write_session
from textual import events

from warpdeck.core.errors import WarpdeckError
from warpdeck.sessions import alive, database
from warpdeck.sessions.events import Event
from warpdeck.sessions.store import SessionStore
from warpdeck.tui.app import WarpdeckApp
from warpdeck.tui.screens import run as run_screen
from warpdeck.tui.sources import LiveSource


@contextmanager
def locked(folder: Path, how: str) -> Iterator[None]:
    """The session's database, held by another connection: for writing, or so that not even readers get in."""
    other = sqlite3.connect(folder / "session.db", isolation_level=None)
    try:
        if how == "EXCLUSIVE":
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute(f"BEGIN {how}")
        yield
        other.execute("ROLLBACK")
    finally:
        other.close()


@asynccontextmanager
async def attached(folder: Path) -> AsyncIterator[Console]:
    """The console on a run that goes on: this process holds its lock."""
    lock = alive.RunLock.acquire(folder)
    try:
        async with opened(LiveSource(folder, attach=True)) as console:
            yield console
    finally:
        lock.release()


async def test_a_locked_database(isolated_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.3)
    folder = write_session(isolated_home / "sessions", run_events(20, LIVE))
    with locked(folder, "EXCLUSIVE"), pytest.raises(WarpdeckError, match="another process locked"):
        LiveSource(folder)
    async with attached(folder) as console:
        with locked(folder, "IMMEDIATE"):  # the run can be read, and asked for nothing
            await console.press("space")
            assert "another process locked its database" in told(console)
            await console.poll()
            assert "▶ running" in console.text
            await console.press("question_mark", "q", "j", "k")
        await console.press("space")
        assert "pausing after this step" in told(console)
    with SessionStore.open(folder) as store:
        assert [command.command for command in store.commands(pending=True)] == ["pause"]


def told(console: Console) -> str:
    """What was notified."""
    return "; ".join(notification.message for notification in console.app._notifications)


async def test_a_slow_database_is_told_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_screen, "SLOW_S", 0.05)

    class Slow(FakeSource):
        gate = threading.Event()

        def poll(self):  # type: ignore[no-untyped-def]
            assert self.gate.wait(30)
            return super().poll()

    source = Slow(run_events(20, LIVE))
    source.gate.set()
    async with opened(source) as console:
        source.gate.clear()
        polling = console.app.run_worker(console.screen.tick())
        while "can't be read just now" not in console.text:
            await console.pilot.pause(0.02)
        # Keys work in the meantime.
        console.app.post_message(events.Key("question_mark", "?"))
        while console.app.screen is console.screen:
            await console.pilot.pause(0.02)
        source.gate.set()
        await polling.wait()
        await console.press("q")
        await console.poll()
        assert "can't be read" not in console.text and "▶ running" in console.text


async def test_a_vanished_folder_and_its_return(isolated_home: Path) -> None:
    folder = write_session(isolated_home / "sessions", run_events(20, LIVE))
    async with attached(folder) as console:
        assert "▶ running" in console.text
        away = folder.rename(folder.with_name("away"))
        console.screen.source._probed = -1.0  # as half a second later
        await console.poll()
        assert "is gone" in console.text and "trying again" in console.text
        await console.press("question_mark", "q", "z", "z", "space")
        away.rename(folder)
        console.screen.source._probed = -1.0
        await console.poll()
        assert "is gone" not in console.text and "▶ running" in console.text
        shutil.rmtree(folder)
        console.screen.source._probed = -1.0
        await console.poll()
        assert "is gone" in console.text
        await console.press("q", "y")
        assert console.app.return_code == 0


async def test_a_vanished_gpu() -> None:
    """The run's sampler gives up and says so; the values that are left say how old they are."""
    found = run_events(20, LIVE)
    why = "the GPU's sensors can't be read any more (NVML: GPU is lost)"
    found.append(Event(found[-1].seq + 1, found[-1].t + 1, "message", {"level": "warning", "text": why}))
    source = FakeSource(found)
    async with opened(source) as console:
        assert "stale" not in console.text
        source.clock += 30
        await console.poll()
        assert "stale: sampled 0:3" in console.text
        assert "warning: the GPU's sensors can't be read" in console.text
        assert "▶ running" in console.text


SIZES = [(20, 5), (1, 1), (59, 15), (60, 16), (80, 24), (20, 5), (200, 60), (120, 40)]


async def resized(console: Console, width: int, height: int) -> None:
    await console.pilot.resize_terminal(width, height)
    await console.settle()


async def test_any_size_and_back() -> None:
    source = FakeSource(run_events(40, LIVE))
    async with opened(source) as console:
        before = console.text
        for width, height in SIZES:
            await resized(console, width, height)
            assert len(console.lines) == height and all(len(line) <= width for line in console.lines)
            if width >= 60 and height >= 16:
                assert "▶ running" in console.text, (width, height)
            elif width >= 20:
                assert "60×16, this terminal" in console.text, (width, height)
            focused = console.screen.focused
            if width >= 60 and height >= 16:
                assert focused is not None and focused.id == "leaderboard", (width, height)
            for key in ("question_mark", "q", "p", "z", "z", "j", "1", "x", "n"):
                await console.press(key)
            await console.press("4")
        await console.press("k")
        assert console.text.count("Leaderboard") == before.count("Leaderboard") == 1


async def test_a_mouse_from_before_a_resize() -> None:
    async with opened(FakeSource(run_events(20, LIVE))) as console:
        focused = console.screen.focused
        for x, y in ((500, 2), (2, 500), (120, 40)):
            for kind in (events.MouseMove, events.MouseDown, events.MouseUp):
                console.app.post_message(
                    kind(None, x, y, 0, 0, 1, False, False, False, screen_x=x, screen_y=y)
                )
            await console.settle()
        assert console.screen.focused is focused and focused is not None


async def test_pasted_garbage_is_tame_wherever_it_goes() -> None:
    garbage = "".join(map(chr, range(256))) * 40_000  # 10 MB
    async with opened(FakeSource(run_events(20, LIVE))) as console:
        before = console.text
        console.app.post_message(events.Paste(garbage))
        await console.settle()
        assert console.text == before
        assert WarpdeckApp.TITLE == "warpdeck"
        await console.press("slash")
        console.app.post_message(events.Paste("\x1b]0;owned\x07\x9b31m" + garbage))
        await console.settle()
        written = "".join(console.lines)
        assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in written)
        await console.press("escape")
        assert console.app.is_running
