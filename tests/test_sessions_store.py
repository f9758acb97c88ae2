"""The session store: nothing committed is lost, and everything that can go wrong is said plainly."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from warpdeck.core.errors import UsageError, WarpdeckError
from warpdeck.sessions import database, paths, store
from warpdeck.sessions.listing import list_sessions
from warpdeck.sessions.store import SessionStore


@pytest.fixture
def session(tmp_path: Path):
    with SessionStore.create(tmp_path, "s1", {"command": "warpdeck tune", "seed": 7}) as opened:
        yield opened


def step(number: int) -> tuple[str, dict[str, object]]:
    return "step", {"step": number, "reward": 0.5, "speedup": 1.5, "best_speedup": 1.5 + number}


def child(code: str, *args: object, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_events_come_back_in_order_with_their_data(session):
    session.append("message", {"level": "info", "text": "hello"})
    assert session.append_many([step(0), step(1)]) == 3
    events = list(session.events())
    assert [e.seq for e in events] == [1, 2, 3]
    assert [e.kind for e in events] == ["message", "step", "step"]
    assert events[0].data["text"] == "hello"
    assert [e.seq for e in session.events(after=1, until=2)] == [2]
    assert [e.seq for e in session.events(kinds=["message"])] == [1]
    assert session.header()["seed"] == 7
    assert session.header()["schema_version"] == database.SCHEMA_VERSION


def test_numpy_values_and_nan_become_json(session):
    session.append("step", {"step": np.int64(3), "reward": np.float32(0.5), "x": [np.nan, float("inf")]})
    assert next(session.events()).data == {"step": 3, "reward": 0.5, "x": [None, None]}


def test_append_many_is_all_or_nothing(session):
    with pytest.raises(TypeError):
        session.append_many([step(0), ("step", {"step": object()})])
    assert list(session.events()) == []
    session.append(*step(0))
    assert session.last_seq == 1


def test_time_never_decreases_when_the_clock_is_set_back(tmp_path, monkeypatch):
    with SessionStore.create(tmp_path, "s", {}) as first:
        first.append(*step(0))
        first.append("step", {"step": 1}, t=first.now() + 100)
        first.append(*step(2))
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    with SessionStore.open(tmp_path / "s", writable=True) as second:
        second.append(*step(3))
        times = [e.t for e in second.events()]
    assert times == sorted(times)
    assert times[3] >= times[2] >= times[1]


def test_seq_at_finds_the_event_of_a_time(session):
    for number in range(50):
        session.append("step", {"step": number}, t=1e10 + 10 * number)
    assert session.seq_at(1e10 - 1) == 0
    assert session.seq_at(1e10) == 1
    assert session.seq_at(1e10 + 255) == 26
    assert session.seq_at(2e10) == 50


def test_two_readers_follow_a_writer(tmp_path, session):
    seen: dict[int, int] = {}
    stop = threading.Event()

    def read(index: int) -> None:
        with SessionStore.open(tmp_path / "s1") as reader:
            after = 0
            while not stop.is_set() or after < reader.last_seq:
                for event in reader.events(after):
                    assert event.seq == after + 1
                    after = event.seq
            seen[index] = after

    threads = [threading.Thread(target=read, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for number in range(300):
        session.append(*step(number))
    stop.set()
    for thread in threads:
        thread.join(20)
    assert seen == {0: 300, 1: 300}


def test_a_reader_cannot_write(tmp_path, session):
    with (
        SessionStore.open(tmp_path / "s1") as reader,
        pytest.raises(WarpdeckError, match="open for reading only"),
    ):
        reader.append(*step(0))


def test_control_commands_are_seen_and_acknowledged_once(tmp_path, session):
    with SessionStore.open(tmp_path / "s1", writable=True) as console:
        number = console.send("pause", "console 1")
        with pytest.raises(UsageError, match="pause, resume, stop"):
            console.send("explode")
        assert [c.command for c in session.commands(pending=True)] == ["pause"]
        session.acknowledge([number], "paused")
        assert console.commands(pending=True) == []
        command = console.commands()[0]
        assert (command.origin, command.answer) == ("console 1", "paused")
        assert command.acknowledged is not None


def test_a_locked_database_is_waited_for(tmp_path, session):
    other = sqlite3.connect(tmp_path / "s1" / "session.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.3, lambda: other.execute("COMMIT"))
    timer.start()
    session.append(*step(0))
    timer.join()
    other.close()
    assert session.last_seq == 1


def test_a_database_that_stays_locked_is_a_plain_error(tmp_path, session, monkeypatch):
    other = sqlite3.connect(tmp_path / "s1" / "session.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    session._db.execute("PRAGMA busy_timeout = 50")
    with pytest.raises(WarpdeckError, match="locked"):
        session.append(*step(0))
    other.execute("ROLLBACK")
    other.close()
    session.append(*step(0))
    assert session.last_seq == 1


def test_a_full_disk_is_a_plain_error_and_keeps_what_was_committed(tmp_path, session):
    session.append_many(step(n) for n in range(20))
    pages = session._db.execute("PRAGMA page_count").fetchone()[0]
    session._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(WarpdeckError, match="is full") as caught:
        session.append("message", {"text": "x" * 100_000})
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, UsageError)
    assert session.last_seq == 20
    session._db.execute("PRAGMA max_page_count = 1000000")
    assert session.append(*step(20)) == 21
    assert [e.seq for e in session.events()] == list(range(1, 22))


def test_a_write_that_the_system_refuses_is_a_plain_error(tmp_path):
    """A quota or a full disk inside SQLite's own writes, brought about by a file size limit."""
    code = """
        import resource, sys
        from pathlib import Path
        from warpdeck.sessions.store import SessionStore
        from warpdeck.core.errors import WarpdeckError
        with SessionStore.create(Path(sys.argv[1]), "s", {}) as session:
            session.append("message", {"text": "kept"})
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
            try:
                session.append("message", {"text": "x" * 1_000_000})
            except WarpdeckError as error:
                print(error)
    """
    process = child(code, tmp_path)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.count("\n") == 1
    assert "session s" in out
    with SessionStore.open(tmp_path / "s") as reader:
        assert [e.data["text"] for e in reader.events()] == ["kept"]


@pytest.mark.parametrize("ending", ["clean", "killed"])
def test_a_session_in_a_read_only_folder_can_be_read(ending):
    """With and without a write-ahead log that was never folded into the file."""
    writing = """
        import os, sys
        from pathlib import Path
        from warpdeck.sessions.store import SessionStore
        session = SessionStore.create(Path(sys.argv[1]), sys.argv[2], {})
        session.append("message", {"text": "kept"})
        if sys.argv[2] == "clean":
            session.close()
        os._exit(0)
    """
    reading = """
        import os, sys
        from warpdeck.sessions.store import SessionStore
        if os.getuid() == 0:  # root writes anywhere
            os.setuid(65534)
        with SessionStore.open(sys.argv[1]) as session:
            print([e.data["text"] for e in session.events()])
    """
    with tempfile.TemporaryDirectory() as base:  # pytest's own folders are closed to other users
        os.chmod(base, 0o755)  # noqa: PTH101
        folder = Path(base) / ending
        assert child(writing, base, ending).wait(30) == 0
        (folder / "session.db-shm").unlink(missing_ok=True)
        assert (folder / "session.db-wal").exists() == (ending == "killed")
        for path in folder.iterdir():
            path.chmod(0o555 if path.is_dir() else 0o444)
        folder.chmod(0o555)
        out, err = child(reading, folder).communicate(timeout=60)
        folder.chmod(0o755)
    assert out == "['kept']\n", err


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: p.write_bytes(b""), "not a session"),
        (lambda p: p.write_bytes(b"hello, world, this is text\n" * 9), "not a session"),
        (lambda p: p.write_bytes(p.read_bytes()[:4096] + b"\xff" * 20000), "damaged"),
        (lambda p: p.write_bytes(p.read_bytes()[:5000]), "damaged"),
        (lambda p: p.unlink(), "no session"),
        (lambda p: (p.unlink(), p.mkdir()), "can't be read"),
    ],
)
def test_a_damaged_file_is_a_usage_error(tmp_path, damage, message):
    with SessionStore.create(tmp_path, "s", {}) as session:
        session.append_many(step(n) for n in range(2000))
    damage(tmp_path / "s" / "session.db")
    with pytest.raises(UsageError, match=message) as caught, SessionStore.open(tmp_path / "s") as session:
        list(session.events())
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_damage_of_that_session_alone(isolated_home):
    """A flipped bit in an event's or the header's text, or in a table's name."""
    sessions = paths.home().sessions
    for name, old in (("event", b"somewhere"), ("header", b"over there"), ("schema", b"series")):
        with SessionStore.create(sessions, name, {"workload": "over there"}) as session:
            session.append("message", {"text": "somewhere"})
        file = sessions / name / "session.db"
        assert old in file.read_bytes()
        file.write_bytes(file.read_bytes().replace(old, old[:-2] + b"\xd5" + old[-1:]))
    with SessionStore.create(sessions, "whole", {}) as session:
        session.append("message", {"text": "somewhere"})
    found = {info.id: info for info in list_sessions()}
    assert found.pop("whole").error is None
    assert all("damaged" in (found[name].error or "") for name in ("header", "schema")), found
    for name in found:
        with (
            pytest.raises(UsageError, match="damaged") as caught,
            SessionStore.open(sessions / name) as session,
        ):
            session.header()
            list(session.events())
        assert "somewhere" not in str(caught.value) and len(str(caught.value)) < 300


def test_an_event_that_lacks_something_is_told_with_its_session(tmp_path):
    with SessionStore.create(tmp_path, "s", {}) as session:
        session.append("message", {"level": "info"})
        for read in (session.state, session.verify, lambda: session.state_at_step(3)):
            with pytest.raises(
                UsageError, match=r"^session s is damaged: event 1 \(message\).*'text' is missing$"
            ):
                read()


def test_another_programs_database_is_a_usage_error(tmp_path):
    (tmp_path / "s").mkdir()
    sqlite3.connect(tmp_path / "s" / "session.db").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(UsageError, match="not a session of warpdeck"):
        SessionStore.open(tmp_path / "s")


def test_a_session_of_a_future_version_is_a_usage_error(tmp_path):
    SessionStore.create(tmp_path, "s", {}).close()
    db = sqlite3.connect(tmp_path / "s" / "session.db", isolation_level=None)
    db.execute("PRAGMA user_version = 99")
    db.close()
    for writable in (False, True):
        with pytest.raises(UsageError, match=r"newer warpdeck \(schema 99.*upgrade"):
            SessionStore.open(tmp_path / "s", writable=writable)


def test_an_event_that_is_no_json_names_itself(tmp_path, session):
    session.append(*step(0))
    session._db.execute("UPDATE event SET data = '{\"step\": ' WHERE seq = 1")
    with pytest.raises(UsageError, match="event 1"):
        list(session.events())


def test_migrations_run_in_one_transaction(tmp_path):
    SessionStore.create(tmp_path, "s", {}).close()
    db = sqlite3.connect(tmp_path / "s" / "session.db", isolation_level=None)

    def add_column(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE event ADD COLUMN origin TEXT")

    def fail(db: sqlite3.Connection) -> None:
        db.execute("CREATE TABLE half_done (x)")
        raise sqlite3.OperationalError("database or disk is full")

    database.migrate(db, 1, steps=(add_column,))
    assert db.execute("PRAGMA user_version").fetchone()[0] == 2
    with pytest.raises(sqlite3.OperationalError):
        database.migrate(db, 2, steps=(add_column, fail))
    assert db.execute("PRAGMA user_version").fetchone()[0] == 2
    assert db.execute("SELECT COUNT(*) FROM sqlite_master WHERE name = 'half_done'").fetchone()[0] == 0
    db.close()


def test_a_name_that_exists_or_is_impossible_is_a_usage_error(tmp_path, session):
    with pytest.raises(UsageError, match="exists already"):
        SessionStore.create(tmp_path, "s1", {})
    assert session.header()["seed"] == 7  # the first one is untouched
    for name in ("", "../up", "a/b", ".hidden", "x" * 81, "a b", "last", "latest"):
        with pytest.raises(UsageError, match="session name"):
            SessionStore.create(tmp_path, name, {})


def test_a_backup_of_a_live_session_is_whole(tmp_path, session):
    session.append_many(step(n) for n in range(700))
    (tmp_path / "copy").mkdir()
    session.backup(tmp_path / "copy" / "session.db")
    assert not (tmp_path / "copy" / "session.db-wal").exists()
    with SessionStore.open(tmp_path / "copy") as copy:
        assert copy.last_seq == 700
        assert copy.state() == session.state()


WRITER = """
    import itertools, sys
    from warpdeck.sessions.store import SessionStore
    store = SessionStore.open(sys.argv[1], writable=True)
    first = store.last_seq
    for n in itertools.count(first):
        if n % 3:
            seq = store.append("step", {"step": n, "reward": 0.1, "speedup": 1.1, "best_speedup": 1.0 + n})
        else:
            seq = store.append_many([("message", {"text": str(n)})] * 3)
        print(seq, flush=True)
"""


def test_kill_9_at_any_moment_loses_nothing_committed(tmp_path, monkeypatch):
    SessionStore.create(tmp_path, "s", {}).close()
    known = 0
    for attempt in range(8):
        writer = child(WRITER, tmp_path / "s")
        assert writer.stdout is not None
        confirmed = known
        # A different number of commits each time, then death in the middle of whatever comes next.
        for _ in range(1 + attempt * 37):
            line = writer.stdout.readline()
            assert line, writer.stderr.read() if writer.stderr else ""
            confirmed = int(line)
        writer.kill()
        rest = writer.stdout.read().split()
        writer.wait()
        confirmed = max([confirmed, *map(int, rest[:-1])])
        with SessionStore.open(tmp_path / "s") as reader:
            events = list(reader.events())
            assert len(events) >= confirmed
            assert [e.seq for e in events] == list(range(1, len(events) + 1))
            state = reader.state()
            assert state.seq == len(events)
            assert state == store.reduce_all(events)
        known = len(events)
    assert known > 500
