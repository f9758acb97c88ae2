"""RunState: everything a screen, a progress line or a report shows, as a function of the event log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..core.errors import UsageError
from ..core.model import Config
from . import llm_state
from .entries import Entry, RunInfo, entry_of, ranked, ratio, replaced, with_failed, with_finalists
from .events import Event, Kind, Lifecycle
from .llm_state import LlmState
from .series import Series
from .words import tame

MESSAGES = 200
RECORDS = 50
SAMPLES = 600  # NVML samples kept: ten minutes at 1 Hz


@dataclass(frozen=True)
class Message:
    """A line of the log for people."""

    t: float
    level: str
    text: str


@dataclass(frozen=True)
class Record:
    """A candidate that was faster, when it was measured, than all before it. `step`: None if unknown."""

    t: float
    step: int | None
    config: Config
    score_ms: float
    speedup: float | None
    speedup_ci: tuple[float, float] | None = None  # 95%


@dataclass(frozen=True)
class RunState:
    """An immutable picture of a run after event `seq`. Build with `reduce`, never by hand."""

    seq: int = 0
    t: float = 0.0  # of the last event, Unix seconds
    started: float | None = None  # of the first event
    active_s: float = 0.0  # seconds the run was running (neither paused nor dead)
    lifecycle: Lifecycle = Lifecycle.CREATED
    reason: str = ""
    exit_code: int | None = None  # what the run process left with, once it has ended
    info: RunInfo | None = None
    baseline: Entry | None = None
    steps: Series = field(default_factory=Series)
    step: int = 0  # steps done: the highest number seen
    best_speedup: float | None = None
    last_step: Mapping[str, Any] | None = None
    evaluations: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)  # evaluations by status
    leaderboard: tuple[Entry, ...] = ()  # best first, one entry a candidate, the latest evaluation of each
    failed: tuple[Entry, ...] = ()  # the latest that failed, oldest first, one entry a candidate
    records: tuple[Record, ...] = ()  # oldest first
    last: Entry | None = None  # the latest evaluation, whatever its status
    samples: tuple[Mapping[str, Any], ...] = ()  # NVML, oldest first
    messages: tuple[Message, ...] = ()
    artifacts: tuple[tuple[str, str], ...] = ()  # (name, path)
    result: Mapping[str, Any] | None = None
    llm: LlmState | None = None  # of an agent that tries sources; None for the others

    @property
    def device_label(self) -> str:
        """The device for people, with "recorded on …" where that is the truth; empty before the start."""
        return self.info.device.label if self.info and self.info.device else ""

    @property
    def best(self) -> Entry | None:
        """The best evaluation so far, in the workload's own precision."""
        first = self.leaderboard[0] if self.leaderboard else None
        return first if first is not None and first.precision is None else None

    @property
    def sample(self) -> Mapping[str, Any] | None:
        """The newest NVML sample."""
        return self.samples[-1] if self.samples else None

    @property
    def progress(self) -> float | None:
        """0 to 1, by steps or time limit, whichever is further; None if the run has no bound."""
        if self.lifecycle is Lifecycle.FINISHED:
            return 1.0
        parts = []
        if self.info and self.info.steps:
            parts.append(self.step / self.info.steps)
        if self.info and self.info.time_limit_s:
            parts.append(self.active_s / self.info.time_limit_s)
        return min(max(parts), 1.0) if parts else None

    @property
    def steps_per_s(self) -> float | None:
        """Mean rate while running; None before the first step."""
        return self.step / self.active_s if self.step and self.active_s > 0 else None

    @property
    def eta_s(self) -> float | None:
        """Seconds of running left at the mean rate; None if unknown, 0 when the run has ended."""
        if self.lifecycle.final:
            return 0.0
        done = self.progress
        return self.active_s * (1 - done) / done if done else None

    @cached_property
    def tied(self) -> frozenset[str]:
        """Ids of the candidates that can't be told from the best.

        From the result where there is one; before that, those whose 95% interval overlaps the best's.
        """
        best = self.best
        if best is None:
            return frozenset()
        if self.result is not None and self.result.get("tied") is not None:
            configs = [dict(config) for config in self.result["tied"]]
            return frozenset(e.candidate for e in self.leaderboard if dict(e.config) in configs)
        if best.score_ci_ms is None:
            return frozenset({best.candidate})
        upper = best.score_ci_ms[1]
        return frozenset(
            e.candidate
            for e in self.leaderboard
            if e is best or (e.precision is None and e.score_ci_ms is not None and e.score_ci_ms[0] <= upper)
        )


class DamagedEvent(UsageError):
    """An event's data can't be what its kind promises; the message doesn't know the session."""


def reduce(state: RunState, event: Event) -> RunState:
    """The state after one more event, O(1) amortised. Unknown kinds only move `seq` and `t`.

    Raises DamagedEvent if the event's data can't be what its kind promises.
    """
    changes: dict[str, Any] = {"seq": event.seq, "t": event.t}
    if state.started is None:
        changes["started"] = event.t
    elif state.lifecycle in _ACTIVE and not _is_death(event):
        changes["active_s"] = state.active_s + max(event.t - state.t, 0.0)
    handler = _HANDLERS.get(event.kind)
    if handler is not None:
        try:
            handler(state, event, changes)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise DamagedEvent(f"event {event.seq} ({event.kind}) is damaged: {what}") from error
    # dataclasses.replace calls __init__ and costs five times as much; this runs once an event.
    new = object.__new__(RunState)
    new.__dict__.update(state.__dict__)
    new.__dict__.pop("tied", None)
    new.__dict__.update(changes)
    return new


def reduce_all(events: Iterable[Event], state: RunState | None = None) -> RunState:
    """Fold events into a state, from the beginning or from a given one."""
    current = state or RunState()
    for event in events:
        current = reduce(current, event)
    return current


_ACTIVE = frozenset({Lifecycle.RUNNING, Lifecycle.STOPPING})


def _is_death(event: Event) -> bool:
    """The gap before this event was spent dead, not running: nobody wrote until a resume noticed."""
    return event.kind == Kind.STATE and event.data.get("state") == Lifecycle.INTERRUPTED


def _start(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    info = RunInfo(event.data)
    _ = info.workload, info.agent, info.cases, info.device  # a damaged header fails here, not in a widget
    for part in ("knobs", "baseline", "vendor", "floors", "protocol", "versions", "known"):
        if not isinstance(event.data.get(part) or {}, Mapping):
            raise TypeError(f"{part} is no object")
    _ = info.code({}), [float(ms) for ms in info.known_ms], info.known_failed
    changes["info"] = info
    if info.agent in llm_state.AGENTS:
        changes["llm"] = llm_state.interrupted(state.llm) or LlmState()


def _vendor(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    if state.info is None:
        raise ValueError("it comes before the start")
    known = {**(state.info.data.get("vendor") or {}), **event.data["cases"]}
    info = RunInfo({**state.info.data, "vendor": known})
    times = {case: float(value["median_ms"]) for case, value in info.vendor.items()}

    def beside(entry: Entry) -> Entry:
        # A paired time came with a result, which had its vendor time.
        return entry if entry.paired else replaced(entry, vendor_ratio=ratio(times, entry.medians_ms))

    changes["info"] = info
    changes["leaderboard"] = tuple(beside(entry) for entry in state.leaderboard)
    for name in ("baseline", "last"):
        entry = getattr(state, name)
        if entry is not None:
            changes[name] = beside(entry)


def _baseline(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    entry = entry_of(state.info, event.data, None)
    if entry.score_ms is not None:
        entry = replaced(entry, speedup=1.0)
    changes["baseline"] = entry
    changes["llm"] = llm_state.evaluated(state.llm, entry)


def _evaluation(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    entry = entry_of(state.info, event.data, state.baseline)
    changes["last"] = entry
    changes["evaluations"] = state.evaluations + 1
    changes["counts"] = {**state.counts, entry.status: state.counts.get(entry.status, 0) + 1}
    changes["leaderboard"] = ranked(state.leaderboard, entry)
    changes["failed"] = with_failed(state.failed, entry)
    changes["llm"] = llm_state.evaluated(state.llm, entry)
    score = entry.score_ms
    if score is None or entry.precision is not None:
        return
    if not state.records or score < state.records[-1].score_ms:
        record = Record(event.t, entry.step, entry.config, score, entry.speedup, entry.speedup_ci)
        changes["records"] = (*state.records[-(RECORDS - 1) :], record)


def _step(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    data = event.data
    number = int(data["step"])
    best = data.get("best_speedup")
    config = data.get("config")
    code = None if state.info is None or not config else state.info.code(config)
    changes["steps"] = state.steps.append(number, data.get("reward"), data.get("speedup"), best, code)
    changes["last_step"] = data
    changes["step"] = max(state.step, number)
    if best is not None and (state.best_speedup is None or best > state.best_speedup):
        changes["best_speedup"] = float(best)


def _steps(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    data = event.data
    numbers = data["step"]
    if not numbers:
        return
    bests = data["best_speedup"]
    changes["steps"] = state.steps.extend([numbers, data["reward"], data["speedup"], bests])
    changes["step"] = max(state.step, int(max(numbers)))
    known = [best for best in bests if best is not None]
    if state.best_speedup is not None:
        known.append(state.best_speedup)
    if known:
        changes["best_speedup"] = float(max(known))


def _sample(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    changes["samples"] = (*state.samples[-(SAMPLES - 1) :], event.data)


def _message(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    message = Message(event.t, str(event.data.get("level", "info")), tame(event.data["text"]))
    changes["messages"] = (*state.messages[-(MESSAGES - 1) :], message)


def _artifact(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    artifact = (str(event.data["name"]), str(event.data["path"]))
    kept = tuple(known for known in state.artifacts if known[0] != artifact[0])
    changes["artifacts"] = (*kept, artifact)


def _result(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    data = event.data
    for config in data.get("tied") or ():
        dict(config)
    for part in (data.get("best"), data.get("baseline"), *(data.get("cases") or ())):
        dict(dict(part or {}).get("config") or {})  # damage fails here, not where it is shown
    changes["result"] = data
    changes["leaderboard"] = with_finalists(
        state.leaderboard, data.get("finalists") or (), paired=data.get("comparison") != "unpaired"
    )


def _state(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    changes["lifecycle"] = Lifecycle(event.data["state"])
    changes["reason"] = tame(event.data.get("reason") or "")
    changes["exit_code"] = event.data.get("exit_code")
    if changes["lifecycle"].final:
        changes["llm"] = llm_state.interrupted(state.llm)


def _llm(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    changes["llm"] = llm_state.reduce(state.llm, event)
    precision = event.data.get("precision")
    entry = next((e for e in state.leaderboard if e.candidate == event.data.get("candidate")), None)
    if precision and entry is not None and entry.precision is None:  # its evaluation didn't tell
        changes["leaderboard"] = ranked(state.leaderboard, replaced(entry, precision=str(precision)))
        last = state.records[-1] if state.records else None
        if last is not None and last.score_ms == entry.score_ms:
            changes["records"] = state.records[:-1]


_HANDLERS = {
    Kind.START.value: _start,
    Kind.VENDOR.value: _vendor,
    Kind.BASELINE.value: _baseline,
    Kind.EVALUATION.value: _evaluation,
    Kind.STEP.value: _step,
    Kind.STEPS.value: _steps,
    Kind.SAMPLE.value: _sample,
    Kind.MESSAGE.value: _message,
    Kind.ARTIFACT.value: _artifact,
    Kind.RESULT.value: _result,
    Kind.STATE.value: _state,
    **dict.fromkeys(llm_state.KINDS, _llm),
}
