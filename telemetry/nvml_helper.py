"""NVML in a process of its own: reads one GPU on request, and is killed if the driver hangs.

`python -m warpdeck.telemetry.nvml_helper WHICH` says `{}` when it is up, then answers each line of stdin,
`{"id": n, "kind": "fast" | "slow"}`, with `{"id": n, "data": {field: value}}` on stdout; `data` is null where
there is no such GPU. It touches NVML at the first request, and ends with its stdin. Slow readings have a
thread of their own, so that they don't keep fast ones waiting.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Any

from . import nvml
from .environment import without_secrets
from .neighbours import Neighbours
from .nvml import Selector

KINDS = ("fast", "slow")
_STARTS = 3  # of a helper that hung or died, before NVML is given up
_KILLED_S = 0.2
_UP_S = 20.0  # Python's start, on a busy machine
_FIRST_S = 5.0  # a first answer includes NVML's start


class Unavailable(Exception):
    """There will be no answer any more. The message says why, "" if there simply is no GPU."""


class Helper:
    """The process and its questions. `ask` may be called from several threads.

    Args:
        which: the GPU.
        timeout_s: silence after which the process is killed, except for the first answer after a start.
    """

    def __init__(self, which: Selector, *, timeout_s: float = 1.0) -> None:
        self._which = which
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._pending: dict[int, Future[dict[str, Any] | None]] = {}
        self._number = 0
        self._starts = 0
        self._answered = False
        self._up = threading.Event()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        process = self._process
        return None if process is None else process.pid

    def prepare(self) -> None:
        """Have a process that is up; it hasn't touched NVML. Raises Unavailable as `ask`."""
        with self._lock:
            process, up = self._running(), self._up
        if not up.wait(_UP_S):
            with self._lock:
                self._drop(process)

    def ask(self, kind: str) -> dict[str, Any] | None:
        """A reading's fields by name; None if the process hung or died meanwhile (the next call starts a new
        one). Raises Unavailable if there is no such GPU, or after three failures."""
        answer: Future[dict[str, Any] | None] = Future()
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            self._number += 1
            self._pending[self._number] = answer
            limit = self._timeout_s if self._answered else _FIRST_S
            try:
                process.stdin.write(json.dumps({"id": self._number, "kind": kind}) + "\n")
                process.stdin.flush()
            except OSError:
                self._drop(process)
                return None
        try:
            data = answer.result(limit)
        except TimeoutError:
            with self._lock:
                self._drop(process)
            return None
        except EOFError:
            return None
        if data is None:
            raise Unavailable("")
        return data

    def _running(self) -> subprocess.Popen[str]:
        """The process, started if there is none. Holds the lock."""
        if self._closed:
            raise Unavailable("")
        if self._process is None:
            self._process = self._start()
        return self._process

    def _start(self) -> subprocess.Popen[str]:
        if self._starts == _STARTS:
            raise Unavailable("NVML doesn't answer; there are no readings of the GPU any more")
        self._starts += 1
        self._answered = False
        self._up = up = threading.Event()
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(self._which)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=without_secrets(),
                text=True,
            )
        except OSError as error:
            self._starts = _STARTS
            raise Unavailable(f"the process that reads NVML can't be started: {error.strerror}") from None
        threading.Thread(target=self._receive, args=(process, up), name="nvml", daemon=True).start()
        return process

    def _receive(self, process: subprocess.Popen[str], up: threading.Event) -> None:
        assert process.stdout is not None
        for text in process.stdout:
            if not up.is_set():
                up.set()
                continue
            try:
                message = json.loads(text)
                number, data = int(message["id"]), message["data"]
            except (ValueError, KeyError, TypeError):
                break
            with self._lock:
                self._answered = True
                answer = self._pending.pop(number, None)
            if answer is not None:
                answer.set_result(data)
        up.set()  # whoever waits for it learns the rest from `ask`
        with self._lock:
            self._drop(process)

    def _drop(self, process: subprocess.Popen[str]) -> None:
        """Kill the process and fail what it was asked. Holds the lock."""
        if self._process is not process:
            return  # another thread did
        self._process = None
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the driver may hold it until it lets go
            process.wait(_KILLED_S)
        pending, self._pending = self._pending, {}
        for answer in pending.values():
            answer.set_exception(EOFError())

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._drop(self._process)


def main(which: str, requests: IO[str], answers: IO[str]) -> None:
    """Answer until the requests end."""
    selector: Selector = int(which) if which.isdecimal() else which
    lock = threading.Lock()
    neighbours = Neighbours(selector)

    def answer(number: int, kind: str) -> None:
        if kind == "slow":
            data = nvml.slow_fields(selector) or None
            if data is not None:
                data["others"] = neighbours.read()
        else:
            reading = nvml.snapshot(selector, slow=False)
            data = None if reading is None else reading.to_json()
        with lock:
            answers.write(json.dumps({"id": number, "data": data}) + "\n")
            answers.flush()

    answers.write("{}\n")
    answers.flush()
    threads = {kind: ThreadPoolExecutor(1, thread_name_prefix=kind) for kind in KINDS}
    for text in requests:
        message = json.loads(text)
        threads[message["kind"]].submit(answer, message["id"], message["kind"])
    os._exit(0)  # without waiting for a call that hangs


if __name__ == "__main__":
    main(sys.argv[1], sys.stdin, sys.stdout)
