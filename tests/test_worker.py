"""Fork server, worker processes and their protocol, with real processes and no GPU."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.core import server_process
from warpdeck.core.devices.cuda import CudaDevice
from warpdeck.core.errors import ExitCode, NoDeviceError
from warpdeck.core.model import Status
from warpdeck.core.worker import (
    Exchange,
    ForkServer,
    WorkerDied,
    WorkerFault,
    WorkerHandle,
    WorkerTimeout,
    wire,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer() as running:
        yield running


@pytest.fixture
def worker(server: ForkServer) -> Iterator[WorkerHandle]:
    handle = server.fork()
    yield handle
    handle.kill()


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


# -- messages --------------------------------------------------------------------------------------


@pytest.fixture
def pair() -> Iterator[tuple[wire.Channel, wire.Channel]]:
    a, b = map(wire.Channel, socket.socketpair())
    yield a, b
    a.close()
    b.close()


@given(st.lists(st.dictionaries(st.text(), json_values, max_size=4), max_size=4))
def test_messages_arrive_in_order_and_unchanged(messages: list[dict[str, object]]) -> None:
    a, b = map(wire.Channel, socket.socketpair())
    for message in messages:
        a.send(message)
    assert [b.receive(5) for _ in messages] == messages
    a.close()
    b.close()


@given(st.binary(max_size=64))
def test_any_bytes_give_a_message_or_a_protocol_error(data: bytes) -> None:
    a, b = socket.socketpair()
    with b:
        with a:
            a.sendall(data)
        with contextlib.suppress(wire.Closed, wire.Malformed):
            assert isinstance(wire.Channel(b).receive(5), dict)


def test_a_large_message_and_the_next_arrive_whole(pair: tuple[wire.Channel, wire.Channel]) -> None:
    a, b = pair
    large = {"text": "x" * (1 << 20)}
    thread = threading.Thread(target=lambda: (a.send(large), a.send({"last": True})))
    thread.start()
    assert b.receive(10) == large
    assert b.receive(10) == {"last": True}
    thread.join()


def test_a_giant_length_is_refused_before_it_is_read(pair: tuple[wire.Channel, wire.Channel]) -> None:
    pair[0].socket.sendall(struct.pack(">I", 0xFFFFFFFF))
    with pytest.raises(wire.Malformed, match="limit"):
        pair[1].receive(5)


def test_silence_is_a_timeout_even_in_the_middle_of_a_message(
    pair: tuple[wire.Channel, wire.Channel],
) -> None:
    pair[0].socket.sendall(struct.pack(">I", 10) + b"{")
    with pytest.raises(TimeoutError):
        pair[1].receive(0.05)


def test_deep_nesting_is_a_protocol_error(pair: tuple[wire.Channel, wire.Channel]) -> None:
    body = b"[" * 200_000
    thread = threading.Thread(target=lambda: pair[0].socket.sendall(struct.pack(">I", len(body)) + body))
    thread.start()
    with pytest.raises(wire.Malformed):
        pair[1].receive(5)
    thread.join()


# -- processes -------------------------------------------------------------------------------------


def test_a_worker_answers_and_ends_when_closed(worker: WorkerHandle) -> None:
    assert worker.call("ping", {"payload": [1, "two"]}) == {"payload": [1, "two"]}
    worker.close()
    assert worker.gone
    assert not exists(worker.pid)


def test_workers_are_separate_processes_of_one_server(server: ForkServer) -> None:
    workers = [server.fork() for _ in range(3)]
    assert len({server.pid, os.getpid(), *(w.pid for w in workers)}) == 5
    workers[1].kill()
    assert [w.call("ping") for w in (workers[0], workers[2])] == [{"payload": None}] * 2
    for worker in workers:
        worker.kill()
        assert worker.gone


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a CUDA device")
def test_no_gpu_is_a_plain_no_device_error(server: ForkServer) -> None:
    with pytest.raises(NoDeviceError) as caught:
        server.spawn(0)
    assert caught.value.exit_code is ExitCode.NO_DEVICE
    assert "\n" not in str(caught.value)
    assert server.fork().call("ping") == {"payload": None}  # the server goes on


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a CUDA device")
def test_opening_a_missing_device_fails_at_once_and_says_what_to_do() -> None:
    started = time.monotonic()
    with pytest.raises(NoDeviceError, match="recorded:h200"):
        CudaDevice(0)
    assert time.monotonic() - started < 10  # on a busy machine; a start that is waited for takes longer


@pytest.mark.parametrize("sent", [signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT])
def test_a_crash_is_reported_and_the_process_is_gone(worker: WorkerHandle, sent: signal.Signals) -> None:
    os.kill(worker.pid, sent)
    with pytest.raises(WorkerDied, match=sent.name) as caught:
        worker.call("ping")
    assert caught.value.status is Status.RUNTIME_ERROR
    assert worker.gone
    assert not exists(worker.pid)
    with pytest.raises(WorkerDied, match="has ended"):
        worker.call("ping")


def test_a_crash_while_an_answer_is_awaited(worker: WorkerHandle) -> None:
    os.kill(worker.pid, signal.SIGSTOP)
    threading.Timer(0.1, os.kill, (worker.pid, signal.SIGKILL)).start()
    with pytest.raises(WorkerDied, match="SIGKILL"):
        worker.call("ping", timeout_s=20)


def test_a_hang_is_killed_within_its_limit(worker: WorkerHandle) -> None:
    os.kill(worker.pid, signal.SIGSTOP)
    started = time.monotonic()
    with pytest.raises(WorkerTimeout) as caught:
        worker.call("ping", timeout_s=0.2)
    assert caught.value.status is Status.TIMEOUT
    assert time.monotonic() - started < 30
    assert worker.gone
    assert not exists(worker.pid)


def test_an_unknown_job_is_a_fault_that_the_worker_survives(worker: WorkerHandle) -> None:
    with pytest.raises(WorkerFault, match="no job 'nonsense'"):
        worker.call("nonsense")
    assert worker.call("ping") == {"payload": None}


def test_a_job_before_cuda_started_is_a_fault(worker: WorkerHandle) -> None:
    for job in ("time", "run", "floors"):
        with pytest.raises(WorkerFault) as caught:
            worker.call(job, {"code": "x", "key": "y", "launches": []})
        assert caught.value.status is Status.UNSUPPORTED


def test_a_malformed_payload_ends_only_that_worker(server: ForkServer, worker: WorkerHandle) -> None:
    with pytest.raises(WorkerFault, match="KeyError"):
        worker.call("release", {})
    assert worker.gone
    assert server.fork().call("ping") == {"payload": None}


def test_ctrl_c_reaches_only_the_run_process(worker: WorkerHandle) -> None:
    os.kill(worker.pid, signal.SIGINT)
    assert worker.call("ping") == {"payload": None}


def started(handle: WorkerHandle) -> str:
    """What starting CUDA on device 0 comes to."""
    try:
        return handle.start(0)
    except WorkerFault as fault:
        return str(fault)


def test_a_server_that_was_begun_before_is_the_one_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "has_driver", lambda: True)
    server_process.begin(library=True)
    server_process.begin(library=False)  # changes nothing
    begun = server_process.take()
    monkeypatch.setitem(server_process._begun, server_process.WORKERS, begun)
    with ForkServer() as first, ForkServer() as second:
        assert first.pid == begun.process.pid != second.pid
        early = first.library()
        assert early.call("ping", timeout_s=60) == {"payload": None}
        # one worker was asked to start CUDA, which this machine may lack: the answer is that of any other
        elsewhere, ahead, later = first.first(1), first.first(0), first.first(0)
        assert len({early.pid, elsewhere.pid, ahead.pid, later.pid}) == 4
        assert started(ahead) == started(later)
        ahead.kill()
        assert ahead.gone
        another, elsewhere = first.library(), second.library()  # there was but one
        assert len({early.pid, another.pid, elsewhere.pid}) == 3
        another.close()
        early.kill()
        assert early.gone and not Path(f"/proc/{early.pid}").exists()
    assert begun.process.poll() == 0


def test_the_library_s_worker_ends_with_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "has_driver", lambda: True)
    server_process.begin(library=True)
    with ForkServer() as server:
        early = server.library()
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        with pytest.raises(WorkerFault):
            while time.monotonic() < deadline:  # it hears of the server's end a moment later
                early.call("ping", timeout_s=20)
        while Path(f"/proc/{early.pid}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_killed_server_s_workers_are_known_to_have_ended_and_the_next_one_gets_a_new_server(
    server: ForkServer,
) -> None:
    several = [server.fork() for _ in range(2)]
    for handle in several:
        handle.call("ping")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    with pytest.raises(WorkerDied, match="fork server was ended"):
        while time.monotonic() < deadline:  # it is told of the server's end a moment later
            several[0].call("ping", timeout_s=20)
    several[1].close()
    assert [handle.gone for handle in several] == [True, True]
    later = server.fork()
    assert later.call("ping") == {"payload": None}
    later.close()
    assert later.gone


def test_workers_and_server_end_with_the_run_process() -> None:
    script = (
        "import os, signal\n"
        "from warpdeck.core.worker import ForkServer\n"
        "server = ForkServer(); server.start(); w = server.fork(); w.call('ping')\n"
        "print(server.pid, w.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    pids = [int(text) for text in done.stdout.split()]
    deadline = time.monotonic() + 60
    while any(exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(pids) == 2
    assert not any(exists(pid) for pid in pids)


# -- shared files ----------------------------------------------------------------------------------


def test_exchange_files_grow_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    exchange = Exchange()
    small = exchange.allocate("out", 1000)
    assert exchange.allocate("out", 500) == small
    large = exchange.allocate("out", 5000)
    assert large.stat().st_size >= 5000
    assert not small.exists()
    exchange.close()
    assert not large.parent.exists()
