"""Play a session's log back: pause, speed, and seeking by time or step, through the same RunState."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ..core.errors import UsageError
from .events import Event, Kind, Lifecycle
from .seeking import Target, Unit, clamp
from .state import RunState, reduce
from .store import SNAPSHOT_EVENTS, SessionStore

SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class ReplayClock:
    """A position in a log, seconds from its start, that moves with a real clock unless paused."""

    def __init__(
        self, length: float, *, speed: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.length = length
        self._clock = clock
        self._speed = speed
        self._playing = True
        self._base = 0.0
        self._since = clock()

    @property
    def position(self) -> float:
        """Seconds, between 0 and `length`."""
        moved = (self._clock() - self._since) * self._speed if self._playing else 0.0
        return min(max(self._base + moved, 0.0), self.length)

    @position.setter
    def position(self, seconds: float) -> None:
        self._base = min(max(seconds, 0.0), self.length)
        self._since = self._clock()

    @property
    def playing(self) -> bool:
        """Whether the position moves; it doesn't at the end."""
        return self._playing and self.position < self.length

    @playing.setter
    def playing(self, value: bool) -> None:
        self.position = self.position
        self._playing = value

    @property
    def speed(self) -> float:
        """Seconds of log a second."""
        return self._speed

    @speed.setter
    def speed(self, value: float) -> None:
        self.position = self.position
        self._speed = value


class Replay:
    """A session played back. Time in which the run was dead (between a crash and its resume) is skipped.

    Args:
        folder: The session's folder.
        speed: Seconds of log a second.
        start: Position to begin at, seconds.
        clock: Seconds; injected by tests.

    Raises:
        UsageError: no readable session there.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        speed: float = 1.0,
        start: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = SessionStore.open(folder)
        self._last_seq = self._store.last_seq
        self._begin = self._store.time_of(1) or 0.0
        self._gaps = self._dead_times()
        end = self._store.time_of(self._last_seq) or self._begin
        self._clock = ReplayClock(self._position_of(end), speed=speed, clock=clock)
        self._clock.position = start
        self._state = RunState()
        self._shown = -1
        self._tried: list[Event] | None = None
        self._pinned: tuple[float, int] | None = None  # where a step was sought: several events share a time

    @property
    def session(self) -> str:
        """The session's id."""
        return self._store.id

    @property
    def playing(self) -> bool:
        """Whether it plays."""
        return self._clock.playing

    @playing.setter
    def playing(self, value: bool) -> None:
        self._clock.playing = value

    @property
    def speed(self) -> float:
        """Seconds of log a second."""
        return self._clock.speed

    @speed.setter
    def speed(self, value: float) -> None:
        self._clock.speed = value

    @property
    def position(self) -> float:
        """Seconds since the log's start."""
        return self._clock.position

    @property
    def length(self) -> float:
        """Seconds of the whole log."""
        return self._clock.length

    @property
    def state(self) -> RunState:
        """The state at the last poll."""
        return self._state

    @property
    def events(self) -> int:
        """How many events the log has."""
        return self._last_seq

    def poll(self) -> RunState | None:
        """The state at the present position; None if it is the one returned last."""
        position = self.position
        if self._pinned is not None and self._pinned[0] == position:
            self._move_to(self._pinned[1])
        else:
            self._pinned = None
            self._move_to(self._seq_at(position))
        if self._state.seq == self._shown:
            return None
        self._shown = self._state.seq
        return self._state

    def now(self) -> float:
        """The present position as Unix time in the log."""
        return self._time_at(self.position)

    def toggle(self) -> None:
        """Play or pause; at the end, play from the start."""
        if not self.playing and self.position >= self.length:
            self._clock.position = 0.0
            self.playing = True
        else:
            self.playing = not self.playing

    def change_speed(self, direction: int) -> None:
        """The next faster (1) or slower (-1) speed."""
        if direction > 0:
            self.speed = next((s for s in SPEEDS if s > self.speed), SPEEDS[-1])
        else:
            self.speed = next((s for s in reversed(SPEEDS) if s < self.speed), SPEEDS[0])

    def step(self, direction: int) -> None:
        """Pause at the next or the previous step; where sources are tried, attempt."""
        self.playing = False
        if self._state.llm is not None and self._attempts():
            self._step_attempt(direction)
        else:
            self.seek_step(self._state.step + (1 if direction > 0 else -1))

    def step_event(self, direction: int) -> None:
        """Pause at the next or the previous event of the log."""
        self.playing = False
        self.seek_event(self._state.seq + (1 if direction > 0 else -1))

    def _step_attempt(self, direction: int) -> None:
        seqs = [event.seq for event in self._attempts()]
        here = self._state.seq
        if direction > 0:
            self.seek_event(next((seq for seq in seqs if seq > here), self._last_seq))
        else:
            self.seek_event(next((seq for seq in reversed(seqs) if seq < here), 0))

    def _attempts(self) -> list[Event]:
        """What told of an attempt first, in order; read once: a log that is played back doesn't grow."""
        if self._tried is None:
            first = {}
            for event in self._store.events(kinds=[Kind.ATTEMPT]):
                first.setdefault(event.data.get("attempt"), event)
            self._tried = list(first.values())
        return self._tried

    def seek(self, fraction: float) -> None:
        """Jump to a fraction of the whole; goes on playing if it was."""
        self._clock.position = self.length * fraction

    def seek_time(self, seconds: float) -> None:
        """Jump to a position."""
        self._clock.position = seconds

    def seek_step(self, step: int) -> None:
        """Jump to where `step` steps are done (the nearest end, if that never happens)."""
        state = self._store.state_at_step(max(step, 0)) if step > 0 else self._store.state(0)
        self._state = state
        self._clock.position = self._position_of(state.t) if state.seq else 0.0
        self._pinned = (self.position, state.seq)

    def seek_event(self, seq: int) -> None:
        """Jump to where event `seq` (the nearest, if there is none) is the last one seen."""
        seq = min(max(seq, 0), self._last_seq)
        self._move_to(seq)
        at = self._store.time_of(seq) if seq else None
        self._clock.position = 0.0 if at is None else self._position_of(at)
        self._pinned = (self.position, seq)

    def go_to(self, target: Target) -> None:
        """Jump to a place, see `seeking.parse`; goes on playing if it was."""
        if target.unit is Unit.STEP:
            self.seek_step(int(target.value))
        elif target.unit in (Unit.EVENT, Unit.BOOKMARK):
            self.seek_event(int(target.value))
        elif target.unit is Unit.ATTEMPT:
            found = [e.seq for e in self._attempts() if e.data.get("attempt") == int(target.value)]
            if not found:
                raise UsageError(f"this log has no attempt {target.value:.0f}")
            self.seek_event(found[0])
        elif target.unit is Unit.SHARE:
            self.seek(target.value)
        else:
            self.seek_time(clamp(target.value + (self.position if target.relative else 0.0), self.length))

    def close(self) -> None:
        """Release the log."""
        self._store.close()

    def _move_to(self, seq: int) -> None:
        ahead = seq - self._state.seq
        if 0 <= ahead <= 2 * SNAPSHOT_EVENTS:
            for event in self._store.events(self._state.seq, seq):
                self._state = reduce(self._state, event)
        else:
            self._state = self._store.state(seq)

    def _dead_times(self) -> list[tuple[float, float]]:
        """(last sign of life, resume) of every time the run was dead, Unix seconds."""
        gaps = []
        for event in self._store.events(kinds=[Kind.STATE]):
            if event.data.get("state") == Lifecycle.INTERRUPTED and event.seq > 1:
                before = self._store.time_of(event.seq - 1)
                if before is not None:
                    gaps.append((before, event.t))
        return gaps

    def _position_of(self, t: float) -> float:
        dead = sum(min(max(t - since, 0.0), until - since) for since, until in self._gaps)
        return t - self._begin - dead

    def _time_at(self, position: float) -> float:
        t = self._begin + position
        for since, until in self._gaps:
            if t >= since:
                t += until - since
        return t

    def _seq_at(self, position: float) -> int:
        if position >= self.length:
            return self._last_seq
        # A microsecond on, so that a position computed from an event's time includes the event.
        return self._store.seq_at(self._time_at(position) + 1e-6)
