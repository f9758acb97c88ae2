"""One workload on one CUDA device: compile, check and time its candidates in worker processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...telemetry.ncu.counters import Counters
from ..check.flags import Flag, notes, ptx_flags, refusal
from ..errors import UsageError, WarpdeckError
from ..model import (
    CacheMode,
    Candidate,
    Case,
    CheckResult,
    Evaluation,
    Measurement,
    Protocol,
    Role,
    Status,
    Trust,
)
from ..profiling import TIMEOUT_S, NcuFailure, ProfileOptions
from ..toolchain import Compiled, CompileError
from ..worker import WorkerFault, WorkerHandle
from ..worker.session import Code, Session
from ..worker.watch import Watch
from ..workload import Workload
from .base import Paired, floor_ms
from .cases import applicable, foreign
from .codes import Codes
from .probe import Probe
from .profiler import LiveProfiler
from .sanitizing import sanitize

if TYPE_CHECKING:
    from ...telemetry.trace.timeline import RawTrace
    from ..tracing import TraceOptions
    from .cuda import CudaDevice

_EMPTY = np.empty(0)
_CACHES = (CacheMode.COLD, CacheMode.HOT)
_PAIR_WARMUP = 10

Samples = Mapping[CacheMode, NDArray[np.float64]]


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
        self._correctness = self._ready.correctness
        self._watch = Watch(device.info.uuid or "", allow_shared=allow_shared)
        self._session = Session(device.workers, workload, self._ready.plan, self._watch, vendor=device.vendor)
        self._codes = Codes(workload, device.pool, device.cc, device.limits)
        self._measured: dict[Any, Evaluation] = {}  # by binary and launches
        self._proven: set[str] = set()  # candidates that passed the correctness cases in this run
        self._sources: set[str] = set()  # hashes of the user's sources that a fresh worker ran
        self._quick: dict[tuple[str, str, CacheMode, int], dict[str, Any]] = {}
        self._failed: dict[tuple[str, str], Status] = {}
        self._vendor: dict[tuple[str, CacheMode], Measurement | None] = {}
        self._vendor_problem: str | None = None
        self._counters: dict[tuple[str, str, CacheMode], Counters | NcuFailure] = {}
        self._pair: tuple[Any, WorkerHandle] | None = None  # which pairs it is for, and their worker

    # -- judging -----------------------------------------------------------------------------------

    def evaluate(self, candidate: Candidate, cases: Sequence[Case], protocol: Protocol) -> Evaluation:
        """Compile, check and time one candidate on every case."""
        return next(self.evaluate_many([candidate], cases, protocol))

    def evaluate_many(
        self, candidates: Iterable[Candidate], cases: Sequence[Case], protocol: Protocol | None
    ) -> Iterator[Evaluation]:
        """In order; candidates ahead compile meanwhile. Without a protocol they are only checked, as
        correctness cases always are."""
        ahead: deque[Candidate] = deque()
        source = iter(candidates)
        window = 2 * self._device.pool.workers
        while True:
            while len(ahead) < window and (following := next(source, None)) is not None:
                self._codes.submit(following, cases)
                ahead.append(following)
            if not ahead:
                return
            # Their contexts, and one to compare in, are created together, while the first one compiles.
            strangers = sum(self._foreign(candidate) for candidate in ahead)
            self._device.workers.want(strangers + 1 if strangers else 0)
            yield self._evaluate(ahead.popleft(), cases, protocol)

    def admit(self, candidates: Sequence[Candidate], case: Case) -> list[Evaluation]:
        """Compile and check on a case and on the correctness cases, without timing; in order."""
        return list(self.evaluate_many(candidates, [case], None))

    def _evaluate(self, candidate: Candidate, cases: Sequence[Case], protocol: Protocol | None) -> Evaluation:
        self._drop_pair()  # a comparison that follows gets a fresh context
        try:
            code = self._codes.get(candidate, cases)
        except CompileError as error:
            return Evaluation(candidate, Status.COMPILE_ERROR, str(error))
        except UsageError as error:  # a launch that no device allows
            return Evaluation(candidate, Status.RESTRICTED, str(error))
        resources = code.compiled.with_launches(code.launches[cases[0].name]).resources
        base = Evaluation(
            candidate,
            Status.RESTRICTED,
            launches={case.name: code.launches[case.name] for case in cases},
            resources=resources,
            compile_s=code.compiled.seconds,
        )
        problem = self._codes.problem(code, cases)
        if problem:
            return replace(base, message=problem)
        refused = refusal(self._flags(candidate, code))
        if refused is not None:
            return replace(base, status=Status.INCORRECT, message=refused)
        binary = self._binary(code, cases, protocol)
        known = self._measured.get(binary)
        if known is not None and known.candidate.id != candidate.id:
            tie = replace(known, candidate=candidate, same_as=known.candidate.id, resources=resources)
            return replace(tie, compile_s=base.compile_s, check_s=0.0, time_s=0.0)
        evaluation = self._run(base, code, cases, protocol)
        if evaluation.status in (Status.OK, Status.INCORRECT):
            self._measured[binary] = evaluation
        return evaluation

    def _flags(self, candidate: Candidate, code: Code) -> tuple[Flag, ...]:
        return ptx_flags(code.compiled.ptx or "") if self._foreign(candidate) else ()

    def _binary(self, code: Code, cases: Sequence[Case], protocol: Protocol | None) -> Any:
        variant = self._workload.variant(code.variant)  # what it is judged by may differ, too
        launches = tuple((c.name, code.launches[c.name]) for c in cases)
        return code.compiled.code_hash, launches, variant.tolerance, variant.precision, protocol

    def _run(
        self, base: Evaluation, code: Code, cases: Sequence[Case], protocol: Protocol | None
    ) -> Evaluation:
        self._ready.require_strong()
        handle = self._worker(base.candidate)
        checks: list[CheckResult] = []
        measurements: list[Measurement] = []
        started, check_s = self._session.clock(), None
        try:
            proven = base.candidate.id in self._proven
            for case in (*(() if proven else self._applicable(base.candidate)), *cases):
                checks.append(self._checked(handle, base.candidate, code, case))
                if checks[-1].status is not Status.OK:
                    break
            else:
                check_s = self._session.clock() - started
                if not self._foreign(base.candidate):
                    self._proven.add(base.candidate.id)
                for case in cases:
                    if protocol is None or case.role is not Role.PERFORMANCE:
                        continue
                    measured, verdict = self._session.time(handle, code, case, protocol)
                    if measured is None:
                        checks.append(verdict)
                        break
                    measurements.append(measured)
        except WorkerFault as fault:
            base = replace(base, status=fault.status, message=fault.message)
        except (CompileError, UsageError) as error:
            base = replace(base, status=Status.LAUNCH_ERROR, message=str(error))
        else:
            base = replace(base, status=Status.OK)
        spent = self._session.clock() - started
        check_s = spent if check_s is None else check_s
        base = replace(base, check_s=check_s, time_s=spent - check_s)
        wrong = next((c for c in checks if c.status is not Status.OK), None)
        if wrong is not None:
            # What wrote where it must not may have written anywhere: this context isn't to be trusted again.
            handle.kill()
            base = replace(base, status=wrong.status, message=f"case {wrong.case}: {wrong.reason}")
        if base.status is not Status.OK:
            return self._end(handle, base, checks)
        labels = sorted(
            {label for m in measurements for label in m.throttle if label.startswith("GPU shared")}
        )
        done = replace(
            base,
            message="; ".join((*code.compiled.warnings, *notes(self._flags(base.candidate, code)), *labels)),
            measurements=tuple(measurements),
        )
        return self._end(handle, done, checks)

    def recheck(self, candidate: Candidate, cases: Sequence[Case], draw: int) -> list[CheckResult]:
        """One launch a case, in the module that is loaded. See `Backend.recheck`."""
        handle = self._worker(candidate)
        every = [*self._applicable(candidate), *cases]
        checks: list[CheckResult] = []
        for case in every:
            try:
                code = self._codes.get(candidate, every)
                checks.append(self._session.check(handle, code, case, draw))
            except WorkerFault as fault:
                checks.append(CheckResult(case.name, case.role, fault.status, fault.message))
            if checks[-1].status is not Status.OK:
                handle.kill()  # nothing in its context is to be trusted
                self._session.retire(handle)
                break
        return checks

    def _checked(self, handle: WorkerHandle, candidate: Candidate, code: Code, case: Case) -> CheckResult:
        if case.name not in code.launches:
            code = self._codes.get(candidate, [*self._applicable(candidate)])
        return self._session.check(handle, code, case, self._session.any_draw(case))

    def _applicable(self, candidate: Candidate) -> list[Case]:
        return applicable(self._workload, candidate, self._correctness)

    def _foreign(self, *candidates: Candidate) -> bool:
        return foreign(self._workload, *candidates)

    def _worker(self, candidate: Candidate) -> WorkerHandle:
        """Fresh for code of others; shared by bundled code, and by the user's after its first fresh run."""
        if self._foreign(candidate):
            return self._session.fresh()
        own = self._workload.trust_of(candidate.variant) is Trust.OWN
        if own and candidate.source_hash not in self._sources:
            self._sources.add(candidate.source_hash)
            self._session.renew()
        return self._session.warm()

    def _end(self, handle: WorkerHandle, evaluation: Evaluation, checks: list[CheckResult]) -> Evaluation:
        if not handle.alive or self._foreign(evaluation.candidate):
            self._session.retire(handle)
        return replace(evaluation, checks=tuple(checks))

    # -- the environment's protocol ----------------------------------------------------------------

    def quick(
        self,
        candidate: Candidate,
        case: Case,
        *,
        cache: CacheMode,
        samples: int = 5,
        rng: np.random.Generator | None = None,
    ) -> tuple[Status, NDArray[np.float64]]:
        """One warm-up and `samples` launches. A candidate is checked when it is first met.

        Raises WarpdeckError for code of others: that gets a fresh process every time, which isn't quick.
        """
        if self._foreign(candidate):
            raise WarpdeckError(f"{self._workload.name}: code of others has no quick protocol")
        failed = self._failed.get((candidate.id, case.name))
        if failed is not None:
            return failed, _EMPTY
        key = (candidate.id, case.name, cache, samples)
        payload = self._quick.get(key)
        handle = self._worker(candidate)
        try:
            if payload is None or case.name not in handle.bound or candidate.id not in handle.loaded:
                payload = self._first(handle, candidate, case)
                if payload is None:
                    return self._failed[candidate.id, case.name], _EMPTY
                payload = self._quick[key] = {**payload, "cache": str(cache), "samples": samples}
                handle = self._session.warm()
            with self._session.timing():
                answer = handle.call("quick", payload)
        except WorkerFault as fault:
            self._failed[candidate.id, case.name] = fault.status
            if fault.fatal:
                self._session.renew()
            return fault.status, _EMPTY
        return Status.OK, np.asarray(answer["samples_ms"], dtype=np.float64)

    def _first(self, handle: WorkerHandle, candidate: Candidate, case: Case) -> dict[str, Any] | None:
        """Compile, check and bind; None (and a remembered status) if the candidate fails."""
        self._ready.require_strong()
        try:
            code = self._codes.get(candidate, [case])
            problem = self._codes.problem(code, [case])
        except CompileError:
            self._failed[candidate.id, case.name] = Status.COMPILE_ERROR
            return None
        except UsageError:
            self._failed[candidate.id, case.name] = Status.RESTRICTED
            return None
        if problem:
            self._failed[candidate.id, case.name] = Status.RESTRICTED
            return None
        verdict = self._session.check(handle, code, case, self._session.any_draw(case))
        if verdict.status is not Status.OK:
            handle.kill()
            self._session.retire(handle)
            self._failed[candidate.id, case.name] = verdict.status
            return None
        return self._session.payload(handle, code, case)

    # -- comparing ---------------------------------------------------------------------------------

    def compare(self, a: Candidate, b: Candidate, case: Case, cache: CacheMode, *, blocks: int) -> Paired:
        """A B B A and B A A B in one fresh context, kept while comparisons follow each other (of code of
        others: while the same two are compared on further cases)."""
        self._ready.require_strong()
        codes = [self._codes.get(candidate, [case]) for candidate in (a, b)]
        handle = self._pair_worker(a, b)
        started = self._session.clock()
        try:
            payloads = [self._session.payload(handle, code, case) for code in codes]
            job = {
                "key": case.name,
                "a": {k: payloads[0][k] for k in ("code", "launches")},
                "b": {k: payloads[1][k] for k in ("code", "launches")},
                "poison": self._foreign(a, b),
                "cache": str(cache),
                "blocks": blocks,
                "warmup": _PAIR_WARMUP,
            }
            answer, labels = self._session.watched(handle, "pair", job, case)
        except WorkerFault as fault:
            self._drop_pair()
            raise WarpdeckError(f"comparing on case {case.name}: {fault.status}: {fault.message}") from None
        return Paired(
            case.name,
            cache,
            answer["clock"],
            np.asarray(answer["a_ms"], dtype=np.float64),
            np.asarray(answer["b_ms"], dtype=np.float64),
            labels,
            seconds=self._session.clock() - started,
        )

    def _pair_worker(self, a: Candidate, b: Candidate) -> WorkerHandle:
        pair = (a.id, b.id) if self._foreign(a, b) else None
        if self._pair is None or self._pair[0] != pair or not self._pair[1].alive:
            self._drop_pair()
            self._pair = (pair, self._session.fresh())
        return self._pair[1]

    def _drop_pair(self) -> None:
        if self._pair is not None:
            self._session.retire(self._pair[1])
            self._pair = None

    def rounds(
        self, candidates: Sequence[Candidate], case: Case, *, samples: int, warmup: int
    ) -> tuple[list[Samples | Evaluation], str]:
        """One measuring round: `samples` cold and hot samples of every candidate, in the order given.

        A candidate that fails gets an evaluation in place of samples; the others go on in a new worker.
        Also returns the clock's name.
        """
        found: list[Samples | Evaluation] = []
        while len(found) < len(candidates):
            self._round(candidates[len(found) :], case, samples, warmup, found)
        return found, self._device.clock

    def _round(
        self,
        candidates: Sequence[Candidate],
        case: Case,
        samples: int,
        warmup: int,
        found: list[Samples | Evaluation],
    ) -> None:
        """Measure until the end or the first failure that costs the worker; append to `found`."""
        handle = self._session.warm()
        job: dict[str, Any] = {"key": case.name, "samples": samples, "warmup": warmup, "items": []}
        job["caches"] = [str(cache) for cache in _CACHES]
        for candidate in candidates:
            payload = self._session.payload(handle, self._codes.get(candidate, [case]), case)
            job["items"].append({"code": payload["code"], "launches": payload["launches"]})
        try:
            answer, _ = self._session.watched(handle, "rounds", job, case)
        except WorkerFault as fault:
            if not fault.fatal:
                raise WarpdeckError(f"case {case.name}: {fault.status}: {fault.message}") from None
            self._session.renew()
            # The finished ones are measured again: their samples died with the worker.
            at = min(handle.progress, len(candidates) - 1)
            if at:
                self._round(candidates[:at], case, samples, warmup, found)
            found.append(Evaluation(candidates[at], fault.status, fault.message))
            return
        for candidate, item in zip(candidates, answer["items"], strict=True):
            if "fault" in item:
                status = Status(item["fault"]["status"])
                found.append(Evaluation(candidate, status, str(item["fault"]["message"])))
            else:
                found.append({cache: np.asarray(item[str(cache)]["samples_ms"]) for cache in _CACHES})

    def use_clock(self, clock: str) -> None:
        """Read times from `cupti` or `event` from now on, to cross-check one by the other."""
        self._session.warm().call("clock", {"clock": clock})
        self._measured.clear()

    def end_workers(self) -> None:
        """End the warm worker and forget what was measured: the next evaluation is isolated."""
        self._session.renew()
        self._measured.clear()
        self._proven.clear()

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
        key = (case.name, cache)
        if key not in self._vendor:
            self._vendor[key] = self._time_vendor(case, Protocol(cache=cache))
        return self._vendor[key]

    def vendor_round(self, case: Case, *, samples: int) -> Samples:
        """Cold and hot samples of the vendor's kernel; empty where there is none."""
        found: dict[CacheMode, NDArray[np.float64]] = {}
        for cache in _CACHES:
            protocol = Protocol(cache, warmup=2, samples=samples, min_samples=samples, adaptive=False)
            measured = self._time_vendor(case, protocol)
            if measured is not None:
                found[cache] = measured.samples_ms
        return found

    @property
    def vendor_ready(self) -> bool:
        """Whether the vendor's time can be asked for without waiting for its library's import."""
        return not self._has_vendor or self._device.vendor.ready

    @property
    def _has_vendor(self) -> bool:
        trusted = self._workload.trust in (Trust.BUNDLED, Trust.OWN)
        return self._workload.vendor_name is not None and trusted and self._vendor_problem is None

    @property
    def vendor_problem(self) -> str | None:
        """Why there is no vendor time, if one was asked for."""
        return self._vendor_problem

    def _time_vendor(self, case: Case, protocol: Protocol) -> Measurement | None:
        if not self._has_vendor:
            return None
        try:
            return self._session.time_vendor(case, protocol)
        except WorkerFault as fault:
            self._vendor_problem = fault.message
            return None

    # -- hardware counters -------------------------------------------------------------------------

    def profile(
        self, candidates: Sequence[Candidate], case: Case, options: ProfileOptions
    ) -> list[Counters | NcuFailure]:
        """Check what isn't checked yet, then run Nsight Compute over all. See `Backend.profile`."""
        profiler = LiveProfiler(self.info, self._workload, self._session, self._codes)
        return profiler.profile(self.admit(candidates, case), case, options)

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
        todo = [(c, case) for c in candidates for case in (self._applicable(c) or cases)]
        return sanitize(self.info, self._session, self._codes, todo)

    def floor_ms(self, case: Case, cache: CacheMode) -> float | None:
        """The physical floor of a case."""
        return floor_ms(self._workload, case, self.info, cache)

    def close(self) -> None:
        """End the workers and remove the data. The device stays open."""
        self._pair = None
        try:
            self._session.close()
        finally:
            self._ready.close()
