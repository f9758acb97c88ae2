"""A made-up device for tests of the LLM agent: a candidate's times and faults are written in its source.

    // takes 12.5 us      the median, in every case
    // fails to compile   also: computes the wrong thing, faults, runs out of time

The verdict needs no compiler and no GPU; everything above the device is the product's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from synthetic import DEVICE

from warpdeck.core.bench import Bench, EventSink
from warpdeck.core.devices.base import Device, Paired, Uninstrumented, floor_ms
from warpdeck.core.model import (
    CacheMode,
    Candidate,
    Case,
    CheckResult,
    DeviceInfo,
    Evaluation,
    Measurement,
    Protocol,
    Resources,
    Role,
    Status,
)
from warpdeck.core.workload import Workload

NAIVE_US = 800.0
FAULTS = {
    "fails to compile": (Status.COMPILE_ERROR, 'kernel.cu:3: identifier "undefined_name" is undefined'),
    "computes the wrong thing": (
        Status.INCORRECT,
        "case odd: c: 12 of 34,447 elements are wrong; at [3, 4] got 1, expected 2",
    ),
    "faults": (Status.RUNTIME_ERROR, "case odd: an illegal memory access"),
    "runs out of time": (Status.TIMEOUT, "case odd: no end within 10 s"),
}


class SourceBackend(Uninstrumented):
    """Judges sources by their comments."""

    vendor_ready = True
    vendor_problem = None

    def __init__(self, workload: Workload, info: DeviceInfo, seed: int) -> None:
        self.info = info
        self.evaluated: list[str] = []  # variants, in order
        self.compared: list[tuple[str, str]] = []
        self._workload = workload
        self._rng = np.random.default_rng(seed)

    def evaluate(self, candidate: Candidate, cases: Sequence[Case], protocol: Protocol) -> Evaluation:
        text = self._workload.variant(candidate.variant).source()
        launches = {case.name: self._workload.launches(candidate, case) for case in cases}
        self.evaluated.append(candidate.variant)
        for words, (status, message) in FAULTS.items():
            if words in text:
                checks = (CheckResult("odd", Role.CORRECTNESS, status, message),)
                return Evaluation(candidate, status, message, checks=checks)
        resources = Resources(40, occupancy=0.5, limiter="registers", code_hash=candidate.source_hash)
        if self.info.emulated:
            return Evaluation(candidate, Status.OK, launches=launches)
        measured = tuple(
            Measurement(case.name, protocol.cache, "synthetic", self._samples(candidate, 30))
            for case in cases
        )
        return Evaluation(candidate, Status.OK, "", measured, launches, resources)

    def evaluate_many(
        self, candidates: Iterable[Candidate], cases: Sequence[Case], protocol: Protocol
    ) -> Iterator[Evaluation]:
        return (self.evaluate(candidate, cases, protocol) for candidate in candidates)

    def compare(
        self,
        a: Candidate,
        b: Candidate,
        cases: Sequence[Case],
        cache: CacheMode,
        *,
        blocks: Mapping[str, int],
    ) -> list[Paired]:
        self.compared.append((a.variant, b.variant))
        pairs = []
        for case in cases:
            count = blocks[case.name]
            first, second = (self._samples(c, 2 * count).reshape(count, 2) for c in (a, b))
            pairs.append(Paired(case.name, cache, "synthetic", first, second))
        return pairs

    def _samples(self, candidate: Candidate, count: int) -> np.ndarray:
        found = re.search(r"takes ([\d.]+) us", self._workload.variant(candidate.variant).source())
        us = float(found[1]) if found else NAIVE_US
        return us * 1e-3 * np.exp(self._rng.normal(0, 0.003, count))

    def recheck(self, candidate: Candidate, cases: Sequence[Case], draw: int) -> Sequence[CheckResult]:
        return ()

    def quick(
        self,
        candidate: Candidate,
        case: Case,
        *,
        cache: CacheMode,
        samples: int = 5,
        rng: np.random.Generator | None = None,
    ) -> tuple[Status, np.ndarray]:
        return Status.OK, self._samples(candidate, samples)

    def vendor(self, case: Case, cache: CacheMode) -> Measurement | None:
        return None

    def floor_ms(self, case: Case, cache: CacheMode) -> float | None:
        return floor_ms(self._workload, case, self.info, cache)

    def close(self) -> None:
        """Nothing is held."""


class SourceDevice:
    """Prepares `SourceBackend`s."""

    def __init__(self, *, emulated: bool = False) -> None:
        self.info = DeviceInfo("Emulation", "cpu", emulated=True) if emulated else DEVICE

    def prepare(
        self, workload: Workload, *, space: str, cases: Sequence[Case], seed: int, allow_shared: bool = False
    ) -> SourceBackend:
        return SourceBackend(workload, self.info, seed)

    def close(self) -> None:
        """Nothing is held."""


def make_bench(workload: Workload, sink: EventSink, device: Device, size: int = 256) -> Bench:
    """A bench of the workload's ladder."""
    return Bench(workload, device, space="ladder", cases=[workload.size_case(size)], sink=sink)
