"""Run a tool that starts processes of its own, within a time limit, and leave none of them behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .environment import without_secrets

_MARK = "WARPDECK_RUN"  # in the environment of every process of one run, whoever its parent is by then
_GONE_S = 10.0  # the driver needs a while to tear down a hung kernel
_POLL_S = 0.02


@dataclass(frozen=True)
class Ended:
    """How a run ended. `code`: the exit code, negative for a signal; None if the time limit ended it.

    `left`: processes that are still there although they were killed; the driver holds such ones.
    """

    code: int | None
    output: str
    seconds: float
    left: tuple[int, ...] = ()

    @property
    def timed_out(self) -> bool:
        """Whether the time limit ended it."""
        return self.code is None


class Running:
    """A command in a session of its own. A context manager: at its end all that it started is gone.

    Args:
        command: what to run.
        environment: all of its environment; what looks like a secret is left out.
        log: file for its stdout and stderr.
        folder: the working directory.

    Raises OSError if it can't be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        folder: Path | None = None,
    ) -> None:
        self._mark = secrets.token_hex(16)
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**without_secrets(environment), _MARK: self._mark},
                cwd=folder,
                start_new_session=True,
            )

    def wait(self, timeout_s: float) -> Ended:
        """Its end, by itself or, `timeout_s` from now, by us. `Ended.output`: the log's last megabyte."""
        started = time.monotonic()
        code: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout_s)
        finally:
            left = self.close()
        return Ended(code, _tail(self._log), time.monotonic() - started, left)

    def close(self) -> tuple[int, ...]:
        """End it and all that it started; returns the processes that are still there."""
        return _end(self._process, self._mark)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    log: Path,
    folder: Path | None = None,
) -> Ended:
    """Run a command to its end, or for `timeout_s`. For the other arguments see `Running`."""
    return Running(command, environment=environment, log=log, folder=folder).wait(timeout_s)


def _end(process: subprocess.Popen[bytes], mark: str) -> tuple[int, ...]:
    """Kill whatever is left of a run: its process group, and every process with its mark."""
    deadline = time.monotonic() + _GONE_S
    clean = 0
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    while True:
        left = _marked(mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # While a process replaces itself (exec) it shows no environment: once is not enough.
        clean = clean + 1 if process.poll() is not None and not left else 0
        if clean > 1 or time.monotonic() >= deadline:
            return left
        time.sleep(_POLL_S)


def _marked(mark: str) -> tuple[int, ...]:
    """Processes of this user with the mark in their environment; a zombie has none."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:  # another user's, or gone
                continue
            if wanted in environment.split(b"\0"):
                found.append(int(entry.name))
    return tuple(found)


def _tail(log: Path, limit: int = 1 << 20) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - limit))
        return file.read().decode(errors="replace")
