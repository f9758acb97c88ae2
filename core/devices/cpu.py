"""The device `cpu`: runs CUDA C++ on this machine's processor, for correctness only. It measures nothing.

Candidates are compiled by the system's g++ with its sanitizers and run in processes of their own, thread by
thread. `check` and the agents that rewrite sources work on it without a GPU; its evaluations carry no times.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..check import POOL, Plans, draws
from ..check.ahead import ReadyPlan
from ..check.flags import Flag, object_flags, refusal, source_flags
from ..emulator import (
    Array,
    Build,
    Builder,
    Built,
    CandidateFault,
    Job,
    Process,
    Scalar,
    collect,
    race_fault,
    races_of,
    warnings_of,
)
from ..errors import UsageError
from ..model import (
    CacheMode,
    Candidate,
    Case,
    CheckResult,
    DeviceInfo,
    Evaluation,
    Launch,
    Measurement,
    Protocol,
    Status,
)
from ..workload import Workload
from .base import Paired, Uninstrumented
from .cases import applicable, foreign

SHARED_BYTES = 227 * 1024  # of a block, as on the H200
# A rough guide to what a case costs, from the bundled ladders at 512 to 4096 on two busy cores.
_SECONDS_A_BYTE, _SECONDS_A_FLOP = 2e-7, 1.5e-8  # of an evaluation
_MEMORY_A_BYTE = 6  # inputs and references of several draws, in float64
_LONG_S, _MUCH_BYTES = 30.0, 1 << 30  # worth a warning
_RACE_BYTES = 1 << 20  # buffers of the case that the second build runs, if there is one so small
_COMPILES = 2  # at a time
_KEPT = 32  # programs in memory, some 300 KB each
_EMPTY = np.empty(0)


SMALLER = "nothing is timed there, and sizes of 256 or less check as much: --size 256"


def burden(workload: Workload, cases: Sequence[Case]) -> tuple[float, int]:
    """Seconds that one evaluation takes here, and bytes of memory; a rough guess, for warnings."""
    sizes = [workload.total_bytes(case) for case in cases]
    flops = [workload.flops(case) or 0 for case in cases]
    return sum(sizes) * _SECONDS_A_BYTE + sum(flops) * _SECONDS_A_FLOP, sum(sizes) * _MEMORY_A_BYTE


def slow_warning(workload: Workload, cases: Sequence[Case]) -> str | None:
    """What to tell before cases that are better not emulated; None for others."""
    seconds, memory = burden(workload, cases)
    refused = memory > (available_bytes() or memory)  # by `CpuDevice.prepare`
    if refused or (seconds < _LONG_S and memory < _MUCH_BYTES):
        return None
    time = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
    return (
        f"emulating {', '.join(c.name for c in cases)} takes about {time} an evaluation and"
        f" {max(memory / 1e9, 0.1):.1f} GB of memory; {SMALLER}"
    )


def available_bytes() -> int | None:
    """Memory that can be had without swapping; None where the system doesn't say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


class CpuDevice:
    """Emulation on this machine.

    Args:
        plans: where to take check plans from.

    Raises:
        EmulatorError: there is no g++ with sanitizers.
    """

    def __init__(self, *, plans: Plans | None = None) -> None:
        self.info = DeviceInfo(name="CPU emulation", spec="cpu", emulated=True)
        self.builder = Builder()
        self._owns_plans = plans is None
        self.plans = Plans() if plans is None else plans
        self.pool = ThreadPoolExecutor(_COMPILES, thread_name_prefix="warpdeck-emulator")

    def prepare(
        self, workload: Workload, *, space: str, cases: Sequence[Case], seed: int, allow_shared: bool = False
    ) -> CpuBackend:
        """Make inputs and references ready, in the background. See `Device.prepare`.

        Raises UsageError for cases that this machine's memory can't hold.
        """
        needed, free = burden(workload, cases)[1], available_bytes()
        if free is not None and needed > free:
            names = ", ".join(case.name for case in cases)
            raise UsageError(
                f"{workload.name}: cases {names} need about {needed / 1e9:.1f} GB of memory on"
                f" the device cpu, and {free / 1e9:.1f} GB are free; {SMALLER}"
            )
        return CpuBackend(self, workload, cases, seed)

    def close(self) -> None:
        """Wait for compiles in progress; drop the rest."""
        self.pool.shutdown(cancel_futures=True)
        if self._owns_plans:
            self.plans.close()


class CpuBackend(Uninstrumented):
    """One workload on the CPU. See `base.Backend`."""

    def __init__(self, device: CpuDevice, workload: Workload, cases: Sequence[Case], seed: int) -> None:
        self.info = device.info
        self._device = device
        self._workload = workload
        self._ready: ReadyPlan = device.plans.take(workload, tuple(cases), seed)
        self._built: dict[tuple[str, Build], Future[Built]] = {}
        self._running: tuple[str, Process] | None = None  # the last candidate's
        self._runs = 0  # of its process
        self._known: dict[Any, Evaluation] = {}  # by program and launches

    # -- judging -----------------------------------------------------------------------------------

    def evaluate(self, candidate: Candidate, cases: Sequence[Case], protocol: Protocol) -> Evaluation:
        """Compile and check one candidate: `ok` without measurements, or why not."""
        return next(self.evaluate_many([candidate], cases, protocol))

    def evaluate_many(
        self, candidates: Iterable[Candidate], cases: Sequence[Case], protocol: Protocol
    ) -> Iterator[Evaluation]:
        """In order; candidates ahead compile meanwhile."""
        ahead: deque[Candidate] = deque()
        source = iter(candidates)
        while True:
            while len(ahead) < 2 * _COMPILES and (following := next(source, None)) is not None:
                self._submit(following, Build.CHECKED)
                ahead.append(following)
            if not ahead:
                return
            yield self._evaluate(ahead.popleft(), cases)

    def _submit(self, candidate: Candidate, build: Build) -> Future[Built]:
        key = (candidate.id, build)
        if key not in self._built:
            while len(self._built) >= _KEPT:  # the oldest; what it built is on disk
                del self._built[next(iter(self._built))]
            self._built[key] = self._device.pool.submit(self._compile, candidate, build)
        return self._built[key]

    def _compile(self, candidate: Candidate, build: Build) -> Built:
        variant = self._workload.variant(candidate.variant)
        if variant.language != "cuda":
            raise CandidateFault(
                Status.UNSUPPORTED, f"the cpu device runs CUDA C++; {variant.file.name} is for Numba"
            )
        source = collect(variant.file, self._entries(candidate), candidate.config)
        texts = source.texts.values()
        self._refuse(candidate, [flag for text in texts for flag in source_flags(text)])
        built = self._device.builder.build(source, build, self._workload.trust_of(variant.name))
        if build is Build.CHECKED:
            self._refuse(candidate, object_flags(built.kernel, texts))
        return built

    def _refuse(self, candidate: Candidate, flags: Sequence[Flag]) -> None:
        """Raise CandidateFault for what code of others may not do."""
        refused = refusal(flags) if foreign(self._workload, candidate) else None
        if refused is not None:
            raise CandidateFault(Status.INCORRECT, refused)

    def _entries(self, candidate: Candidate) -> tuple[str, ...]:
        variant = self._workload.variant(candidate.variant)
        specs = [*variant.launches, *(x for several in variant.case_launches.values() for x in several)]
        return tuple(dict.fromkeys(spec.entry for spec in specs))

    def _evaluate(self, candidate: Candidate, cases: Sequence[Case]) -> Evaluation:
        started = perf_counter()
        base = Evaluation(candidate, Status.RESTRICTED)
        try:
            launches = {case.name: self._launches(candidate, case) for case in cases}
            base = replace(base, launches=launches)
            correctness = self._applicable(candidate)
            every = {c.name: self._launches(candidate, c) for c in (*correctness, *cases)}
            built = self._submit(candidate, Build.CHECKED).result()
        except UsageError as error:  # a launch that no device allows
            return replace(base, message=str(error))
        except CandidateFault as fault:
            return replace(base, status=fault.status, message=fault.message)
        base = replace(base, compile_s=built.seconds)
        binary = (built.key, tuple(every.items()))
        known = self._known.get(binary)
        if known is not None and known.candidate.id != candidate.id:
            tie = replace(known, candidate=candidate, same_as=known.candidate.id)
            return replace(tie, compile_s=base.compile_s, check_s=0.0)
        self._ready.require_strong()
        self._submit(candidate, Build.RACES)  # compiles while the checks run
        self._end_process()  # a candidate's evaluation begins in a fresh process
        checks, notes = self._checks(candidate, built, correctness, cases)
        wrong = next((c for c in checks if c.status is not Status.OK), None)
        base = replace(base, checks=tuple(checks), check_s=perf_counter() - started)
        if wrong is not None:
            message = f"case {wrong.case}: {wrong.reason}"
            evaluation = replace(base, status=wrong.status, message=message)
        else:
            evaluation = self._raced(replace(base, status=Status.OK), correctness or list(cases), notes)
        if evaluation.status in (Status.OK, Status.INCORRECT):
            self._known[binary] = evaluation
        return evaluation

    def _checks(
        self, candidate: Candidate, built: Built, correctness: Sequence[Case], cases: Sequence[Case]
    ) -> tuple[list[CheckResult], list[str]]:
        """Every correctness case on a draw, then the others on two and on one of these changed in part, so
        that remembering results doesn't help. Ends with the first failure."""
        checks: list[CheckResult] = []
        notes: list[str] = []
        todo = [(case, secrets.randbelow(2 * POOL)) for case in correctness]
        for case in cases:
            first, second = draws(self._workload, case)[:2]
            todo += [(case, first), (case, second), (case, second + POOL)]
        for case, draw in todo:
            checks.append(self._check(candidate, built, case, draw, notes))
            if checks[-1].status is not Status.OK:
                break
        return _merged(checks), notes

    def _check(
        self, candidate: Candidate, built: Built, case: Case, draw: int, notes: list[str]
    ) -> CheckResult:
        """Run once on a draw and judge the outputs."""
        try:
            process = self._process(candidate, built)
            outputs, reports = process.run(self.job(candidate, case, draw, self._runs - 1))
            notes += [
                text
                for text in warnings_of([process.located(r) for r in reports if r.kind == "warning"])
                if text not in notes
            ]
        except CandidateFault as fault:
            return CheckResult(case.name, case.role, fault.status, fault.message)
        tolerance = self._workload.tolerance_of(candidate.variant, case)
        return self._ready.plan.verify(case, draw, outputs, tolerance)

    def _raced(self, evaluation: Evaluation, cases: Sequence[Case], notes: Sequence[str]) -> Evaluation:
        """The second build, once, on a small case: races in shared memory are errors."""
        candidate = evaluation.candidate
        small = [c for c in cases if self._workload.total_bytes(c) <= _RACE_BYTES]
        by_size = sorted(small or cases, key=self._workload.total_bytes)
        case = by_size[-1 if small else 0]
        started = perf_counter()
        message = "; ".join(notes)
        try:
            built = self._submit(candidate, Build.RACES).result()
            process = Process(built, self._entries(candidate), self._workload.trust_of(candidate.variant))
            try:
                _, reports = process.run(self.job(candidate, case, 0, 0))
                races = races_of(built, reports)
                if races:
                    raise race_fault(process.located(races[0]))
            finally:
                process.close()
        except CandidateFault as fault:
            found = CheckResult(case.name, case.role, fault.status, fault.message)
            message = f"case {case.name}: {fault.message}"
            checks = tuple(found if c.case == case.name else c for c in evaluation.checks)
            evaluation = replace(evaluation, status=fault.status, checks=checks)
        spent = perf_counter() - started
        return replace(evaluation, message=message, check_s=evaluation.check_s + spent)

    def recheck(self, candidate: Candidate, cases: Sequence[Case], draw: int) -> list[CheckResult]:
        """One launch a case, in the process that evaluated the candidate. See `Backend.recheck`."""
        checks: list[CheckResult] = []
        built = self._submit(candidate, Build.CHECKED).result()
        for case in (*self._applicable(candidate), *cases):
            checks.append(self._check(candidate, built, case, draw, []))
            if checks[-1].status is not Status.OK:
                break
        return checks

    # -- running -----------------------------------------------------------------------------------

    def _process(self, candidate: Candidate, built: Built) -> Process:
        """The candidate's process; its own and nobody else's."""
        if self._running is not None and (self._running[0] != candidate.id or not self._running[1].alive):
            self._end_process()
        if self._running is None:
            trust = self._workload.trust_of(candidate.variant)
            self._running = (candidate.id, Process(built, self._entries(candidate), trust))
        self._runs += 1
        return self._running[1]

    def _end_process(self) -> None:
        if self._running is not None:
            self._running[1].close()
        self._running, self._runs = None, 0

    def job(self, candidate: Candidate, case: Case, draw: int, schedule: int) -> Job:
        """A candidate's launches of a case on a draw of its inputs."""
        shapes, scalars = self._workload.shapes(case), self._workload.scalars(case)
        inputs = self._ready.plan.inputs(case, draw)
        arguments: list[Array | Scalar] = []
        for a in self._workload.arguments:
            if not a.taken_by("cuda"):
                continue
            if a.kind == "scalar":
                arguments.append(Scalar(a.name, a.dtype, scalars[a.name]))
            else:
                role = "workspace" if a.kind == "workspace" else a.direction
                arguments.append(Array(a.name, role, a.dtype, shapes[a.name], inputs.get(a.name)))
        return Job(case.name, arguments, self._launches(candidate, case), schedule)

    def _launches(self, candidate: Candidate, case: Case) -> tuple[Launch, ...]:
        launches = self._workload.launches(candidate, case)
        most = max(launch.shared for launch in launches)
        if most > SHARED_BYTES:
            raise UsageError(f"{most} bytes of shared memory a block; {SHARED_BYTES} at most")
        return launches

    def _applicable(self, candidate: Candidate) -> list[Case]:
        """The workload's correctness cases that a configuration is valid for."""
        return applicable(self._workload, candidate, self._ready.correctness)

    # -- what it can't do --------------------------------------------------------------------------

    def quick(
        self,
        candidate: Candidate,
        case: Case,
        *,
        cache: CacheMode,
        samples: int = 5,
        rng: np.random.Generator | None = None,
    ) -> tuple[Status, NDArray[np.float64]]:
        """UsageError: it measures nothing."""
        self._measures_nothing()

    def compare(
        self,
        a: Candidate,
        b: Candidate,
        cases: Sequence[Case],
        cache: CacheMode,
        *,
        blocks: Mapping[str, int],
    ) -> list[Paired]:
        """UsageError: it measures nothing."""
        self._measures_nothing()

    def _measures_nothing(self) -> NoReturn:
        raise self._refusal("measures nothing")

    @property
    def vendor_ready(self) -> bool:
        """Always: there is none to wait for."""
        return True

    @property
    def vendor_problem(self) -> str | None:
        """None: nothing is measured here, so nothing is missing."""
        return None

    def vendor(self, case: Case, cache: CacheMode) -> Measurement | None:
        """None."""
        return None

    def floor_ms(self, case: Case, cache: CacheMode) -> float | None:
        """None."""
        return None

    def close(self) -> None:
        """End the candidate's process and remove the data."""
        try:
            self._end_process()
        finally:
            self._ready.close()


def _merged(checks: Sequence[CheckResult]) -> list[CheckResult]:
    """One result a case: its failure, else its largest error."""
    found: dict[str, CheckResult] = {}
    for check in checks:
        before = found.get(check.case)
        if before is not None and check.status is Status.OK:
            errors = [e for e in (before.max_error, check.max_error) if e is not None]
            check = replace(check, max_error=max(errors, default=None))
        found[check.case] = check
    return list(found.values())
