"""The compile process: reads requests from stdin, answers on what was stdout, ends at end of file.

It imports Numba or the CUDA bindings once, at the first request that needs them. A kernel module's
prints go to stderr.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import struct
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from .build import build
from .cache import CompileCache
from .compiled import CompileError, CompileRequest, ToolchainError

_PR_SET_PDEATHSIG = 1
FRAME = struct.Struct("<cQ")  # kind, size
STARTED, COMPILED, FAILED, NO_TOOLCHAIN = b"S", b"C", b"F", b"T"
REQUEST = b"R"


def write_frame(file: IO[bytes], kind: bytes, data: bytes = b"") -> None:
    """One message: its kind (a byte), its size, its content."""
    file.write(FRAME.pack(kind, len(data)) + data)
    file.flush()


def read_frame(file: IO[bytes]) -> tuple[bytes, bytes] | None:
    """The next message; None at end of file."""
    head = file.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    kind, size = FRAME.unpack(head)
    data = file.read(size)
    return (kind, data) if len(data) == size else None


def main(parent: int, cache_folder: str, cache_limit: int) -> None:
    """Serve until stdin ends.

    Args:
        parent: the process that must not be outlived; 0 in a sandbox, which sees to that itself.
        cache_folder: of intermediate code; empty: none is kept, since code of others could write there.
    """
    if parent:
        _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    with contextlib.suppress(OSError):
        os.nice(5)
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    cache = CompileCache(Path(cache_folder), cache_limit) if cache_folder else None
    while (frame := read_frame(requests)) is not None:
        job = json.loads(frame[1])
        write_frame(answers, *_serve(job, answers, cache))


def _serve(job: dict[str, Any], answers: IO[bytes], cache: CompileCache | None) -> tuple[bytes, bytes]:
    request = CompileRequest.from_json(job["request"])
    with contextlib.suppress(ImportError):  # `build` says it in full
        _import("numba.cuda" if request.language == "numba" else "cuda.bindings.nvrtc")
    write_frame(answers, STARTED)
    try:
        with _nowhere() if request.text is not None else contextlib.nullcontext():
            return COMPILED, build(request, job["files"], cache).to_bytes()
    except CompileError as error:
        return FAILED, json.dumps([str(error), error.log]).encode()
    except ToolchainError as error:
        return NO_TOOLCHAIN, json.dumps([str(error), ""]).encode()
    except Exception as error:  # noqa: BLE001 - a compiler's own failure is this candidate's
        message = f"{request.file}: the compiler failed: {type(error).__name__}: {error}"
        return FAILED, json.dumps([message, traceback.format_exc()]).encode()


def _import(name: str) -> None:
    """Import a compiler before the time limit starts: importing isn't compiling."""
    if name not in sys.modules:
        importlib.import_module(name)
        # Numba makes so many objects that collecting them took 15% of its time; these stay anyway.
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 10)


@contextlib.contextmanager
def _nowhere() -> Iterator[None]:
    """Work in a folder that is gone: NVRTC looks for a text's "headers" in the current one."""
    here = os.open(".", os.O_RDONLY)
    gone = tempfile.mkdtemp()
    os.chdir(gone)
    Path(gone).rmdir()
    try:
        yield
    finally:
        os.fchdir(here)
        os.close(here)


def _die_with(parent: int) -> None:
    """Be killed when the parent ends, however it ends (Linux; elsewhere end of file must do)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(0)
