"""Judging the candidates of one workload on one CUDA device: compile, check, time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from typing import Any

from ..check.flags import Flag, notes, ptx_flags, refusal
from ..errors import UsageError
from ..model import Candidate, Case, CheckResult, Evaluation, Measurement, Protocol, Role, Status, Trust
from ..toolchain import Compiled, CompileError
from ..worker import WorkerFault, WorkerHandle
from ..worker.session import Code
from .cases import applicable, foreign
from .parts import Parts


@dataclass
class _Turn:
    candidate: Candidate
    ready: Future[None]  # it was compiled, or that failed
    evaluation: Evaluation | None = None


def _ready(compiled: Future[Compiled], *, others: bool) -> Future[None]:
    """Done once it is compiled and, of code of others, the flags are read, which takes as long as to load it:
    while others are measured. They are remembered."""
    ready: Future[None] = Future()

    def read(compiled: Future[Compiled]) -> None:
        try:
            if others and not compiled.cancelled() and compiled.exception() is None:
                ptx_flags(compiled.result().ptx or "")
        finally:
            ready.set_result(None)

    compiled.add_done_callback(read)
    return ready


class Judge:
    """Judges candidates one after the other, each distinct binary once.

    Args:
        ahead: how many candidates are submitted for compiling before the first of them is judged.
        want: have so many contexts ready.
    """

    def __init__(self, parts: Parts, *, ahead: int, want: Callable[[int], None]) -> None:
        self._workload, self._ready, self._session, self._codes = parts
        self._ahead = ahead
        self._want = want
        self._measured: dict[Any, Evaluation] = {}  # by binary and launches
        self._proven: set[str] = set()  # candidates that passed the correctness cases in this run
        self._sources: set[str] = set()  # hashes of the user's sources that a fresh worker ran
        self._kept: tuple[str, WorkerHandle] | None = None  # for further checks of a candidate, its id

    def forget(self, *, proven: bool = False) -> None:
        """Measure everything again from now on; with `proven`, check it again too."""
        self._measured.clear()
        if proven:
            self._proven.clear()

    def evaluate_many(
        self, candidates: Iterable[Candidate], cases: Sequence[Case], protocol: Protocol | None
    ) -> Iterator[Evaluation]:
        """In order; candidates ahead compile meanwhile, and what is compiled is judged while an earlier one
        is not. Without a protocol they are only checked, as correctness cases always are."""
        queue: deque[_Turn] = deque()
        source = iter(candidates)
        strangers = 0  # code of others, which needs contexts of its own
        while True:
            while len(queue) < self._ahead and (following := next(source, None)) is not None:
                others = self._foreign(following)
                compiled = self._codes.submit(following, cases)
                queue.append(_Turn(following, _ready(compiled, others=others)))
                strangers += others
            if not queue:
                return
            while queue[0].evaluation is None:
                waiting = [turn for turn in queue if turn.evaluation is None]
                if count := sum(self._foreign(turn.candidate) for turn in waiting):
                    self._want(count + 1)  # one to compare in
                wait([turn.ready for turn in waiting], return_when=FIRST_COMPLETED)
                turn = next(turn for turn in waiting if turn.ready.done())
                turn.evaluation = self._evaluate(turn.candidate, cases, protocol)
            done = queue.popleft().evaluation
            assert done is not None
            if not queue and strangers:  # as many may come next; until then the GPU is idle
                self._want(strangers)
            yield done

    def _evaluate(self, candidate: Candidate, cases: Sequence[Case], protocol: Protocol | None) -> Evaluation:
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
        self._let_go()
        handle = self.worker(base.candidate)
        checks: list[CheckResult] = []
        measurements: list[Measurement] = []
        started, check_s = self._session.clock(), None
        try:
            proven = base.candidate.id in self._proven
            for case in (*(() if proven else self.applicable(base.candidate)), *cases):
                checks.append(self._checked(handle, base.candidate, code, case))
                if checks[-1].status is not Status.OK:
                    break
            else:
                check_s = self._session.clock() - started
                if not self._foreign(base.candidate):
                    self._proven.add(base.candidate.id)
                timed = [case for case in cases if case.role is Role.PERFORMANCE]
                if protocol is not None and timed:
                    measurements, wrong = self._session.time(handle, code, timed, protocol)
                    checks += [] if wrong is None else [wrong]
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
        handle = self._again(candidate)
        every = [*self.applicable(candidate), *cases]
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

    def _again(self, candidate: Candidate) -> WorkerHandle:
        """The worker for a candidate's further checks; code of others keeps one of its own for them."""
        if not self._foreign(candidate):
            return self.worker(candidate)
        if self._kept is None or self._kept[0] != candidate.id or not self._kept[1].alive:
            self._let_go()
            self._kept = (candidate.id, self._session.fresh())
        return self._kept[1]

    def _let_go(self) -> None:
        if self._kept is not None:
            self._session.retire(self._kept[1])
            self._kept = None

    def _checked(self, handle: WorkerHandle, candidate: Candidate, code: Code, case: Case) -> CheckResult:
        if case.name not in code.launches:
            code = self._codes.get(candidate, [*self.applicable(candidate)])
        return self._session.check(handle, code, case, self._session.any_draw(case))

    def applicable(self, candidate: Candidate) -> list[Case]:
        """The correctness cases that it must get right."""
        return applicable(self._workload, candidate, self._ready.correctness)

    def _foreign(self, *candidates: Candidate) -> bool:
        return foreign(self._workload, *candidates)

    def worker(self, candidate: Candidate) -> WorkerHandle:
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
