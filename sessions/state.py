"""RunState: everything a screen, a progress line or a report shows, as a function of the event log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from ..core.errors import UsageError
from ..core.model import Config, DeviceInfo
from .events import Event, Kind, Lifecycle
from .series import Series

TOP = 50  # leaderboard entries kept
MESSAGES = 200
RECORDS = 50
SAMPLES = 600  # NVML samples kept: ten minutes at 1 Hz


@dataclass(frozen=True)
class CaseInfo:
    """A performance case of the run."""

    name: str
    params: Mapping[str, int]


@dataclass(frozen=True)
class RunInfo:
    """What the `start` event says, and the `vendor` event."""

    data: Mapping[str, Any]

    @property
    def workload(self) -> str:
        """The workload's name."""
        return self.data["workload"]

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self.data["agent"]

    @property
    def seed(self) -> int | None:
        """The run's seed."""
        return self.data.get("seed")

    @property
    def space(self) -> str | None:
        """The search space's name."""
        return self.data.get("space")

    @property
    def steps(self) -> int | None:
        """Steps asked for; None if only time bounds the run."""
        return self.data.get("steps")

    @property
    def time_limit_s(self) -> float | None:
        """Seconds the run may take."""
        return self.data.get("time_limit_s")

    @property
    def protocol(self) -> Mapping[str, Any]:
        """How times were measured."""
        return self.data.get("protocol") or {}

    @property
    def knobs(self) -> Mapping[str, list[Any]]:
        """The space's knobs and their values."""
        return self.data.get("knobs") or {}

    @property
    def vendor(self) -> Mapping[str, Mapping[str, Any]]:
        """The vendor's `{name, median_ms}` by case, where there is one and as far as it is known."""
        return {case: value for case, value in (self.data.get("vendor") or {}).items() if value}

    @property
    def floors(self) -> Mapping[str, float]:
        """The physical floor in ms by case, where it is known."""
        return {case: value for case, value in (self.data.get("floors") or {}).items() if value}

    @cached_property
    def cases(self) -> tuple[CaseInfo, ...]:
        """The performance cases, in order."""
        return tuple(CaseInfo(case["name"], case["params"]) for case in self.data.get("cases") or ())

    @cached_property
    def device(self) -> DeviceInfo | None:
        """The device, if the event names one."""
        device = self.data.get("device")
        return DeviceInfo.from_json(device) if device else None


@dataclass(frozen=True)
class Entry:
    """One evaluation, without its samples.

    `score_ms` is the geometric mean of the cases' medians, its interval the cases' 95% intervals combined
    the same way (unpaired, so wider than the paired one that the result gives finalists). `vendor_ratio`
    and `floor_ratio` are the vendor's time and the physical floor over this one's, geometric means over the
    cases (None unless all have one): 1.0 means as fast as the vendor, as fast as physics allows. `paired`:
    time, speedup and interval come from interleaved samples, taken for the result.
    """

    candidate: str
    variant: str
    config: Config
    status: str
    message: str = ""
    step: int | None = None
    score_ms: float | None = None
    score_ci_ms: tuple[float, float] | None = None
    speedup: float | None = None
    speedup_ci: tuple[float, float] | None = None
    medians_ms: Mapping[str, float] = field(default_factory=dict)
    vendor_ratio: float | None = None
    floor_ratio: float | None = None
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    same_as: str | None = None
    paired: bool = False


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
    records: tuple[Record, ...] = ()  # oldest first
    last: Entry | None = None  # the latest evaluation, whatever its status
    samples: tuple[Mapping[str, Any], ...] = ()  # NVML, oldest first
    messages: tuple[Message, ...] = ()
    artifacts: tuple[tuple[str, str], ...] = ()  # (name, path)
    result: Mapping[str, Any] | None = None

    @property
    def device_label(self) -> str:
        """The device for people, with "recorded on …" where that is the truth; empty before the start."""
        return self.info.device.label if self.info and self.info.device else ""

    @property
    def best(self) -> Entry | None:
        """The best evaluation so far."""
        return self.leaderboard[0] if self.leaderboard else None

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
            if e is best or (e.score_ci_ms is not None and e.score_ci_ms[0] <= upper)
        )


def reduce(state: RunState, event: Event) -> RunState:
    """The state after one more event, O(1) amortised. Unknown kinds only move `seq` and `t`.

    Raises UsageError if the event's data can't be what its kind promises.
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
            raise UsageError(
                f"event {event.seq} ({event.kind}) is damaged: {type(error).__name__}: {error}"
            ) from error
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
    for part in ("knobs", "baseline", "vendor", "floors", "protocol", "versions"):
        if not isinstance(event.data.get(part) or {}, Mapping):
            raise TypeError(f"{part} is no object")
    changes["info"] = info


def _vendor(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    if state.info is None:
        raise ValueError("it comes before the start")
    known = {**(state.info.data.get("vendor") or {}), **event.data["cases"]}
    info = RunInfo({**state.info.data, "vendor": known})
    times = {case: float(value["median_ms"]) for case, value in info.vendor.items()}

    def beside(entry: Entry) -> Entry:
        # A paired time came with a result, which had its vendor time.
        return entry if entry.paired else _with(entry, vendor_ratio=_ratio(times, entry.medians_ms))

    changes["info"] = info
    changes["leaderboard"] = tuple(beside(entry) for entry in state.leaderboard)
    for name in ("baseline", "last"):
        entry = getattr(state, name)
        if entry is not None:
            changes[name] = beside(entry)


def _baseline(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    entry = _entry(state, event.data, None)
    if entry.score_ms is not None:
        entry = _with(entry, speedup=1.0)
    changes["baseline"] = entry


def _evaluation(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    entry = _entry(state, event.data, state.baseline)
    changes["last"] = entry
    changes["evaluations"] = state.evaluations + 1
    changes["counts"] = {**state.counts, entry.status: state.counts.get(entry.status, 0) + 1}
    changes["leaderboard"] = _ranked(state.leaderboard, entry)
    score = entry.score_ms
    if score is not None and (not state.records or score < state.records[-1].score_ms):
        record = Record(event.t, entry.step, entry.config, score, entry.speedup)
        changes["records"] = (*state.records[-(RECORDS - 1) :], record)


def _step(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    data = event.data
    number = int(data["step"])
    best = data.get("best_speedup")
    changes["steps"] = state.steps.append(number, data.get("reward"), data.get("speedup"), best)
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
    message = Message(event.t, str(event.data.get("level", "info")), str(event.data["text"]))
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
        dict(part or {})  # damage fails here, not where it is shown
    changes["result"] = data
    changes["leaderboard"] = _with_finalists(
        state.leaderboard, data.get("finalists") or (), paired=data.get("comparison") != "unpaired"
    )


def _state(state: RunState, event: Event, changes: dict[str, Any]) -> None:
    changes["lifecycle"] = Lifecycle(event.data["state"])
    changes["reason"] = str(event.data.get("reason") or "")
    changes["exit_code"] = event.data.get("exit_code")


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
}


def _with_finalists(
    board: tuple[Entry, ...], finalists: Iterable[Mapping[str, Any]], *, paired: bool
) -> tuple[Entry, ...]:
    """The board led by the finalists, in the result's order and with its times and speedups."""
    known = {entry.candidate: entry for entry in board}
    leaders = []
    for finalist in finalists:
        entry = known.pop(str(finalist["candidate"]), None)
        if entry is not None:
            low, high = finalist.get("speedup_ci") or (None, None)
            ci = (low, high) if low is not None and high is not None else None
            entry = _retimed(entry, finalist.get("paired_ms"))
            leaders.append(_with(entry, speedup=finalist["speedup"], speedup_ci=ci, paired=paired))
    return (*leaders, *known.values())


def _retimed(entry: Entry, score_ms: float | None) -> Entry:
    """The entry with another score, and what follows from it; the old score's interval isn't its own."""
    if not score_ms or not entry.score_ms:
        return entry
    scale = entry.score_ms / score_ms
    ratios = {
        name: None if value is None else value * scale
        for name, value in (("vendor_ratio", entry.vendor_ratio), ("floor_ratio", entry.floor_ratio))
    }
    return _with(entry, score_ms=score_ms, score_ci_ms=None, **ratios)


def _with(entry: Entry, **changes: Any) -> Entry:
    return Entry(**{**{f.name: getattr(entry, f.name) for f in fields(entry)}, **changes})


def _entry(state: RunState, data: Mapping[str, Any], baseline: Entry | None) -> Entry:
    measurements = data.get("measurements") or ()
    medians = {str(m["case"]): float(m["median_ms"]) for m in measurements}
    score = data.get("score_ms")
    ci = _combined_ci(measurements) if score is not None else None
    speedup = speedup_ci = None
    if score and baseline is not None and baseline.score_ms:
        speedup = baseline.score_ms / score
        if ci and baseline.score_ci_ms:
            speedup_ci = (baseline.score_ci_ms[0] / ci[1], baseline.score_ci_ms[1] / ci[0])
    info = state.info
    resources = data.get("resources") or {}
    return Entry(
        candidate=str(data["candidate"]),
        variant=str(data["variant"]),
        config=data["config"],
        status=str(data["status"]),
        message=str(data.get("message") or ""),
        step=data.get("step"),
        score_ms=score,
        score_ci_ms=ci,
        speedup=speedup,
        speedup_ci=speedup_ci,
        medians_ms=medians,
        vendor_ratio=_ratio({c: v["median_ms"] for c, v in info.vendor.items()}, medians) if info else None,
        floor_ratio=_ratio(info.floors, medians) if info else None,
        registers=resources.get("registers"),
        spill_bytes=resources.get("spill_bytes"),
        shared_bytes=resources.get("shared_bytes"),
        occupancy=resources.get("occupancy"),
        same_as=data.get("same_as"),
    )


def _combined_ci(measurements: Iterable[Mapping[str, Any]]) -> tuple[float, float] | None:
    """Geometric means of the cases' interval ends; None unless every case has an interval."""
    low, high, count = 0.0, 0.0, 0
    for measurement in measurements:
        ci = measurement.get("ci95_ms")
        if not ci or ci[0] <= 0:
            return None
        low += math.log(ci[0])
        high += math.log(ci[1])
        count += 1
    return (math.exp(low / count), math.exp(high / count)) if count else None


def _ratio(reference: Mapping[str, float], medians: Mapping[str, float]) -> float | None:
    """Geometric mean of reference over median; None unless every case has a reference."""
    if not medians or any(not reference.get(c) or medians[c] <= 0 for c in medians):
        return None
    return math.exp(sum(math.log(reference[c] / medians[c]) for c in medians) / len(medians))


def _ranked(board: tuple[Entry, ...], entry: Entry) -> tuple[Entry, ...]:
    """The board with the entry in its place. A candidate's latest evaluation replaces its earlier one:
    keeping the better of two would reward luck."""
    score = entry.score_ms
    if any(known.candidate == entry.candidate for known in board):
        board = tuple(known for known in board if known.candidate != entry.candidate)
    elif len(board) == TOP and score is not None and score >= (board[-1].score_ms or math.inf):
        return board
    if score is None:
        return board
    place = next((i for i, known in enumerate(board) if score < (known.score_ms or math.inf)), len(board))
    return (*board[:place], entry, *board[place:])[:TOP]
