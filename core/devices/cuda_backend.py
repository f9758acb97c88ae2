"""One workload on one CUDA device: what `base.Backend` asks for, put together from its parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...telemetry.ncu.counters import Counters
from ..model import CacheMode, Candidate, Case, CheckResult, Evaluation, Measurement, Protocol, Status
from ..profiling import TIMEOUT_S, NcuFailure, ProfileOptions
from ..toolchain import Compiled
from ..worker.session import Session
from ..worker.watch import Watch
from ..workload import Workload
from .base import Paired, floor_ms
from .codes import Codes
from .judging import Judge
from .pairing import Pairs
from .parts import Parts
from .probe import Probe
from .profiler import LiveProfiler
from .quick import Quick
from .rounds import Rounds, Samples
from .sanitizing import sanitize
from .vendor_times import VendorTimes

if TYPE_CHECKING:
    from ...telemetry.trace.timeline import RawTrace
    from ..tracing import TraceOptions
    from .cuda import CudaDevice


class CudaBackend:
    """One workload on one CUDA device. See `base.Backend`."""

    def __init__(
        self,
        device: CudaDevice,
        workload: Workload,
        cases: Sequence[Case],
        seed: int,
        *,
        allow_shared: bool = False,
    ) -> None:
        self.info = device.info
        self._device = device
        self._workload = workload
        self._cases = tuple(cases)
        self._ready = device.plans.take(workload, self._cases, seed)
        self._watch = Watch(device.info.uuid or "", allow_shared=allow_shared)
        self._session = Session(device.workers, workload, self._ready.plan, self._watch, vendor=device.vendor)
        self._codes = Codes(workload, device.pool, device.cc, device.limits)
        parts = Parts(workload, self._ready, self._session, self._codes)
        self._judge = Judge(parts, ahead=2 * device.pool.workers, want=device.workers.want)
        self._quick = Quick(parts, self._judge.worker)
        self._pairs = Pairs(parts)
        self._rounds = Rounds(self._session, self._codes)
        self._vendor = VendorTimes(workload, self._session, device.vendor)
        self._counters: dict[tuple[str, str, CacheMode], Counters | NcuFailure] = {}

    def evaluate(self, candidate: Candidate, cases: Sequence[Case], protocol: Protocol) -> Evaluation:
        """Compile, check and time one candidate on every case."""
        return next(self.evaluate_many([candidate], cases, protocol))

    def evaluate_many(
        self, candidates: Iterable[Candidate], cases: Sequence[Case], protocol: Protocol | None
    ) -> Iterator[Evaluation]:
        """In order; candidates ahead compile meanwhile. Without a protocol they are only checked, as
        correctness cases always are."""
        judged = self._judge.evaluate_many(candidates, cases, protocol)
        while True:
            self._pairs.drop()
            if (evaluation := next(judged, None)) is None:
                return
            yield evaluation

    def admit(self, candidates: Sequence[Candidate], case: Case) -> list[Evaluation]:
        """Compile and check on a case and on the correctness cases, without timing; in order."""
        return list(self.evaluate_many(candidates, [case], None))

    def recheck(self, candidate: Candidate, cases: Sequence[Case], draw: int) -> list[CheckResult]:
        """One launch a case, in the module that is loaded. See `Backend.recheck`."""
        return self._judge.recheck(candidate, cases, draw)

    def quick(
        self,
        candidate: Candidate,
        case: Case,
        *,
        cache: CacheMode,
        samples: int = 5,
        rng: np.random.Generator | None = None,
    ) -> tuple[Status, NDArray[np.float64]]:
        """One warm-up and `samples` launches. See `Quick.measure`."""
        return self._quick.measure(candidate, case, cache=cache, samples=samples)

    def compare(
        self,
        a: Candidate,
        b: Candidate,
        cases: Sequence[Case],
        cache: CacheMode,
        *,
        blocks: Mapping[str, int],
    ) -> list[Paired]:
        """A B B A and B A A B. See `Pairs.compare`."""
        return self._pairs.compare(a, b, cases, cache, blocks=blocks)

    def rounds(
        self, candidates: Sequence[Candidate], case: Case, *, samples: int, warmup: int
    ) -> tuple[list[Samples | Evaluation], str]:
        """One measuring round, and the clock's name. See `Rounds.measure`."""
        return self._rounds.measure(candidates, case, samples=samples, warmup=warmup), self._device.clock

    def use_clock(self, clock: str) -> None:
        """Read times from `cupti` or `event` from now on, to cross-check one by the other."""
        self._session.warm().call("clock", {"clock": clock})
        self._judge.forget()

    def end_workers(self) -> None:
        """End the warm worker and forget what was measured: the next evaluation is isolated."""
        self._session.renew()
        self._judge.forget(proven=True)

    def compiled(self, candidate: Candidate) -> Compiled:
        """A candidate's machine code. Raises CompileError."""
        return self._codes.submit(candidate, self._cases).result()

    def trace(self, candidate: Candidate, case: Case, options: TraceOptions) -> RawTrace:
        """Trace one launch, in a worker of its own. See `Backend.trace`."""
        self._ready.require_strong()
        return Probe(self._workload, self.info, self._session, self._codes).trace(candidate, case, options)

    # -- what to compare with ----------------------------------------------------------------------

    def vendor(self, case: Case, cache: CacheMode) -> Measurement | None:
        """The vendor library's time on the same clock; None where there is no vendor or no torch."""
        return self._vendor.time(case, cache)

    def vendor_round(self, case: Case, *, samples: int) -> Samples:
        """Cold and hot samples of the vendor's kernel; empty where there is none."""
        return self._vendor.round(case, samples=samples)

    @property
    def vendor_ready(self) -> bool:
        """Whether the vendor's time can be asked for without waiting for its library's import."""
        return self._vendor.ready

    @property
    def vendor_problem(self) -> str | None:
        """Why there is no vendor time, if one was asked for."""
        return self._vendor.problem

    # -- hardware counters -------------------------------------------------------------------------

    def profile(
        self, candidates: Sequence[Candidate], case: Case, options: ProfileOptions
    ) -> list[Counters | NcuFailure]:
        """Check what isn't checked yet while Nsight Compute starts. See `Backend.profile`."""
        profiler = LiveProfiler(self.info, self._workload, self._session, self._codes)
        return profiler.profile(self.evaluate_many(candidates, [case], None), case, options)

    def counters(
        self,
        candidates: Sequence[Candidate],
        case: Case,
        *,
        cache: CacheMode = CacheMode.COLD,
        timeout_s: float = TIMEOUT_S,
    ) -> list[Counters | NcuFailure]:
        """One start of Nsight Compute for all that it hasn't read yet. See `Backend.counters`."""
        keys = [(candidate.id, case.name, cache) for candidate in candidates]
        new = {k: c for k, c in zip(keys, candidates, strict=True) if k not in self._counters}
        if new:
            options = ProfileOptions(cache=cache, timeout_s=timeout_s)
            found = self.profile(list(new.values()), case, options)
            self._counters |= zip(new, found, strict=True)
        return [self._counters[key] for key in keys]

    def sanitize(self, candidates: Sequence[Candidate], cases: Sequence[Case]) -> list[CheckResult]:
        """In processes of their own, one a tool. See `Backend.sanitize`."""
        todo = [(c, case) for c in candidates for case in (self._judge.applicable(c) or cases)]
        return sanitize(self.info, self._session, self._codes, todo)

    def floor_ms(self, case: Case, cache: CacheMode) -> float | None:
        """The physical floor of a case."""
        return floor_ms(self._workload, case, self.info, cache)

    def close(self) -> None:
        """End the workers and remove the data. The device stays open."""
        try:
            self._session.close()
        finally:
            self._ready.close()
