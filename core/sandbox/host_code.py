"""Calling functions of a Python file that is not trusted, in a sandboxed process of its own.

The answers come from a process that may be hostile: every size, type and name in them is checked, arrays
are read from plain files only, and nothing is unpickled.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, WarpdeckError
from ..model import Case, Status
from ..scratch import make_folder
from . import guest
from .commands import Layer, command
from .errors import SandboxError
from .policy import Policy, default_memory
from .probing import require
from .process import Tail, end, exit_code, how_it_ended, kill_group, ready, spawn
from .programs import PREFIX, open_plain
from .watch import excess

LOAD_LIMIT_S = 60.0
CALL_LIMIT_S = 120.0
ANSWER_BYTES = 1 << 20  # of JSON; arrays go through files
RESULT_BYTES = min(4 << 30, default_memory() // 4)  # of one array
DEPTH = 4  # of mappings and tuples in a result
_START_LIMIT_S = 60.0  # interpreter and NumPy, on a busy machine
_NAME = re.compile(r"[0-9]{1,9}\.bin")
_KINDS = [
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.VAR_KEYWORD,
]  # by number
_STATUS = {"timeout": Status.TIMEOUT, "memory": Status.OUT_OF_MEMORY}


class HostCodeError(Exception):
    """What the file's own code raised: `text` is "ValueError: message", `line` its line (0: unknown)."""

    def __init__(self, kind: str, message: str, line: int) -> None:
        self.text = f"{kind}: {message}" if message else kind
        self.line = line
        super().__init__(self.text)


class HostCode:
    """A Python file whose functions are called in a sandbox. Calls come one after the other.

    The process starts with the first use and again after a call that ended it. Results and arguments are
    NumPy arrays of numbers, plain values, and mappings and tuples of them; arguments may also be a `Case`
    (there: a plain object with its fields) or a `numpy.random.Generator` over PCG64.

    Args:
        file: the file; it can read nothing else of this machine's users, and no sibling.
        read: more files or folders that it may read.
        memory: bytes; None: half of this machine's.
        layer: None: the best that works here.

    Raises (all methods):
        UsageError: the file can't be read, or running it fails.
        SandboxError: nothing isolates here, or a limit ended the process; `status` says which.
    """

    def __init__(
        self,
        file: Path,
        *,
        read: Sequence[Path] = (),
        memory: int | None = None,
        layer: Layer | None = None,
    ) -> None:
        self.file = Path(file).resolve()
        self._layer = layer
        self._used = Layer.NONE  # by the process that runs
        self._lock = threading.RLock()
        self._folder = make_folder(Path(tempfile.gettempdir()), PREFIX)
        self._inputs, self._outputs = self._folder / "in", self._folder / "out"
        self._inputs.mkdir()
        self._outputs.mkdir()
        script = Path(str(guest.__file__))
        self._policy = Policy(
            python=True, read=(self.file, script, self._inputs, *read), write=(self._outputs,)
        )
        if memory is not None:
            self._policy = replace(self._policy, memory=memory)
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = Tail(1 << 16)
        self._functions: dict[str, inspect.Signature] = {}
        self._numbers = 0
        self._closed = False
        self._cleaner = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    @property
    def functions(self) -> Mapping[str, inspect.Signature]:
        """Its public functions; a parameter's default is `...` whatever it is."""
        with self._lock:
            self._started()
            return dict(self._functions)

    def function(self, name: str, timeout_s: float = CALL_LIMIT_S) -> Callable[..., Any] | None:
        """A stand-in for one of its functions, with the same signature; None if there is none.

        It raises HostCodeError with what the function raises.
        """
        if name not in self.functions:
            return None
        signature = self._functions[name]

        def stand_in(*args: Any, **kwargs: Any) -> Any:
            return self.call(name, args, kwargs, timeout_s=timeout_s)

        stand_in.__name__ = name
        stand_in.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
        return stand_in

    def call(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = CALL_LIMIT_S,
    ) -> Any:
        """Call a function.

        Raises:
            HostCodeError: what it raised.
            UsageError: there is no such function, or its result isn't what this class can carry.
            SandboxError: it took too long, or too much.
        """
        with self._lock:
            self._started()
            if name not in self._functions:
                raise UsageError(f"{self.file}: there is no function {name}(…)")
            written: list[Path] = []
            try:
                request = {
                    "op": "call",
                    "function": name,
                    "args": [self._encoded(value, written) for value in args],
                    "kwargs": {key: self._encoded(value, written) for key, value in (kwargs or {}).items()},
                }
                answer = self._ask(request, timeout_s, f"{name}(…)")
                return self._decoded(answer.get("result"), name, DEPTH)
            finally:
                for path in written:
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """End the process, also in the middle of a call (which fails), and remove its folder."""
        self._closed = True
        process = self._process
        if process is not None and process.poll() is None:
            kill_group(process.pid)
        with self._lock:
            self._stop()
            self._cleaner()

    def __enter__(self) -> HostCode:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the process -------------------------------------------------------------------------------

    def _started(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._stop()
        if self._closed:
            raise SandboxError(f"{self.file}: its sandbox is closed", Status.CANCELLED)
        if not self.file.is_file():
            raise UsageError(f"{self.file} is missing")
        argv = [sys.executable, "-I", "-B", str(guest.__file__), str(self.file), str(self._inputs)]
        self._used = require() if self._layer is None else self._layer
        shutil.rmtree(self._outputs, ignore_errors=True)  # of an earlier process
        self._outputs.mkdir(exist_ok=True)
        launched = command(argv, self._policy, self._used)
        try:
            process = spawn(launched, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise SandboxError(f"can't start a sandboxed process: {error.strerror or error}") from None
        self._process, self._errors = process, Tail(1 << 16)
        assert process.stderr is not None
        errors = os.dup(process.stderr.fileno())  # the thread's own, which nobody closes under it
        process.stderr.close()
        threading.Thread(target=_drain, args=(errors, self._errors), daemon=True).start()
        self._ender = weakref.finalize(self, end, process)
        try:
            answer = self._ask({"op": "load"}, _START_LIMIT_S + LOAD_LIMIT_S, "importing it")
        except HostCodeError as error:
            self._stop()
            where = f"{self.file}:{error.line}" if error.line else str(self.file)
            raise UsageError(f"{where}: {error.text}") from None
        self._functions = _signatures(answer.get("functions"))

    def _stop(self) -> None:
        if self._process is not None:
            self._ender()
            self._process = None

    def _ask(self, request: Mapping[str, Any], timeout_s: float, what: str) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdin is not None
        deadline = time.monotonic() + timeout_s
        data = json.dumps(request).encode()
        try:
            process.stdin.write(len(data).to_bytes(4, "big") + data)
            size = int.from_bytes(self._receive(process, 4, deadline, timeout_s, what), "big")
            if size > ANSWER_BYTES:
                raise ValueError
            answer = json.loads(self._receive(process, size, deadline, timeout_s, what))
            if "error" in answer:
                kind, message, line = answer["error"]
                raise HostCodeError(_plain(kind, 100), _plain(message, guest.TEXT), int(line))
            return answer
        except (BrokenPipeError, EOFError):
            raise self._died(process, what) from None
        except (ValueError, TypeError, KeyError, RecursionError):
            self._stop()
            raise UsageError(f"{self.file}: {what} answered nonsense") from None

    def _receive(
        self, process: subprocess.Popen[bytes], size: int, deadline: float, limit: float, what: str
    ) -> bytes:
        assert process.stdout is not None
        output = process.stdout.fileno()
        data = b""
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                self._stop()
                raise self._ended("timeout", f"{what} took more than {limit:g} s and was stopped")
            if ready([output], [], min(left, 0.05))[0]:
                part = os.read(output, size - len(data))
                if not part:
                    raise EOFError
                data += part
                continue
            found = excess(process.pid, self._policy)
            if found is not None:
                self._stop()
                raise self._ended(found.kind, f"{what} was stopped: {found.text}")
        return data

    def _ended(self, kind: str, text: str) -> SandboxError:
        return SandboxError(f"{self.file}: {text}", _STATUS.get(kind, Status.SANDBOX_ERROR), kind)

    def _died(self, process: subprocess.Popen[bytes], what: str) -> SandboxError:
        try:
            code: int | None = process.wait(5)
        except subprocess.TimeoutExpired:  # it has only closed its end
            code = None
        self._stop()
        said = _plain(self._errors.bytes().decode(errors="replace").strip().rpartition("\n")[2], 300)
        how = how_it_ended(exit_code(code, self._used))
        text = f"{self.file}: {what}: its process {how}{': ' if said else ''}{said}"
        return SandboxError(text, Status.RUNTIME_ERROR)

    # -- values ------------------------------------------------------------------------------------

    def _encoded(self, value: Any, written: list[Path]) -> dict[str, Any]:
        if isinstance(value, Case):
            fields = {**value.__dict__, "role": str(value.role), "params": dict(value.params)}
            return {"case": fields}
        if isinstance(value, np.random.Generator):
            return {"rng": value.bit_generator.state}
        if isinstance(value, np.ndarray | np.generic):
            array = np.ascontiguousarray(value)
            self._numbers += 1
            path = self._inputs / f"{self._numbers}.bin"
            written.append(path)
            try:
                array.tofile(path)
            except OSError as error:
                raise WarpdeckError(
                    f"{self._folder}: no room for {array.nbytes / 2**20:,.0f} MiB: "
                    f"{error.strerror or error}; set TMPDIR to a larger disk"
                ) from None
            return {"array": {"file": path.name, "dtype": array.dtype.str, "shape": list(np.shape(value))}}
        return {"value": value}

    def _decoded(self, value: Any, name: str, depth: int) -> Any:
        """What an answer holds. Raises UsageError for anything that isn't as `guest` writes it."""
        try:
            if not depth:
                raise ValueError
            ((kind, content),) = value.items()
            if kind == "map":
                return {str(key): self._decoded(one, name, depth - 1) for key, one in content}
            if kind == "tuple":
                return tuple(self._decoded(one, name, depth - 1) for one in content)
            if kind == "array":
                return self._array(content)
            if kind == "value" and (content is None or isinstance(content, bool | int | float | str)):
                return content
            raise ValueError
        except (ValueError, TypeError, AttributeError, KeyError):
            raise UsageError(f"{self.file}: {name}(…) answered nonsense") from None

    def _array(self, content: Mapping[str, Any]) -> NDArray[Any]:
        dtype, shape = np.dtype(str(content["dtype"])), [int(n) for n in content["shape"]]
        if dtype.kind not in "biufc" or len(shape) > 32 or any(n < 0 for n in shape):
            raise ValueError
        if not _NAME.fullmatch(content["file"]):
            raise ValueError
        size = math.prod(shape) * dtype.itemsize
        if size > RESULT_BYTES:
            raise ValueError
        with open_plain(self._outputs / content["file"], size) as file:
            array = np.empty(shape, dtype)
            if size and file.readinto(array.reshape(-1).view(np.uint8).data) != size:
                raise ValueError
        return array


def _drain(descriptor: int, kept: Tail) -> None:
    """Read what a process writes until it ends, keep some of it."""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while part := file.read(1 << 16):
            kept.add(part)


def _plain(text: Any, limit: int) -> str:
    """Text of a stranger on one line, without control characters."""
    line = " ".join(str(text)[:limit].split())
    return "".join(c for c in line if c.isprintable())


def _signatures(functions: Any) -> dict[str, inspect.Signature]:
    """What the guest says of the file's functions; empty if that is nonsense."""
    found = {}
    try:
        for name, parameters in functions.items():
            found[str(name)] = inspect.Signature(
                [
                    inspect.Parameter(n, _KINDS[k], default=... if d else inspect.Parameter.empty)
                    for n, k, d in parameters
                ]
            )
    except (AttributeError, TypeError, ValueError, IndexError):
        return {}
    return found
