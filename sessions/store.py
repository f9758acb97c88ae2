"""A session's database: an event log in SQLite with a write-ahead log.

One process writes events; any number read, and any may send control commands. A transaction that `append`
or `append_many` returned from survives the death of every process and of the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from ..core.errors import UsageError, WarpdeckError
from . import paths, snapshot
from .database import (
    APPLICATION_ID,
    SCHEMA,
    SCHEMA_VERSION,
    check_magic,
    check_schema,
    connect,
    plain_errors,
    sync_folder,
)
from .events import Event, encode
from .series import BLOCK
from .state import DamagedEvent, RunState, reduce_all

SNAPSHOT_EVENTS = 500
SNAPSHOT_BYTES = 1_000_000  # of event data; bounds a seek where events are large
CONTROL_COMMANDS = ("pause", "resume", "stop")


class Command(NamedTuple):
    """A row of the control table. `acknowledged` is when the run answered, None before."""

    id: int
    t: float
    command: str
    origin: str
    acknowledged: float | None
    answer: str | None


class SessionStore:
    """The database of one session. Use `create` or `open`; close it, or use it in a `with` statement.

    Methods may be called from several threads. Every method raises WarpdeckError with one plain line for a
    full disk, a file that can't be written or a database that stays locked, and UsageError for damaged
    content; what was committed before stays.
    """

    def __init__(self, folder: Path, db: sqlite3.Connection, *, writable: bool) -> None:
        self.folder = folder
        self.writable = writable
        self._db = db
        self._lock = threading.RLock()
        self._cleanup: Callable[[], None] | None = None
        self._seq, self._t = self._last()
        # Wall time moves with the monotonic clock from here on, and never behind what is stored.
        self._epoch = max(time.time(), self._t) - time.monotonic()
        self._snapshot_state: RunState | None = None
        self._since_events = self._since_bytes = 0

    @property
    def id(self) -> str:
        """The session's name: its folder's."""
        return self.folder.name

    # -- opening ---------------------------------------------------------------------------------------

    @classmethod
    def create(cls, sessions: Path, session_id: str, header: Mapping[str, Any]) -> SessionStore:
        """A new session in the folder of sessions, open for writing.

        `header` is any JSON object (spec, command, git revision, …); more can be added with `set_header`.
        Raises UsageError if the session exists, WarpdeckError if the disk can't be written.
        """
        folder = Path(sessions) / paths.check_name(session_id)
        paths.make_folder(folder)
        try:
            # Built aside and renamed, so that a database that exists is complete.
            partial = folder / (paths.DATABASE + ".new")
            with plain_errors(folder, resumable=False):
                db = sqlite3.connect(partial, isolation_level=None)
                try:
                    db.executescript(
                        "PRAGMA synchronous = OFF;"  # the whole file is, before it gets its name
                        f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};"
                        f"PRAGMA journal_mode = DELETE; BEGIN; {SCHEMA}"
                    )
                    rows = {"schema_version": SCHEMA_VERSION, "created": time.time(), **header}
                    db.executemany(
                        "INSERT INTO meta VALUES (?, ?)", [(k, encode_value(v)) for k, v in rows.items()]
                    )
                    db.execute("COMMIT")
                finally:
                    db.close()
                with partial.open("rb") as file:
                    os.fsync(file.fileno())
                partial.replace(folder / paths.DATABASE)
                sync_folder(folder)
            return cls.open(folder, writable=True)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    @classmethod
    def open(cls, folder: str | Path, *, writable: bool = False) -> SessionStore:
        """An existing session by its folder (see `paths.resolve`), read-only unless `writable`.

        Raises UsageError if the folder holds no session, a damaged one, or one of a newer warpdeck.
        """
        folder = Path(folder)
        path = folder / paths.DATABASE
        check_magic(path)
        with plain_errors(folder):
            db, cleanup = connect(path, writable=writable)
            try:
                check_schema(db, path)
                store = cls(folder, db, writable=writable)
            except BaseException:
                db.close()
                if cleanup:
                    cleanup()
                raise
        store._cleanup = cleanup
        return store

    def close(self) -> None:
        """Close; a writer first stores a final snapshot and empties the write-ahead log into the file."""
        with self._lock:
            with suppress(WarpdeckError, sqlite3.Error):  # both only save time for later readers
                if self.writable and self._since_events:
                    self._write_snapshot()
                if self.writable:
                    self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.close()
            if self._cleanup:
                self._cleanup()
                self._cleanup = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- header ----------------------------------------------------------------------------------------

    def header(self) -> dict[str, Any]:
        """All facts about the session as a whole."""
        with self._lock, plain_errors(self.folder):
            rows = self._db.execute("SELECT key, value FROM meta").fetchall()
        try:
            return {key: json.loads(value) for key, value in rows}
        except (ValueError, TypeError):
            raise UsageError(f"session {self.id} is damaged: its header holds no JSON") from None

    def set_header(self, facts: Mapping[str, Any]) -> None:
        """Add or replace facts."""
        with self._transaction():
            self._db.executemany(
                "INSERT OR REPLACE INTO meta VALUES (?, ?)", [(k, encode_value(v)) for k, v in facts.items()]
            )

    # -- events ----------------------------------------------------------------------------------------

    @property
    def last_seq(self) -> int:
        """Number of the newest committed event, 0 before the first."""
        with self._lock, plain_errors(self.folder):
            return self._last()[0]

    def now(self) -> float:
        """The session's clock, Unix seconds; never decreases, even over restarts."""
        return self._epoch + time.monotonic()

    def append(self, kind: str, data: Mapping[str, Any], t: float | None = None) -> int:
        """Commit one event and return its number."""
        return self.append_many([(kind, data)] if t is None else [(kind, data, t)])

    def append_many(
        self, events: Iterable[tuple[str, Mapping[str, Any]] | tuple[str, Mapping[str, Any], float]]
    ) -> int:
        """Commit events, all or none, and return the last one's number. A time that goes back is raised."""
        return self.append_encoded(
            (str(event[0]), encode(event[1]), event[2] if len(event) == 3 else self.now()) for event in events
        )

    def append_encoded(self, events: Iterable[tuple[str, str, float]]) -> int:
        """As `append_many`, for `(kind, JSON text, t)`."""
        with self._lock:
            rows, seq, last_t, size = [], self._seq, self._t, 0
            for kind, text, t in events:
                seq += 1
                last_t = max(t, last_t)
                size += len(text)
                rows.append((seq, last_t, kind, text))
            if not rows:
                return seq
            with self._transaction():
                self._db.executemany("INSERT INTO event VALUES (?, ?, ?, ?)", rows)
            self._seq, self._t = seq, last_t
            self._since_events += len(rows)
            self._since_bytes += size
            if self._since_events >= SNAPSHOT_EVENTS or self._since_bytes >= SNAPSHOT_BYTES:
                # The events are in; without a snapshot readers need longer. The next append reports why.
                with suppress(WarpdeckError):
                    self._write_snapshot()
                self._since_events = self._since_bytes = 0
            return seq

    def events(self, after: int = 0, until: int | None = None, kinds: Iterable[str] = ()) -> Iterator[Event]:
        """Committed events with `after < seq <= until`, in order, read in portions.

        Raises UsageError at a row whose data isn't a JSON object.
        """
        chosen = [str(kind) for kind in kinds]
        where = f" AND kind IN ({','.join('?' * len(chosen))})" if chosen else ""
        last = until if until is not None else (1 << 62)
        portion = 1000
        while True:
            with self._lock, plain_errors(self.folder):
                rows = self._db.execute(
                    f"SELECT seq, t, kind, data FROM event WHERE seq > ? AND seq <= ?{where} "
                    f"ORDER BY seq LIMIT {portion}",
                    (after, last, *chosen),
                ).fetchall()
            for seq, t, kind, text in rows:
                if not isinstance(t, float) or not isinstance(kind, str):
                    raise UsageError(f"session {self.id} is damaged: event {seq} has no time or kind")
                yield Event(seq, t, kind, self._decode(seq, text))
            if len(rows) < portion:
                return
            after = rows[-1][0]

    def time_of(self, seq: int) -> float | None:
        """When event `seq` (or the last one before it) was logged."""
        with self._lock, plain_errors(self.folder):
            row = self._db.execute(
                "SELECT t FROM event WHERE seq <= ? ORDER BY seq DESC LIMIT 1", (seq,)
            ).fetchone()
        return row[0] if row else None

    def seq_at(self, t: float) -> int:
        """Number of the last event logged at or before `t`; 0 if there is none."""
        low, high = 0, self.last_seq
        while low < high:
            middle = (low + high + 1) // 2
            at = self.time_of(middle)
            if at is not None and at <= t:
                low = middle
            else:
                high = middle - 1
        return low

    # -- states ----------------------------------------------------------------------------------------

    def state(self, until: int | None = None) -> RunState:
        """The run's state after event `until` (default: now), from the nearest snapshot before it."""
        base = self._nearest("seq", until if until is not None else (1 << 62))
        return self._reduced(self.events(base.seq, until), base)

    def state_at_step(self, step: int) -> RunState:
        """The state after the first event that brings the run to `step` (the end, if none does)."""
        base = self._nearest("step", step - 1)
        state = base
        for event in self.events(base.seq):
            state = self._reduced([event], state)
            if state.step >= step:
                break
        return state

    def _reduced(self, events: Iterable[Event], state: RunState | None = None) -> RunState:
        try:
            return reduce_all(events, state)
        except DamagedEvent as error:
            raise UsageError(f"session {self.id} is damaged: {error}") from error

    def _nearest(self, column: str, bound: int) -> RunState:
        with self._lock, plain_errors(self.folder):
            rows = self._db.execute(
                f"SELECT rows, data, tail FROM snapshot WHERE {column} <= ? AND version = ? "
                "ORDER BY seq DESC LIMIT 2",
                (bound, snapshot.VERSION),
            ).fetchall()
            for length, data, tail in rows:
                # A damaged snapshot costs time, not the session: the events are the truth.
                with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                    if snapshot.is_tame(data):
                        return self._restore(length // BLOCK, data, tail)
        return RunState()

    def _restore(self, full: int, data: bytes, tail: bytes) -> RunState:
        blocks = [
            row[0]
            for row in self._db.execute(
                "SELECT data FROM series WHERE version = ? AND block < ? ORDER BY block",
                (snapshot.VERSION, full),
            )
        ]
        return snapshot.decode(data, blocks, tail)

    def _write_snapshot(self) -> None:
        """Reduce what was committed since the last snapshot, as a reader would, and keep the state."""
        before = self._snapshot_state or self.state()
        state = self._reduced(self.events(before.seq), before)
        full = len(state.steps) // BLOCK
        with self._transaction():
            done = self._db.execute(
                "SELECT COUNT(*) FROM series WHERE version = ?", (snapshot.VERSION,)
            ).fetchone()[0]
            self._db.executemany(
                "INSERT OR REPLACE INTO series VALUES (?, ?, ?)",
                [(snapshot.VERSION, i, state.steps.block(i)) for i in range(done, full)],
            )
            data, tail = snapshot.encode(state)
            self._db.execute(
                "INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?, ?, ?, ?)",
                (state.seq, state.t, state.step, snapshot.VERSION, len(state.steps), data, tail),
            )
        self._snapshot_state = state

    # -- control ---------------------------------------------------------------------------------------

    def send(self, command: str, origin: str = "") -> int:
        """Ask the run to `pause`, `resume` or `stop`; returns the command's id. Needs a writable store."""
        if command not in CONTROL_COMMANDS:
            raise UsageError(f"control command {command!r}: use {', '.join(CONTROL_COMMANDS)}")
        with self._transaction():
            cursor = self._db.execute(
                "INSERT INTO control (t, command, origin) VALUES (?, ?, ?)", (time.time(), command, origin)
            )
        return int(cursor.lastrowid or 0)

    def commands(self, *, pending: bool = False) -> list[Command]:
        """Control commands in order; `pending` only those without an answer."""
        where = " WHERE acknowledged IS NULL" if pending else ""
        with self._lock, plain_errors(self.folder):
            rows = self._db.execute(
                f"SELECT id, t, command, origin, acknowledged, answer FROM control{where} ORDER BY id"
            ).fetchall()
        return [Command(*row) for row in rows]

    def acknowledge(self, ids: Iterable[int], answer: str) -> None:
        """The run's side: mark commands as received."""
        with self._transaction():
            self._db.executemany(
                "UPDATE control SET acknowledged = ?, answer = ? WHERE id = ?",
                [(time.time(), answer, i) for i in ids],
            )

    # -- whole ----------------------------------------------------------------------------------------

    def verify(self) -> RunState:
        """Read everything: SQLite's own check, and every event. Raises UsageError at the first damage."""
        with self._lock, plain_errors(self.folder):
            found = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise UsageError(f"session {self.id} is damaged: {' '.join(found.split())}")
        return self._reduced(self.events())

    def backup(self, target: Path) -> None:
        """A consistent copy of the database as one file, also while the run goes on."""
        with self._lock, plain_errors(target.parent):
            copy = sqlite3.connect(target, isolation_level=None)
            try:
                self._db.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
            finally:
                copy.close()

    # -- inside ----------------------------------------------------------------------------------------

    def _last(self) -> tuple[int, float]:
        row = self._db.execute("SELECT seq, t FROM event ORDER BY seq DESC LIMIT 1").fetchone()
        if row and not isinstance(row[1], float):
            raise UsageError(f"session {self.id} is damaged: event {row[0]} has no time")
        return (row[0], row[1]) if row else (0, 0.0)

    def _decode(self, seq: int, text: str) -> dict[str, Any]:
        try:
            data = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            data = None
        if not isinstance(data, dict):
            raise UsageError(f"session {self.id} is damaged: event {seq} holds no JSON object")
        return data

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if not self.writable:
            raise WarpdeckError(f"session {self.id} is open for reading only")
        with self._lock, plain_errors(self.folder):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # a full disk may have rolled back already
                    self._db.execute("ROLLBACK")
                raise


def encode_value(value: Any) -> str:
    """One header fact as JSON."""
    return json.dumps(json.loads(encode({"value": value}))["value"])
