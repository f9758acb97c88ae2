"""Calls functions of one Python file on request. Runs inside the sandbox, started by `host_code.HostCode`.

Only the standard library and NumPy: the package itself can't be read in there. Requests come on stdin and
answers go to what was stdout, each a JSON text behind its length (4 bytes, big-endian); arrays are raw
C-ordered files, requests' in a folder that is read-only here, answers' in the current one.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import IO, Any

import numpy as np

TEXT = 2000  # characters of a message


class Guest:
    """The file, loaded, and the folders of arrays."""

    def __init__(self, file: Path, inputs: Path) -> None:
        self.file = file
        self.inputs = inputs
        self.module: ModuleType | None = None
        self.written = 0

    def load(self) -> dict[str, Any]:
        """Run the file; the parameters of its functions: [name, kind, whether it has a default]."""
        spec = importlib.util.spec_from_file_location("_warpdeck_host_code", self.file)
        assert spec is not None and spec.loader is not None
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        functions = {}
        for name, value in vars(self.module).items():
            if callable(value) and not name.startswith("_"):
                try:
                    parameters = inspect.signature(value).parameters.values()
                except (TypeError, ValueError):
                    continue
                functions[name] = [[p.name, int(p.kind), p.default is not p.empty] for p in parameters]
        return {"functions": functions}

    def call(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One call; its result, encoded."""
        function: Callable[..., Any] = getattr(self.module, request["function"])
        for left in os.scandir("."):  # of earlier answers: they have been read
            if left.name.endswith(".bin") and left.is_file(follow_symlinks=False):
                Path(left.path).unlink()
        arguments = [self._decoded(value) for value in request["args"]]
        named = {name: self._decoded(value) for name, value in request["kwargs"].items()}
        with np.errstate(all="ignore"):
            return {"result": self._encoded(function(*arguments, **named))}

    def _decoded(self, value: Any) -> Any:
        kind, content = next(iter(value.items()))
        if kind == "array":
            dtype, shape = np.dtype(content["dtype"]), tuple(content["shape"])
            if 0 in shape:
                return np.zeros(shape, dtype)
            array = np.memmap(self.inputs / content["file"], dtype, "c", shape=shape).view(np.ndarray)
            torch = sys.modules.get("torch")  # the file works on tensors if it imports it
            return array if torch is None else torch.from_numpy(array)
        if kind == "case":
            return SimpleNamespace(**content)
        if kind == "rng":
            bits = np.random.PCG64()
            bits.state = content
            return np.random.Generator(bits)
        return content

    def _encoded(self, value: Any) -> dict[str, Any]:
        if value is None or isinstance(value, bool | int | float | str):
            return {"value": value}
        if isinstance(value, Mapping):
            return {"map": [[str(name), self._encoded(one)] for name, one in value.items()]}
        if isinstance(value, tuple):
            return {"tuple": [self._encoded(one) for one in value]}
        array = np.asarray(value.detach() if hasattr(value, "detach") else value)
        if array.dtype.kind not in "biufc":
            raise TypeError(f"{type(value).__name__} is not an array of numbers")
        self.written += 1
        name = f"{self.written}.bin"
        np.ascontiguousarray(array).tofile(name)
        return {"array": {"file": name, "dtype": array.dtype.str, "shape": list(array.shape)}}


def main() -> None:
    """Serve until stdin ends: argv is the file and the folder of the requests' arrays."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what the file prints is not an answer
    guest = Guest(Path(sys.argv[1]), Path(sys.argv[2]))
    while (request := _read(requests)) is not None:
        try:
            answer = guest.load() if request["op"] == "load" else guest.call(request)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the file's own code may raise anything
            answer = {"error": [type(error).__name__, str(error)[:TEXT], _line(error, guest.file)]}
        data = json.dumps(answer).encode()
        answers.write(len(data).to_bytes(4, "big") + data)
        answers.flush()


def _line(error: BaseException, file: Path) -> int:
    """The line of the file that the error came through; 0 if unknown."""
    if isinstance(error, SyntaxError) and error.lineno:
        return error.lineno
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    return lines[-1] or 0 if lines else 0


def _read(file: IO[bytes]) -> dict[str, Any] | None:
    head = file.read(4)
    return json.loads(file.read(int.from_bytes(head, "big"))) if len(head) == 4 else None


if __name__ == "__main__":
    main()
