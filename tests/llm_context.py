"""An agent's context that remembers, and a clock on which waiting costs nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from warpdeck.agents.base import Context, Stop

Events = list[tuple[str, dict[str, Any]]]


class Elapsing:
    """The real clock, plus every wait at once."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self._ahead = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return time.monotonic() + self._ahead

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.waits.append(seconds)
        self._ahead += seconds


class Hook:
    """A control that calls a function at every check."""

    def __init__(self, then: Callable[[int], None]) -> None:
        self.checks = 0
        self._then = then

    def check(self) -> None:
        """Count, and call."""
        self.checks += 1
        self._then(self.checks)


def stop_when(condition: Callable[[], bool]) -> Hook:
    """A control that stops the run as soon as a condition holds."""

    def look(_: int) -> None:
        if condition():
            raise Stop

    return Hook(look)


class Recorder:
    """Makes contexts and keeps what is emitted: `events`, and how many were flushed (`flushed`)."""

    def __init__(self, folder: Path) -> None:
        self.events: Events = []
        self.flushed = 0
        self._folder = folder

    def context(self, *, control: Any = None, past: Sequence[tuple[str, Mapping[str, Any]]] = ()) -> Context:
        """A context whose events land here."""
        keys: dict[str, Any] = {} if control is None else {"control": control}

        def flush() -> None:
            self.flushed = len(self.events)

        def emit(kind: str, data: Mapping[str, Any]) -> None:
            self.events.append((kind, dict(data)))

        return Context(self._folder, emit, flush, past=past, **keys)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The data of all events of a kind."""
        return [data for name, data in self.events if name == kind]
