"""Draws from the process that computes them: see `child`."""

from __future__ import annotations

import atexit
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ..errors import UsageError, WarpdeckError
from ..model import Case, Trust
from ..sandbox import require
from ..server_process import CHECKS
from ..worker.client import ForkServer
from ..workload import Workload
from .child import Mapped, Order
from .drawer import Draw
from .store import Store

LIMIT_S = 300.0  # for one draw, unless the workload has another; in a sandbox every call has one
_END_S = 1.0
_server: ForkServer | None = None
_server_lock = threading.Lock()


def begin() -> None:
    """Start the server that all plans of this process share: it imports while a device is opened, say."""
    global _server
    with _server_lock:
        if _server is None:
            _server = ForkServer(CHECKS)
            _server.start()
            atexit.register(_server.close)


def _forked() -> tuple[ForkServer, int, socket.socket]:
    """A process from that server."""
    global _server
    begin()
    server = _server
    assert server is not None
    try:
        return server, *server.child(output=_stderr())
    except WarpdeckError:  # the next plan gets a new one
        _server = None
        raise


def _stderr() -> int | None:
    """Where references print to: stdout is data."""
    try:
        os.fstat(2)
    except OSError:
        return None
    return 2


class Draws:
    """Computes draws in a process of its own, those that are asked for first. Methods may be called from
    several threads.

    Args:
        workload, cases, entropy: as of `Drawer`.
        store: where the arrays will lie.

    Raises:
        UsageError: a fault in `reference.py`, one that ends its process or never ends included; also from
            `get`.
        WarpdeckError: as of `Drawer`.
    """

    def __init__(self, workload: Workload, cases: Sequence[Case], entropy: int, store: Store) -> None:
        self._path = workload.folder / "reference.py"
        foreign = workload.trust in (Trust.GENERATED, Trust.REMOTE)
        self._limit_s = None if foreign else workload.reference_limit_s or LIMIT_S
        layer = require() if foreign else None
        self._store = store
        self._found: dict[tuple[str, int], Draw | WarpdeckError] = {}  # arrays as `Mapped` until asked for
        self._under_way: dict[tuple[str, int], float] = {}  # when they were begun
        self._changed = threading.Condition()
        self._ordered: set[tuple[str, int]] = set()
        self._then: Callable[[], None] | None = None
        self._end: WarpdeckError | None = None
        self._server, self._pid, self._socket = _forked()
        self._channel = Connection(os.dup(self._socket.fileno()))
        workload = replace(workload, spaces={})  # whose rules, compiled, don't travel
        try:
            self._load(Order(workload, tuple(cases), entropy, store.folder, str(Path.cwd()), layer))
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._listen, name="warpdeck-draws", daemon=True).start()

    def order(self, wanted: Sequence[tuple[Case, int]], then: Callable[[], None]) -> None:
        """Compute these in order, when nothing else is asked for; then, or at the end, `then` is called."""
        with self._changed:
            self._ordered = {(case.name, k) for case, k in wanted} - self._found.keys()
            self._then = then
            waits = bool(self._ordered) and self._end is None
        self._ask(wanted, first=False)
        if not waits:
            self._done()

    def get(self, case: Case, k: int) -> Draw:
        """Draw k of a case; waits for it."""
        key = (case.name, k)
        if key not in self._found:
            self._ask([(case, k)], first=True)
        with self._changed:
            while key not in self._found and self._end is None:
                self._changed.wait(1.0)
                self._end_what_hangs()
            found = self._found.get(key, self._end)
            if isinstance(found, Draw):
                found = self._found[key] = self._here(found)
                return found
        assert found is not None
        raise found

    def close(self) -> None:
        """End the process, also in the middle of a draw: whoever waits for one gets an error."""
        with self._changed:
            self._end = self._end or WarpdeckError(f"{self._path}: it isn't needed any more")
            self._changed.notify_all()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if not self._server.reap(self._pid, kill=False, wait_s=_END_S)[0]:
            self._server.reap(self._pid, kill=True)
        self._socket.close()

    # -- the process -------------------------------------------------------------------------------

    def _load(self, order: Order) -> None:
        try:
            self._channel.send(order)
            loaded = self._channel.poll(self._limit_s)
            problem = self._channel.recv() if loaded else self._too_long("importing it")
        except (EOFError, OSError):
            problem = self._death("importing it")
        if problem is not None:
            raise problem

    def _ask(self, wanted: Sequence[tuple[Case, int]], *, first: bool) -> None:
        with self._changed, suppress(OSError):  # it has died: who waits hears of it
            self._channel.send((wanted, first))

    def _listen(self) -> None:
        """Take in what it sends until it ends."""
        try:
            while True:
                key, found = self._channel.recv()
                with self._changed:
                    if found is None:
                        self._under_way[key] = time.monotonic()
                        continue
                    self._under_way.pop(key, None)
                    self._found[key] = found
                    self._ordered.discard(key)
                    self._changed.notify_all()
                if not self._ordered:
                    self._done()
        except (EOFError, OSError):
            problem = None if self._end is not None else self._death(self._doing())
        with self._changed:
            self._end = self._end or problem
            self._changed.notify_all()
            self._channel.close()
        self._done()

    def _done(self) -> None:
        """What was ordered is there, or never will be."""
        with self._changed:
            then, self._then = self._then, None
        if then is not None:
            then()

    def _here(self, draw: Draw) -> Draw:
        """With arrays in place of their places."""

        def mapped(value: Any) -> Any:
            if not isinstance(value, Mapped):
                return value
            return self._store.map(value.path, value.dtype, value.shape)

        expected = {
            name: type(one)(**{f.name: mapped(getattr(one, f.name)) for f in fields(one)})
            for name, one in draw.expected.items()
        }
        return Draw({name: mapped(one) for name, one in draw.inputs.items()}, expected, draw.accepted)

    def _doing(self) -> str:
        """What it has been at for longest."""
        if not self._under_way:
            return "waiting"
        case, _ = min(self._under_way, key=lambda key: self._under_way[key])
        return f"computing case {case!r}"

    def _end_what_hangs(self) -> None:
        since = min(self._under_way.values(), default=math.inf)
        if self._limit_s is not None and time.monotonic() - since > self._limit_s:
            self._end = self._too_long(self._doing())

    def _too_long(self, what: str) -> UsageError:
        self._server.reap(self._pid, kill=True)
        return UsageError(
            f"{self._path}: {what} took more than {self._limit_s:g} s and was stopped; does it end? NumPy on"
            " whole arrays, or smaller cases, would be faster; --reference-limit, or reference_limit_s in"
            " workload.toml, gives it longer"
        )

    def _death(self, what: str) -> UsageError:
        _, code = self._server.reap(self._pid, kill=True)
        how = "has ended" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            with suppress(ValueError):
                how = f"was ended by {signal.Signals(-code).name}"
        return UsageError(f"{self._path}: its process {how} while {what}; run it by itself to see why")
