"""The bench: the one place where agents get numbers from.

It owns restrictions, the baseline, plausibility, speedups, the finalists' paired re-measurement and the
log, so that no agent can skip them. `Bench.evaluate(config)` is all that an agent calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .configs import Configs
from .devices.base import Backend, Device, judged
from .errors import UsageError, WarpdeckError
from .model import (
    CacheMode,
    Candidate,
    Case,
    Config,
    DeviceInfo,
    Evaluation,
    Measurement,
    Protocol,
    Role,
    Status,
)
from .ranking import Result, rank, versus
from .stats import Speedup, geomean
from .workload import Variant, Workload

EventSink = Callable[[str, Mapping[str, Any]], None]
Proposal = Config | Candidate  # a configuration of the bench's space, or any variant's candidate

EMULATED_SIZE = 128  # where none is asked for
TELL_EVERY_S = 2.0  # how far restrictions are applied, where that takes long
BASELINE_EVERY = 20  # evaluations between two measurements of the baseline while screening


def _no_sink(kind: str, data: Mapping[str, Any]) -> None:
    return None


class Bench:
    """One workload on one device, within one protocol.

    Args:
        workload: what is tuned.
        device: where.
        space: name of the search space.
        cases: performance cases; each is timed and counts equally in the geometric mean.
        protocol: how each candidate is measured.
        seed: of everything random here (inputs, drawn samples).
        sink: receives every event; None drops them.
        quiet: context in which the device measures (the NVML sampler pauses in it).
        alive: called every two seconds while restrictions are applied to many products; may raise.
    """

    def __init__(
        self,
        workload: Workload,
        device: Device,
        *,
        space: str = "full",
        cases: Sequence[Case],
        protocol: Protocol | None = None,
        seed: int = 0,
        sink: EventSink | None = None,
        allow_shared: bool = False,
        quiet: Callable[[], AbstractContextManager[object]] = nullcontext,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        if space not in workload.spaces:
            have = ", ".join(workload.spaces)
            raise UsageError(f"workload '{workload.name}' has no space '{space}'; it has: {have}")
        if not cases:
            raise UsageError(f"workload '{workload.name}': nothing to measure; give at least one --size")
        # A copy whose variants can grow; the device's side looks them up in it.
        self.workload = workload = replace(workload, variants=dict(workload.variants))
        self.space = workload.spaces[space]
        self.cases = tuple(cases)
        self.protocol = protocol or Protocol(
            cache=CacheMode.AS_RECORDED if workload.recorded else CacheMode.COLD
        )
        self._refuse_mismatch(device)
        self._sink = sink or _no_sink
        self._quiet = quiet
        self._valid = self._all_valid(alive)
        self._backend: Backend = device.prepare(
            workload, space=space, cases=cases, seed=seed, allow_shared=allow_shared
        )
        self._vendor: dict[str, Measurement] | None = None
        self._baselines: list[Evaluation] = []
        self._since_baseline = 0
        self._evaluations: dict[str, Evaluation] = {}
        self._counts: dict[str, int] = {}
        self._candidates: dict[str, Candidate] = {}  # by key; `quick` runs thousands of times a second
        self.steps = 0
        self.compared_s = 0.0  # spent on paired samples so far

    def _refuse_mismatch(self, device: Device) -> None:
        """An imported recording has one cache mode, which nothing can measure, and no source to run."""
        name = self.workload.name
        if self.workload.recorded != (self.protocol.cache is CacheMode.AS_RECORDED):
            if not self.workload.recorded:
                raise UsageError(f"workload '{name}' is measured with the cache cold or hot")
            raise UsageError(f"'{name}' was imported; the state of its cache is as recorded: leave it out")
        if self.workload.recorded and not device.info.recorded:
            raise UsageError(f"'{name}' was imported: nothing of it can run on {device.info.label}")

    @property
    def device(self) -> DeviceInfo:
        """The device, labelled."""
        return self._backend.info

    @property
    def backend(self) -> Backend:
        """The device's side; for recording a space and for comparisons."""
        return self._backend

    def _all_valid(self, alive: Callable[[], None]) -> Configs:
        told = time.monotonic()

        def progress(done: int, total: int) -> None:
            nonlocal told
            if time.monotonic() - told >= TELL_EVERY_S:
                alive()
                told = time.monotonic()
                products = f"{self.space.cardinality:,} products of knobs"
                text = f"applying the restrictions to {products}: {done / total:.0%} done"
                self.emit("message", {"level": "info", "text": text})

        valid = self.space.configs_for([case.params for case in self.cases], progress)
        if not valid:
            names = ", ".join(c.name for c in self.cases)
            raise UsageError(
                f"workload '{self.workload.name}', space '{self.space.name}': no configuration satisfies the"
                f" restrictions for size {names}"
            )
        return valid

    def configs(self) -> Configs:
        """Every configuration that is valid for all cases, in space order."""
        return self._valid

    def candidate(self, config: Config) -> Candidate:
        """The candidate that a configuration stands for."""
        return self.workload.candidate(self.space.name, config)

    @property
    def baseline_candidate(self) -> Candidate:
        """What speedups are relative to."""
        return self.workload.baseline(self.space.name)

    def emit(self, kind: str, data: Mapping[str, Any]) -> None:
        """Append an event to the session."""
        self._sink(kind, data)

    def baseline(self) -> Evaluation:
        """The latest measurement of the baseline; measured on first use. WarpdeckError if it fails."""
        if not self._baselines:
            self._measure_baseline()
        return self._baselines[-1]

    def _measure_baseline(self) -> None:
        with self._quiet():
            evaluation = self._backend.evaluate(self.baseline_candidate, self.cases, self.protocol)
        evaluation = judged(evaluation, self.workload, self._backend, self.cases)
        self._since_baseline = 0
        if evaluation.status is not Status.OK:
            if self._baselines:  # it worked before: say so and keep the old one
                self.emit(
                    "message",
                    {
                        "level": "warning",
                        "text": f"baseline not re-measured: {evaluation.status}: {evaluation.message}",
                    },
                )
                return
            raise WarpdeckError(
                f"the baseline {dict(self.baseline_candidate.config)} of '{self.workload.name}' failed:"
                f" {evaluation.status}: {evaluation.message}"
            )
        self._baselines.append(evaluation)
        self.emit("baseline", evaluation.to_json())

    def restore(self, baselines: Iterable[Evaluation], evaluations: Iterable[Evaluation]) -> None:
        """Take over what an interrupted run had measured, without measuring or logging it again."""
        self._baselines.extend(baselines)
        for evaluation in evaluations:
            self._count(evaluation)
        if not self.device.recorded:  # that baseline was measured in another process, at another time
            self._since_baseline = BASELINE_EVERY

    def add_variant(self, variant: Variant) -> Candidate:
        """Take a new source in, under a name of its own; returns its candidate, which has no knobs.

        Raises UsageError if the name is taken.
        """
        if variant.name in self.workload.variants:
            raise UsageError(f"{self.workload.name} has a variant '{variant.name}' already")
        variants = self.workload.variants
        assert isinstance(variants, dict)  # this bench's own copy
        variants[variant.name] = variant
        return Candidate(variant.name, {}, variant.source_hash)

    def _resolved(self, proposal: Proposal) -> tuple[Candidate, Evaluation | None]:
        """What is to be judged, and its verdict if restrictions forbid it."""
        if isinstance(proposal, Candidate):
            own = [s for s in self.workload.spaces.values() if s.variant == proposal.variant]
            space = own[0] if own else None  # a source that came during the run has no knobs
            variant, config = proposal.variant, proposal.config
        else:
            space, variant, config = self.space, self.space.variant, proposal
        reasons = [space.why_invalid(config, case.params) for case in self.cases] if space else []
        why = next((r for r in reasons if r), None)
        if why is None:
            return proposal if isinstance(proposal, Candidate) else self.candidate(proposal), None
        refused = Candidate(variant, dict(config), self.workload.variants[variant].source_hash)
        return refused, Evaluation(refused, Status.RESTRICTED, why)

    def _count(self, evaluation: Evaluation) -> None:
        self.steps += 1
        self._since_baseline += 1
        self._counts[str(evaluation.status)] = self._counts.get(str(evaluation.status), 0) + 1
        self._evaluations[evaluation.candidate.id] = evaluation

    def _log(self, evaluation: Evaluation) -> Evaluation:
        self._count(evaluation)
        precision = self.workload.variant(evaluation.candidate.variant).precision
        labelled = {} if precision is None else {"precision": precision}
        self.emit("evaluation", {"step": self.steps, **evaluation.to_json(), **labelled})
        return evaluation

    def evaluate(self, proposal: Proposal) -> Evaluation:
        """Judge one configuration or candidate: restrict, compile, check, time, log. Never raises for a
        candidate's failure."""
        return next(self.evaluate_many([proposal]))

    def evaluate_many(self, proposals: Iterable[Proposal]) -> Iterator[Evaluation]:
        """Judge configurations of the bench's space, or candidates, in order; a live device compiles ahead.
        The baseline is repeated every 20."""
        self.baseline()
        batch: list[Proposal] = []
        for proposal in proposals:
            batch.append(proposal)
            if len(batch) >= BASELINE_EVERY:
                yield from self._evaluate_batch(batch)
                batch = []
        if batch:
            yield from self._evaluate_batch(batch)

    def _evaluate_batch(self, proposals: Sequence[Proposal]) -> Iterator[Evaluation]:
        resolved = [self._resolved(p) for p in proposals]
        allowed = [c for c, refusal in resolved if refusal is None and not self._is_baseline(c)]
        results = self._backend.evaluate_many(allowed, self.cases, self.protocol)
        for candidate, refusal in resolved:
            if self._since_baseline >= BASELINE_EVERY and not self.device.emulated:
                self._measure_baseline()  # the others compile meanwhile
            if refusal is not None:
                yield self._log(refusal)
                continue
            if self._vendor is None and self._backend.vendor_ready:
                self.vendor()
            if self._is_baseline(candidate):
                yield self._log(replace(self._baselines[-1], compile_s=0.0, check_s=0.0, time_s=0.0))
                continue
            with self._quiet():
                evaluation = next(results)
            yield self._log(judged(evaluation, self.workload, self._backend, self.cases))

    def _is_baseline(self, candidate: Candidate) -> bool:
        """Whether it is the baseline, which a live device measured by the same protocol not long before."""
        live = not self.device.recorded and not self.device.emulated
        return live and candidate.id == self.baseline_candidate.id

    def quick(
        self, config: Config, case: Case, rng: np.random.Generator | None = None
    ) -> tuple[Status, NDArray[np.float64]]:
        """One warm-up and five samples, in ms: the environment's protocol. Not logged; empty if it failed.

        `rng` replaces a recorded device's own generator, so that a seeded environment is reproducible.
        """
        key = self.space.key(config)
        candidate = self._candidates.get(key)
        if candidate is None:
            if config not in self._valid:
                return Status.RESTRICTED, np.empty(0)
            candidate = self._candidates[key] = self.candidate(config)
        return self._backend.quick(candidate, case, cache=self.protocol.cache, rng=rng)

    def quick_baseline(
        self, case: Case, rng: np.random.Generator | None = None
    ) -> tuple[Status, NDArray[np.float64]]:
        """The baseline by the environment's protocol."""
        return self._backend.quick(self.baseline_candidate, case, cache=self.protocol.cache, rng=rng)

    def speedup(self, evaluation: Evaluation) -> float | None:
        """Screening speedup: geometric mean over cases against the latest baseline; None without a time."""
        if evaluation.status is not Status.OK or not evaluation.measurements:
            return None
        base = self.baseline()
        ratios = []
        for measured in evaluation.measurements:
            reference = base.measurement(measured.case)
            if reference is None:
                return None
            ratios.append(reference.median_ms / measured.median_ms)
        return geomean(ratios)

    def quiet(self) -> AbstractContextManager[object]:
        """Context for asking the device's side directly (counters, traces): nothing else touches the GPU."""
        return self._quiet()

    def compare(self, a: Evaluation, b: Evaluation) -> Speedup:
        """How much faster b is than a, from fresh interleaved samples. Both were timed. Not logged.

        Raises WarpdeckError if one of them fails now.
        """
        with self._quiet():
            return versus(self, a, b)

    @property
    def vendor_ready(self) -> bool:
        """Whether `vendor` answers without waiting for the library's import."""
        return self._vendor is not None or self._backend.vendor_ready

    def vendor(self) -> dict[str, Measurement]:
        """The vendor library's measurement of every case that has one: taken, and logged, once.

        During a search it is taken as soon as the library is imported, or else for the result.
        """
        if self._vendor is None:
            with self._quiet():
                found = {c.name: self._backend.vendor(c, self.protocol.cache) for c in self.cases}
            self._vendor = {name: m for name, m in found.items() if m is not None}
            if self._vendor:
                times = {
                    case: {"name": self.workload.vendor_name, "median_ms": measured.median_ms}
                    for case, measured in self._vendor.items()
                }
                self.emit("vendor", {"cases": times})
            problem = self._backend.vendor_problem
            if problem is not None:
                text = f"the vendor's time is missing: {problem}"
                self.emit("message", {"level": "warning", "text": text})
        return self._vendor

    def floors(self) -> dict[str, float]:
        """The physical floor of every case that has one, ms."""
        found = {c.name: self._backend.floor_ms(c, self.protocol.cache) for c in self.cases}
        return {name: f for name, f in found.items() if f is not None}

    def finish(self, finalists: int = 8) -> Result:
        """Re-measure the finalists against the baseline and each other on fresh samples; log and return
        the result."""
        start = time.monotonic()
        with self._quiet():
            result = rank(self, list(self._evaluations.values()), finalists)
        spent = {"finish_s": time.monotonic() - start, "compared_s": self.compared_s}
        self.emit("result", {**result.to_json(), "counts": dict(self._counts), **spent})
        return result

    @property
    def counts(self) -> dict[str, int]:
        """Evaluations so far by status."""
        return dict(self._counts)

    def close(self) -> None:
        """Release the device's side."""
        self._backend.close()


def performance_cases(
    workload: Workload, sizes: Sequence[int], device: DeviceInfo | None = None
) -> list[Case]:
    """One performance case a size; the workload's own performance cases where no size is given. On an
    emulated `device` that default is small: threads run one after the other there."""
    if sizes:
        return [workload.size_case(n) for n in dict.fromkeys(sizes)]
    if device is not None and device.emulated:
        return [workload.size_case(min(workload.default_size, EMULATED_SIZE))]
    own = [c for c in workload.cases if c.role is Role.PERFORMANCE]
    return own or [workload.size_case(workload.default_size)]
