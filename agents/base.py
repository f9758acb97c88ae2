"""The seam between agents and the rest: strategies ask, the bench judges, strategies are told."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..core.errors import UsageError
from ..core.model import Config, Evaluation, Status

if TYPE_CHECKING:
    from ..core.bench import Bench, Proposal
    from ..core.configs import Configs

EventSink = Callable[[str, Mapping[str, Any]], None]  # (kind, data), as the session's log stores them

FAILURE_REWARD = -1.0  # a speedup of zero: what a configuration that doesn't run is worth


class Stop(Exception):
    """Raised by `Control.check` when the user or the runner asked the agent to stop."""


class Control(Protocol):
    """How a running agent is paused and stopped from outside."""

    def check(self) -> None:
        """Return at once, block while paused, or raise `Stop`. Called between steps; must be cheap."""
        ...


class NullControl:
    """A control nobody holds: never pauses, never stops."""

    def check(self) -> None:
        """Return at once."""


class OutOfTime(Stop):
    """Raised by `Limited.check`: the time is up."""


class Limited:
    """A control that also stops when time is up. Time spent paused doesn't count.

    Args:
        control: Pauses and stops.
        limit_s: Seconds from now.
        clock: Seconds; injected by tests.
    """

    def __init__(self, control: Control, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._control, self._clock = control, clock
        self._lock = threading.Lock()
        self._end = clock() + limit_s

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return self._clock() >= self._end

    def check(self) -> None:
        """As `Control.check`. Raises `OutOfTime` too."""
        before = self._clock()
        self._control.check()
        paused = self._clock() - before
        with self._lock:
            self._end = max(self._end, self._end + paused)
        if self.late:
            raise OutOfTime


@dataclass(frozen=True)
class Context:
    """What a run gives an agent beside its bench.

    Attributes:
        folder: the session's; an agent's files go below its `artifacts`.
        emit: appends an event, as (kind, data).
        flush: returns when everything that was emitted is on disk.
        control: to be checked often by an agent that works long between two proposals.
        past: (kind, data) of the events that this agent emitted before the run was interrupted, in order.
    """

    folder: Path
    emit: EventSink
    flush: Callable[[], None] = lambda: None
    control: Control = field(default_factory=NullControl)
    past: Sequence[tuple[str, Mapping[str, Any]]] = ()


class Strategy(Protocol):
    """Proposes configurations, or candidates of any variant, and learns from their evaluations.

    `lookahead` is how many proposals may be asked before the first of them is told, so that a live
    device compiles ahead; 0 means any number, for strategies that don't learn.
    """

    name: str
    lookahead: int

    def ask(self) -> Proposal | None:
        """What to evaluate next; None when there is nothing left to try."""
        ...

    def tell(self, proposal: Any, evaluation: Evaluation, /) -> None:
        """Learn an outcome, also of what was never asked (a resumed run's log).

        `proposal` is of the kind that `ask` gives; a strategy of configurations gets no candidates.
        """
        ...


@dataclass(frozen=True)
class SearchReport:
    """How a search ended: evaluations made (those told at the start included) and why it ended; `detail` is
    the strategy's own reason for having nothing more to ask, in words (`budget`: its `spent` says that it was
    one of its own)."""

    steps: int
    reason: Literal["steps", "exhausted", "stopped", "time", "budget"]
    detail: str = ""


def reward_of(speedup: float | None) -> float:
    """Speedup - 1; the failure penalty for None."""
    return FAILURE_REWARD if speedup is None else speedup - 1.0


def step_of(number: int, evaluation: Evaluation, speedup: float | None, best: float | None) -> dict[str, Any]:
    """The `step` event of an evaluation. What works on a device that times nothing has no reward."""
    untimed = speedup is None and evaluation.status is Status.OK
    return {
        "step": number,
        "reward": None if untimed else reward_of(speedup),
        "speedup": speedup,
        "best_speedup": best,
        "variant": evaluation.candidate.variant,
        "config": dict(evaluation.candidate.config),
        "status": str(evaluation.status),
    }


class InOrder:
    """A strategy that tries a fixed list of configurations, each once. Base of `sweep` and `random`."""

    name = "in-order"
    lookahead = 0

    def __init__(self, configs: Iterable[Config], key: Callable[[Config], str]) -> None:
        self._rest = iter(configs)
        self._key = key
        self._seen: set[str] = set()

    def ask(self) -> Config | None:
        """The next configuration that wasn't told yet."""
        for config in self._rest:
            if self._key(config) not in self._seen:
                return config
        return None

    def tell(self, config: Config, evaluation: Evaluation) -> None:
        """Remember that it is done."""
        self._seen.add(self._key(config))


def valid_configs(bench: Bench) -> Configs:
    """The configurations valid for every case. UsageError if the restrictions leave none."""
    configs = bench.configs()
    if not configs:
        raise UsageError(
            f"{bench.workload.name}: space '{bench.space.name}' has no valid configuration for"
            f" {', '.join(c.name for c in bench.cases)}; relax its restrictions or choose another size"
        )
    return configs


def search(
    bench: Bench,
    strategy: Strategy,
    *,
    steps: int,
    control: Control | None = None,
    sink: EventSink | None = None,
    told: Iterable[tuple[Proposal, Evaluation]] = (),
    time_limit_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> SearchReport:
    """Run a strategy on a bench until the budget is spent or there is nothing left to try.

    Args:
        bench: Judges configurations and logs their `evaluation` events.
        strategy: Proposes what to judge.
        steps: Budget of evaluations, failures and those in `told` included.
        control: Pauses and stops. A `Limited` one that the strategy has, too, ends its waiting in time.
        sink: Receives one `step` event per evaluation: step (from 1), reward (speedup - 1, or
            `FAILURE_REWARD`), speedup (None if it failed), best_speedup, variant, config, status. The bench's
            own sink if None.
        told: Logged evaluations of an interrupted run, in order; the strategy is told them first.
        time_limit_s: Seconds after which no further evaluation starts. Time spent paused doesn't count.
        clock: Seconds; injected by tests.
    """
    control = control or NullControl()
    if time_limit_s is not None:
        control = Limited(control, time_limit_s, clock)
    emit = sink or bench.emit
    done = 0
    best: float | None = None
    for proposal, evaluation in told:
        strategy.tell(proposal, evaluation)
        best = _better(best, bench.speedup(evaluation))
        done += 1

    def late() -> bool:
        return isinstance(control, Limited) and control.late

    asked: deque[Proposal] = deque()

    def ask(count: int) -> Iterator[Proposal]:
        for _ in range(count):
            if late():
                return
            proposal = strategy.ask()
            if proposal is None:
                return
            asked.append(proposal)
            yield proposal

    try:
        control.check()
        while done < steps and not late():
            before = done
            evaluations = bench.evaluate_many(ask(min(strategy.lookahead or steps, steps - done)))
            try:
                for evaluation in evaluations:
                    strategy.tell(asked.popleft(), evaluation)
                    speedup = bench.speedup(evaluation)
                    best = _better(best, speedup)
                    done += 1
                    emit("step", step_of(done, evaluation, speedup, best))
                    control.check()
            finally:
                close = getattr(evaluations, "close", None)
                if close is not None:
                    close()  # cancels what a live device compiles ahead
            if done == before:
                detail = getattr(strategy, "stopped", None) or "every configuration was tried"
                if late():
                    return SearchReport(done, "time")
                spent = getattr(strategy, "spent", False)
                return SearchReport(done, "budget" if spent else "exhausted", detail)
    except OutOfTime:
        pass
    except Stop:
        return SearchReport(done, "stopped")
    end_of = getattr(strategy, "end", None)
    if end_of is not None:
        end_of()  # what it planned won't happen
    return SearchReport(done, "steps" if done >= steps else "time")


def _better(best: float | None, speedup: float | None) -> float | None:
    if speedup is None:
        return best
    return speedup if best is None else max(best, speedup)
