"""What a device offers to the bench: the seam between live GPUs, recordings and, later, remote servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Protocol as Interface

import numpy as np
from numpy.typing import NDArray

from ...telemetry.ncu.counters import Counters
from ..errors import UsageError
from ..model import (
    CacheMode,
    Candidate,
    Case,
    CheckResult,
    DeviceInfo,
    Evaluation,
    Measurement,
    Protocol,
    Status,
)
from ..profiling import TIMEOUT_S, NcuFailure, ProfileOptions
from ..stats import Speedup, combined_speedup, unpaired_speedup
from ..workload import Workload

if TYPE_CHECKING:
    from ...telemetry.trace.timeline import RawTrace
    from ..tracing import TraceOptions


@dataclass(frozen=True)
class Paired:
    """Interleaved samples of two candidates on one case, in one context.

    `a_ms[i, j]` and `b_ms[i, j]`: sample j of block i; blocks alternate between A B B A and B A A B. Not
    `interleaved`: an imported recording's, measured apart; then their shapes are [n] and [m]. `seconds` it
    took in the worker that was ready for it; 0 where nothing was measured.
    """

    case: str
    cache: CacheMode
    clock: str
    a_ms: NDArray[np.float64]
    b_ms: NDArray[np.float64]
    throttle: tuple[str, ...] = ()
    interleaved: bool = True
    seconds: float = 0.0


def speedup_of(pairs: Sequence[Paired]) -> Speedup:
    """Speedup of b over a, geometric mean over the cases that `pairs` holds one by one."""
    samples = [(p.a_ms, p.b_ms) for p in pairs]
    if all(p.interleaved for p in pairs):
        return combined_speedup(samples)
    return unpaired_speedup([(a.ravel(), b.ravel()) for a, b in samples])


class Backend(Interface):
    """One workload prepared on one device. Every method may raise a WarpdeckError for the *device's*
    failures; a candidate's failures are statuses, never exceptions."""

    @property
    def info(self) -> DeviceInfo:
        """The device, labelled."""
        ...

    def evaluate(self, candidate: Candidate, cases: Sequence[Case], protocol: Protocol) -> Evaluation:
        """Compile, check and time one candidate on every case."""
        ...

    def evaluate_many(
        self, candidates: Iterable[Candidate], cases: Sequence[Case], protocol: Protocol
    ) -> Iterator[Evaluation]:
        """As `evaluate`, in order; a live device compiles ahead while it measures."""
        ...

    def recheck(self, candidate: Candidate, cases: Sequence[Case], draw: int) -> Sequence[CheckResult]:
        """Launch a candidate that evaluated `ok` once on every correctness case and on `cases`, and judge.

        `draw` numbers the inputs (`check.POOL` and above: an earlier draw with a part of the data changed).
        The first failure ends it. A device that runs nothing gives none.
        """
        ...

    def quick(
        self,
        candidate: Candidate,
        case: Case,
        *,
        cache: CacheMode,
        samples: int = 5,
        rng: np.random.Generator | None = None,
    ) -> tuple[Status, NDArray[np.float64]]:
        """The environment's protocol: one warm-up and `samples` launches. Milliseconds; empty if it failed.

        `rng` draws the samples where they are drawn (a seeded environment's own); a live device ignores it.
        """
        ...

    def compare(
        self,
        a: Candidate,
        b: Candidate,
        cases: Sequence[Case],
        cache: CacheMode,
        *,
        blocks: Mapping[str, int],
    ) -> list[Paired]:
        """Interleaved (ABBA) samples of two candidates that both evaluated `ok`, in a context that ran
        nothing but comparisons; one result a case. `blocks`: how many, by case name."""
        ...

    def vendor(self, case: Case, cache: CacheMode) -> Measurement | None:
        """The vendor library's time on the same clock; None where there is no vendor or no library."""
        ...

    @property
    def vendor_ready(self) -> bool:
        """Whether `vendor` answers without waiting, for instance for the library's import."""
        ...

    @property
    def vendor_problem(self) -> str | None:
        """Why there is no vendor time although there should be one; None if all is well."""
        ...

    def floor_ms(self, case: Case, cache: CacheMode) -> float | None:
        """The physical floor of a case; None where the device's peaks are unknown."""
        ...

    def trace(self, candidate: Candidate, case: Case, options: TraceOptions) -> RawTrace:
        """Trace one launch, or give the trace that was recorded. Raises as `core.tracing.trace`."""
        ...

    def profile(
        self, candidates: Sequence[Candidate], case: Case, options: ProfileOptions
    ) -> list[Counters | NcuFailure]:
        """Hardware counters, or why there are none; one result a candidate, in order.

        A candidate must pass its checks first, and is checked if it hasn't been."""
        ...

    def counters(
        self,
        candidates: Sequence[Candidate],
        case: Case,
        *,
        cache: CacheMode = CacheMode.COLD,
        timeout_s: float = TIMEOUT_S,
    ) -> list[Counters | NcuFailure]:
        """The seed set of each candidate on one case; read once and remembered."""
        ...

    def sanitize(self, candidates: Sequence[Candidate], cases: Sequence[Case]) -> list[CheckResult]:
        """Each candidate on the correctness cases, else on `cases`, under compute-sanitizer; a result a tool.

        WarpdeckError where the device runs nothing, or compute-sanitizer isn't there."""
        ...

    def close(self) -> None:
        """Release the device."""
        ...


class Uninstrumented:
    """What a backend answers that can judge candidates, but not look into them. To inherit from."""

    info: DeviceInfo

    def trace(self, candidate: Candidate, case: Case, options: TraceOptions) -> RawTrace:
        """UsageError."""
        raise self._refusal("traces no kernels")

    def profile(
        self, candidates: Sequence[Candidate], case: Case, options: ProfileOptions
    ) -> list[Counters | NcuFailure]:
        """The same failure for each."""
        reason = f"{self.info.label} reads no hardware counters"
        return [NcuFailure(c, str(Status.UNSUPPORTED), reason, "use --device cuda:0") for c in candidates]

    def counters(
        self,
        candidates: Sequence[Candidate],
        case: Case,
        *,
        cache: CacheMode = CacheMode.COLD,
        timeout_s: float = TIMEOUT_S,
    ) -> list[Counters | NcuFailure]:
        """The same failure for each."""
        return self.profile(candidates, case, ProfileOptions())

    def sanitize(self, candidates: Sequence[Candidate], cases: Sequence[Case]) -> list[CheckResult]:
        """UsageError."""
        raise self._refusal("runs no sanitizer")

    def _refusal(self, what: str) -> UsageError:
        return UsageError(f"{self.info.label}: {what}; use --device cuda:0")


class Device(Interface):
    """Where candidates are evaluated."""

    @property
    def info(self) -> DeviceInfo:
        """What the device is."""
        ...

    def prepare(
        self, workload: Workload, *, space: str, cases: Sequence[Case], seed: int, allow_shared: bool = False
    ) -> Backend:
        """Make ready for one workload: inputs, references, compilers; or the recordings of these cases."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


def floor_ms(
    workload: Workload, case: Case, info: DeviceInfo, cache: CacheMode, *, precision: str | None = None
) -> float | None:
    """Physical floor of a case: the largest of the memory, arithmetic and launch floors that are known.

    Cold: compulsory bytes / peak DRAM bandwidth; hot: bytes / measured L2 bandwidth. Arithmetic:
    flops / peak FP32 rate, unless a variant has a `precision` of its own. Launch: an empty kernel on the
    same clock.
    """
    terms: list[float] = []
    size = workload.min_bytes(case)
    gbs = info.dram_gbs if cache is CacheMode.COLD else info.l2_gbs
    if size and gbs:
        terms.append(size / (gbs * 1e6))
    flops = workload.flops(case) if precision is None else None
    if flops and info.fp32_tflops:
        terms.append(flops / (info.fp32_tflops * 1e9))
    if info.launch_floor_ms:
        terms.append(info.launch_floor_ms)
    return max(terms, default=None)


def implausible(
    workload: Workload, backend: Backend, candidate: Candidate, case: Case, cache: CacheMode, median_ms: float
) -> str | None:
    """What is wrong with a time below the case's physical floor; None if it isn't."""
    precision = workload.variant(candidate.variant).precision
    if precision is None:
        floor = backend.floor_ms(case, cache)
    else:
        floor = floor_ms(workload, case, backend.info, cache, precision=precision)
    if floor is None or median_ms >= floor:
        return None
    return f"case {case.name}: {median_ms * 1e3:.2f} µs is below the physical floor of {floor * 1e3:.2f} µs"


def judged(evaluation: Evaluation, workload: Workload, backend: Backend, cases: Sequence[Case]) -> Evaluation:
    """The evaluation, `implausible` and without times if one lies below its case's physical floor: that is an
    error of the measurement or a cheat, not a record."""
    if evaluation.status is not Status.OK:
        return evaluation
    by_name = {case.name: case for case in cases}
    for measured in evaluation.measurements:
        problem = implausible(
            workload,
            backend,
            evaluation.candidate,
            by_name[measured.case],
            measured.cache,
            measured.median_ms,
        )
        if problem is not None:
            return Evaluation(
                evaluation.candidate,
                Status.IMPLAUSIBLE,
                problem,
                resources=evaluation.resources,
                checks=evaluation.checks,
            )
    return evaluation
