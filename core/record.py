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
from .model import CacheMode, Candidate, Case, DeviceInfo, Evaluation, Status
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
    candidates = [workload.candidate(space, c) for c in configs]
    progress("compile and check", 0, len(candidates))
    evaluations = list(backend.admit([baseline, *candidates], case))
    base_evaluation, evaluations = evaluations[0], evaluations[1:]
    if base_evaluation.status is not Status.OK:
        raise WarpdeckError(
            f"the baseline {dict(baseline.config)} of '{workload.name}' failed on case {case.name}:"
            f" {base_evaluation.status}: {base_evaluation.message}"
        )
    failed: dict[str, Evaluation] = {}
    leaders: dict[Any, Candidate] = {}
    leader_of: dict[str, Candidate] = {}
    for evaluation in evaluations:
        candidate = evaluation.candidate
        if evaluation.status is not Status.OK:
            failed[candidate.id] = evaluation
        else:
            leader_of[candidate.id] = leaders.setdefault(identity(evaluation), candidate)
    tapes: dict[str, _Tape] = {}
    clock = ""

    def measure(batch: Sequence[Candidate], number: int, samples: int) -> None:
        nonlocal clock
        found, clock = backend.rounds(batch, case, samples=samples, warmup=warmup)
        for candidate, outcome in zip(batch, found, strict=True):
            if isinstance(outcome, Evaluation):
                failed[candidate.id] = outcome
                tapes.pop(candidate.id, None)
            elif candidate.id not in failed:
                tapes.setdefault(candidate.id, _Tape()).add(outcome, number)

    distinct = list(leaders.values())
    progress("screen", 0, len(distinct))
    measure(_shuffled(distinct, rng), 0, SCREEN)
    screened, tapes = tapes, {}
    medians = {key: float(np.median(np.concatenate(t.ms[CacheMode.COLD]))) for key, t in screened.items()}
    limit = GIVE_UP * min(medians.values(), default=np.inf)
    slow = {key for key, ms in medians.items() if ms > limit}
    kept = [c for c in distinct if c.id not in slow and c.id not in failed]
    vendor = _Tape()
    for number in range(rounds):
        progress("rounds", number, rounds)
        order = _shuffled(kept, rng)
        for start in range(0, max(len(order), 1), BASELINE_EVERY):
            measure([baseline, *order[start : start + BASELINE_EVERY]], number, per_round)
        vendor.add(backend.vendor_round(case, samples=per_round), number)
    if baseline.id in failed:
        raise WarpdeckError(f"the baseline failed while recording: {failed[baseline.id].message}")
    progress("rounds", rounds, rounds)

    series = {key: tape.series() for key, tape in tapes.items()}
    marked = {key: screened[key].series() for key in slow if key in screened}
    entries: dict[str, Entry] = {}
    for config, evaluation in zip(configs, evaluations, strict=True):
        candidate = evaluation.candidate
        leader = leader_of.get(candidate.id, candidate)
        problem = failed.get(leader.id) or failed.get(candidate.id)
        measured = series.get(leader.id) or marked.get(leader.id) or {}
        entries[config_key(config)] = Entry(
            config=dict(config),
            status=problem.status if problem else Status.OK,
            message=problem.message if problem else "",
            series={} if problem else measured,
            resources=evaluation.resources,
            early_stop=leader.id in slow,
            same_as=config_key(leader.config) if leader.id != candidate.id else None,
            compile_s=round(evaluation.compile_s, 4),
        )
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
            "clock": clock,
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
            series=series[baseline.id],
            resources=base_evaluation.resources,
            compile_s=round(base_evaluation.compile_s, 4),
        ),
        vendor_name=workload.vendor_name,
        vendor=vendor.series(),
        nvml=dict(nvml()),
        versions=versions(),
    )


def _shuffled(candidates: Sequence[Candidate], rng: np.random.Generator) -> list[Candidate]:
    return [candidates[i] for i in rng.permutation(len(candidates))]
