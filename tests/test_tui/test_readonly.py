"""A read-only dashboard: whatever is pressed, chosen or called, no run, session or file changes."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from test_tui.conftest import LIVE, RECORDED, Console, FakeSource, run_events, write_session

from warpdeck.tui.access import changes
from warpdeck.tui.app import WarpdeckApp
from warpdeck.tui.commands import commands
from warpdeck.tui.keys import registry
from warpdeck.tui.screens.confirm import ConfirmScreen
from warpdeck.tui.screens.run import RunScreen
from warpdeck.tui.screens.sessions import SessionsScreen
from warpdeck.tui.settings import Settings
from warpdeck.tui.sources import LiveSource, ReplaySource

READ_ONLY = Settings(readonly=True)


@asynccontextmanager
async def opened(screen: Any, settings: Settings = READ_ONLY) -> AsyncIterator[Console]:
    app = WarpdeckApp(screen, settings)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await pilot.pause()
        console = Console(app, pilot, screen)
        await console.settle()
        await console.poll()
        yield console


def content(folder: Path) -> dict[str, str]:
    """Every file below a folder; what SQLite keeps beside a database that is read is no content."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.endswith("-shm")
        if file.stat().st_size or not file.name.endswith("-wal")
    }


async def do_everything(console: Console) -> list[str]:
    """Every command that is offered on the screen, as the palette would run it, and whatever asks back is
    answered with yes. Returns what was done."""
    first, done = console.app.screen, list[str]()
    for command in commands(first):
        if command.action.partition("(")[0] in ("leave", "command_palette"):
            continue
        done.append(command.action)
        await console.app.run_action(command.action, command.node)
        await console.settle()
        for _ in range(4):
            if console.app.screen is first:
                break
            if isinstance(console.app.screen, ConfirmScreen):
                await console.press("y")
            else:
                console.app.screen.dismiss(None)
                await console.settle()
        assert console.app.screen is first, command.action
    await console.app.run_action("screenshot", console.app)
    await console.settle()
    return done


async def test_no_command_changes_a_session_or_writes_a_file(
    isolated_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = write_session(isolated_home / "sessions", run_events(20, RECORDED, end=True))
    write_session(isolated_home / "sessions", run_events(9, RECORDED, end=True), "softmax-random-2")
    before = content(isolated_home), content(tmp_path)
    done = set[str]()
    for screen in (
        SessionsScreen(isolated_home / "sessions", interval=None),
        RunScreen(ReplaySource(folder, start=9), interval=None),
        RunScreen(LiveSource(folder, attach=True), interval=None),
    ):
        async with opened(screen) as console:
            assert "READ ONLY" in console.lines[0]
            done |= {action.partition("(")[0] for action in await do_everything(console)}
            assert (content(isolated_home), content(tmp_path)) == before
    assert {"help", "zoom", "bookmark"} <= done
    assert len(list((isolated_home / "sessions").iterdir())) == 2


async def test_a_run_is_not_asked_for_anything() -> None:
    source = FakeSource(run_events(20, LIVE))
    async with opened(RunScreen(source, interval=None)) as console:
        assert {"pause", "stop"} <= set(await do_everything(console))
        # Not through a key or the palette either: the methods themselves refuse.
        console.screen.action_stop()
        await console.screen._stop()
        await console.screen._ask_run("pause", "pausing")
        await console.settle()
        assert console.app.screen is console.screen
        assert "read only: this console doesn't stop runs" in " ".join(console.text.split())
    assert source.commands == [] and source.stops == 0


async def test_the_same_commands_change_things_otherwise() -> None:
    """The test above could see it."""
    source = FakeSource(run_events(20, LIVE))
    async with opened(RunScreen(source, interval=None), Settings()) as console:
        assert "READ ONLY" not in console.text
        await console.press("space", "x", "y")
    assert source.commands == ["pause"] and source.stops == 1


async def test_it_is_told_beforehand() -> None:
    async with opened(RunScreen(FakeSource(run_events(20, LIVE)), interval=None)) as console:
        words = {command.action: command.words for command in commands(console.screen)}
        assert words["stop"].endswith("(refused: read only)")
        assert "refused" not in words["help"]
        await console.press("question_mark")
        assert "refused: read only" in console.text
        await console.press("q", "3")
        assert "READ ONLY" in console.lines[0] and "recorded" not in console.lines[0][-12:]


def test_marked_methods_keep_their_names() -> None:
    @changes("sing")
    def action_sing() -> None:
        """La."""

    assert action_sing.__name__ == "action_sing" and action_sing.__doc__ == "La."
    assert {key.changes for key in registry().values()} >= {
        None,
        "stop runs",
        "delete sessions",
        "start runs",
    }
