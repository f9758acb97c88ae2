"""Memory that a long session has no more use for goes back to the system."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

LARGE = 256 << 10  # bytes
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8  # of glibc's malloc.h


def settle() -> None:
    """Before threads are started: arrays beyond LARGE are given back as soon as they are freed, and threads
    keep no stocks of their own. glibc keeps up to 32 MB otherwise, and each thread what it took at most."""
    library = _library()
    if hasattr(library, "mallopt"):
        library.mallopt(_MMAP_THRESHOLD, LARGE)
        library.mallopt(_ARENA_MAX, 1)


def give_back() -> None:
    """What large arrays left behind before that: 45 MB for a trace of a million events. It takes a few ms."""
    library = _library()
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


@cache
def _library() -> Any:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # no such library here
        return None
