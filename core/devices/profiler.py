"""Candidates of one workload on one CUDA device under Nsight Compute: several in one start, each with its own
outcome."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from ...telemetry.ncu import report, run
from ...telemetry.ncu.counters import Counters
from ...telemetry.ncu.errors import NcuError
from ..errors import UsageError
from ..model import Candidate, Case, DeviceInfo, Evaluation, Status
from ..profiling import HOPELESS, SEED, NcuFailure, ProfileOptions
from ..toolchain import CompileError
from ..worker.faults import WorkerFault
from ..worker.program import Item, ItemEnd, Marker, Program
from ..worker.session import Code, Session
from ..workload import Workload
from .codes import Codes

_MOST_HANGS = 3
_GRACE_S = 30.0  # the program's own limit lies behind the tool's
_PEAKS_S = 60.0


@dataclass
class _Subject:
    candidate: Candidate
    code: Code | None = None
    result: Counters | NcuFailure | None = None


class LiveProfiler:
    """Profiles candidates that were checked.

    Args:
        info: the device.
        workload: whose candidates.
        session: has the inputs.
        codes: has the machine code.
    """

    def __init__(self, info: DeviceInfo, workload: Workload, session: Session, codes: Codes) -> None:
        self._info = info
        self._workload = workload
        self._session = session
        self._codes = codes

    def profile(
        self, evaluations: Iterable[Evaluation], case: Case, options: ProfileOptions
    ) -> list[Counters | NcuFailure]:
        """Counters of every candidate that evaluated `ok`, in order; the reason for every other.

        Nsight Compute starts before the evaluations are asked for, so that these may be made meanwhile.
        """
        try:
            starts = _Starts(self._info, self._workload, self._session, case, options)
        except NcuError as error:
            subjects = [self._subject(evaluation, case) for evaluation in evaluations]
            return [s.result or NcuFailure.of(s.candidate, error) for s in subjects]
        with starts:
            subjects = [self._subject(evaluation, case) for evaluation in evaluations]
            if pending := [s for s in subjects if s.result is None]:
                starts.run(pending)
        return [s.result for s in subjects if s.result is not None]

    def _subject(self, evaluation: Evaluation, case: Case) -> _Subject:
        candidate = evaluation.candidate
        if evaluation.status is not Status.OK:
            reason = f"it is not profiled because it failed: {evaluation.status}: {evaluation.message}"
            return _Subject(candidate, result=NcuFailure(candidate, str(evaluation.status), reason))
        try:
            return _Subject(candidate, self._codes.get(candidate, [case]))
        except (CompileError, UsageError) as error:
            failure = NcuFailure(candidate, str(Status.COMPILE_ERROR), str(error))
            return _Subject(candidate, result=failure)


@dataclass(frozen=True)
class _Begun:
    """A start of Nsight Compute whose program waits for its work; a context manager that ends both."""

    program: Program
    report: Path
    tool: run.Start

    def __enter__(self) -> _Begun:
        return self

    def __exit__(self, *_: object) -> None:
        self.tool.close()
        self.program.close()


class _Starts:
    """As many starts of Nsight Compute as it takes: one, unless a candidate brings it down.

    A context manager. Where it needn't wait for the peaks to be measured, the first start begins at once.
    """

    def __init__(
        self,
        info: DeviceInfo,
        workload: Workload,
        session: Session,
        case: Case,
        options: ProfileOptions,
    ) -> None:
        self._info, self._workload, self._case, self._options = info, workload, case, options
        self._chosen, self._counters = run.metric_set(options.set, options.metrics)
        self._session = session
        files = [v.file for v in workload.variants.values()]
        self._folders = list(dict.fromkeys([workload.folder, *(file.parent for file in files)]))
        self._hangs = 0
        self._start_facts: dict[str, Any] = {}  # what the last start took, and how many it was for
        self._peaks: dict[str, float] = {}
        self._roofline = "peak_dram_bytes_per_s" in self._chosen.quantities
        self._ahead = None if self._roofline else self._begin()

    def __enter__(self) -> _Starts:
        return self

    def __exit__(self, *_: object) -> None:
        if self._ahead is not None:
            with self._ahead:
                self._ahead = None

    def _begin(self) -> _Begun:
        program = Program(int(self._info.spec.partition(":")[2] or 0))
        report = program.folder / f"report{run.SUFFIX}"
        tool = run.Start(
            program.command,
            report,
            chosen=self._chosen,
            counters=self._counters,
            cache=str(self._options.cache),
            capability=self._info.compute_capability,
            sources=self._folders,
            environment=program.environment,
        )
        return _Begun(program, report, tool)

    def _measure_peaks(self) -> None:
        """Measure the roofs, before Nsight Compute starts. Where that fails they are the theoretical ones."""
        handle = None
        try:
            handle = self._session.fresh()
            with self._session.timing():
                best = handle.call("floors", {}, _PEAKS_S)
        except WorkerFault:
            return
        finally:
            self._session.retire(handle)
        self._peaks = {"dram_gbs": best["dram_read_gbs"], "fp32_tflops": best["fp32_tflops"]}

    def run(self, subjects: Sequence[_Subject]) -> None:
        """Fill in every subject's result."""
        if self._roofline:
            self._measure_peaks()
        pending = list(subjects)
        while pending and self._hangs < _MOST_HANGS:
            before = len(pending)
            self._start(pending)
            pending = [s for s in pending if s.result is None]
            if len(pending) == before:  # whose results they were can't be told
                for subject in pending:
                    if self._hangs < _MOST_HANGS:
                        self._start([subject])
                break
        for subject in pending:
            if subject.result is None:
                limit = f"the time limit of {self._options.timeout_s:g} s"
                told = f"it was not profiled because {_MOST_HANGS} others exceeded {limit}"
                subject.result = NcuFailure(subject.candidate, "timeout", told, "profile it alone")

    def _start(self, subjects: Sequence[_Subject]) -> None:
        described = self._session.describe(self._case, (0,))
        items = [Item(s.code, self._case, described) for s in subjects if s.code is not None]
        options = self._options
        begun, self._ahead = self._ahead or self._begin(), None
        with begun:
            program = begun.program
            with self._session.timing():  # counters are no good beside a context that is created
                program.give(items, invocation=options.invocation, limit_s=options.timeout_s + _GRACE_S)
                outcome = begun.tool.finish(options.timeout_s)
            marker, at, failure = program.marker, program.progress, outcome.failure
            found: list[Counters] = []
            if outcome.report is not None:
                try:
                    wanted = options.set if not options.metrics else SEED
                    found = report.read(
                        outcome.report, metric_set=wanted, wanted=options.metrics, ncu=run.find()
                    )
                    if options.keep is not None:
                        shutil.copyfile(outcome.report, options.keep)
                except NcuError as error:
                    failure = failure or error
        if failure is not None and failure.kind in HOPELESS:
            _fail(subjects, failure)
        elif marker is None:
            self._cut_short(subjects, at, failure)
        elif not marker.complete:
            _fail(subjects, NcuError("program_failed", marker.fault, "see `warpdeck doctor`"))
        else:
            self._start_facts = {"start_s": round(outcome.seconds, 3), "shared_by": len(subjects)}
            self._assign(subjects, marker, found, failure)

    def _cut_short(self, subjects: Sequence[_Subject], at: int, failure: NcuError | None) -> None:
        """No completion marker: the item at work brought it down; the others get another start."""
        if failure is None or failure.kind == "no_kernel":
            failure = NcuError("program_failed", "the profiled program crashed", "see `warpdeck check`")
        if at < 0:  # it never began
            _fail(subjects, failure)
            return
        self._hangs += failure.kind == "timeout"
        culprit = subjects[min(at, len(subjects) - 1)]
        _fail([culprit], failure)

    def _assign(
        self,
        subjects: Sequence[_Subject],
        marker: Marker,
        found: Sequence[Counters],
        failure: NcuError | None,
    ) -> None:
        """Give each item its launches' results, by order; every kernel's name must fit.

        Nothing is assigned where they don't fit and there are several items.
        """
        pairs = list(zip(subjects, marker.items, strict=False))  # a lost context leaves later items out
        rest = iter(found)
        results = [(subject, end, list(islice(rest, len(end.launched)))) for subject, end in pairs]
        fine = [r for r in results if r[1].status is Status.OK]
        if next(rest, None) is not None or not all(_fits(s, self._case, end, mine) for s, end, mine in fine):
            if len(subjects) == 1:
                made = sum(len(end.launched) for _, end in pairs)
                told = f"Nsight Compute reported {len(found)} launch(es) that aren't the {made} made"
                _fail(subjects, failure or NcuError("no_kernel", told, "see `warpdeck check`"))
            return
        for subject, end in pairs:
            if end.status is not Status.OK:
                subject.result = NcuFailure(subject.candidate, str(end.status), end.message)
        for subject, _, mine in fine:
            subject.result = self._counters_of(subject, mine)

    def _counters_of(self, subject: _Subject, launches: Sequence[Counters]) -> Counters | NcuFailure:
        """One launch's counters: the wanted kernel's, or the longest's."""
        candidate, options = subject.candidate, self._options
        chosen = launches
        if options.kernel is not None:
            chosen = [c for c in launches if options.kernel in c.kernel]
            if not chosen:
                names = ", ".join(dict.fromkeys(c.kernel for c in launches))
                reason = f"kernel '{options.kernel}' is not launched; there is {names}"
                return NcuFailure(candidate, "bad_option", reason)
        longest = max(chosen, key=lambda c: c.value("duration_ns") or 0.0)
        meta: dict[str, Any] = {
            **longest.meta,
            "workload": self._workload.name,
            "variant": candidate.variant,
            "source_hash": candidate.source_hash,
            "config": dict(candidate.config),
            "case": self._case.name,
            "set": self._chosen.name,
            "cache": str(options.cache),
            "invocation": options.invocation,
            "device": self._info.to_json(),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            **self._start_facts,
            **({"peaks": self._peaks} if self._peaks else {}),
        }
        if len(launches) > 1:
            meta["launches"] = [{"kernel": c.kernel, "duration_ns": c.value("duration_ns")} for c in launches]
        return replace(longest, meta=json.loads(json.dumps(meta)))  # as a file would give it back


def _fits(subject: _Subject, case: Case, end: ItemEnd, found: Sequence[Counters]) -> bool:
    """Whether these are the results of an item's launches: as many, by the kernels' names and grids."""
    assert subject.code is not None
    entries: Mapping[str, str] = {symbol: e for e, symbol in subject.code.compiled.entries.items()}
    if not len(found) == len(end.launched) == len(subject.code.launches[case.name]):
        return False
    for symbol, launch, counters in zip(end.launched, subject.code.launches[case.name], found, strict=True):
        if entries.get(symbol, symbol) not in f"{counters.kernel} {counters.meta.get('signature', '')}":
            return False
        if tuple(counters.meta.get("grid") or launch.grid) != launch.grid:
            return False
    return True


def _fail(subjects: Sequence[_Subject], failure: NcuError) -> None:
    for subject in subjects:
        subject.result = NcuFailure.of(subject.candidate, failure)
