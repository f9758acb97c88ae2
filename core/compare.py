"""Is this kernel faster than that one? Both checked, then timed interleaved; a verdict with its interval."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .devices.base import Backend, Device, judged, speedup_of
from .devices.recorded import refuse_stale
from .errors import UsageError
from .model import CacheMode, Candidate, Case, Config, DeviceInfo, Evaluation, Protocol, Status
from .stats import Speedup, Verdict, blocks_for
from .workload import Variant, Workload

_FAILED_CHECK = frozenset({Status.INCORRECT, Status.IMPLAUSIBLE})


@dataclass(frozen=True)
class Contender:
    """One side of a comparison: an implementation with a value for each of its knobs."""

    label: str  # for people: "kernel.cu now", "baseline"
    variant: Variant
    config: Config

    @property
    def candidate(self) -> Candidate:
        """What a device evaluates."""
        return Candidate(self.variant.name, dict(self.config), self.variant.source_hash)


@dataclass(frozen=True)
class CaseComparison:
    """One case: medians of the interleaved samples in ms, and the speedup of the subject over its rival."""

    case: Case
    subject_ms: float
    rival_ms: float
    speedup: Speedup
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """How a subject did against a rival.

    `speedup` is the geometric mean over cases; above 1 the subject is faster.
    It and `verdict` are None where one side failed; `identical` says that both are the same machine code.
    """

    workload: str
    device: DeviceInfo
    clock: str | None
    cache: CacheMode
    subject: Contender
    rival: Contender
    subject_evaluation: Evaluation
    rival_evaluation: Evaluation
    cases: tuple[CaseComparison, ...] = ()
    speedup: Speedup | None = None
    identical: bool = False

    @property
    def verdict(self) -> Verdict | None:
        """Win, loss or tie of the subject; None where one side failed."""
        if self.identical:
            return Verdict.TIE
        return self.speedup.verdict if self.speedup else None

    @property
    def failed_check(self) -> bool:
        """Whether the subject computes something wrong, or is impossibly fast."""
        return self.subject_evaluation.status in _FAILED_CHECK

    def slower_by_more_than(self, percent: float) -> bool:
        """Whether the subject is shown (95%) to take more than `percent` longer than its rival."""
        return self.speedup is not None and self.speedup.hi < 1 / (1 + percent / 100)

    def to_json(self) -> dict[str, Any]:
        """The document of `bench --json`, without its schema version."""
        return {
            "workload": self.workload,
            "device": self.device.to_json(),
            "clock": self.clock,
            "event_floor_ms": self.subject_evaluation.event_floor_ms,
            "cache": str(self.cache),
            "verdict": str(self.verdict) if self.verdict else None,
            "identical": self.identical,
            "speedup": self.speedup.ratio if self.speedup else None,
            "speedup_ci": [self.speedup.lo, self.speedup.hi] if self.speedup else None,
            "subject": _side(self.subject, self.subject_evaluation),
            "against": _side(self.rival, self.rival_evaluation),
            "cases": [
                {
                    "name": c.case.name,
                    "params": dict(c.case.params),
                    "median_ms": c.subject_ms,
                    "against_ms": c.rival_ms,
                    "speedup": c.speedup.ratio,
                    "speedup_ci": [c.speedup.lo, c.speedup.hi],
                    "blocks": c.speedup.blocks,
                    "throttle": list(c.throttle),
                }
                for c in self.cases
            ],
        }


def _side(contender: Contender, evaluation: Evaluation) -> dict[str, Any]:
    return {
        "label": contender.label,
        "variant": contender.variant.name,
        "file": str(contender.variant.file),
        "source_hash": contender.variant.source_hash,
        "config": dict(contender.config),
        "status": str(evaluation.status),
        "reason": evaluation.message,
        "score_ms": evaluation.score_ms,
        "resources": evaluation.resources.to_json() if evaluation.resources else None,
    }


def compare(
    workload: Workload,
    device: Device,
    subject: Contender,
    rival: Contender,
    cases: Sequence[Case],
    *,
    space: str,
    protocol: Protocol | None = None,
    seed: int = 0,
    allow_shared: bool = False,
) -> Comparison:
    """Check both contenders on every case, then time them interleaved.

    Args:
        workload: whose arguments, reference and tolerance both must meet.
        device: where. A recorded one compares by the rounds it stored, and only what it stored.
        subject: the one in question.
        rival: the one it must beat.
        cases: performance cases; each counts equally.
        space: the search space both belong to (which recordings to read).
        protocol: cache mode and how both are first measured (which also sets how many blocks are needed).
        seed: of inputs and drawn samples.
        allow_shared: go on although other processes use the GPU.

    Raises:
        UsageError: no case, or a recording of other sources.
        WarpdeckError: the device failed. Failures of a contender are statuses.
    """
    if not cases:
        raise UsageError(f"workload '{workload.name}': nothing to measure; give at least one --size")
    protocol = protocol or Protocol()
    variants = {**workload.variants, subject.variant.name: subject.variant}
    if rival.variant.name in variants and variants[rival.variant.name] != rival.variant:
        renamed = dataclasses.replace(
            rival.variant, name=f"{rival.variant.name}@{rival.variant.source_hash[:8]}"
        )
        rival = dataclasses.replace(rival, variant=renamed)
    variants[rival.variant.name] = rival.variant
    both = dataclasses.replace(workload, variants=variants)
    backend = device.prepare(both, space=space, cases=cases, seed=seed, allow_shared=allow_shared)
    try:
        refuse_stale(backend)
        return _compare(both, backend, subject, rival, cases, protocol)
    finally:
        backend.close()


def _compare(
    workload: Workload,
    backend: Backend,
    subject: Contender,
    rival: Contender,
    cases: Sequence[Case],
    protocol: Protocol,
) -> Comparison:
    mine = judged(backend.evaluate(subject.candidate, cases, protocol), workload, backend, cases)
    other = judged(backend.evaluate(rival.candidate, cases, protocol), workload, backend, cases)
    clock = next((m.clock for e in (mine, other) for m in e.measurements), None)
    outcome = Comparison(workload.name, backend.info, clock, protocol.cache, subject, rival, mine, other)
    if mine.status is not Status.OK or other.status is not Status.OK:
        return outcome
    if _same_binary(mine, other):
        return dataclasses.replace(outcome, identical=True)
    known = {m.case: m.samples_ms for m in mine.measurements}
    blocks = {case.name: blocks_for(known.get(case.name, ())) for case in cases}
    pairs = backend.compare(rival.candidate, subject.candidate, cases, protocol.cache, blocks=blocks)
    results = [
        CaseComparison(
            case,
            subject_ms=_median(paired.b_ms),
            rival_ms=_median(paired.a_ms),
            speedup=speedup_of([paired]),
            throttle=paired.throttle,
        )
        for case, paired in zip(cases, pairs, strict=True)
    ]
    return dataclasses.replace(outcome, cases=tuple(results), speedup=speedup_of(pairs))


def _median(samples: Any) -> float:
    return float(np.median(samples))


def _same_binary(a: Evaluation, b: Evaluation) -> bool:
    """Equal machine code, constants and launches: nothing to measure."""
    if a.candidate == b.candidate:
        return True
    if a.resources is None or b.resources is None or not a.resources.code_hash:
        return False
    same_launch = all(
        [(x.grid, x.block, x.shared) for x in a.launches[case]]
        == [(x.grid, x.block, x.shared) for x in b.launches.get(case, ())]
        for case in a.launches
    )
    return a.resources.code_hash == b.resources.code_hash and same_launch
