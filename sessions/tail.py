"""Watch a session as it grows: incremental reads of the log, reduced to the newest RunState."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ..core.errors import WarpdeckError
from . import alive
from .paths import DATABASE
from .state import RunState, reduce
from .store import SessionStore

CHUNK = 2000  # events reduced in one poll, so that no poll takes longer than some 30 ms
PROBE_S = 0.5  # between two looks at whether the process lives


class Tail:
    """A session being written, or one that ended. May be polled from any one thread at a time.

    Opens at the newest snapshot, so that attaching to a long run costs no more than to a short one.
    Raises UsageError if there is no readable session in the folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self._store = SessionStore.open(folder)
        self._running = True
        self._starting = False
        self._probed = -PROBE_S
        self._log = self._store.state()
        self._shown: RunState | None = None

    @property
    def session(self) -> str:
        """The session's id."""
        return self._store.id

    @property
    def folder(self) -> Path:
        """The session's folder."""
        return self._store.folder

    @property
    def running(self) -> bool:
        """Whether the run process lived, or was on its way, at the last poll."""
        return self._running

    @property
    def state(self) -> RunState:
        """The state at the last poll."""
        return self._shown if self._shown is not None else self._log

    def poll(self) -> RunState | None:
        """The newest state, or None if nothing changed since the last call. Reads at most `CHUNK` events.

        Raises WarpdeckError if the log can't be read just now.
        """
        probing = self._log.lifecycle.final or time.monotonic() - self._probed >= PROBE_S
        if probing:
            if not (self.folder / DATABASE).exists():  # what was opened can still be read, but isn't it
                raise WarpdeckError(f"session {self.session} is gone: its folder was removed")
            self._starting = alive.is_starting(self.folder)
            self._running = self._starting or alive.is_running(self.folder)
            self._probed = time.monotonic()
        state, count = self._log, 0
        for event in self._store.events(state.seq):
            state = reduce(state, event)
            count += 1
            if count == CHUNK:
                break
        self._log = state
        seen = state
        if probing and count < CHUNK:  # all that was there when the process was looked for
            seen = alive.as_seen(state, running=self._running and not self._starting, starting=self._starting)
        elif self._shown is not None and not count:
            seen = self._shown
        if self._shown is not None and (seen.seq, seen.lifecycle) == (self._shown.seq, self._shown.lifecycle):
            return None
        self._shown = seen
        return seen

    def now(self) -> float:
        """Unix seconds: a log that grows is seen as it is now."""
        return time.time()

    def command(self, name: str, origin: str = "console") -> None:
        """Ask the run to `pause`, `resume` or `stop`. Raises WarpdeckError if it can't be asked."""
        send(self.folder, name, origin)

    def close(self) -> None:
        """Release the log. The run goes on."""
        self._store.close()


def send(folder: str | Path, command: str, origin: str = "console") -> int:
    """Put a control command into a session's table and return its number."""
    with SessionStore.open(folder, writable=True) as store:
        return store.send(command, origin)


def follow(
    folder: str | Path, *, poll_s: float = 0.25, stop: threading.Event | None = None
) -> Iterator[RunState]:
    """Every new state of a session until the run has ended (or `stop` is set); the last one is final."""
    ended = stop or threading.Event()
    tail = Tail(folder)
    try:
        while not ended.is_set():
            state = tail.poll()
            if state is not None:
                yield state
                if state.lifecycle.final and not tail.running:
                    return
                continue  # there may be more than one poll's worth
            if tail.state.lifecycle.final and not tail.running:
                return
            ended.wait(poll_s)
    finally:
        tail.close()
