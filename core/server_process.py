"""The fork server's process, which may be started before the run process has imported what it needs.

Both then import at the same time, and a third process the vendor's library, which takes longest: the worker
that will time it, forked before the server itself imports anything. The run's first worker starts CUDA then,
too. This module imports nothing that takes long; its entry point is `python -m warpdeck.core.server_process
MODULE CONTROL [FIRST [LIBRARY]]`: what its children run, and sockets' descriptors.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, NoReturn

from .environment import without_secrets


@dataclass(frozen=True)
class ServerProcess:
    """A started server: it ends when `control` closes. `log`: its stderr, and its workers'. `first`: a worker
    that was asked to start CUDA, for device 0; `library`: the worker that imports the vendor's library."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    log: IO[bytes]
    first: socket.socket | None = None
    library: socket.socket | None = None


WORKERS, CHECKS = "warpdeck.core.worker.child", "warpdeck.core.check.child"  # what a server's children run
_PR_SET_PDEATHSIG = 1
_begun: dict[str, ServerProcess] = {}


def has_driver() -> bool:
    """Whether there is a CUDA driver; what it finds is another question."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def begin(*, library: bool) -> None:
    """Start the processes that the next `take` of each returns; nothing where there is no CUDA driver.

    `library`: import the vendor's library at once, too.
    """
    if _begun or not has_driver():
        return
    workers = _begun[WORKERS] = _start(WORKERS, 1 + library)
    assert workers.first is not None
    # It waits there for the worker; `client.WorkerHandle` gets the answer.
    body = json.dumps({"job": "init", "payload": {"device": 0, "clock": "auto"}}).encode()
    workers.first.sendall(len(body).to_bytes(4, "big") + body)
    _begun[CHECKS] = _start(CHECKS)


def take(children: str = WORKERS) -> ServerProcess:
    """The process that was begun, else a new one. `children`: the module that its children run."""
    return _begun.pop(children, None) or _start(children)


def _start(children: str, workers: int = 0) -> ServerProcess:
    """With no worker, the first, or the first and the library's."""
    log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the server
    ours, theirs = socket.socketpair()
    environment = {
        **without_secrets(),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    if children == WORKERS:
        environment |= {
            "OPENBLAS_NUM_THREADS": "1",  # they compute nothing
            "CUDA_MODULE_LOADING": "EAGER",  # loading must not fall into the first timed launch
            "CUDA_DEVICE_MAX_CONNECTIONS": "1",  # they use one stream; a context then takes half the time
        }
    with ExitStack() as closing:
        passed = [closing.enter_context(theirs)]
        begun = []
        for _ in range(workers):
            end, its = socket.socketpair()
            begun.append(end)
            passed.append(closing.enter_context(its))
        numbers = [end.fileno() for end in passed]
        process = subprocess.Popen(
            [sys.executable, "-m", "warpdeck.core.server_process", children, *map(str, numbers)],
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
    return ServerProcess(process, ours, log, *begun)


def die_with(parent: int) -> None:
    """Be killed when the parent ends, however it ends."""
    with suppress(AttributeError):  # only Linux has it; elsewhere the server ends its children
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)  # it died between the fork and the call above


def main() -> None:
    """Fork the library's worker, if one is wanted; then be the server."""
    import resource  # Windows, where this module is imported, too, has none

    children = sys.argv[1]
    control, *ends = map(int, sys.argv[2:])
    server, worker = os.getpid(), None
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the run process's to handle
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if len(ends) > 1:
        worker = os.fork()
        if worker == 0:
            _serve_library(server, (control, ends[0]), ends[1])
        os.close(ends[1])
    from .worker.server import main as serve

    serve(children, control, first=ends[0] if ends else None, library=worker)


def _serve_library(server: int, others: tuple[int, ...], fd: int) -> NoReturn:
    code = 70
    try:
        die_with(server)
        for other in others:
            os.close(other)
        os.environ["CUDA_MODULE_LOADING"] = "LAZY"  # as the job that imports it has it
        with suppress(Exception):  # that job fails in the same way, and says so
            importlib.import_module("torch")
        from .worker.child import main as serve

        code = serve(socket.socket(fileno=fd))
    except BaseException:  # noqa: BLE001 - must never return into the server's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
