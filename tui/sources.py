"""Where a screen's RunState comes from: a session that grows, or one that is played back.

A screen polls its source from a timer. `poll` returns the newest state, or None where nothing changed
since the last call; it may raise WarpdeckError (a locked or vanished log), which the screen shows and
tries again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..sessions.state import RunState


@dataclass(frozen=True)
class Capabilities:
    """What a source is. `live`: the run may be going on, and can be controlled; `attach`: this console
    joined a run that it didn't start; `replay`: the log is played back, see `Playback`."""

    live: bool = False
    attach: bool = False
    replay: bool = False


class RunSource(Protocol):
    """A run to look at."""

    capabilities: Capabilities
    session: str  # the session's id, what `warpdeck attach` takes

    def poll(self) -> RunState | None:
        """The newest state; None if it is the one returned last. WarpdeckError if it can't be read."""
        ...

    def now(self) -> float:
        """The time at which the state is seen: Unix seconds, in a replay the log's."""
        ...

    def command(self, name: str) -> None:
        """Ask the run to `pause`, `resume` or `stop`. WarpdeckError if it can't be asked."""
        ...

    def close(self) -> None:
        """Release the log. The run goes on."""
        ...


@runtime_checkable
class Playback(Protocol):
    """The controls of a replay, beside those of RunSource. Positions are seconds since the log's start."""

    playing: bool
    speed: float
    position: float
    length: float

    def toggle(self) -> None:
        """Play or pause; at the end, play from the start."""
        ...

    def change_speed(self, direction: int) -> None:
        """The next faster (1) or slower (-1) speed."""
        ...

    def step(self, direction: int) -> None:
        """Pause at the next or the previous step."""
        ...

    def seek(self, fraction: float) -> None:
        """Jump to a fraction of the whole; goes on playing if it was."""
        ...
