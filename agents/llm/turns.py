"""The model's turns: conversations, each in a thread of its own, that may have drafts evaluated before they
end with an answer. What is evaluated goes through the loop's own `ask` and `tell`, like every attempt."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from ..base import Control, Stop
from .beam import MAX_PARALLEL, Slot
from .client import Tool
from .proposal import SCHEMA, Proposal, ProposalError

POLL_S = 0.2  # between two looks at the control while waiting

Outcome = Proposal | ProposalError


@dataclass(frozen=True)
class Draft:
    """What a turn wants evaluated; `told` gets what the model is told of it."""

    slot: Slot
    proposal: Proposal
    told: Future[str] = field(default_factory=Future)


class Ending:
    """A control that also stops what goes on when the loop has ended."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self.over = False

    def check(self) -> None:
        """As `Control.check`."""
        if self.over:
            raise Stop("the run's budget is spent")
        self._control.check()


class Turns:
    """The turns that are under way. `start`, `next` and `finish` are for the loop's own thread.

    Args:
        control: may stop them.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self._changed = threading.Condition()
        self._slots: Sequence[Slot] = ()
        self._drafts: deque[Draft] = deque()
        self._outcomes: dict[int, Outcome | BaseException] = {}
        self._threads: list[threading.Thread] = []

    @property
    def slots(self) -> Sequence[Slot]:
        """Those of the turns under way; none between them."""
        return self._slots

    def start(self, slots: Sequence[Slot], converse: Callable[[Slot], Outcome]) -> None:
        """Begin a turn for each slot, at most 8 at a time."""
        room = threading.Semaphore(MAX_PARALLEL)

        def run(slot: Slot) -> None:
            with room:
                try:
                    outcome: Outcome | BaseException = converse(slot)
                except BaseException as error:  # noqa: BLE001 - it is the loop's, see `finish`
                    outcome = error
            with self._changed:
                self._outcomes[slot.number] = outcome
                self._changed.notify_all()

        self._slots, self._outcomes = tuple(slots), {}
        # Daemons: a turn that hangs must not keep a run from ending.
        self._threads = [
            threading.Thread(target=run, args=(slot,), name=f"turn {slot.number}", daemon=True)
            for slot in slots
        ]
        for thread in self._threads:
            thread.start()

    def next(self) -> Draft | None:
        """The next draft to be evaluated; None once every turn has its answer. Raises Stop."""
        while True:
            with self._changed:
                if self._drafts:
                    return self._drafts.popleft()
                if len(self._outcomes) == len(self._slots):
                    return None
                self._changed.wait(POLL_S)
            self._control.check()

    def finish(self) -> list[tuple[Slot, Outcome]]:
        """Every slot's answer, or why there is none. Raises what ended a turn otherwise."""
        slots, self._slots = self._slots, ()
        found: list[tuple[Slot, Outcome]] = []
        for slot in slots:
            outcome = self._outcomes[slot.number]
            if not isinstance(outcome, Proposal | ProposalError):
                raise outcome
            found.append((slot, outcome))
        return found

    def evaluated(self, draft: Draft) -> str:
        """What the loop tells of a draft. Called by a turn, which waits. Raises Stop."""
        with self._changed:
            self._drafts.append(draft)
            self._changed.notify_all()
        while True:
            self._control.check()
            try:
                return draft.told.result(POLL_S)
            except TimeoutError:
                continue

    def join(self, seconds: float) -> None:
        """Let turns that were told to stop log it; for so long at most."""
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.0))


def evaluate_tool(most: int, run: Callable[[dict[str, object]], str]) -> Tool:
    """The tool that a turn has drafts evaluated with."""
    return Tool(
        "evaluate",
        f"Have a draft compiled, checked and timed, exactly as a proposal is. Each is an attempt of the run's"
        f" budget; at most {most} before you answer.",
        SCHEMA,
        lambda arguments: run(dict(arguments)),
    )
