"""The parent's end of one compile process."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import sandbox
from ..environment import without_secrets
from ..sandbox import Layer
from ..sandbox.process import exit_code
from ..scratch import make_folder
from . import confined
from .cache import CompileCache
from .child import COMPILED, FRAME, NO_TOOLCHAIN, REQUEST, STARTED, write_frame
from .compiled import Compiled, CompileError, CompileRequest, ToolchainError

_BOOT = (
    "import json, sys; path, *rest = json.loads(sys.argv[1]); sys.path[:] = path; "
    "from warpdeck.core.toolchain.child import main; main(*rest)"
)
_ANSWER_BYTES = 512 << 20
_NONSENSE = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    RecursionError,
    struct.error,
    zlib.error,
)
_START_LIMIT_S = 120.0  # interpreter and imports, on a busy machine


class ProcessEnded(Exception):
    """The compile process ended before it took the request. The message says how."""


class CompileProcess:
    """A fresh Python process that compiles one request after the other.

    Not forked, so that nothing of this process (threads, CUDA, Numba) is in it, and nothing of it
    here.

    Args:
        cache: keeps Numba's intermediate code.
        request: the first one it is for. If that is code of others the process is sandboxed, and for Numba,
            whose modules run in it, it must be the only one.
        files: what `source_files` found for it.

    Raises:
        SandboxError: code of others, and nothing isolates here.
        OSError: it can't start.
    """

    def __init__(
        self,
        cache: CompileCache,
        request: CompileRequest | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        self._layer: Layer | None = None
        self._folder: Path | None = None
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        streams: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": self._stderr,
            "bufsize": 0,
        }
        if request is not None and request.confined:
            self._process = self._sandboxed(request, files or {}, streams)
        else:
            arguments = json.dumps([sys.path, os.getpid(), str(cache.folder), cache.limit])
            command = [sys.executable, "-c", _BOOT, arguments]
            self._process = subprocess.Popen(command, env=_environment(), **streams)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def _sandboxed(
        self, request: CompileRequest, files: Mapping[str, str], streams: Mapping[str, Any]
    ) -> subprocess.Popen[bytes]:
        arguments = json.dumps([confined.installed_path(sys.path), 0, "", 0])
        command = [sys.executable, "-c", _BOOT, arguments]
        try:
            self._layer = sandbox.require()
            self._folder = make_folder(Path(tempfile.gettempdir()), sandbox.PREFIX)
            policy = confined.policy(request, files, self._folder, _environment())
            process = sandbox.spawn(sandbox.wrap(command, policy, self._layer), **streams)
        except BaseException:
            self._stderr.close()
            self._remove()
            raise
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, 5)  # it can't do that itself
        return process

    def _remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Of the compile process."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can take another request."""
        return self._process.poll() is None

    def compile(self, request: CompileRequest, files: Mapping[str, str], time_limit_s: float) -> Compiled:
        """Compile there. The process is gone after a crash or a time-out.

        Raises:
            CompileError: it doesn't compile, takes too long, or takes the compiler down.
            ToolchainError: the compiler is missing.
            ProcessEnded: the process was already gone.
        """
        job = json.dumps({"request": request.to_json(), "files": dict(files)}).encode()
        try:
            write_frame(self._requests, REQUEST, job)
            kind, data = self._read(_START_LIMIT_S, "starting the compiler")
        except (OSError, EOFError):
            said = self._tail().strip().splitlines()
            raise ProcessEnded(": ".join([self._end(), *said[-1:]])) from None
        if kind == STARTED:
            what = f"compiling {request.file}"
            try:
                kind, data = self._read(time_limit_s, what)
            except EOFError:
                log = self._tail()
                raise CompileError(f"{what}: the compiler process died ({self._end()})", log) from None
        try:
            if kind == COMPILED:
                return Compiled.from_bytes(data)
            message, log = map(str, json.loads(data))
        except _NONSENSE:  # the kernel's own code wrote where answers go
            self.close()
            raise CompileError(f"compiling {request.file}: the compiler process answered nonsense") from None
        if kind == NO_TOOLCHAIN and not (request.confined and request.language == "numba"):
            raise ToolchainError(message)  # which a module of others could say, too
        raise CompileError(message, log)

    def _read(self, limit: float, what: str) -> tuple[bytes, bytes]:
        """The next message. Raises EOFError if the process ends, CompileError after `limit` seconds."""
        deadline = time.monotonic() + limit
        try:
            kind, size = FRAME.unpack(self._receive(FRAME.size, deadline))
            if size > _ANSWER_BYTES:
                self.close()
                raise CompileError(f"{what}: the result is too large")
            return kind, self._receive(size, deadline)
        except TimeoutError:
            self.close()
            raise CompileError(f"{what} took more than {limit:g} s and was stopped") from None

    def _receive(self, size: int, deadline: float) -> bytes:
        parts: list[bytes] = []
        answers = select.poll()
        answers.register(self._answers, select.POLLIN)
        while size > 0:
            left = deadline - time.monotonic()
            # not select(), which knows file numbers below 1,024 only
            if left <= 0 or not answers.poll(left * 1000):
                raise TimeoutError
            part = os.read(self._answers.fileno(), min(size, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _end(self) -> str:
        """Make sure that the process is gone; how it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self.close()
        code = self._process.returncode
        if self._layer is not None:
            code = exit_code(code, self._layer)
        names = {known.value: known.name for known in signal.Signals}
        return f"exit code {code}" if code >= 0 else names.get(-code, f"signal {-code}")

    def _tail(self) -> str:
        size = os.fstat(self._stderr.fileno()).st_size
        start = max(0, size - 8192)
        return os.pread(self._stderr.fileno(), size - start, start).decode(errors="replace")

    def kill(self) -> None:
        """End the process; a `compile` that waits for it fails. Safe from another thread."""
        with contextlib.suppress(OSError):
            if self._layer is None:
                self._process.kill()
            elif self._process.poll() is None:
                sandbox.kill_group(self._process.pid)

    def close(self) -> None:
        """End the process and wait until it is gone."""
        self.kill()
        self._process.wait()
        for file in (self._requests, self._answers, self._stderr):
            with contextlib.suppress(OSError):
                file.close()
        self._remove()


def _environment() -> dict[str, str]:
    environment = without_secrets()
    environment.pop("NUMBA_ENABLE_CUDASIM", None)
    environment["NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING"] = "1"
    # Compiling needs no GPU: a context here would disturb what is being timed, and the user's module
    # shouldn't get one either.
    environment["NUMBA_DISABLE_CUDA"] = "1"
    environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment
