"""The fork server's process, which may be started before the run process has imported what it needs.

Both then import at the same time. This module imports nothing that takes long.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO

from .environment import without_secrets


@dataclass(frozen=True)
class ServerProcess:
    """A started server: it ends when `control` closes. `log`: its stderr, and its workers'."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    log: IO[bytes]


_begun: ServerProcess | None = None


def has_driver() -> bool:
    """Whether there is a CUDA driver; what it finds is another question."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def begin() -> None:
    """Start the process that the next `take` returns; nothing where there is no CUDA driver."""
    global _begun
    if _begun is None and has_driver():
        _begun = _start()


def take() -> ServerProcess:
    """The process that was begun, else a new one."""
    global _begun
    begun, _begun = _begun, None
    return begun or _start()


def _start() -> ServerProcess:
    log = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the server
    ours, theirs = socket.socketpair()
    environment = {
        **without_secrets(),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "OPENBLAS_NUM_THREADS": "1",  # a forked process must not inherit a thread pool
        "CUDA_MODULE_LOADING": "EAGER",  # loading must not fall into the first timed launch
    }
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker.server", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
    return ServerProcess(process, ours, log)
