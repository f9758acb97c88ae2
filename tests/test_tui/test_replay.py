"""The Run screen over a session on disk that is played back with an injected clock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from warpdeck.core.errors import UsageError
from warpdeck.tui.commands import commands
from warpdeck.tui.sources import LiveSource, Playback, ReplaySource, RunSource
from warpdeck.tui.widgets.replay_bar import ReplayBar


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.t = 100.0

    def __call__(self) -> float:
        return self.t


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path, kit: Any) -> Path:
    """A finished run of 60 steps, one a second, 61 s long; step i ends at i seconds."""
    return kit.write(tmp_path, kit.events(60, end=True))


async def test_it_plays_at_its_speed(folder: Path, clock: Clock, kit: Any) -> None:
    async with kit.open(ReplaySource(folder, clock=clock)) as console:
        clock.t += 0.2
        await console.poll()
        assert "REPLAY · softmax" in console.lines[0]
        assert "recorded on NVIDIA H200, 2026-11-20" in console.lines[0]
        assert "▶ playing 1×  0:00 / 1:01" in console.text
        clock.t += 10.2
        await console.poll()
        assert "step 10/60" in console.lines[1]
        assert "elapsed 0:10" in console.lines[1]
        await console.press("greater_than_sign")
        assert "playing 2×" in console.text
        clock.t += 5.0
        await console.poll()
        assert "step 20/60" in console.lines[1]
        await console.press("less_than_sign", "less_than_sign")
        assert "playing 0.5×" in console.text


async def test_the_help_has_a_replays_own_keys(folder: Path, clock: Clock, kit: Any) -> None:
    async with kit.open(ReplaySource(folder, clock=clock)) as console:
        found = {command.keys: command.words for command in commands(console.app.screen)}
        assert found["←"] == "One step back" and found["→"] == "Step on"
        assert found["<"] == "Slower" and found[">"] == "Faster"
        assert [found[str(n)] for n in range(10)] == [f"Jump to {10 * n}%" for n in range(10)]


async def test_pause_stands_still(folder: Path, clock: Clock, kit: Any) -> None:
    async with kit.open(ReplaySource(folder, clock=clock, start=30.2)) as console:
        await console.press("space")
        clock.t += 1000
        await console.poll()
        assert "‖ paused" in console.text
        assert "step 30/60" in console.lines[1]
        await console.press("space")
        clock.t += 1.0
        await console.poll()
        assert "step 31/60" in console.lines[1]


async def test_steps_and_seeks_go_both_ways(folder: Path, clock: Clock, kit: Any) -> None:
    async with kit.open(ReplaySource(folder, clock=clock)) as console:
        await console.press("5")
        assert "step 30/60" in console.lines[1]
        best_then = console.lines[1]
        await console.press("right")
        assert "step 31/60" in console.lines[1] and "paused" in console.text
        await console.press("left", "left")
        assert "step 29/60" in console.lines[1]
        await console.press("9")
        assert "step 54/60" in console.lines[1]
        await console.press("5")
        assert console.lines[1] == best_then
        await console.press("0")
        assert "warning" not in console.text  # the log pane shows nothing of the future
        assert "Leaderboard, best" not in console.text


async def test_the_end_stays_and_space_starts_over(folder: Path, clock: Clock, kit: Any) -> None:
    async with kit.open(ReplaySource(folder, clock=clock)) as console:
        clock.t += 500
        await console.poll()
        assert "✔ finished" in console.lines[1] and "1:01 / 1:01" in console.text
        assert "The run has ended" not in console.text
        await console.press("space")
        assert "playing" in console.text
        clock.t += 2.0
        await console.poll()
        assert "step 2/60" in console.lines[1]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_bar_fits(folder: Path, clock: Clock, kit: Any, size: tuple[int, int]) -> None:
    async with kit.open(ReplaySource(folder, clock=clock, start=20), size) as console:
        bar = next(line for line in console.lines if "/ 1:01" in line)
        assert bar.rstrip().endswith("step 20 · event 46")
        assert "←→" in console.lines[-1] and "<>" in console.lines[-1]
        assert "Stop" not in console.lines[-1]


async def test_quitting_a_replay_does_not_ask(folder: Path, clock: Clock, kit: Any) -> None:
    async with kit.open(ReplaySource(folder, clock=clock)) as console:
        await console.press("x", "q")
        assert console.app._exit


def test_a_replay_has_no_run_to_ask(folder: Path) -> None:
    source = ReplaySource(folder)
    assert isinstance(source, Playback)
    with pytest.raises(UsageError, match="played back"):
        source.command("stop")
    source.close()


async def test_a_log_that_grows_is_followed(tmp_path: Path, kit: Any) -> None:
    from warpdeck.sessions.store import SessionStore

    events = kit.events(20)
    folder = kit.write(tmp_path, events[:30])
    source: RunSource = LiveSource(folder, attach=True)
    assert not isinstance(source, Playback)
    async with kit.open(source) as console:
        assert "attached · softmax" in console.lines[0]
        before = console.screen.state.step
        with SessionStore.open(folder, writable=True) as store:
            store.append_many([(e.kind, e.data, e.t) for e in events[30:]])
        await console.poll()
        assert console.screen.state.step == 20 > before
        assert "step 20/20" in console.lines[1]


async def test_pause_reaches_the_session(tmp_path: Path, kit: Any) -> None:
    from warpdeck.sessions import alive
    from warpdeck.sessions.store import SessionStore

    folder = kit.write(tmp_path, kit.events(20))
    lock = alive.RunLock.acquire(folder)  # this process plays the run
    try:
        async with kit.open(LiveSource(folder)) as console:
            assert "▶ running" in console.lines[1]
            await console.press("space")
        with SessionStore.open(folder) as store:
            assert [c.command for c in store.commands()] == ["pause"]
    finally:
        lock.release()


async def test_a_dead_run_is_called_interrupted(tmp_path: Path, kit: Any) -> None:
    folder = kit.write(tmp_path, kit.events(20))
    (folder / "run.lock").touch()  # a process had it and is gone
    async with kit.open(LiveSource(folder)) as console:
        assert "✘ interrupted" in console.lines[1]
        assert "its process died" in console.lines[1]
        await console.press("q")
        assert console.app._exit


async def test_single_events_go_both_ways(folder: Path, clock: Clock, kit: Any) -> None:
    async with kit.open(ReplaySource(folder, clock=clock, start=20.2)) as console:
        seq = console.screen.state.seq
        await console.press("full_stop", "full_stop")
        assert console.screen.state.seq == seq + 2 and "‖ paused" in console.text
        await console.press("comma", "comma", "comma")
        assert console.screen.state.seq == seq - 1
        assert f"event {seq - 1}" in console.text
        await console.press("0", "comma")
        assert console.screen.state.seq == 0
        await console.press("9")
        seq = console.screen.state.seq
        await console.press(*["full_stop"] * 3)
        assert console.screen.state.seq == seq + 3


@pytest.mark.parametrize(
    ("typed", "step"), [("42", 42), ("0:20", 20), ("50%", 30), ("end", 60), ("-5s", 25), ("step 7", 7)]
)
async def test_a_typed_place(folder: Path, clock: Clock, kit: Any, typed: str, step: int) -> None:
    async with kit.open(ReplaySource(folder, clock=clock, start=30.2)) as console:
        await console.press("space", "colon")
        await console.pilot.press(*typed)
        assert "→" in console.dialog
        await console.press("enter")
        await console.poll()
        assert f"step {step}/60" in console.lines[1]


async def test_a_typed_place_is_checked_as_it_is_typed(folder: Path, clock: Clock, kit: Any) -> None:
    async with kit.open(ReplaySource(folder, clock=clock, start=30.2)) as console:
        await console.press("colon")
        assert "a step (12), a time (1:30" in console.dialog
        await console.pilot.press(*"9x")
        assert "'9x' is no place in this log" in console.dialog
        await console.press("enter")  # refused: the words stay
        assert "no place" in console.dialog
        await console.press("escape")
        assert console.app.screen is console.screen
        await console.press("colon")
        await console.pilot.press(*"attempt 3")
        await console.press("enter")
        await console.poll()
        assert "this log has no attempt 3" in console.text


async def test_bookmarks_are_set_jumped_to_listed_and_deleted(
    folder: Path, clock: Clock, kit: Any, tmp_path: Path
) -> None:
    async with kit.open(ReplaySource(folder, clock=clock, start=20.2)) as console:
        await console.press("b")
        assert "at step 20" in console.dialog
        await console.press("enter")
        await console.poll()
        assert "▶ playing" in console.text and "◆ step 20" in console.text
        await console.press("8", "b")
        await console.pilot.press(*["backspace"] * 10, *"late")
        await console.press("enter")
        await console.poll()
        bar = next(line for line in console.lines if "/ 1:01" in line)
        assert bar.index("◆") < bar.index("●")
        await console.press("left_curly_bracket")
        await console.poll()
        assert "step 20/60" in console.lines[1]
        await console.press("left_curly_bracket")
        await console.poll()
        assert "no earlier bookmark" in console.text
        await console.press("B")
        assert "step 20" in console.dialog and "late" in console.dialog
        await console.press("j", "enter")
        await console.poll()
        assert "step 48/60" in console.lines[1]
        await console.press("colon")
        await console.pilot.press(*"step 20")
        await console.press("enter", "B", "d", "escape")
    kept = ReplaySource(folder, clock=clock).bookmarks
    assert [b.name for b in kept] == ["late"]
    assert (folder / "bookmarks.json").exists()


async def test_without_bookmarks_their_keys_are_not_offered(folder: Path, clock: Clock, kit: Any) -> None:
    async with kit.open(ReplaySource(folder, clock=clock)) as console:
        ids = {command.action for command in commands(console.app.screen)}
        assert "bookmark" in ids and "go_to" in ids and "bookmarks" not in ids
    async with kit.open(kit.source(kit.events(3))) as console:
        ids = {command.action for command in commands(console.app.screen)}
        assert not ids & {"bookmark", "go_to", "bookmarks", "event(1)"}


async def test_damaged_bookmarks_are_told_and_the_replay_works(folder: Path, clock: Clock, kit: Any) -> None:
    (folder / "bookmarks.json").write_text("{")
    async with kit.open(ReplaySource(folder, clock=clock, start=20.2)) as console:
        assert await console.told("bookmarks.json is damaged")
        await console.press("b", "enter")
        await console.poll()
        assert await console.told("could not set a bookmark")
        assert "step 20/60" in console.lines[1]


async def test_the_mouse_seeks_and_toggles(folder: Path, clock: Clock, kit: Any) -> None:
    async with kit.open(ReplaySource(folder, clock=clock)) as console:
        bar = console.screen.query_one(ReplayBar)
        first, width = bar._track
        await console.pilot.click(bar, offset=(1 + first + (width - 1) // 2, 0))
        await console.poll()
        step = console.screen.state.step
        assert 29 <= step <= 31
        await console.pilot.click(bar, offset=(3, 0))
        await console.poll()
        assert "‖ paused" in console.text
        first, width = bar._track
        await console.pilot.click(bar, offset=(first + width, 0))
        await console.poll()
        assert "step 60/60" in console.lines[1]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_bar_with_bookmarks(
    folder: Path, clock: Clock, kit: Any, size: tuple[int, int], snapshot_text: Any
) -> None:
    source = ReplaySource(folder, clock=clock, start=20.2)
    for name, step in (("first win", 5), ("plateau", 40)):
        source.seek_step(step)
        source.bookmark(name)
    source.seek_time(20.2)
    async with kit.open(source, size) as console:
        bar = next(line for line in console.lines if "/ 1:01" in line)
        await console.press("B")
        snapshot_text(f"replay-bar-{size[0]}x{size[1]}", f"{bar}\n{console.dialog}")
