"""Memory that a long session has no more use for."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def give_back() -> None:
    """What large arrays left behind goes back to the system: glibc keeps it, 45 MB for a trace of a million
    events. It takes a few ms."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    try:
        return getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # no such library here
        return None
