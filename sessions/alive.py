"""Which process runs a session: a lock that dies with its holder, and a heartbeat.

The lock file holds the process id and is touched every second. Where the system has POSIX locks, a dead
process is known at once (its lock is gone, however it died); elsewhere by a heartbeat that stopped.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..core.errors import UsageError, WarpdeckError
from .events import Lifecycle
from .state import RunState

try:
    import fcntl
except ImportError:  # no POSIX locks on this system
    fcntl = None

LOCK = "run.lock"
STARTING = "starting"
HEARTBEAT_S = 1.0
SILENT_S = 15.0  # a process that wrote no heartbeat for this long doesn't answer
START_S = 20.0  # a new run's process may take this long to take the lock
_ACQUIRE_S = 2.0  # outlasts the instant in which another console probes the lock

_held: dict[str, RunLock] = {}  # POSIX locks are per process: closing a second descriptor would drop them


class RunLock:
    """The right to run a session, held until `release` or the process' end."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self._path = folder / LOCK
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, folder: Path) -> RunLock:
        """Take the session's lock. Raises UsageError if a process runs it, WarpdeckError if it can't."""
        path = folder / LOCK
        if str(path.resolve()) in _held:
            raise UsageError(f"session {folder.name} is running in this process already")
        if fcntl is None and is_running(folder):
            raise UsageError(_busy(folder))
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise WarpdeckError(f"{path}: {error.strerror}; check the disk and its permissions") from None
        deadline = time.monotonic() + _ACQUIRE_S
        while fcntl is not None:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    raise UsageError(_busy(folder)) from None
                time.sleep(0.02)
        with suppress(OSError):  # a full disk must not keep a run from saying so in its log
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": time.time()}).encode(), 0)
            (folder / STARTING).unlink(missing_ok=True)
        lock = cls(folder, descriptor)
        _held[str(path.resolve())] = lock
        return lock

    def beat(self) -> None:
        """Show that the process is alive."""
        with suppress(OSError):
            os.utime(self._path)

    def release(self) -> None:
        """Let another process run the session."""
        _held.pop(str(self._path.resolve()), None)
        with suppress(OSError):
            os.utime(self._path, (0, 0))
        os.close(self._descriptor)


def is_running(folder: Path) -> bool:
    """Whether a living process holds the session's lock."""
    path = folder / LOCK
    if str(path.resolve()) in _held:
        return True
    if fcntl is None:
        age = silence_s(folder)
        return age is not None and age < SILENT_S
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        # A reader that may not write can't ask; what the heartbeat says is nearly as good.
        age = silence_s(folder)
        return age is not None and age < SILENT_S
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)


def runner_pid(folder: Path) -> int | None:
    """Process id of the living run process, if there is one."""
    if str((folder / LOCK).resolve()) in _held:
        return os.getpid()  # to open and close the file here would drop the lock
    if not is_running(folder):
        return None
    try:
        return int(json.loads((folder / LOCK).read_text())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def silence_s(folder: Path) -> float | None:
    """Seconds since the run process last showed a sign of life; None if it never did."""
    try:
        return max(time.time() - (folder / LOCK).stat().st_mtime, 0.0)
    except OSError:
        return None


def as_seen(state: RunState, *, running: bool, starting: bool = False) -> RunState:
    """The state with the truth about its process: a log that just stops belongs to an interrupted run, one
    that has ended may be about to go on.

    Ask whether the process runs *before* reading the state, else the last events may be missed.
    """
    if running:
        return state
    if starting:
        return replace(state, lifecycle=Lifecycle.CREATED, reason="starting")
    if state.lifecycle.final:
        return state
    reason = "its process died" if state.seq else "its process never started"
    return replace(state, lifecycle=Lifecycle.INTERRUPTED, reason=reason)


def announce(folder: Path) -> None:
    """Say that a process is about to run the session; it withdraws that when it has the lock."""
    with suppress(OSError):
        (folder / STARTING).touch()


def is_starting(folder: Path) -> bool:
    """Whether a process was started for the session and may still be on the way to its lock."""
    try:
        return time.time() - (folder / STARTING).stat().st_mtime < START_S
    except OSError:
        return False


def _busy(folder: Path) -> str:
    pid = runner_pid(folder)
    return (
        f"session {folder.name} is running already (process {pid}); `warpdeck attach {folder.name}` shows it"
    )
