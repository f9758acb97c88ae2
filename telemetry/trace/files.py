"""Files of traces: written whole or not at all; whatever is wrong with one is one TraceError naming it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import TraceError


def write(path: Path, parts: Iterable[bytes]) -> None:
    """Write atomically; a crash leaves the old file or none. TraceError if it can't be written."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".trace-")
    except OSError as error:
        raise TraceError(f"{path}: can't be written: {error.strerror or error}") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise TraceError(f"{path}: can't be written: {error.strerror or error}") from None
        raise


def read(path: Path) -> bytes:
    """A file's bytes. TraceError if there is none or it can't be read."""
    try:
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
