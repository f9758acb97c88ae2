"""What the log says of the run and of each evaluation, as the state keeps it; the leaderboard's order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from ..core.model import Config, DeviceInfo, Status
from .words import tame

TOP = 50  # leaderboard entries kept
FAILED = 50  # evaluations kept that failed
REASON = 400  # characters kept of why
MOST_CODES = 2**53  # configurations that can be numbered exactly in a float64


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

    @property
    def known_ms(self) -> tuple[float, ...]:
        """Times of all configurations of the space that are ok, best first, where the device knows them
        (a recording); else empty."""
        return tuple((self.data.get("known") or {}).get("ms") or ())

    @property
    def known_failed(self) -> int:
        """How many configurations beside `known_ms` are known to fail."""
        return int((self.data.get("known") or {}).get("failed") or 0)

    @cached_property
    def _places(self) -> tuple[tuple[str, Mapping[Any, int]], ...] | None:
        """Each knob's values by their place; None where the space has too many configurations to number."""
        if math.prod(len(values) for values in self.knobs.values()) > MOST_CODES or not self.knobs:
            return None
        return tuple((name, {v: i for i, v in enumerate(values)}) for name, values in self.knobs.items())

    def code(self, config: Mapping[str, Any]) -> int | None:
        """A configuration's number: its values' places, the last knob's counting by one. None if it isn't one
        of the run's space."""
        if self._places is None or len(config) != len(self._places):
            return None
        code = 0
        for name, places in self._places:
            place = places.get(config.get(name))
            if place is None:
                return None
            code = code * len(places) + place
        return code

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
    time, speedup and interval come from interleaved samples, taken for the result. `precision`: where it
    isn't the workload's own; such an entry is never the best.
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
    precision: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As snapshots hold it."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Entry:
        """Inverse of `to_json`. KeyError or TypeError for anything damaged."""
        ends = {name: tuple(data[name]) for name in ("score_ci_ms", "speedup_ci") if data[name] is not None}
        return cls(**{**data, **ends})


def with_failed(failed: tuple[Entry, ...], entry: Entry) -> tuple[Entry, ...]:
    """The failed entries after an evaluation, oldest first; an entry that is ok is none of them any more."""
    kept = tuple(known for known in failed if known.candidate != entry.candidate)
    if entry.status == Status.OK:
        return kept
    return (*kept, replaced(entry, message=entry.message[:REASON]))[-FAILED:]


def with_finalists(
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
            leaders.append(replaced(entry, speedup=finalist["speedup"], speedup_ci=ci, paired=paired))
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
    return replaced(entry, score_ms=score_ms, score_ci_ms=None, **ratios)


def replaced(entry: Entry, **changes: Any) -> Entry:
    """The entry with other values."""
    return Entry(**{**entry.to_json(), **changes})


def entry_of(info: RunInfo | None, data: Mapping[str, Any], baseline: Entry | None) -> Entry:
    """An `evaluation` event's data as an entry, beside the run's vendor and floors, over the baseline.

    Raises KeyError, TypeError or ValueError for damaged data.
    """
    measurements = data.get("measurements") or ()
    medians = {str(m["case"]): float(m["median_ms"]) for m in measurements}
    score = data.get("score_ms")
    ci = _combined_ci(measurements) if score is not None else None
    speedup = speedup_ci = None
    if score and baseline is not None and baseline.score_ms:
        speedup = baseline.score_ms / score
        if ci and baseline.score_ci_ms:
            speedup_ci = (baseline.score_ci_ms[0] / ci[1], baseline.score_ci_ms[1] / ci[0])
    resources = data.get("resources") or {}
    return Entry(
        candidate=str(data["candidate"]),
        variant=str(data["variant"]),
        config=data["config"],
        status=str(data["status"]),
        message=tame(data.get("message") or ""),
        step=data.get("step"),
        score_ms=score,
        score_ci_ms=ci,
        speedup=speedup,
        speedup_ci=speedup_ci,
        medians_ms=medians,
        vendor_ratio=ratio({c: v["median_ms"] for c, v in info.vendor.items()}, medians) if info else None,
        floor_ratio=ratio(info.floors, medians) if info else None,
        registers=resources.get("registers"),
        spill_bytes=resources.get("spill_bytes"),
        shared_bytes=resources.get("shared_bytes"),
        occupancy=resources.get("occupancy"),
        same_as=data.get("same_as"),
        precision=data.get("precision") or None,
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


def ratio(reference: Mapping[str, float], medians: Mapping[str, float]) -> float | None:
    """Geometric mean of reference over median; None unless every case has a reference."""
    if not medians or any(not reference.get(c) or medians[c] <= 0 for c in medians):
        return None
    return math.exp(sum(math.log(reference[c] / medians[c]) for c in medians) / len(medians))


def ranked(board: tuple[Entry, ...], entry: Entry) -> tuple[Entry, ...]:
    """The board with the entry in its place; those of another precision come last. A candidate's latest
    evaluation replaces its earlier one: keeping the better of two would reward luck."""
    if any(known.candidate == entry.candidate for known in board):
        board = tuple(known for known in board if known.candidate != entry.candidate)
    elif len(board) == TOP and _rank(entry) >= _rank(board[-1]):
        return board
    if entry.score_ms is None:
        return board
    mine = _rank(entry)
    place = next((i for i, known in enumerate(board) if mine < _rank(known)), len(board))
    return (*board[:place], entry, *board[place:])[:TOP]


def _rank(entry: Entry) -> tuple[bool, float]:
    return entry.precision is not None, entry.score_ms or math.inf
