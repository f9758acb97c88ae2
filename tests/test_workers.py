"""Spare workers and the rule that none starts or ends while something is timed: real processes, no GPU."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from imitation import UUID, Imitation

from warpdeck.core.devices import cuda
from warpdeck.core.errors import WarpdeckError
from warpdeck.core.lock import gpu_lock, holder
from warpdeck.core.worker import ForkServer, WorkerHandle, Workers

WAIT_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer() as running:
        yield running


class Contexts:
    """Stands for the creation of contexts: counts it, and holds it up while `gate` is closed."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.made: list[int] = []
        self.begun = 0

    def __call__(self, handle: WorkerHandle) -> None:
        self.begun += 1
        assert self.gate.wait(WAIT_S)
        handle.call("ping")
        self.made.append(handle.pid)


@pytest.fixture
def contexts() -> Contexts:
    return Contexts()


@pytest.fixture
def workers(server: ForkServer, contexts: Contexts) -> Iterator[Workers]:
    pool = Workers(server.fork, contexts)
    pool.most = 4
    yield pool
    contexts.gate.set()
    pool.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


# -- spares ----------------------------------------------------------------------------------------


def test_spares_are_made_one_by_one_and_handed_out_once(workers: Workers, contexts: Contexts) -> None:
    contexts.gate.clear()
    workers.want(3)
    until(lambda: contexts.begun)
    workers.want(3)  # they are on their way already
    assert contexts.begun == 1
    contexts.gate.set()
    taken = [workers.take() for _ in range(3)]  # the first waits for the one that starts
    assert {handle.pid for handle in taken} == set(contexts.made) == workers.pids()
    assert len(contexts.made) == 3
    assert workers.take().pid not in {handle.pid for handle in taken}  # none was left: a new one


def test_what_was_taken_is_not_replaced_unasked(workers: Workers, contexts: Contexts) -> None:
    workers.want(1)
    assert workers.take().pid == contexts.made[0]
    with workers.timing():
        assert contexts.begun == 1
    workers.want(1)
    until(lambda: len(contexts.made) == 2)


def test_there_are_never_more_spares_than_may_be(workers: Workers, contexts: Contexts) -> None:
    workers.most = 2
    workers.want(9)
    until(lambda: len(contexts.made) == 2)
    workers.want(9)
    assert workers.pids() == set(contexts.made) and contexts.begun == 2


def test_a_spare_that_was_killed_while_it_waited_is_replaced(workers: Workers, contexts: Contexts) -> None:
    workers.want(1)
    until(lambda: contexts.made)
    (dead,) = contexts.made
    os.kill(dead, signal.SIGKILL)
    handle = workers.take()
    assert handle.pid != dead and handle.call("ping") == {"payload": None}
    with workers.timing():
        assert not exists(dead) and workers.pids() == {handle.pid}


def test_a_spare_that_never_becomes_ready_is_killed_and_replaced(server: ForkServer) -> None:
    stuck: list[WorkerHandle] = []

    def open_worker(handle: WorkerHandle) -> None:
        if not stuck:
            stuck.append(handle)
            os.kill(handle.pid, signal.SIGSTOP)
        handle.call("ping", timeout_s=0.1)

    workers = Workers(server.fork, open_worker)
    workers.want(1)
    handle = workers.take()  # waits for it, then starts another
    assert handle.pid != stuck[0].pid and stuck[0].gone and not exists(stuck[0].pid)
    workers.close()
    assert handle.gone


def test_what_no_worker_can_do_is_told_by_the_one_that_is_needed(server: ForkServer) -> None:
    def open_worker(handle: WorkerHandle) -> None:
        raise WarpdeckError("no room on the GPU")

    workers = Workers(server.fork, open_worker)
    workers.want(1)
    with pytest.raises(WarpdeckError, match="no room on the GPU"):
        workers.take()
    assert workers.pids() == set()
    workers.close()


# -- measuring -------------------------------------------------------------------------------------


def test_no_worker_starts_or_ends_while_something_is_timed(server: ForkServer) -> None:
    timed = threading.Event()
    disturbed: list[str] = []

    def open_worker(handle: WorkerHandle) -> None:
        for _ in range(3):
            handle.call("ping")
            if timed.is_set():
                disturbed.append("a context was created")

    workers = Workers(server.fork, open_worker)
    workers.most = 3
    for round_ in range(20):
        workers.want(3)
        workers.end(workers.take())
        with workers.timing():
            timed.set()
            workers.want(3)  # they wait for the end
            before = workers.pids()
            for handle in list(workers._ready):  # pyright: ignore[reportPrivateUsage]
                handle.call("ping")
            if workers.pids() != before:
                disturbed.append(f"another worker in round {round_}")
            timed.clear()
    workers.close()
    assert not disturbed


def test_timing_waits_for_one_context_and_the_others_wait_for_its_end(
    workers: Workers, contexts: Contexts
) -> None:
    contexts.gate.clear()
    workers.want(3)
    until(lambda: contexts.begun)
    timed, enough = threading.Event(), threading.Event()

    def measure() -> None:
        with workers.timing():
            assert contexts.begun == len(contexts.made) == 1
            timed.set()
            assert enough.wait(WAIT_S)
            assert contexts.begun == 1

    thread = threading.Thread(target=measure)
    thread.start()
    assert not timed.wait(0.05)
    contexts.gate.set()
    assert timed.wait(WAIT_S)
    enough.set()
    thread.join()
    until(lambda: len(contexts.made) == 3)
    assert workers.waited_s > 0.04


def test_timing_waits_until_an_ended_worker_is_gone_and_its_memory_returned(server: ForkServer) -> None:
    listed: set[int] = set()
    workers = Workers(server.fork, lambda handle: listed.add(handle.pid), listed=lambda: set(listed))
    handle = workers.take()
    seen: list[bool] = []
    workers.end(handle)
    threading.Timer(0.05, lambda: (seen.append(exists(handle.pid)), listed.clear())).start()
    with workers.timing():
        assert handle.gone and seen == [False]  # gone at once; the driver gave its memory back later
    workers.close()


def test_a_worker_that_cannot_be_ended_stops_the_measuring(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = Workers(server.fork, lambda handle: None)
    handle = workers.take()
    monkeypatch.setattr(server, "reap", lambda pid, **how: (False, None))  # as of a process in the driver
    workers.end(handle)
    with pytest.raises(WarpdeckError, match=f"worker process {handle.pid} can't be ended"), workers.timing():
        raise AssertionError("nothing may be timed beside it")
    with pytest.raises(WarpdeckError, match="the GPU may need a reset"):
        workers.take()


def test_who_measures_cannot_start_or_end_a_worker(workers: Workers) -> None:
    handle = workers.take()
    with workers.timing():
        for act in (workers.take, lambda: workers.end(handle)):
            with pytest.raises(RuntimeError, match="while something is timed"):
                act()
    assert handle.call("ping") == {"payload": None}


def test_an_interrupted_wait_leaves_nobody_measuring(workers: Workers, contexts: Contexts) -> None:
    contexts.gate.clear()
    workers.want(1)
    until(lambda: contexts.begun)
    interrupt = threading.Timer(0.05, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        interrupt.start()
        with workers.timing():
            raise AssertionError("a context is being created")
    contexts.gate.set()
    with workers.timing():
        assert len(contexts.made) == 1


def test_closing_ends_workers_also_those_that_start(server: ForkServer) -> None:
    begun = threading.Event()

    def open_worker(handle: WorkerHandle) -> None:
        begun.set()
        os.kill(handle.pid, signal.SIGSTOP)  # as one that the driver keeps busy
        handle.call("ping", timeout_s=60)

    workers = Workers(server.fork, open_worker)
    workers.want(1)
    assert begun.wait(WAIT_S)
    (pid,) = workers.pids()
    started = time.monotonic()
    workers.close()
    assert time.monotonic() - started < 30 and not exists(pid)
    workers.want(1)
    assert workers.pids() == set()


# -- the GPU's lock --------------------------------------------------------------------------------


class Locked(Imitation):
    """Knows who held the GPU when it ended."""

    held: int | None = None

    def __exit__(self, *exc: object) -> None:
        self.held = holder(UUID)


@pytest.fixture
def imitation(monkeypatch: pytest.MonkeyPatch) -> Locked:
    server = Locked({})
    monkeypatch.setattr(cuda, "ForkServer", lambda: server)
    monkeypatch.setattr(cuda, "_require_driver", lambda: None)
    monkeypatch.setattr(cuda, "_LOCK_WAIT_S", 0.01)
    return server


def test_no_context_is_created_on_a_gpu_that_another_holds(imitation: Locked) -> None:
    with gpu_lock(UUID), pytest.raises(WarpdeckError, match="is in use by"):
        cuda.CudaDevice(0, ahead=True)
    assert imitation.count("init") == 1 and imitation.count("open") == 0


def test_the_gpu_is_held_until_its_workers_have_ended(imitation: Locked) -> None:
    device = cuda.CudaDevice(0, ahead=True)
    until(lambda: imitation.count("open") == 2)
    device.close()
    assert imitation.held == os.getpid() and holder(UUID) is None
    assert device.workers.pids() == set()
