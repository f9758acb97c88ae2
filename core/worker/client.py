"""The run process's side: start the fork server, spawn workers, call jobs, kill what hangs."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import server_process
from ..errors import NoDeviceError, WarpdeckError
from ..model import Status
from ..server_process import ServerProcess
from . import wire
from .faults import WorkerDied, WorkerFault, WorkerTimeout

_SPAWN_S = 20.0
_INIT_S = 60.0
_GONE_S = 10.0  # the driver needs a while to tear down a hung kernel
_END_S = 1.0  # for a worker to end by itself
_POLL_S = 0.002
KERNEL_S = 10.0  # default limit for one kernel


class ForkServer:
    """Spawns workers. One per run process; ends with it. `children`: the module that they run."""

    def __init__(self, children: str = server_process.WORKERS) -> None:
        self._children = children
        self._server: ServerProcess | None = None
        self._control: wire.Channel | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the server's process, once; one that was begun before is taken. One that was killed, or whose
        channel is of no more use, is replaced: its workers have ended with it."""
        with self._lock:
            if self._server is not None and (
                self._control is None or self._server.process.poll() is not None
            ):
                self._end()
            if self._server is None:
                self._server = server_process.take(self._children)
                self._control = wire.Channel(self._server.control)

    def spawn(self, device: int = 0, *, helpers: bytes | None = None, clock: str = "auto") -> WorkerHandle:
        """Fork a worker and start CUDA in it; with `helpers` (their cubin) it is ready to measure.

        Raises NoDeviceError without a driver or that device, WarpdeckError if the worker fails otherwise.
        """
        handle = self.fork()
        try:
            handle.start(device, clock)
            handle.open()
            if helpers is not None:
                handle.load_helpers(helpers)
        except WorkerFault as fault:
            handle.kill()
            if fault.status is Status.UNSUPPORTED:
                raise NoDeviceError(fault.message) from None
            raise
        return handle

    def fork(self) -> WorkerHandle:
        """Fork a worker that hasn't touched CUDA yet."""
        return WorkerHandle(self, *self.child())

    def child(self, *, output: int | None = None) -> tuple[int, socket.socket]:
        """Fork a child: its process id, and our end of the connection. `output`: where it prints to."""
        self.start()
        ours, theirs = socket.socketpair()
        fds = [theirs.fileno(), *([] if output is None else [output])]
        try:
            answer = self._ask({"op": "spawn"}, _SPAWN_S, tuple(fds))
        finally:
            theirs.close()
        return int(answer["pid"]), ours

    def first(self, device: int) -> WorkerHandle:
        """A worker to `start` on a device: the one that was begun on it, else a new one."""
        self.start()
        if self._server is None or self._server.first is None or device != 0:
            return self.fork()
        answer = self._ask({"op": "first"}, _SPAWN_S)
        end, self._server = self._server.first, replace(self._server, first=None)
        return WorkerHandle(self, int(answer["pid"]), end, starting=True)

    def library(self) -> WorkerHandle:
        """The worker that imports the vendor's library already, else a new one."""
        self.start()
        if self._server is None or self._server.library is None:
            return self.fork()
        answer = self._ask({"op": "library"}, _SPAWN_S)
        end, self._server = self._server.library, replace(self._server, library=None)
        return WorkerHandle(self, int(answer["pid"]), end)

    def reap(self, pid: int, *, kill: bool, wait_s: float = _GONE_S) -> tuple[bool, int | None]:
        """Wait until a worker's process is gone, killing it first if asked. (gone, exit code or -signal)

        The server answers others meanwhile: workers start while one takes long to end.
        """
        if self._server is None:
            return True, None
        deadline = time.monotonic() + wait_s
        while True:
            code: int | None = None
            try:
                answer = self._ask({"op": "reap", "pid": pid, "kill": kill}, _SPAWN_S)
                gone, code = bool(answer["gone"]), answer.get("exit")
            except WarpdeckError:
                gone = True  # its server's end is its own
            # Nobody's exit code but its server's: another one doesn't know the worker.
            gone = gone and (code is not None or _ended(pid))
            if gone or time.monotonic() >= deadline:
                return gone, code
            time.sleep(_POLL_S)

    def _ask(self, message: dict[str, Any], timeout_s: float, fds: tuple[int, ...] = ()) -> dict[str, Any]:
        with self._lock:
            if self._control is None:
                raise WarpdeckError("the fork server is closed")
            try:
                self._control.send(message, fds)
                return self._control.receive(timeout_s)
            except (wire.Closed, TimeoutError) as error:
                # A late answer would be taken for the next request's: this channel is of no more use.
                self._control.close()
                self._control = None
                raise WarpdeckError(
                    f"the fork server failed ({error}): {self.last_words() or 'no message'}"
                ) from None

    def last_words(self) -> str:
        """The last line that a worker or the server wrote to stderr."""
        if self._server is None:
            return ""
        log = self._server.log.fileno()
        tail = os.pread(log, 4096, max(0, os.fstat(log).st_size - 4096))
        lines = tail.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    @property
    def pid(self) -> int | None:
        """The server's process id; None if it isn't running."""
        return self._server.process.pid if self._server else None

    def close(self) -> None:
        """End the server and every worker."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        server, self._server = self._server, None
        if server is not None:
            for end in (server.first, server.library):
                if end is not None:
                    end.close()
            try:
                server.process.wait(_GONE_S)
            except subprocess.TimeoutExpired:
                server.process.send_signal(signal.SIGKILL)
                server.process.wait()
            server.log.close()

    def __enter__(self) -> ForkServer:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _ended(pid: int) -> bool:
    """Whether a process has ended, waited for or not: a container's first process may wait for none."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in ("Z", "X")


class WorkerHandle:
    """One worker. Not for several threads at once. `starting`: it has been asked to start CUDA."""

    def __init__(self, server: ForkServer, pid: int, sock: socket.socket, *, starting: bool = False) -> None:
        self._server = server
        self._starting = starting
        self._channel = wire.Channel(sock)
        self.pid = pid
        self.alive = True
        self.gone = False  # whether the process is known to have ended
        self.uuid = ""  # the GPU's, once CUDA has started
        self.info: dict[str, Any] = {}
        self.loaded: set[str] = set()  # code ids
        self.bound: set[str] = set()  # binding keys
        self.progress = 0  # the item that a job over many was last known to be at

    def start(self, device: int, clock: str = "auto", *, limit_s: float = _INIT_S) -> str:
        """Start CUDA without a context yet, once; returns the GPU's UUID, for its lock."""
        if not self.uuid:
            asked, self._starting = self._starting, False
            payload = {"device": device, "clock": clock}
            self.uuid = str(self.call(None if asked else "init", payload, limit_s)["uuid"])
        return self.uuid

    def open(self, *, limit_s: float = _INIT_S) -> None:
        """Create the CUDA context and fill `info`."""
        self.info = self.call("open", {}, limit_s)

    def load_helpers(self, cubin: bytes) -> None:
        """Load the worker's own kernels; needed by every job that launches."""
        self.call("helpers", {"cubin": base64.b64encode(cubin).decode()}, _INIT_S)

    def load(self, code: str, cubin: bytes, symbols: list[str], language: str) -> None:
        """Load a candidate's module under a name, once."""
        if code in self.loaded:
            return
        encoded = base64.b64encode(cubin).decode()
        payload = {"code": code, "cubin": encoded, "entries": symbols, "language": language}
        self.call("load", payload)
        self.loaded.add(code)

    def unload(self, code: str) -> None:
        """Forget a candidate's module."""
        self.loaded.discard(code)
        self.call("unload", {"code": code})

    def bind(self, key: str, payload: dict[str, Any]) -> None:
        """Describe a case's buffers, once."""
        if key not in self.bound:
            self.call("bind", {"key": key, **payload})
            self.bound.add(key)

    def release(self, key: str) -> None:
        """Free a case's buffers."""
        self.bound.discard(key)
        self.call("release", {"key": key})

    def call(
        self, job: str | None, payload: dict[str, Any] | None = None, timeout_s: float = KERNEL_S
    ) -> dict[str, Any]:
        """Run a job; None: one that it was asked for already. `timeout_s` is the longest silence allowed:
        long jobs tick between their batches.

        Raises WorkerFault with the candidate's status; WorkerTimeout and WorkerDied after which the worker is
        gone, as it is after every fault that is `fatal`.
        """
        if not self.alive:
            raise WorkerDied(f"worker {self.pid} has ended")
        try:
            self.progress = 0
            if job is not None:
                self._channel.send({"job": job, "payload": payload or {}})
            while True:
                message = self._channel.receive(timeout_s)
                if "tick" not in message:
                    break
                self.progress = message["tick"] if isinstance(message["tick"], int) else 0
        except TimeoutError:
            self.kill()
            raise WorkerTimeout(f"no answer within {timeout_s:g} s: killed") from None
        except (wire.Closed, ConnectionError):
            raise self._death() from None
        except wire.Malformed as error:
            self.kill()
            raise WorkerDied(f"the worker sent nonsense ({error}) and was killed") from None
        except BaseException:  # Ctrl-C in the middle of an answer: the stream is out of step
            self.kill()
            raise
        if "fault" in message:
            raise self._fault(message["fault"])
        result = message.get("result")
        if not isinstance(result, dict):
            self.kill()
            raise WorkerDied("the worker sent no result and was killed")
        return result

    def _fault(self, data: Any) -> WorkerFault:
        try:
            fault = WorkerFault(Status(data["status"]), str(data["message"]), fatal=bool(data["fatal"]))
        except (KeyError, TypeError, ValueError):
            fault = WorkerDied("the worker reported a failure that makes no sense")
        if fault.fatal:
            self.kill()
        return fault

    def _death(self) -> WorkerDied:
        self.alive = False
        self._channel.close()
        self.gone, code = self._server.reap(self.pid, kill=True)
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return WorkerDied(f"the worker was ended by {signal.Signals(-code).name}")
        if self.gone and code is None:
            return WorkerDied("the worker's fork server was ended, and the worker with it")
        words = self._server.last_words()
        return WorkerDied(f"the worker ended with exit code {code}" + (f": {words}" if words else ""))

    def kill(self) -> None:
        """End the worker now and wait until its process is gone (`gone` says whether it is)."""
        if not self.alive:
            return
        self.alive = False
        self._channel.close()
        self.gone, _ = self._server.reap(self.pid, kill=True)

    def hang_up(self) -> None:
        """Tell the worker to end, without waiting until it has: `close` does."""
        self._channel.close()

    def close(self) -> None:
        """Let the worker end by itself; kill it if it doesn't within a second."""
        if not self.alive:
            return
        self.alive = False
        self._channel.close()
        self.gone, _ = self._server.reap(self.pid, kill=False, wait_s=_END_S)
        if not self.gone:
            self.gone, _ = self._server.reap(self.pid, kill=True)
