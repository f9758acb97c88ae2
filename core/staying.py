"""Code of the user's own runs in this process; it must not end it without a word or print among its data."""

from __future__ import annotations

import functools
import os
import sys
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


class _Aside:
    """stdout while such code runs, since one JSON document may be due: what it prints goes to stderr."""

    def __init__(self) -> None:
        self._stdout: Any = None
        self._lock = threading.Lock()
        self._depth = 0

    def enter(self) -> None:
        with self._lock:
            self._depth += 1
            if sys.stdout is not self:
                self._stdout, sys.stdout = sys.stdout, self  # type: ignore[assignment] - the same, elsewhere

    def leave(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and sys.stdout is self:
                sys.stdout = self._stdout

    def __getattr__(self, name: str) -> Any:
        inside = getattr(_inside, "process", None) == os.getpid()
        return getattr(sys.stderr if inside else self._stdout, name)


_aside = _Aside()


@contextmanager
def staying() -> Iterator[None]:
    """Code in it, in this thread, that calls `os._exit` raises SystemExit instead, and what it prints goes to
    stderr. Raises nothing else that isn't an Exception, but KeyboardInterrupt."""
    os._exit = _told  # type: ignore[assignment] - does what it did, elsewhere
    before, _inside.process = getattr(_inside, "process", None), os.getpid()
    _aside.enter()
    try:
        yield
    except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # a class of its own, which nobody would catch
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
    finally:
        _aside.leave()
        _inside.process = before


def stays(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose calls are `staying`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with staying():
            return function(*args, **kwargs)

    return call
