"""Measure a whole space into a recording, by the design's rules: many short rounds over all configurations in
random order, so that drift of clock and temperature meets every configuration alike.

Every configuration is compiled and checked first; binaries that are equal are measured once. Three screening
samples find those over five times the best: they keep the three and are marked. The others get `rounds`
rounds of `per_round` samples, cold and hot, with the baseline after every twentieth and the vendor's kernel
once a round.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from typing import Protocol as Interface

import numpy as np
from numpy.typing import NDArray

from .bench import BASELINE_EVERY
from .errors import WarpdeckError
from .model import CacheMode, Candidate, Case, Config, DeviceInfo, Evaluation, Status
from .ranking import identity
from .recording import Entry, Recording, Series, config_key
from .versions import versions
from .workload import Workload

ROUNDS = 8
PER_ROUND = 4
SCREEN = 3
GIVE_UP = 5.0  # times the best
CACHES = (CacheMode.COLD, CacheMode.HOT)

Samples = Mapping[CacheMode, NDArray[np.float64]]


class LiveBackend(Interface):
    """What recording needs of a device beyond `Backend`."""

    @property
    def info(self) -> DeviceInfo:
        """The device."""
        ...

    def admit(self, candidates: Sequence[Candidate], case: Case) -> Sequence[Evaluation]:
        """Compile and check, without timing; one evaluation each, in order."""
        ...

    def rounds(
        self, candidates: Sequence[Candidate], case: Case, *, samples: int, warmup: int
    ) -> tuple[list[Samples | Evaluation], str]:
        """`samples` cold and hot samples of every candidate, in the order given; an evaluation where one
        failed. Also the clock's name."""
        ...

    def vendor_round(self, case: Case, *, samples: int) -> Samples:
        """Samples of the vendor's kernel; empty where there is none."""
        ...


@dataclass
class _Tape:
    """Samples of one candidate as they come in."""

    ms: dict[CacheMode, list[NDArray[np.float64]]] = field(default_factory=lambda: {c: [] for c in CACHES})
    rounds: dict[CacheMode, list[int]] = field(default_factory=lambda: {c: [] for c in CACHES})

    def add(self, samples: Samples, number: int) -> None:
        for cache, values in samples.items():
            self.ms[cache].append(values)
            self.rounds[cache] += [number] * len(values)

    def series(self) -> dict[CacheMode, Series]:
        return {
            cache: Series(np.concatenate(parts).round(6), np.asarray(self.rounds[cache], dtype=np.int32))
            for cache, parts in self.ms.items()
            if parts
        }


class _Measuring:
    """What the device's batches give: a tape a candidate, none for one that failed in any of them."""

    def __init__(self, backend: LiveBackend, case: Case, warmup: int) -> None:
        self._backend, self._case, self._warmup = backend, case, warmup
        self.tapes: dict[str, _Tape] = {}
        self.failed: dict[str, Evaluation] = {}
        self.clock = ""

    def measure(self, batch: Sequence[Candidate], number: int, samples: int) -> None:
        """One batch of round `number`."""
        found, self.clock = self._backend.rounds(batch, self._case, samples=samples, warmup=self._warmup)
        for candidate, outcome in zip(batch, found, strict=True):
            if isinstance(outcome, Evaluation):
                self.failed[candidate.id] = outcome
                self.tapes.pop(candidate.id, None)
            elif candidate.id not in self.failed:
                self.tapes.setdefault(candidate.id, _Tape()).add(outcome, number)


def record(
    backend: LiveBackend,
    workload: Workload,
    space: str,
    case: Case,
    *,
    name: str,
    seed: int = 0,
    rounds: int = ROUNDS,
    per_round: int = PER_ROUND,
    warmup: int = 2,
    nvml: Callable[[], Mapping[str, Any]] = dict,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Recording:
    """Measure every valid configuration of a space on one case.

    Args:
        backend: a live device, prepared for this workload and case.
        workload: what is measured.
        space: name of the space.
        case: the performance case.
        name: the recording's name, e.g. "h200".
        seed: of the order within each round.
        rounds: passes over the space.
        per_round: samples of each configuration and cache mode in a round.
        warmup: untimed launches before them.
        nvml: reads one NVML sample, stored beside the measurement.
        progress: called with (what, done, total).

    Raises WarpdeckError if the baseline fails.
    """
    rng = np.random.default_rng([seed, case.params.get("n", 0), len(space)])
    chosen = workload.spaces[space]
    configs = chosen.configs(case.params)
    baseline = workload.baseline(space)
    progress("compile and check", 0, len(configs))
    base, *evaluations = backend.admit([baseline, *(workload.candidate(space, c) for c in configs)], case)
    if base.status is not Status.OK:
        raise WarpdeckError(
            f"the baseline {dict(baseline.config)} of '{workload.name}' failed on case {case.name}:"
            f" {base.status}: {base.message}"
        )
    leaders: dict[Any, Candidate] = {}  # of the candidates that are one binary, the first
    leader_of = {
        e.candidate.id: leaders.setdefault(identity(e), e.candidate)
        for e in evaluations
        if e.status is Status.OK
    }
    measuring = _Measuring(backend, case, warmup)
    progress("screen", 0, len(leaders))
    slow = _screened(measuring, _shuffled(list(leaders.values()), rng))
    kept = [c for c in leaders.values() if c.id not in slow and c.id not in measuring.failed]
    vendor = _Tape()
    for number in range(rounds):
        progress("rounds", number, rounds)
        order = _shuffled(kept, rng)
        for start in range(0, max(len(order), 1), BASELINE_EVERY):
            measuring.measure([baseline, *order[start : start + BASELINE_EVERY]], number, per_round)
        vendor.add(backend.vendor_round(case, samples=per_round), number)
    if baseline.id in measuring.failed:
        raise WarpdeckError(f"the baseline failed while recording: {measuring.failed[baseline.id].message}")
    progress("rounds", rounds, rounds)
    entries: dict[str, Entry] = {}
    for config, evaluation in zip(configs, evaluations, strict=True):
        leader = leader_of.get(evaluation.candidate.id, evaluation.candidate)
        entries[config_key(config)] = _entry(config, evaluation, leader, measuring, slow.get(leader.id))
    return Recording(
        name=name,
        workload=workload.name,
        space=space,
        variant=chosen.variant,
        source_hash=workload.variants[chosen.variant].source_hash,
        case=case.name,
        params=dict(case.params),
        device=backend.info,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        protocol={
            "clock": measuring.clock,
            "rounds": rounds,
            "samples": rounds * per_round,
            "warmup": warmup,
            "order": "random in each round",
            "baseline_every": BASELINE_EVERY,
            "seed": seed,
        },
        knobs=dict(chosen.knobs),
        entries=entries,
        baseline_variant=baseline.variant,
        baseline_hash=baseline.source_hash,
        baseline=Entry(
            dict(baseline.config),
            Status.OK,
            series=measuring.tapes[baseline.id].series(),
            resources=base.resources,
            compile_s=round(base.compile_s, 4),
        ),
        vendor_name=workload.vendor_name,
        vendor=vendor.series(),
        nvml=dict(nvml()),
        versions=versions(),
    )


def _shuffled(candidates: Sequence[Candidate], rng: np.random.Generator) -> list[Candidate]:
    return [candidates[i] for i in rng.permutation(len(candidates))]


def _screened(measuring: _Measuring, candidates: Sequence[Candidate]) -> dict[str, _Tape]:
    """The tapes of those that are hopeless after a few samples; of the others the samples are dropped."""
    measuring.measure(candidates, 0, SCREEN)
    tapes, measuring.tapes = measuring.tapes, {}
    medians = {key: float(np.median(np.concatenate(t.ms[CacheMode.COLD]))) for key, t in tapes.items()}
    limit = GIVE_UP * min(medians.values(), default=np.inf)
    return {key: tapes[key] for key, ms in medians.items() if ms > limit}


def _entry(
    config: Config, evaluation: Evaluation, leader: Candidate, measuring: _Measuring, slow: _Tape | None
) -> Entry:
    """What became of a configuration. `leader`: the candidate that was measured for all with its binary;
    `slow`: its samples, if it was given up."""
    problem = measuring.failed.get(leader.id) if evaluation.status is Status.OK else evaluation
    tape = measuring.tapes.get(leader.id) or slow
    return Entry(
        config=dict(config),
        status=problem.status if problem else Status.OK,
        message=problem.message if problem else "",
        series=tape.series() if tape and not problem else {},
        resources=evaluation.resources,
        early_stop=slow is not None,
        same_as=config_key(leader.config) if leader.id != evaluation.candidate.id else None,
        compile_s=round(evaluation.compile_s, 4),
    )
