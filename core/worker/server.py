"""The fork server: a process that has imported what workers need and never touched CUDA.

A child forked from it has a fresh CUDA context in a third of a second; a fresh interpreter takes one. The
server owns its children: it alone kills and reaps them, so that a process id is never reused while somebody
means to kill it. It ends, with all its children, when the run process does.

The children of another one compute inputs and references (`check.child`).

Requests on the control socket: `spawn` (with the child's end of a socket pair, and where its output goes if
that isn't the server's) -> `pid`;
`first`, `library` -> `pid` of the workers that were forked unasked, if there are any; `reap {pid, kill}` ->
`gone`, `exit` (a negative exit is a signal); answered at once.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

from ..server_process import die_with
from . import wire

_END_S = 5.0


def main(children_run: str, fd: int, *, first: int | None = None, library: int | None = None) -> None:
    """Serve until the control socket closes. `children_run`: a module; `first`: descriptor of a worker's end,
    to fork at once; `library`: a child that was forked before."""
    control = wire.Channel(socket.socket(fileno=fd))
    child = importlib.import_module(children_run)
    child.preload()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.collect()
    gc.freeze()  # children then copy fewer pages
    children: dict[int, int | None] = {} if library is None else {library: None}
    begun = {"library": library}
    if first is not None:
        begun["first"] = pid = _fork(child, control, [first], (wake_read, wake_write))
        os.close(first)
        children[pid] = None
    try:
        while True:
            ready, _, _ = select.select([control.socket, wake_read], [], [])
            if wake_read in ready:
                os.read(wake_read, 4096)
                _collect(children)
            if control.socket not in ready:
                continue
            message = control.receive(with_fds=True)
            if message.get("op") == "spawn":
                ends, control.fds = control.fds, []
                pid = _fork(child, control, ends, (wake_read, wake_write))
                for end in ends:
                    os.close(end)
                children[pid] = None
                control.send({"pid": pid})
            elif message.get("op") in begun:
                control.send({"pid": begun[str(message["op"])]})
            else:
                control.send(_reap(children, message))
    except wire.Closed:
        pass
    finally:
        for pid, code in children.items():
            if code is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _END_S  # until then the next run would find them on the GPU
        while None in children.values() and time.monotonic() < deadline:
            time.sleep(0.002)
            _collect(children)


def _fork(child: Any, control: wire.Channel, ends: Sequence[int], wake: tuple[int, int]) -> int:
    server = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        die_with(server)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.close()
        for end in wake:
            os.close(end)
        for output in ends[1:]:
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
        code = child.main(socket.socket(fileno=ends[0]))
    except BaseException:  # noqa: BLE001 - a child must never return into the server's loop
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)  # no teardown: after a CUDA fault it can hang, and the driver cleans up anyway


def _collect(children: dict[int, int | None]) -> None:
    for pid, code in children.items():
        if code is not None:
            continue
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            children[pid] = os.waitstatus_to_exitcode(status)


def _reap(children: dict[int, int | None], message: dict[str, object]) -> dict[str, object]:
    pid = message.get("pid")
    if not isinstance(pid, int) or pid not in children:
        return {"gone": True, "exit": None}
    if message.get("kill") and children[pid] is None:
        os.kill(pid, signal.SIGKILL)
    _collect(children)
    code = children[pid]
    if code is None:
        return {"gone": False, "exit": None}
    del children[pid]
    return {"gone": True, "exit": code}
