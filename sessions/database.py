"""SQLite under a session: its schema, how a file is opened and judged, and errors in plain words."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..core.errors import UsageError, WarpdeckError
from . import paths

SCHEMA_VERSION = 1
APPLICATION_ID = 0x5744434B  # "WDCK"
BUSY_TIMEOUT_S = 10.0

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE event (seq INTEGER PRIMARY KEY, t REAL NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL);
CREATE TABLE snapshot (
    seq INTEGER PRIMARY KEY, t REAL NOT NULL, step INTEGER NOT NULL, version INTEGER NOT NULL,
    rows INTEGER NOT NULL, data BLOB NOT NULL, tail BLOB NOT NULL);
CREATE TABLE series (version INTEGER NOT NULL, block INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (version, block));
CREATE TABLE control (
    id INTEGER PRIMARY KEY, t REAL NOT NULL, command TEXT NOT NULL, origin TEXT NOT NULL,
    acknowledged REAL, answer TEXT);
"""

# Step i takes a database of version i + 1 to the next; see tests/test_sessions_store.py.
MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = ()


def sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power cut, where the platform can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def connect(path: Path, *, writable: bool) -> tuple[sqlite3.Connection, Callable[[], None] | None]:
    """A connection, and what to call after closing it (None: nothing). Raises sqlite3.Error or OSError."""

    def connection(target: Path, query: str) -> sqlite3.Connection:
        db = sqlite3.connect(
            f"{target.absolute().as_uri()}?{query}",
            uri=True,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        except BaseException:
            db.close()
            raise
        return db

    if writable:
        db = connection(path, "mode=rw")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")  # a commit survives a power cut
        return db, None
    try:
        return connection(path, "mode=ro"), None
    except sqlite3.OperationalError:
        if os.access(path.parent, os.W_OK):
            raise
    # A folder we can't write: SQLite can't set up the shared memory that a write-ahead log needs.
    log = path.with_name(path.name + "-wal")
    if not log.exists() or log.stat().st_size == 0:
        return connection(path, "mode=ro&immutable=1"), None
    copy = Path(tempfile.mkdtemp(prefix="warpdeck-"))
    try:
        shutil.copyfile(path, copy / path.name)
        shutil.copyfile(log, copy / log.name)
        return connection(copy / path.name, "mode=rw"), lambda: shutil.rmtree(copy, ignore_errors=True)
    except BaseException:
        shutil.rmtree(copy, ignore_errors=True)
        raise


def check_magic(path: Path) -> None:
    """Raise UsageError unless `path` is an SQLite database."""
    try:
        with path.open("rb") as file:
            magic = file.read(16)
    except FileNotFoundError:
        raise UsageError(
            f"{path.parent}: no session there (a session is a folder with {path.name})"
        ) from None
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from None
    if magic != b"SQLite format 3\0":
        raise UsageError(f"{path} is not a session: it is no SQLite database")


def check_schema(db: sqlite3.Connection, path: Path) -> None:
    """Raise UsageError unless the database is a whole session that this version reads; migrate an older."""
    application = db.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_ID:
        raise UsageError(f"{path} is not a session of warpdeck, though it is an SQLite database")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise UsageError(
            f"{path} was written by a newer warpdeck (schema {version}, this one knows {SCHEMA_VERSION}): "
            "upgrade warpdeck"
        )
    if 0 < version < SCHEMA_VERSION:
        older, _ = connect(path, writable=True)
        try:
            migrate(older, version)
        finally:
            older.close()
    foreign = db.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('trigger', 'view') LIMIT 1"
    ).fetchone()
    if foreign:  # a session has none; one that came from elsewhere could do anything with them
        raise UsageError(
            f"{path} is damaged: it has a trigger or view {foreign[0]!r}, which a session doesn't"
        )
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    missing = {"meta", "event", "snapshot", "series", "control"} - tables
    if missing:
        raise UsageError(f"{path} is damaged: it lacks {', '.join(sorted(missing))}")


def migrate(
    db: sqlite3.Connection, version: int, steps: tuple[Callable[..., None], ...] = MIGRATIONS
) -> None:
    """Bring a database of an older schema up to date in one transaction."""
    db.execute("BEGIN IMMEDIATE")
    try:
        for step in steps[version - 1 :]:
            step(db)
        db.execute(f"PRAGMA user_version = {len(steps) + 1}")
        db.execute("INSERT OR REPLACE INTO meta VALUES ('schema_version', ?)", (str(len(steps) + 1),))
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


@contextmanager
def odd_content(session: str) -> Iterator[None]:
    """Readable rows that make no sense, of a session that came from elsewhere or was cut, as a UsageError."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"session {session} is damaged: {type(error).__name__}: {error}") from error


@contextmanager
def plain_errors(folder: Path, *, resumable: bool = True) -> Iterator[None]:
    """SQLite's and the system's errors as one line that says what to do; a new session can't be resumed."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where SQLite's message isn't text
        text = " ".join(str(error).split())
        name = folder.name
        if "is full" in text:
            raise WarpdeckError(
                f"session {name}: the disk of {folder} is full; free some space, then "
                + (f"`warpdeck tune --resume {name}`" if resumable else "try again")
            ) from error
        if "readonly" in text:
            raise WarpdeckError(
                f"session {name}: {folder} can't be written; set WARPDECK_HOME to a folder you can write"
            ) from error
        if "locked" in text or "busy" in text:
            raise WarpdeckError(
                f"session {name}: another process locked its database for {BUSY_TIMEOUT_S:g} s; try again"
            ) from error
        if "unable to open" in text:
            raise WarpdeckError(f"session {name}: {folder} can't be opened; check its permissions") from error
        if "disk I/O error" in text:
            raise WarpdeckError(
                f"session {name}: reading or writing {folder} failed (disk I/O error): check the disk"
            ) from error
        # Corrupt content, or tables of another shape; other subclasses are mistakes of ours.
        if "decode" in text:
            text = "it holds bytes that are no text"  # the message quotes all that is around them
        elif type(error) is not sqlite3.DatabaseError and "no such column" not in text:
            raise
        raise UsageError(f"session {name} is damaged: {text} ({folder / paths.DATABASE})") from error
    except OSError as error:
        raise WarpdeckError(
            f"{folder}: {error.strerror or error}; check the disk and its permissions"
        ) from error
