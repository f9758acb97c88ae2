"""Watching a session: as it grows, played back, and through the run's own log writer and control."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from warpdeck.agents.base import Stop
from warpdeck.core.errors import UsageError, WarpdeckError
from warpdeck.sessions import alive, tail
from warpdeck.sessions.alive import RunLock, runner_pid
from warpdeck.sessions.events import Lifecycle
from warpdeck.sessions.log import LogWriter, RunControl
from warpdeck.sessions.replay import SPEEDS, Replay, ReplayClock
from warpdeck.sessions.store import SessionStore
from warpdeck.sessions.tail import Tail, follow, send

T0 = 1e9


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    with SessionStore.create(tmp_path, "s", {}) as opened:
        # Events of these tests carry their own times, long before now.
        opened._epoch = T0 - time.monotonic()
        yield opened


def steps(store: SessionStore, first: int, last: int, every_s: float = 1.0) -> None:
    store.append_many(("step", {"step": n, "reward": n}, T0 + n * every_s) for n in range(first, last + 1))


# -- replay -----------------------------------------------------------------------------------------


def test_the_clock_moves_pauses_and_changes_speed():
    real = Clock()
    clock = ReplayClock(100.0, clock=real)
    real.now = 10
    assert clock.position == 10
    clock.speed = 4
    real.now = 12
    assert clock.position == 18
    clock.playing = False
    real.now = 50
    assert clock.position == 18
    clock.playing = True
    real.now = 51
    assert clock.position == 22
    clock.position = 1000
    assert clock.position == 100
    assert not clock.playing
    clock.position = -5
    assert clock.position == 0


def test_replay_shows_the_state_of_every_moment(store):
    steps(store, 0, 50)
    real = Clock()
    replay = Replay(store.folder, clock=real)
    assert replay.length == 50
    for now in (0, 0.5, 1, 7.3, 49.9, 50, 60):
        real.now = now
        replay.poll()
        assert replay.state.step == min(int(now), 50)
        assert replay.now() == pytest.approx(T0 + min(now, 50))
    replay.toggle()  # at the end: from the start
    assert replay.playing
    assert replay.position == 0
    replay.close()


def test_replay_at_any_speed_equals_the_log_reduced_up_to_there(store):
    for first in range(0, 3000, 100):
        steps(store, first, first + 99, 0.01)
    real = Clock()
    replay = Replay(store.folder, speed=256, clock=real)
    while replay.playing:
        real.now += 0.013
        state = replay.poll()
        if state is not None:
            assert state == store.state(state.seq)
            assert state.step == pytest.approx(replay.position * 100, abs=1)
    replay.close()


def test_seeking_by_time_fraction_and_step(store):
    steps(store, 1, 2000)
    replay = Replay(store.folder, clock=Clock())
    replay.seek(0.5)
    replay.poll()
    assert replay.state.step == 1000
    replay.seek_time(10)
    replay.poll()
    assert replay.state.step == 11
    replay.seek_step(1234)
    assert replay.poll() is not None
    assert replay.state.step == 1234
    replay.step(1)
    replay.poll()
    assert (replay.state.step, replay.playing) == (1235, False)
    for _ in range(2):
        replay.step(-1)
    replay.poll()
    assert replay.state.step == 1233
    replay.seek_step(0)
    replay.poll()
    assert replay.state.step == 0
    replay.seek_step(99_999)
    replay.poll()
    assert replay.state.step == 2000
    replay.close()


def test_stepping_distinguishes_events_of_one_moment(store):
    store.append_many(("step", {"step": n}, T0) for n in range(1, 11))
    store.append("step", {"step": 11}, t=T0 + 1)
    replay = Replay(store.folder, clock=Clock())
    for n in range(1, 12):
        replay.seek_step(n)
        replay.poll()
        assert replay.state.step == n
    replay.close()


def test_replay_skips_the_time_in_which_the_run_was_dead(store):
    store.append("state", {"state": "running"}, t=T0)
    store.append("step", {"step": 1}, t=T0 + 10)
    store.append("state", {"state": "interrupted"}, t=T0 + 5000)
    store.append("state", {"state": "running"}, t=T0 + 5000)
    store.append("step", {"step": 2}, t=T0 + 5005)
    replay = Replay(store.folder, clock=Clock())
    assert replay.length == 15
    replay.seek_time(9.9)
    replay.poll()
    assert replay.state.step == 0
    replay.seek_time(10.5)
    replay.poll()
    assert (replay.state.step, replay.state.lifecycle) == (1, Lifecycle.RUNNING)
    assert replay.now() == pytest.approx(T0 + 5000.5)
    replay.seek_time(15)
    replay.poll()
    assert replay.state.step == 2
    replay.close()


def test_speeds_go_up_and_down_within_bounds(store):
    steps(store, 1, 3)
    replay = Replay(store.folder, clock=Clock())
    for _ in range(30):
        replay.change_speed(1)
    assert replay.speed == SPEEDS[-1]
    for _ in range(30):
        replay.change_speed(-1)
    assert replay.speed == SPEEDS[0]
    replay.close()


def test_an_empty_session_can_be_replayed(store):
    replay = Replay(store.folder, clock=Clock())
    assert replay.length == 0
    assert replay.poll() is not None
    assert not replay.playing
    replay.close()


def test_asking_who_runs_a_session_in_this_process_keeps_its_lock(store):
    """POSIX locks go when any descriptor of the file is closed in the process that holds them."""
    lock = RunLock.acquire(store.folder)
    assert runner_pid(store.folder) == os.getpid()
    code = "import sys; from pathlib import Path; from warpdeck.sessions.alive import is_running; "
    code += "sys.exit(0 if is_running(Path(sys.argv[1])) else 1)"
    asked = subprocess.run([sys.executable, "-c", code, str(store.folder)], check=False)
    lock.release()
    assert asked.returncode == 0


# -- tail -------------------------------------------------------------------------------------------


def test_a_tail_sees_what_is_committed_and_only_changes(store):
    lock = RunLock.acquire(store.folder)
    watched = Tail(store.folder)
    assert watched.poll() is not None
    assert watched.poll() is None
    store.append("state", {"state": "running"})
    steps(store, 1, 3)
    state = watched.poll()
    assert state == store.state()
    assert watched.poll() is None
    watched.close()
    lock.release()


def test_a_poll_reads_a_bounded_number_of_events(store, monkeypatch):
    monkeypatch.setattr(tail, "CHUNK", 10)
    lock = RunLock.acquire(store.folder)
    watched = Tail(store.folder)
    watched.poll()
    steps(store, 1, 25)
    seen = []
    while (state := watched.poll()) is not None:
        seen.append(state.step)
    assert seen == [10, 20, 25]
    watched.close()
    lock.release()


def test_following_ends_with_the_run(store):
    lock = RunLock.acquire(store.folder)

    def run() -> None:
        store.append("state", {"state": "running"})
        for n in range(1, 6):
            steps(store, n, n)
            time.sleep(0.02)
        store.append("state", {"state": "finished"})
        lock.release()

    thread = threading.Thread(target=run)
    thread.start()
    states = list(follow(store.folder, poll_s=0.01))
    thread.join()
    assert states[-1] == store.state()
    assert [s.seq for s in states] == sorted({s.seq for s in states})


def test_following_ends_when_told(store):
    lock = RunLock.acquire(store.folder)
    stop = threading.Event()
    states = follow(store.folder, poll_s=0.01, stop=stop)
    next(states)
    stop.set()
    assert list(states) == []
    lock.release()


def test_a_tail_of_nothing_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no session there"):
        Tail(tmp_path)


def test_a_lock_is_exclusive_and_tells_its_holder(store):
    assert not alive.is_running(store.folder)
    lock = RunLock.acquire(store.folder)
    assert alive.is_running(store.folder)
    assert alive.runner_pid(store.folder) is not None
    assert (alive.silence_s(store.folder) or 0) < 60
    with pytest.raises(UsageError, match="running"):
        RunLock.acquire(store.folder)
    lock.release()
    assert alive.runner_pid(store.folder) is None


# -- the run's side ---------------------------------------------------------------------------------


def test_the_log_keeps_order_and_times_of_many_threads(store):
    log = LogWriter(store)

    def work(name: int) -> None:
        for n in range(200):
            log.sink("message", {"text": f"{name}:{n}"})

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.flush()
    assert store.last_seq == 600
    log.sink("message", {"text": "last"})
    log.close()
    events = list(store.events())
    assert len(events) == 601
    assert [e.t for e in events] == sorted(e.t for e in events)
    for name in range(3):
        mine = [e.data["text"] for e in events if e.data["text"].startswith(f"{name}:")]
        assert mine == [f"{name}:{n}" for n in range(200)]


def test_what_the_log_was_given_may_change_afterwards(store):
    log = LogWriter(store)
    data = {"text": "before"}
    log.sink("message", data)
    data["text"] = "after"
    log.close()
    assert next(store.events()).data["text"] == "before"


def test_a_full_disk_reaches_the_run_and_spares_what_was_committed(store):
    log = LogWriter(store)
    log.sink("message", {"text": "kept"})
    log.flush()
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages + 1}")
    log.sink("message", {"text": "x" * 100_000})
    with pytest.raises(WarpdeckError, match="is full"):
        log.flush()
    with pytest.raises(WarpdeckError, match="is full"):
        log.sink("message", {"text": "more"})
    with pytest.raises(WarpdeckError, match="is full"):
        log.close()
    assert [e.data["text"] for e in store.events()] == ["kept"]


@pytest.fixture
def control(store: SessionStore) -> Iterator[RunControl]:
    lock = RunLock.acquire(store.folder)
    log = LogWriter(store)
    made = RunControl(store, log, lock)
    yield made
    made.close()
    log.close()
    lock.release()


def test_control_does_nothing_until_it_is_told(control):
    for _ in range(1000):
        control.check()
    assert control.stop_reason is None


def test_control_blocks_while_paused_and_raises_when_stopped(store, control):
    send(store.folder, "pause")
    passed = threading.Event()
    stopped = threading.Event()

    def agent() -> None:
        try:
            while True:
                control.check()
                passed.set()
                time.sleep(0.001)
        except Stop:
            stopped.set()

    thread = threading.Thread(target=agent)
    thread.start()
    deadline = time.monotonic() + 60
    while store.state().lifecycle is not Lifecycle.PAUSED and time.monotonic() < deadline:
        time.sleep(0.01)
    passed.clear()
    assert not passed.wait(0.3)
    send(store.folder, "resume")
    assert passed.wait(20)
    send(store.folder, "stop", "a test")
    assert stopped.wait(20)
    thread.join()
    assert control.stop_reason == "stopped by a test"


def test_a_locked_database_delays_commands_but_not_the_run(store, control):
    other = sqlite3.connect(store.folder / "session.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    control.check()
    other.execute("ROLLBACK")
    other.close()
    send(store.folder, "stop")
    deadline = time.monotonic() + 60
    while control.stop_reason is None and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(Stop):
        control.check()
