"""Files that are written whole or not at all, in place of whatever the user named."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A new file's name beside `path`: it becomes `path` if the block ends well, and is removed otherwise.

    A link's target is replaced, not the link. What is there and no plain file (a device, a pipe, the terminal
    behind /dev/stdout) must not be replaced, least of all by root: its own name is given, to write into it.
    An OSError of the block names `path`.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    target = path.resolve()
    partial = target.with_name(f".{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        yield partial
        partial.replace(target)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename in (None, str(partial)):
            error.filename = str(path)  # a full disk names no file, and nobody knows the partial one
        with suppress(OSError):
            partial.unlink()
        raise
