"""Private, memory-mapped arrays of one run, and the threads that fill and compare them in chunks."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from ..errors import WarpdeckError
from ..scratch import make_folder

PREFIX = "warpdeck-check-"
MAX_FILES = 1 << 16
CHUNK = 1 << 18  # elements: a chunk's temporaries stay in a core's L2

T = TypeVar("T")


@cache
def _threads() -> ThreadPoolExecutor:
    """One pool for the process: NumPy releases the interpreter lock on chunks of this size."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return ThreadPoolExecutor(min(available, 16), thread_name_prefix="warpdeck-check")


def in_threads(function: Callable[[slice], T], size: int, chunk: int = CHUNK) -> list[T]:
    """`function` on every chunk of range(size), in order."""
    chunks: Iterable[slice] = (slice(i, min(i + chunk, size)) for i in range(0, size, chunk))
    if size <= chunk:
        return [function(c) for c in chunks]
    return list(_threads().map(function, chunks))


def _allow_files() -> None:
    """As many open files as the system lets us: a mapped array holds one, a workload may have hundreds."""
    with suppress(ImportError, OSError, ValueError):  # Windows has no such module; a container may forbid it
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
        if soft != resource.RLIM_INFINITY and soft < most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class Store:
    """A folder that only this user can read (mode 0700), for inputs and expected outputs.

    Args:
        folder: where to create it; None: the system's temporary folder. Not `own`: the folder of another
            process' store, which removes it.
    """

    def __init__(self, folder: Path | None = None, *, own: bool = True) -> None:
        _allow_files()
        self._numbers = itertools.count()
        if not own:
            assert folder is not None
            self.folder = folder
            return
        parent = Path(tempfile.gettempdir()) if folder is None else folder
        try:
            parent.mkdir(parents=True, exist_ok=True)
            self.folder = make_folder(parent, PREFIX)
        except OSError as e:
            raise WarpdeckError(f"{parent}: can't hold check data: {e.strerror}; set TMPDIR") from None
        self._remove = weakref.finalize(self, _remove, self.folder, os.getpid())

    def create(self, name: str, dtype: Any, shape: tuple[int, ...]) -> np.memmap:
        """A writable array of zeros, C-contiguous, in a new file. WarpdeckError if there is no room."""
        path = self.folder / f"{next(self._numbers)}-{name}.bin"
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        try:
            with open(path, "wb") as f:
                # A sparse file on a full disk would end in SIGBUS at the first write instead of an error.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(f.fileno(), 0, size)
                else:
                    f.truncate(size)
        except OSError as e:
            path.unlink(missing_ok=True)
            raise WarpdeckError(
                f"{self.folder}: no room for {size / 2**20:,.0f} MiB of check data: {e.strerror}; "
                "free some, or set TMPDIR to a larger disk"
            ) from None
        return self._mapped(path, dtype, "r+", shape)

    def sealed(self, array: np.memmap) -> np.memmap:
        """The same file, mapped read-only."""
        assert array.filename is not None
        return self._mapped(array.filename, array.dtype, "r", array.shape)

    def map(self, path: str, dtype: str, shape: tuple[int, ...]) -> np.memmap:
        """An array that another process has kept, read-only."""
        return self._mapped(path, np.dtype(dtype), "r", shape)

    def _mapped(self, path: Any, dtype: Any, mode: Literal["r", "r+"], shape: tuple[int, ...]) -> np.memmap:
        try:
            return np.memmap(path, dtype=dtype, mode=mode, shape=shape)
        except OSError as e:
            raise WarpdeckError(
                f"{self.folder}: can't map check data: {e.strerror}; fewer cases, or a higher `ulimit -n`"
            ) from None

    def keep(self, name: str, values: np.ndarray) -> np.memmap:
        """A read-only copy of `values` on disk."""
        target = self.create(name, values.dtype, values.shape)
        target[...] = values
        return self.sealed(target)

    def close(self) -> None:
        """Remove the folder, which also happens at exit. Arrays that are still mapped stay readable."""
        self._remove()


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child that exits
        shutil.rmtree(folder, ignore_errors=True)
