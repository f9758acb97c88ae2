"""Where a screen's RunState comes from: a session that grows, or one that is played back.

A screen polls its source from a timer. `poll` returns the newest state, or None where nothing changed
since the last call; it may raise WarpdeckError (a locked or vanished log), which the screen shows and
tries again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from ..core.errors import UsageError, WarpdeckError
from ..sessions.bookmarks import Bookmark, Bookmarks
from ..sessions.replay import Replay
from ..sessions.seeking import Target
from ..sessions.state import RunState
from ..sessions.tail import Tail


@dataclass(frozen=True)
class Capabilities:
    """What a source is. `live`: the run may be going on, and can be controlled; `attach`: this console
    joined a run that it didn't start; `replay`: the log is played back, see `Playback`."""

    live: bool = False
    attach: bool = False
    replay: bool = False


class RunSource(Protocol):
    """A run to look at."""

    @property
    def capabilities(self) -> Capabilities:
        """What can be done with it."""
        ...

    @property
    def session(self) -> str:
        """The session's id, what `warpdeck attach` takes."""
        ...

    @property
    def folder(self) -> Path | None:
        """The session's folder, where its traces and profiles lie; None if it has none."""
        ...

    def poll(self) -> RunState | None:
        """The newest state; None if it is the one returned last. WarpdeckError if it can't be read.

        Called from a thread, never twice at a time.
        """
        ...

    def now(self) -> float:
        """The time at which the state is seen: Unix seconds, in a replay the log's."""
        ...

    def command(self, name: str) -> None:
        """Ask the run to `pause` or `resume`. WarpdeckError if it can't be asked."""
        ...

    def stop(self, notify: Callable[[str], None]) -> str:
        """Stop the run, by force if need be, and say what it took; may take half a minute.

        `notify` is told before each harsher means. WarpdeckError if it can't be stopped.
        """
        ...

    def close(self) -> None:
        """Release the log. The run goes on."""
        ...


@runtime_checkable
class Playback(Protocol):
    """The controls of a replay, beside those of RunSource. Positions are seconds since the log's start."""

    @property
    def playing(self) -> bool:
        """Whether it moves."""
        ...

    @property
    def speed(self) -> float:
        """Seconds of log a second."""
        ...

    @property
    def position(self) -> float:
        """Where it is."""
        ...

    @property
    def length(self) -> float:
        """How long the log is."""
        ...

    def toggle(self) -> None:
        """Play or pause; at the end, play from the start."""
        ...

    def change_speed(self, direction: int) -> None:
        """The next faster (1) or slower (-1) speed."""
        ...

    def step(self, direction: int) -> None:
        """Pause at the next or the previous step (where sources are tried, attempt)."""
        ...

    def step_event(self, direction: int) -> None:
        """Pause at the next or the previous event."""
        ...

    def seek(self, fraction: float) -> None:
        """Jump to a fraction of the whole; goes on playing if it was."""
        ...

    def go_to(self, target: Target) -> None:
        """Jump to a place. UsageError if the log doesn't have it."""
        ...

    @property
    def bookmarks(self) -> tuple[Bookmark, ...]:
        """The session's bookmarks, in the log's order."""
        ...

    def bookmark(self, name: str) -> None:
        """Set a bookmark here. WarpdeckError if it can't be kept."""
        ...

    def forget(self, name: str) -> None:
        """Delete a bookmark. WarpdeckError if that can't be kept."""
        ...


class LiveSource(Tail):
    """A session that this console started, or (`attach`) joined. UsageError if it can't be opened."""

    def __init__(self, folder: str | Path, *, attach: bool = False) -> None:
        super().__init__(folder)
        self.capabilities = Capabilities(live=True, attach=attach)

    def stop(self, notify: Callable[[str], None]) -> str:
        """Ask, then SIGTERM, then SIGKILL; "stopped", "terminated", "killed" or "not running"."""
        from ..sessions.launch import stop_run  # brings the agents and the kernels' loader

        return str(stop_run(self.folder, notify=notify))


class ReplaySource(Replay):
    """A session played back. UsageError if it can't be opened.

    The keys act from the screen's thread while a poll may run in another: one of them waits.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        speed: float = 1.0,
        start: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(folder, speed=speed, start=start, clock=clock)
        self.capabilities = Capabilities(replay=True)
        self.folder: Path | None = Path(folder)
        self._turn = threading.RLock()
        self._bookmarks = Bookmarks(folder)
        self.bookmarks: tuple[Bookmark, ...] = ()
        self.trouble = ""  # with the bookmarks: the log itself is as good as ever
        try:
            self.bookmarks = self._bookmarks.read()
        except WarpdeckError as error:
            self.trouble = str(error)

    def poll(self) -> RunState | None:
        """The state at the present position; None if it is the one returned last."""
        with self._turn:
            return super().poll()

    def step(self, direction: int) -> None:
        """Pause at the next or the previous step."""
        with self._turn:
            super().step(direction)

    def step_event(self, direction: int) -> None:
        """Pause at the next or the previous event."""
        with self._turn:
            super().step_event(direction)

    def go_to(self, target: Target) -> None:
        """Jump to a place."""
        with self._turn:
            super().go_to(target)

    def bookmark(self, name: str) -> None:
        """Set a bookmark here."""
        mark = Bookmark(name, self.state.seq, self.state.step, self.position)
        self.bookmarks = self._bookmarks.add(mark)

    def forget(self, name: str) -> None:
        """Delete a bookmark."""
        self.bookmarks = self._bookmarks.remove(name)

    def command(self, name: str) -> None:
        """A replay has no run to ask."""
        raise UsageError(f"session {self.session} is played back; there is no run to {name}")

    def stop(self, notify: Callable[[str], None]) -> str:
        """A replay has no run to stop."""
        raise UsageError(f"session {self.session} is played back; there is no run to stop")

    def close(self) -> None:
        """Release the log."""
        with self._turn:
            super().close()
