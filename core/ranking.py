"""From screening to a result: finalists, paired re-measurement, intervals, the tied set.

Screening times of different configurations were taken minutes apart, so they only choose the finalists.
Every finalist is then measured again, interleaved with the baseline; the fastest is the best, and each
other finalist is interleaved with it, unless both comparisons with the baseline leave no doubt already: what
is not shown to be slower is tied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .check import UNSEEN
from .devices.base import Paired, implausible, speedup_of
from .devices.cases import foreign
from .errors import NoDeviceError, WarpdeckError
from .model import Candidate, Evaluation, Status
from .stats import UNITY, Speedup, Verdict, blocks_for, blocks_for_mean, geomean, through

if TYPE_CHECKING:
    from .bench import Bench

NEAR = 1.10  # finalists lie within 10% of the best screening score,
SURE = 3  # or among the first three,
FAR = 2.0  # but never beyond twice the best: what is that slow needs no second look


@dataclass(frozen=True)
class CaseResult:
    """The best candidate on one case, from the paired samples (ms); no times on a device that has none.
    `verdict`: as `Evaluation.verdict`."""

    name: str
    params: Mapping[str, int]
    median_ms: float | None = None
    baseline_ms: float | None = None
    speedup: Speedup | None = None
    vendor_ms: float | None = None
    floor_ms: float | None = None
    verdict: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """An entry of `cases`. Ratios: vendor's time / ours (over 1: faster than the vendor); floor / ours
        (1: at the physical limit)."""
        return {
            "name": self.name,
            "params": dict(self.params),
            "median_ms": self.median_ms,
            "baseline_ms": self.baseline_ms,
            "speedup": self.speedup.ratio if self.speedup else None,
            "speedup_ci": _ci(self.speedup) if self.speedup else None,
            "vendor_ms": self.vendor_ms,
            "vendor_ratio": self.vendor_ms / self.median_ms if self.vendor_ms and self.median_ms else None,
            "floor_ms": self.floor_ms,
            "floor_ratio": self.floor_ms / self.median_ms if self.floor_ms and self.median_ms else None,
            **self.verdict,
        }


@dataclass(frozen=True)
class Finalist:
    """A re-measured candidate: its evaluation, its speedup over the baseline, its time beside it (the cases'
    geometric mean, ms), and whether it may be as good as the best."""

    evaluation: Evaluation
    speedup: Speedup | None  # None, as `paired_ms`, on a device that times nothing
    paired_ms: float | None
    tied: bool

    def to_json(self) -> dict[str, Any]:
        """An entry of `finalists`."""
        return {
            "candidate": self.evaluation.candidate.id,
            "config": dict(self.evaluation.candidate.config),
            "score_ms": self.evaluation.score_ms,
            "paired_ms": self.paired_ms,
            **_told(self.speedup),
            "tied": self.tied,
        }


@dataclass(frozen=True)
class Result:
    """What a run found. Without any `ok` candidate only `baseline` is set."""

    baseline: Evaluation
    best: Finalist | None = None
    cases: Sequence[CaseResult] = ()
    finalists: Sequence[Finalist] = ()
    tied: Sequence[Evaluation] = ()
    clock: str = ""
    paired: bool = True  # False: an imported recording's samples, which were measured apart

    @property
    def comparison(self) -> str | None:
        """How the best was compared with the baseline; None where nothing was timed."""
        if self.best is None or self.best.speedup is None:
            return None
        return "paired" if self.paired else "unpaired"

    def to_json(self) -> dict[str, Any]:
        """The `result` event: the documented part of `tune --json` that the core knows."""
        best = None
        if self.best is not None:
            evaluation = self.best.evaluation
            medians = [c.median_ms for c in self.cases if c.median_ms is not None]
            score = geomean(medians) if medians else None
            best = {
                "candidate": evaluation.candidate.id,
                "variant": evaluation.candidate.variant,
                "config": dict(evaluation.candidate.config),
                "launch": evaluation.to_json(samples=False)["launches"],
                "score_ms": score,
                **_told(self.best.speedup),
                "status": str(evaluation.status),
                "resources": evaluation.resources.to_json() if evaluation.resources else None,
            }
        return {
            "baseline": {
                "config": dict(self.baseline.candidate.config),
                "variant": self.baseline.candidate.variant,
                "score_ms": self.baseline.score_ms,
            },
            "best": best,
            "cases": [c.to_json() for c in self.cases],
            "tied": [dict(e.candidate.config) for e in self.tied],
            "finalists": [f.to_json() for f in self.finalists],
            "vendor_ratio": _mean_ratio([(c.vendor_ms, c.median_ms) for c in self.cases]),
            "floor_ratio": _mean_ratio([(c.floor_ms, c.median_ms) for c in self.cases]),
            "clock": self.clock,
            "event_floor_ms": self.baseline.event_floor_ms,
            "comparison": self.comparison,
            "cache": str(self.baseline.measurements[0].cache) if self.baseline.measurements else None,
        }


def _told(speedup: Speedup | None) -> dict[str, Any]:
    if speedup is None:
        return {"speedup": None, "speedup_ci": None, "verdict": None}
    return {"speedup": speedup.ratio, "speedup_ci": _ci(speedup), "verdict": str(speedup.verdict)}


def _ci(speedup: Speedup) -> list[float | None]:
    return [x if math.isfinite(x) and x > 0 else None for x in (speedup.lo, speedup.hi)]


def _mean_ratio(pairs: Sequence[tuple[float | None, float | None]]) -> float | None:
    known = [a / b for a, b in pairs if a is not None and b is not None]
    return geomean(known) if known and len(known) == len(pairs) else None


def _finalists(evaluations: Sequence[Evaluation], limit: int) -> list[Evaluation]:
    """The fastest by screening score, one per distinct binary and launch."""
    scored = sorted(
        ((e.score_ms, e) for e in evaluations if e.score_ms is not None), key=lambda pair: pair[0]
    )
    chosen: list[Evaluation] = []
    seen: set[Any] = set()
    for score, evaluation in scored:
        if len(chosen) >= limit or score > scored[0][0] * (NEAR if len(chosen) >= SURE else FAR):
            break
        key = identity(evaluation)
        if key not in seen:
            seen.add(key)
            chosen.append(evaluation)
    return chosen


def identity(evaluation: Evaluation) -> Any:
    """Equal for evaluations whose binaries and launches are equal: they tie by construction."""
    code = evaluation.resources.code_hash if evaluation.resources else ""
    if not code:
        return evaluation.candidate.id
    return code, tuple(sorted((case, launches) for case, launches in evaluation.launches.items()))


def _pairs(bench: Bench, a: Candidate, b: Candidate, blocks: Mapping[str, int]) -> list[Paired]:
    """Interleaved samples on every case. Raises WarpdeckError if one fails, or b is impossibly fast."""
    cache = bench.protocol.cache
    pairs = bench.backend.compare(a, b, bench.cases, cache, blocks=blocks)
    bench.compared_s += sum(paired.seconds for paired in pairs)
    for case, paired in zip(bench.cases, pairs, strict=True):
        median = float(np.median(paired.b_ms))
        problem = implausible(bench.workload, bench.backend, b, case, cache, median)
        if problem is not None:
            raise WarpdeckError(f"{Status.IMPLAUSIBLE}: {problem}")
    return pairs


def _blocks(a: Evaluation, b: Evaluation) -> dict[str, int]:
    """How many blocks of each case a verdict on all of them takes, by the noise of earlier samples."""
    wanted = max(blocks_for_mean([_samples(e, m.case) for m in a.measurements]) for e in (a, b))
    return {m.case: wanted for m in a.measurements}


def versus(bench: Bench, a: Evaluation, b: Evaluation) -> Speedup:
    """Speedup of b over a on fresh interleaved samples. Both evaluated `ok` and were timed.

    Raises WarpdeckError if one fails now, or b is impossibly fast.
    """
    return speedup_of(_pairs(bench, a.candidate, b.candidate, _blocks(a, b)))


def _time(pairs: Sequence[Paired]) -> float:
    return geomean([float(np.median(p.b_ms)) for p in pairs])


def _baseline_time(pairs: Sequence[Paired]) -> float:
    return geomean([float(np.median(p.a_ms)) for p in pairs])


def rank(bench: Bench, evaluations: Sequence[Evaluation], limit: int) -> Result:
    """Re-measure the finalists of a run and decide. One that fails now is dropped, with a message.

    Raises WarpdeckError if none is left, and at once if the device is gone.
    """
    baseline = bench.baseline()
    worked = [e for e in evaluations if e.status is Status.OK]
    worked = [e for e in worked if bench.workload.variant(e.candidate.variant).precision is None]
    worked = _confirmed(bench, worked, limit)
    if bench.device.emulated:
        return _unranked(bench, baseline, worked)
    chosen = _finalists(worked, limit)
    if not chosen:
        return Result(baseline, clock=baseline.measurements[0].clock)
    blocks = _blocks(baseline, chosen[0])
    # What is reported case by case takes more: as many of each as that case alone would need.
    reported = {
        case: max(number, *(blocks_for(_samples(e, case)) for e in (baseline, chosen[0])))
        for case, number in blocks.items()
    }
    problem: WarpdeckError | None = None

    def measured(a: Candidate, b: Candidate, blocks: Mapping[str, int] = blocks) -> list[Paired]:
        """Their pairs; none, and a message, if they can't be had."""
        nonlocal problem
        try:
            return _pairs(bench, a, b, blocks)
        except NoDeviceError:
            raise
        except WarpdeckError as error:
            problem = error
            text = f"dropped from the finalists: {_knobs(b)}: {error}"
            bench.emit("message", {"level": "warning", "text": text})
            return []

    against: list[tuple[Evaluation, list[Paired], Speedup]] = []
    for evaluation in chosen:
        if identity(evaluation) == identity(baseline):
            against.append((evaluation, [], UNITY))  # there is nothing to find out
            continue
        pairs = measured(baseline.candidate, evaluation.candidate)
        if pairs:
            against.append((evaluation, pairs, speedup_of(pairs)))
    if not against:
        assert problem is not None
        raise problem
    against.sort(key=lambda item: -item[2].ratio)
    best, best_pairs, best_speedup = against[0]
    live = not bench.device.recorded
    if not best_pairs or (live and len(against) > 1):
        # The samples that made it the best flatter it (the winner's curse): new ones tell what it is
        # worth. A recording has no others.
        again = measured(baseline.candidate, best.candidate, reported)
        if again:
            best_pairs, best_speedup = again, speedup_of(again)
        elif not best_pairs:
            assert problem is not None
            raise problem
    finalists = [Finalist(best, best_speedup, _time(best_pairs), tied=True)]
    for evaluation, pairs, speedup in against[1:]:
        versus = through(speedup, best_speedup)
        if not live or versus.verdict is not Verdict.LOSS:
            beside = measured(best.candidate, evaluation.candidate)
            if not beside:
                continue
            versus = speedup_of(beside)
        tied = versus.verdict is not Verdict.LOSS
        time = _time(pairs) if pairs else _baseline_time(best_pairs)
        finalists.append(Finalist(evaluation, speedup, time, tied))
    tied_codes = {identity(f.evaluation) for f in finalists if f.tied}
    alike = [e for e in evaluations if e.status is Status.OK and identity(e) in tied_codes]
    vendor = bench.vendor()
    floors = bench.floors()
    cases = [
        CaseResult(
            case.name,
            case.params,
            float(np.median(paired.b_ms)),
            float(np.median(paired.a_ms)),
            speedup_of([paired]),
            vendor[case.name].median_ms if case.name in vendor else None,
            floors.get(case.name),
            best.verdict(case.name),
        )
        for case, paired in zip(bench.cases, best_pairs, strict=True)
    ]
    paired = all(p.interleaved for p in best_pairs)
    return Result(baseline, finalists[0], cases, finalists, alike, best_pairs[0].clock, paired)


def _confirmed(bench: Bench, worked: Sequence[Evaluation], limit: int) -> list[Evaluation]:
    """Without code of others, among what is to be compared, that is wrong on data which no verdict has told
    about. A verdict shows an element as it should be: who asks often may learn a small output by heart."""
    left, confirmed = list(worked), set[str]()
    while True:
        if bench.device.emulated:
            chosen = [_latest(bench, left)] if left else []
        else:
            chosen = _finalists(left, limit)
        doubtful = next(
            (e for e in chosen if foreign(bench.workload, e.candidate) and e.candidate.id not in confirmed),
            None,
        )
        if doubtful is None:
            return left
        checks = bench.backend.recheck(doubtful.candidate, bench.cases, UNSEEN)
        wrong = next((c for c in checks if c.status is not Status.OK), None)
        if wrong is None:
            confirmed.add(doubtful.candidate.id)
            continue
        text = (
            f"dropped: {doubtful.candidate.variant} is wrong on data that it wasn't tried on before: "
            f"{wrong.status}: case {wrong.case}: {wrong.reason}"
        )
        bench.emit("message", {"level": "warning", "text": text})
        left = [e for e in left if e is not doubtful]


def _latest(bench: Bench, worked: Sequence[Evaluation]) -> Evaluation:
    """The best where nothing is timed: the latest of the highest rung, if there are rungs."""
    rungs = [bench.workload.variant(e.candidate.variant).ladder for e in worked]
    highest = max((r for r in rungs if r is not None), default=None)
    return [e for e, r in zip(worked, rungs, strict=True) if r is None or r == highest][-1]


def _unranked(bench: Bench, baseline: Evaluation, worked: Sequence[Evaluation]) -> Result:
    """Of a device that times nothing."""
    if not worked:
        return Result(baseline)
    best = _latest(bench, worked)
    cases = [CaseResult(case.name, case.params, verdict=best.verdict(case.name)) for case in bench.cases]
    return Result(baseline, Finalist(best, None, None, tied=False), cases)


def _knobs(candidate: Candidate) -> str:
    return " ".join(f"{k}={v}" for k, v in candidate.config.items())


def _samples(evaluation: Evaluation, case: str) -> Any:
    measured = evaluation.measurement(case)
    return measured.samples_ms if measured else []
