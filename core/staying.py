"""Code of the user's own runs in this process, and must not end it without a word."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_inside = threading.local()
_end = os._exit


def _told(status: int) -> None:
    """`os._exit`, but in code that is to stay: there it raises SystemExit, which tells where it came from."""
    if getattr(_inside, "process", None) == os.getpid():  # a forked child of it may end as it likes
        raise SystemExit(f"it called os._exit({status})")
    _end(status)


@contextmanager
def staying() -> Iterator[None]:
    """Code in it, in this thread, that calls `os._exit` raises SystemExit instead."""
    os._exit = _told  # type: ignore[assignment] - does what it did, elsewhere
    before, _inside.process = getattr(_inside, "process", None), os.getpid()
    try:
        yield
    finally:
        _inside.process = before


def stays(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose calls are `staying`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with staying():
            return function(*args, **kwargs)

    return call
