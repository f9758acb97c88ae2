"""Find, describe and remove sessions. A damaged one is shown as such and never stops a list."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..core.errors import UsageError, WarpdeckError
from . import alive, paths
from .database import odd_content
from .events import Lifecycle
from .report import tune_document
from .state import RunState
from .store import SessionStore

DAMAGED = "damaged"


@dataclass(frozen=True)
class SessionInfo:
    """A line of `sessions list`. `error` says what is wrong with a damaged session; all else is then None."""

    id: str
    workload: str | None = None
    agent: str | None = None
    device: str | None = None
    started: str | None = None  # ISO 8601, UTC
    steps: int | None = None
    best_speedup: float | None = None
    state: str = DAMAGED  # a Lifecycle value, or "damaged"
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As `sessions list --json` prints it."""
        return asdict(self)


def list_sessions(sessions: Path | None = None) -> list[SessionInfo]:
    """Every session, newest first."""
    return Listing(sessions).read()


class Listing:
    """The list for someone who reads it again and again: what can't have changed isn't read again."""

    def __init__(self, sessions: Path | None = None) -> None:
        self._sessions = sessions
        self._known: dict[Path, tuple[object, SessionInfo]] = {}

    def read(self) -> list[SessionInfo]:
        """Every session, newest first."""
        known: dict[Path, tuple[object, SessionInfo]] = {}
        for folder in reversed(paths.session_folders(self._sessions)):
            trace = _trace(folder)  # before reading: what changes meanwhile is read next time
            before = self._known.get(folder)
            # A run that hasn't ended may die, or be late, without touching a file.
            if before is None or before[0] != trace or before[1].state not in _SETTLED:
                before = trace, describe(folder)
            known[folder] = before
        self._known = known
        return [info for _, info in known.values()]


_SETTLED = frozenset({DAMAGED, *(state for state in Lifecycle if state.final)})


def _trace(folder: Path) -> object:
    """Differs once the session was written, begun or resumed."""
    traces = []
    for name in (paths.DATABASE, f"{paths.DATABASE}-wal", alive.LOCK, alive.STARTING):
        try:
            stat = (folder / name).stat()
        except OSError:
            traces.append(None)
        else:
            traces.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(traces)


def describe(folder: Path) -> SessionInfo:
    """One session's line; damage is told in it, not raised."""
    try:
        running, starting = alive.is_running(folder), alive.is_starting(folder)
        with SessionStore.open(folder) as store:
            header, state = store.header(), store.state()
        return _line(folder, header, state, running=running, starting=starting)
    except WarpdeckError as error:
        return SessionInfo(folder.name, error=str(error))
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        # Readable rows with odd content; whatever it is, the other sessions are to be seen.
        return SessionInfo(folder.name, error=f"session {folder.name} is damaged: {error}")


def _line(
    folder: Path, header: Mapping[str, Any], state: RunState, *, running: bool, starting: bool
) -> SessionInfo:
    state = alive.as_seen(state, running=running, starting=starting)
    info = state.info
    began = state.started or header.get("created")
    best = state.best.speedup if state.best is not None else None
    return SessionInfo(
        id=folder.name,
        workload=info.workload if info else header.get("workload"),
        agent=info.agent if info else header.get("agent"),
        device=state.device_label or None,
        started=datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds") if began else None,
        steps=max(state.step, state.evaluations),
        best_speedup=best if best is not None else state.best_speedup,
        state=str(state.lifecycle),
    )


def show(folder: Path) -> dict[str, Any]:
    """`sessions show --json`: the list's line, the result, what the session knows about its run, its files.

    Raises UsageError for a damaged session.
    """
    info = describe(folder)
    if info.error:
        raise UsageError(info.error)
    with SessionStore.open(folder) as store, odd_content(store.id):
        state = store.state()
        document = tune_document(store, state)
        header = {key: value for key, value in store.header().items() if key != "spec"}
        events = store.last_seq
    return {
        **info.to_json(),
        "schema_version": document["schema_version"],
        "path": str(folder),
        "reason": state.reason,
        "exit_code": state.exit_code,
        "events": events,
        "seconds": state.active_s,
        "result": document,
        "header": header,
        "artifacts": [{"name": name, "path": str(folder / path)} for name, path in state.artifacts],
        "messages": [{"t": m.t, "level": m.level, "text": m.text} for m in state.messages[-20:]],
    }


def remove_unused(folders: Iterable[Path]) -> None:
    """Delete those of these sessions that nothing was run of."""
    for folder in folders:
        with suppress(WarpdeckError):
            with SessionStore.open(folder) as store:
                begun = store.state().seq > 0
            if not begun:
                remove(folder)


def remove(folder: Path) -> None:
    """Delete a session for good. Raises UsageError while it runs, WarpdeckError if it can't be deleted."""
    if alive.is_running(folder):
        raise UsageError(
            f"session {folder.name} is running (process {alive.runner_pid(folder)}); stop it first"
        )
    if folder.is_symlink():
        folder.unlink()
        return
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise WarpdeckError(f"can't remove {folder}: {error.strerror}") from None
