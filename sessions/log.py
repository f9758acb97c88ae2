"""The run process' hand on its session: a sink that never waits for the disk, and the control commands."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..agents.base import Stop
from ..core.errors import WarpdeckError
from .alive import HEARTBEAT_S, RunLock
from .events import Kind, Lifecycle, encode
from .paths import DATABASE
from .store import SessionStore

CONTROL_POLL_S = 0.2


class LogWriter:
    """Commits events from a thread of its own: whatever arrived during one commit goes into the next.

    `sink` may be called from any thread. A failure to write (a full disk) is raised by the next call of
    `sink`, `flush` or `close`, as the WarpdeckError it was.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[tuple[str, str, float] | threading.Event | None] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="session log", daemon=True)
        self._thread.start()

    def sink(self, kind: str, data: Mapping[str, Any]) -> None:
        """Log an event, stamped now. Raises TypeError for data that JSON can't hold."""
        self._raise()
        self._queue.put((str(kind), encode(data), self._store.now()))

    def flush(self) -> None:
        """Return when everything logged so far is committed."""
        done = threading.Event()
        self._queue.put(done)
        done.wait()
        self._raise()

    def close(self) -> None:
        """Commit the rest and end the thread."""
        self._queue.put(None)
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        ended = False
        while not ended:
            rows: list[tuple[str, str, float]] = []
            waiting: list[threading.Event] = []
            item = self._queue.get()
            while True:
                if item is None:
                    ended = True
                elif isinstance(item, threading.Event):
                    waiting.append(item)
                else:
                    rows.append(item)
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            try:
                if rows and self._error is None:
                    self._store.append_encoded(rows)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run must hear of it, not hang
                self._error = error
            finally:
                for event in waiting:
                    event.set()


class RunControl:
    """Pause, resume and stop, from the control table or a signal; keeps the heartbeat.

    A thread reads the table; `check` only looks at flags, so that agents may call it at every step.
    `waiting` are the locks of sessions that this process will run next: theirs is the same heartbeat.
    """

    def __init__(
        self, store: SessionStore, log: LogWriter, lock: RunLock, waiting: Sequence[RunLock] = ()
    ) -> None:
        self._store = store
        self._log = log
        self._locks = (lock, *waiting)
        self._changed = threading.Condition()
        self._paused = False
        self._reason: str | None = None
        self._ended = threading.Event()
        self._read_commands()  # what was sent before the process was up holds from the first step on
        self._thread = threading.Thread(target=self._watch, name="session control", daemon=True)
        self._thread.start()

    @property
    def stop_reason(self) -> str | None:
        """Why the run was asked to stop; None if it wasn't."""
        return self._reason

    def check(self) -> None:
        """Return at once, block while paused, or raise `Stop`."""
        if self._reason is None and not self._paused:
            return
        with self._changed:
            if self._paused and self._reason is None:
                self._log.sink(Kind.STATE, {"state": Lifecycle.PAUSED})
                self._changed.wait_for(lambda: not self._paused or self._reason is not None)
                if self._reason is None:
                    self._log.sink(Kind.STATE, {"state": Lifecycle.RUNNING, "reason": "resumed"})
        if self._reason is not None:
            raise Stop(self._reason)

    def stop(self, reason: str) -> None:
        """Ask the run to stop at its next step. For other threads; a signal handler uses `stop_soon`."""
        with self._changed:
            if self._reason is None:
                self._reason = reason
                self._log.sink(Kind.STATE, {"state": Lifecycle.STOPPING, "reason": reason})
            self._changed.notify_all()

    def stop_soon(self, reason: str) -> None:
        """As `stop`, without taking a lock that the interrupted thread may hold."""
        threading.Thread(target=self.stop, args=(reason,), name="stop", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        beats = 0.0
        while not self._ended.wait(CONTROL_POLL_S):
            beats += CONTROL_POLL_S
            if beats >= HEARTBEAT_S:
                for lock in self._locks:
                    lock.beat()
                beats = 0.0
                if not (self._store.folder / DATABASE).exists():  # nobody could end a paused run any more
                    self.stop("its session was removed")
            self._read_commands()

    def _read_commands(self) -> None:
        with suppress(WarpdeckError):  # a full disk or a locked file: the run's own writes will say so
            for command in self._store.commands(pending=True):
                self._store.acknowledge([command.id], self._obey(command.command, command.origin))

    def _obey(self, command: str, origin: str) -> str:
        if command == "stop":
            self.stop(f"stopped by {origin or 'a console'}")
            return "stopping after this step"
        with self._changed:
            self._paused = command == "pause"
            self._changed.notify_all()
        return "pausing after this step" if command == "pause" else "going on"
