"""Files of traces: written whole or not at all; whatever is wrong with one is one TraceError naming it."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..whole import whole
from .errors import TraceError

MAX_BYTES = 4 << 30


def write(path: Path, parts: Iterable[bytes]) -> None:
    """Write atomically; a crash leaves the old file or none. TraceError if it can't be written."""
    try:
        with whole(path) as partial, partial.open("wb") as file:
            file.writelines(parts)
    except OSError as error:
        raise TraceError(f"{path}: can't be written: {error.strerror or error}") from None


def read(path: Path) -> bytes:
    """A file's bytes. TraceError if there is none, it can't be read, or it is too large for a trace."""
    try:
        about = path.stat()
        if stat.S_ISCHR(about.st_mode) or about.st_size > MAX_BYTES:
            raise TraceError(f"{path}: not a trace: larger than {MAX_BYTES >> 30} GiB, or a device")
        return path.read_bytes()
    except OSError as error:
        raise TraceError(f"{path}: can't be read: {error.strerror or error}") from None


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Put the file's name before whatever TraceError the block raises."""
    try:
        yield
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None
