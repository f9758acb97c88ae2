"""The process that computes a plan's draws: forked by a server of its own, asked by `remote.Draws`.

It runs the user's own `reference.py`, so it may crash, hang or be ended: the run goes on and says so.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import WarpdeckError
from ..model import Case, Trust
from ..sandbox import Layer
from ..workload import Workload
from .drawer import Draw, Drawer
from .reference import FullExpected, SampledProduct
from .store import Store

THREADS = 2  # of a bundled workload: enough to keep ahead of a run, few enough to leave it cores


@dataclass(frozen=True)
class Order:
    """What a process is forked for."""

    workload: Workload
    cases: Sequence[Case]
    entropy: int
    folder: Path  # of the arrays
    place: str  # current folder
    layer: Layer | None = None  # that the asker found to work, where it must be kept apart


@dataclass(frozen=True)
class Mapped:
    """An array in a file, for `Store.map`."""

    path: str
    dtype: str
    shape: tuple[int, ...]


def preload() -> None:
    """Importing this module has done it."""


def main(sock: socket.socket) -> int:
    """Serve one plan until the connection closes. Returns the process's exit code."""
    channel = Connection(sock.detach())
    order: Order = channel.recv()
    with contextlib.suppress(OSError):
        os.chdir(order.place)
    store = Store(order.folder, own=False)
    try:
        drawer = Drawer(order.workload, order.cases, order.entropy, store, order.layer)
    except BaseException as error:  # noqa: BLE001 - the asker's to raise
        channel.send(_plain(error))
        return 0
    computing = _Computing(channel, drawer, store)
    for _ in range(THREADS if order.workload.trust is Trust.BUNDLED else 1):
        threading.Thread(target=computing.run, daemon=True).start()
    channel.send(None)
    with contextlib.suppress(EOFError, OSError):
        while True:
            computing.add(*channel.recv())
    drawer.close()
    return 0


class _Computing:
    """Draws that are wanted, computed in threads; each is sent as soon as it is there, once."""

    def __init__(self, channel: Connection, drawer: Drawer, store: Store) -> None:
        self._channel = channel
        self._drawer = drawer
        self._store = store
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._waiting: deque[tuple[Case, int]] = deque()
        self._taken: set[tuple[str, int]] = set()

    def add(self, wanted: Sequence[tuple[Case, int]], first: bool) -> None:
        with self._changed:
            if first:
                self._waiting.extendleft(reversed(wanted))
            else:
                self._waiting.extend(wanted)
            self._changed.notify_all()

    def run(self) -> None:
        while True:
            case, k = self._next()
            key = (case.name, k)
            self._send(key, None)  # begun
            try:
                found: Any = self._sent(self._drawer.draw(case, k))
            except BaseException as error:  # noqa: BLE001 - the asker's to raise
                found = _plain(error)
            sys.stdout.flush()  # what the reference printed
            self._send(key, found)

    def _next(self) -> tuple[Case, int]:
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._waiting)
                case, k = self._waiting.popleft()
                if (case.name, k) not in self._taken:
                    self._taken.add((case.name, k))
                    return case, k

    def _send(self, key: tuple[str, int], found: Any) -> None:
        with self._sending, contextlib.suppress(OSError):  # nobody waits for it any more
            self._channel.send((key, found))

    def _sent(self, draw: Draw) -> Draw:
        """With places of arrays in place of arrays."""
        expected = {name: self._places(one) for name, one in draw.expected.items()}
        inputs = {name: self._place(array) for name, array in draw.inputs.items()}
        return Draw(inputs, expected, draw.accepted)  # pyright: ignore[reportArgumentType]

    def _places(self, expected: FullExpected | SampledProduct) -> Any:
        values: dict[str, Any] = {f.name: getattr(expected, f.name) for f in fields(expected)}
        places: dict[str, Any] = {n: None if v is None else self._place(v) for n, v in values.items()}
        return type(expected)(**places)

    def _place(self, array: np.ndarray) -> Mapped:
        mapped = array if isinstance(array, np.memmap) and array.filename else self._store.keep("part", array)
        return Mapped(str(mapped.filename), mapped.dtype.str, mapped.shape)


def _plain(error: BaseException) -> WarpdeckError:
    """An error that travels; one that nobody expected, in words."""
    if isinstance(error, WarpdeckError):
        error.__cause__ = None
        return error
    return WarpdeckError(f"computing inputs and references failed: {type(error).__name__}: {error}")
