"""One workload on one GPU: which worker runs what, with buffers bound, code loaded and outputs verified."""

from __future__ import annotations

import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..check import POOL, CheckPlan, draws
from ..model import CacheMode, Case, CheckResult, Launch, Measurement, Protocol, Role, Status, Trust
from ..stats import median_ci
from ..toolchain import Compiled
from ..workload import Workload
from .client import KERNEL_S, WorkerHandle
from .exchange import Exchange, view
from .faults import WorkerFault
from .library import VendorWorker
from .watch import Outcome, Watch
from .workers import Workers

_UPLOAD_BYTES_PER_S = 5e8  # a pessimist's rate, to stretch the time limit by
_LOADED = 1024  # modules: a whole space stays loaded while it is recorded
_TRIES = 3
_PAUSE_S = 0.5


@dataclass(frozen=True)
class Code:
    """A compiled candidate, ready to run. `key` is unique for its module; `launches` by case name."""

    key: str
    variant: str
    compiled: Compiled
    launches: Mapping[str, tuple[Launch, ...]] = field(default_factory=dict)

    def wire(self, case: Case) -> list[list[Any]]:
        """Its launches as a worker takes them, kernels by symbol."""
        return [
            [self.compiled.entries[x.entry], list(x.grid), list(x.block), x.shared]
            for x in self.launches[case.name]
        ]


class Session:
    """Runs candidates of one workload in workers.

    Args:
        workers: of its GPU.
        workload: whose arguments.
        plan: inputs and verdicts.
        watch: brackets every measurement.
        vendor: times the vendor's library; None: there is none.
        kernel_s: time limit of one kernel, in seconds.
    """

    def __init__(
        self,
        workers: Workers,
        workload: Workload,
        plan: CheckPlan,
        watch: Watch,
        *,
        vendor: VendorWorker | None = None,
        kernel_s: float = KERNEL_S,
    ) -> None:
        self._pool = workers
        self._workload = workload
        self._plan = plan
        self._watch = watch
        self._kernel_s = kernel_s
        self._reader = ThreadPoolExecutor(1, "warpdeck-nvml")
        self._exchange = Exchange()
        self._numbers: dict[str, int] = {}  # case name -> number, for file names
        self._warm: WorkerHandle | None = None
        self._vendor = vendor
        self._workers: dict[int, WorkerHandle] = {}  # that were taken here, by process id
        self._loaded: dict[int, OrderedDict[str, None]] = {}  # by worker's process id, oldest first

    # -- workers -----------------------------------------------------------------------------------

    def warm(self) -> WorkerHandle:
        """The worker that trusted candidates share; a new one if it ended."""
        if self._warm is None or not self._warm.alive:
            self._warm = self.fresh()
        return self._warm

    def fresh(self) -> WorkerHandle:
        """A new worker, for one use; `retire` it."""
        handle = self._pool.take()
        self._workers[handle.pid] = handle
        return handle

    def retire(self, handle: WorkerHandle | None) -> None:
        """End a worker and forget what it held. It ends behind the scenes: see `Workers.end`."""
        if handle is None:
            return
        self._loaded.pop(handle.pid, None)
        if handle is self._warm:
            self._warm = None
        if self._workers.pop(handle.pid, None) is not None:
            self._pool.end(handle)

    def renew(self) -> None:
        """End the warm worker; the next use gets a new one."""
        self.retire(self._warm)

    def timing(self) -> AbstractContextManager[None]:
        """While something is timed: no worker starts or ends."""
        return self._pool.timing()

    def clock(self) -> float:
        """Seconds, for differences. It stands still while `timing` waits: that is no part of measuring."""
        return time.perf_counter() - self._pool.waited_s

    # -- what a worker needs -----------------------------------------------------------------------

    def draws(self, case: Case) -> tuple[int, ...]:
        """Numbers of the input draws in use for a case."""
        return draws(self._workload, case)

    def limit_s(self, case: Case) -> float:
        """Longest silence of a worker on a case: a kernel's limit, and time to upload its inputs."""
        return self._kernel_s + self._workload.total_bytes(case) * 2 / _UPLOAD_BYTES_PER_S

    def payload(self, handle: WorkerHandle, code: Code, case: Case) -> dict[str, Any]:
        """Load the code and bind the case, once each; what every job on them needs."""
        self.load(handle, code)
        self.bind(handle, case)
        foreign = self._workload.trust_of(code.variant) in (Trust.GENERATED, Trust.REMOTE)
        return {"code": code.key, "key": case.name, "launches": code.wire(case), "poison": foreign}

    def load(self, handle: WorkerHandle, code: Code) -> None:
        """Load a module; the oldest goes when there are many."""
        known = self._loaded.setdefault(handle.pid, OrderedDict())
        if code.key in known:
            known.move_to_end(code.key)
            return
        compiled = code.compiled
        handle.load(code.key, compiled.cubin, list(compiled.entries.values()), compiled.language)
        known[code.key] = None
        if len(known) > _LOADED:
            handle.unload(known.popitem(last=False)[0])

    def bind(self, handle: WorkerHandle, case: Case) -> None:
        """Tell a worker about a case's buffers and inputs."""
        if case.name in handle.bound:
            return
        outputs = {name: {"path": str(path), "offset": 0} for name, path in self._files(case).items()}
        handle.bind(case.name, {**self.describe(case, self.draws(case)), "outputs": outputs})

    def describe(self, case: Case, draws: Sequence[int]) -> dict[str, Any]:
        """A case's `arguments`, and where the inputs of some draws lie: `seeds`. For `buffers.Binding`."""
        shapes, scalars = self._workload.shapes(case), self._workload.scalars(case)
        arguments: list[dict[str, Any]] = []
        for a in self._workload.arguments:
            item: dict[str, Any] = {"name": a.name, "kind": a.kind, "dtype": a.dtype}
            if a.kind == "scalar":
                item |= {"value": scalars[a.name], "language": a.language}
            else:
                nbytes = math.prod(shapes[a.name]) * np.dtype(a.dtype).itemsize
                item |= {"direction": a.direction, "shape": list(shapes[a.name]), "nbytes": nbytes}
            arguments.append(item)
        return {"arguments": arguments, "seeds": {draw: self._inputs(case, draw) for draw in draws}}

    def _files(self, case: Case) -> dict[str, Path]:
        number = self._numbers.setdefault(case.name, len(self._numbers))
        shapes = self._workload.shapes(case)
        return {
            a.name: self._exchange.allocate(
                f"out{number}-{a.name}", math.prod(shapes[a.name]) * np.dtype(a.dtype).itemsize
            )
            for a in self._workload.arguments
            if a.is_output
        }

    # -- jobs --------------------------------------------------------------------------------------

    def call(self, handle: WorkerHandle, job: str, payload: dict[str, Any], case: Case) -> dict[str, Any]:
        """A job on a case. Out of memory, it is tried again without the other cases' buffers."""
        try:
            return handle.call(job, payload, self.limit_s(case))
        except WorkerFault as fault:
            others = handle.bound - {case.name}
            if fault.status is not Status.OUT_OF_MEMORY or fault.fatal:
                raise
            for key in (*others, case.name):
                handle.release(key)
            self.bind(handle, case)
            if "seed" in payload:
                self._offer(handle, case, payload["seed"])
            return handle.call(job, payload, self.limit_s(case))

    def check(self, handle: WorkerHandle, code: Code, case: Case, draw: int) -> CheckResult:
        """Run once on a draw and judge the outputs. Raises WorkerFault."""
        payload = self.payload(handle, code, case)
        self._offer(handle, case, draw)
        answer = self.call(handle, "run", {**payload, "seed": draw}, case)
        return self._judge(code, case, draw, answer)

    def trace(
        self, handle: WorkerHandle, code: Code, case: Case, draw: int, job: Mapping[str, Any]
    ) -> tuple[dict[str, Any], CheckResult, dict[str, Path]]:
        """One traced launch, its outputs judged. `job["bytes"]`: sizes of the files that come back, by name.

        Raises WorkerFault, WarpdeckError where there is no room for the files.
        """
        files = {name: self._exchange.allocate(f"trace-{name}", n) for name, n in job["bytes"].items()}
        payload = {**self.payload(handle, code, case), **job, "seed": draw}
        payload["files"] = {name: str(path) for name, path in files.items()}
        self._offer(handle, case, draw)
        with self.timing():
            answer = self.call(handle, "trace", payload, case)
        return answer, self._judge(code, case, draw, answer), files

    def _offer(self, handle: WorkerHandle, case: Case, draw: int) -> None:
        """Let a worker have a draw that isn't among those it was bound with."""
        if draw not in self.draws(case):
            handle.call("seed", {"key": case.name, "seed": draw, "inputs": self._inputs(case, draw)})

    def _inputs(self, case: Case, draw: int) -> dict[str, dict[str, Any]]:
        """Where a draw's inputs lie, by argument."""
        arrays = self._plan.inputs(case, draw)
        return {name: {"path": str(array.filename), "offset": 0} for name, array in arrays.items()}

    def _judge(self, code: Code, case: Case, draw: int, answer: Mapping[str, Any]) -> CheckResult:
        if answer["damage"] is not None:
            return CheckResult(case.name, case.role, Status.INCORRECT, str(answer["damage"]))
        shapes = self._workload.shapes(case)
        outputs = {
            name: view(path, shapes[name], self._workload.argument(name).dtype)
            for name, path in self._files(case).items()
        }
        # Not the plan's workload: sources may have come to this one since the plan was begun.
        return self._plan.verify(case, draw, outputs, self._workload.tolerance_of(code.variant, case))

    def pair(
        self,
        handle: WorkerHandle,
        code: Code,
        parts: Sequence[tuple[dict[str, Any], Case]],
    ) -> tuple[list[dict[str, Any]], tuple[str, ...], CheckResult | None]:
        """Interleave two candidates: answers and labels of `watched`, and the first wrong verdict on outputs
        of the second (`code`), if they were asked for. Raises WorkerFault."""
        judged: list[CheckResult] = []

        def judge(answers: Sequence[dict[str, Any]]) -> None:
            judged[:] = [
                self._judge(code, case, int(answer["seed"]), answer)
                for (_, case), answer in zip(parts, answers, strict=True)
                if "seed" in answer
            ]

        answers, labels = self.watched(handle, "pair", parts, meanwhile=judge)
        return answers, labels, next((found for found in judged if found.status is not Status.OK), None)

    def time(
        self, handle: WorkerHandle, code: Code, cases: Sequence[Case], protocol: Protocol
    ) -> tuple[list[Measurement], CheckResult | None]:
        """Measure on every case, and judge the outputs of launches that the kernel couldn't predict: the
        first wrong verdict, if there is one.

        Raises WorkerFault; its status is `throttled` if the GPU was disturbed in all of three tries.
        """
        asked = protocol.to_json()
        parts = [({**self.payload(handle, code, case), "protocol": asked}, case) for case in cases]
        judged: list[CheckResult] = []

        def judge(answers: Sequence[dict[str, Any]]) -> None:
            judged[:] = [
                self._judge(code, case, int(answer["seed"]), answer)
                for case, answer in zip(cases, answers, strict=True)
            ]

        answers, labels = self.watched(handle, "time", parts, meanwhile=judge)
        wrong = next((found for found in judged if found.status is not Status.OK), None)
        if wrong is not None:
            reason = f"wrong in a timed launch although right before: {wrong.reason}"
            return [], CheckResult(wrong.case, wrong.role, wrong.status, reason, wrong.max_error)
        zipped = zip(cases, answers, strict=True)
        return [measurement(case, protocol.cache, answer, labels) for case, answer in zipped], None

    def watched(
        self,
        handle: WorkerHandle,
        job: str,
        parts: Sequence[tuple[dict[str, Any], Case]],
        *,
        meanwhile: Callable[[Sequence[dict[str, Any]]], None] = lambda answers: None,
    ) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
        """A measuring job on one or more cases (payload, case), between two readings of NVML. All of it is
        discarded and repeated when it was disturbed.

        `meanwhile` gets the answers while NVML is read: that takes as long as to judge some outputs.
        """
        outcome = Outcome()
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_S * 4 ** (attempt - 1))
            with self.timing():
                self._watch.before(self._pool.pids())
                answers = []
                for payload, case in parts:
                    self.bind(handle, case)  # an earlier one, short of memory, may have freed it
                    answers.append(self.call(handle, job, payload, case))
                after = self._reader.submit(self._watch.after, self._pool.pids())
                meanwhile(answers)
                outcome = after.result()
            if not outcome.spoiled:
                return answers, outcome.labels
        hint = "; stop it, or measure with --allow-shared" if outcome.shared else ""
        raise WorkerFault(Status.THROTTLED, f"disturbed {_TRIES} times: {', '.join(outcome.spoiled)}{hint}")

    def time_vendor(self, case: Case, protocol: Protocol) -> Measurement:
        """The vendor library's time; waits until the library is imported. Raises WorkerFault."""
        if self._vendor is None:
            raise WorkerFault(Status.UNSUPPORTED, "no vendor time: nothing here can measure it")
        handle = self._vendor.handle(self._workload.folder / "reference.py", self)
        for other in handle.bound - {case.name}:
            handle.release(other)
        self.bind(handle, case)
        payload = {"key": case.name, "protocol": protocol.to_json()}
        (answer,), labels = self.watched(handle, "vendor", [(payload, case)])
        return measurement(case, protocol.cache, answer, labels)

    def any_draw(self, case: Case) -> int:
        """An unpredictable draw for a check; on a correctness case also a partly changed one."""
        if case.role is Role.CORRECTNESS:
            return secrets.randbelow(2 * POOL)
        return secrets.choice(self.draws(case))

    def close(self) -> None:
        """End every worker that was taken here and remove the shared files."""
        for handle in list(self._workers.values()):
            self.retire(handle)
        self._reader.shutdown()
        self._exchange.close()


def measurement(
    case: Case, cache: CacheMode, answer: Mapping[str, Any], labels: Sequence[str] = ()
) -> Measurement:
    """A `time` or `vendor` job's answer as a measurement. Raises WorkerFault if it isn't one."""
    samples = np.asarray(answer["samples_ms"], dtype=np.float64)
    if samples.ndim != 1 or samples.size == 0 or not np.all(np.isfinite(samples)) or np.any(samples < 0):
        raise WorkerFault(Status.RUNTIME_ERROR, "the worker gave impossible times", fatal=True)
    return Measurement(
        case=case.name,
        cache=cache,
        clock=str(answer["clock"]),
        samples_ms=samples,
        sm_clock_mhz=answer.get("sm_clock_mhz"),
        throttle=tuple(labels),
        event_floor_ms=answer.get("event_floor_ms"),
        ci95_ms=median_ci(samples),
    )
