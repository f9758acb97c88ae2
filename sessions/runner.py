"""The run process (`process` is its entry point): does what the sessions of some folders ask for, in turn.

It opens the device (once for all of them), runs the agent on the bench, and logs everything. SIGTERM and
SIGINT stop it between two steps; a second signal (or one while the result is measured) stops it at once.
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from ..agents import registry
from ..agents.base import Context, Control, Limited, OutOfTime, SearchReport, Stop, search, step_of
from ..agents.primed import Primed
from ..core import sandbox
from ..core.bench import Bench, performance_cases
from ..core.devices.base import Device
from ..core.devices.cpu import slow_warning
from ..core.devices.recorded import RecordedBackend
from ..core.errors import ExitCode, UsageError, WarpdeckError
from ..core.model import Evaluation, Trust
from ..kernels.imported import open_workload
from ..telemetry.sampler import Sampler
from . import facts, paths
from .alive import RunLock
from .budgets import ALL_STEPS
from .devices import SharedDevice
from .events import AGENT_KINDS, Kind, Lifecycle
from .explain import explain
from .log import LogWriter, RunControl
from .process import move_to
from .report import write_artifacts
from .spec import RunSpec
from .state import RunState
from .store import SessionStore

SWITCH_S = 5e-4  # between threads: who measures doesn't wait for those that compute inputs and write the log


class Terminated(BaseException):
    """Raised in the main thread by a signal that can't wait for the next step."""


def run_session(folder: str | Path, *, signals: bool = False) -> ExitCode:
    """Run (or go on with) a session in this process and return what to exit with.

    Args:
        folder: The session's folder; its header holds the RunSpec.
        signals: Stop on SIGTERM and SIGINT; only in a main thread that has nothing else to do.

    Raises:
        UsageError: no readable session there, or another process runs it.
    """
    return run_sessions([folder], signals=signals)


def run_sessions(folders: Sequence[str | Path], *, signals: bool = False) -> ExitCode:
    """Run sessions one after the other, on one device if they ask for the same one.

    The first that doesn't end with `ok` ends them all: those behind it have no event, and can be resumed.
    Args and errors as of `run_session`.
    """
    paths_of = [Path(folder).absolute() for folder in folders]
    specs = [_spec(folder) for folder in paths_of]  # a lock is only put into a session
    locks: list[RunLock] = []
    code = ExitCode.OK
    try:
        for folder in paths_of:
            locks.append(RunLock.acquire(folder))
        with SharedDevice(specs) as device:
            for folder in paths_of:
                if signals and folder is not paths_of[0]:
                    move_to(folder)
                code = _run_locked(folder, locks, device, signals=signals)
                locks.pop(0).release()
                if code is not ExitCode.OK:
                    break
        return code
    finally:
        for lock in locks:
            lock.release()


def _spec(folder: Path) -> RunSpec | None:
    """What a session asks for; None for what only its own run can say is wrong."""
    with SessionStore.open(folder) as store, suppress(UsageError):
        return RunSpec.from_json(store.header().get("spec") or {})
    return None


def _run_locked(folder: Path, locks: Sequence[RunLock], device: SharedDevice, *, signals: bool) -> ExitCode:
    """Run one session, whose lock is the first of those held."""
    with ExitStack() as stack:
        # Not before: another process may have written up to this moment.
        store = stack.enter_context(SessionStore.open(folder, writable=True))
        before = store.state()
        if before.seq and not before.lifecycle.final:
            store.append(Kind.STATE, {"state": Lifecycle.INTERRUPTED, "reason": "its process died"})
        log = LogWriter(store)
        control = RunControl(store, log, locks[0], locks[1:])
        run = _Run(store, log, control, before, device)
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, run.on_signal)
        code = ExitCode.RUN_FAILED
        try:
            code = run.execute()
        finally:
            control.close()
            try:
                log.close()
            except WarpdeckError as error:
                print(f"warpdeck: {error}", file=sys.stderr)
                code = ExitCode.RUN_FAILED
        return code


class _Run:
    """One process' share of a session."""

    def __init__(
        self,
        store: SessionStore,
        log: LogWriter,
        control: RunControl,
        before: RunState,
        device: SharedDevice,
    ) -> None:
        self._store = store
        self._device = device
        self._log = log
        self._control = control
        self._before = before
        self._searching = False
        self._signals = 0

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """The first signal asks for the end of the step; a second one doesn't ask."""
        self._signals += 1
        if self._signals > 1 or not self._searching or self._control.stop_reason is not None:
            raise Terminated(signal.Signals(number).name)
        self._control.stop_soon(f"stopped by {signal.Signals(number).name}")

    def execute(self) -> ExitCode:
        """Run to one of the ends; each is logged as the last state."""
        state, code, reason = Lifecycle.FAILED, ExitCode.RUN_FAILED, ""
        try:
            state, code, reason = self._run()
        except (Terminated, KeyboardInterrupt) as stop:
            state, code = Lifecycle.CANCELLED, ExitCode.INTERRUPTED
            reason = f"stopped at once by {stop or 'SIGINT'}"
        except WarpdeckError as error:
            code, reason = error.exit_code, str(error)
            with suppress(WarpdeckError):  # what was found, and paid for, before it failed
                self._log.flush()
                self._write_artifacts(state, reason)
        except Exception as error:  # noqa: BLE001 - the session must say how it ended, whatever happened
            reason = f"unexpected {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            self._keep_traceback()
        self._end(state, code, reason)
        return code

    def _end(self, state: Lifecycle, code: ExitCode, reason: str) -> None:
        if state is Lifecycle.FAILED:
            print(f"warpdeck: {reason}", file=sys.stderr)
        with suppress(WarpdeckError):  # a log that can't be written was told on stderr by then
            if state is Lifecycle.FAILED:
                self._log.sink(Kind.MESSAGE, {"level": "error", "text": reason})
            self._log.sink(Kind.STATE, {"state": state, "reason": reason, "exit_code": int(code)})
            self._log.flush()

    def _keep_traceback(self) -> None:
        text = traceback.format_exc()
        print(text, file=sys.stderr)
        with suppress(OSError, WarpdeckError):
            path = self._store.folder / paths.ARTIFACTS / "traceback.txt"
            path.write_text(text)
            self._log.sink(Kind.ARTIFACT, {"name": "traceback", "path": f"{paths.ARTIFACTS}/{path.name}"})

    def _run(self) -> tuple[Lifecycle, ExitCode, str]:
        resumed = self._before.seq > 0
        self._log.sink(Kind.STATE, {"state": Lifecycle.RUNNING, "reason": "resumed" if resumed else ""})
        spec = RunSpec.from_json(self._store.header().get("spec") or {})
        sandbox.allow_unsandboxed(spec.allow_unsandboxed)
        control: Control = self._control
        if spec.parts is not None:
            from .authoring import whole  # which takes a while to import, and few runs need it

            control = self._limit(spec)  # it covers what the model writes first
            try:
                spec = whole(self._store, spec, replace(self._context(), control=control))
            except Stop as stop:
                ending = Lifecycle.CANCELLED, ExitCode.INTERRUPTED, self._control.stop_reason or "stopped"
                if isinstance(stop, OutOfTime):
                    reason = "the time limit ended it before the workload was written"
                    ending = Lifecycle.FINISHED, ExitCode.BUDGET, reason
                self._log.flush()
                self._write_artifacts(ending[0], ending[2])
                return ending
        with ExitStack() as stack:
            stack.push(self._leave_device)
            device = self._device.open(spec)
            sampler = self._device.sampler(self._sample, lambda text: self._message("warning", text))
            stack.callback(sampler.tell, lambda snapshot: None)
            try:
                bench = self._bench(spec, device, sampler)
            except Stop:
                return Lifecycle.CANCELLED, ExitCode.INTERRUPTED, self._control.stop_reason or "stopped"
            stack.callback(bench.close)
            told = self._restore(bench)
            self._start(spec, bench)
            if not bench.device.recorded:
                sampler.start()
            report = self._search(spec, bench, told, control)
            self._log.flush()
            if report.reason != "stopped":
                result = bench.finish(spec.finalists)
                if spec.explain:
                    self._log.flush()
                    with sampler.paused():
                        for name, path in explain(bench, result, self._store.folder, self._message):
                            self._log.sink(Kind.ARTIFACT, {"name": name, "path": path})
                self._device.make_ready()
        self._log.flush()
        ending = self._verdict(report, self._store.state())
        self._write_artifacts(ending[0], ending[2])
        self._device.left()
        return ending

    def _write_artifacts(self, ending: Lifecycle, reason: str) -> None:
        """The outputs, which say how the run ends; the log says so once they are there."""
        state = replace(self._store.state(), lifecycle=ending, reason=reason)
        if state.info is not None or any(self._store.events(kinds=[Kind.REQUEST])):
            for name, path in write_artifacts(self._store, state, self._message):
                self._log.sink(Kind.ARTIFACT, {"name": name, "path": path})

    def _leave_device(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A run that has ended, or failed, holds no GPU, unless the next one follows at once."""
        if kind is None:
            self._device.leave()
        else:
            self._device.close()

    def _verdict(self, report: SearchReport, state: RunState) -> tuple[Lifecycle, ExitCode, str]:
        if report.reason == "stopped":
            return Lifecycle.CANCELLED, ExitCode.INTERRUPTED, self._control.stop_reason or "stopped"
        found = state.best is not None or bool((state.result or {}).get("best"))
        if not found and not state.counts and report.reason == "time":
            return Lifecycle.FINISHED, ExitCode.BUDGET, "the time limit ended it before anything was measured"
        if not found:
            failures = ", ".join(f"{count} {status}" for status, count in state.counts.items())
            return Lifecycle.FAILED, ExitCode.RUN_FAILED, f"no configuration worked ({failures})"
        if report.reason == "time":
            return Lifecycle.FINISHED, ExitCode.BUDGET, "the time limit ended it"
        if report.reason == "budget":
            return Lifecycle.FINISHED, ExitCode.BUDGET, report.detail
        return Lifecycle.FINISHED, ExitCode.OK, report.detail

    def _bench(self, spec: RunSpec, device: Device, sampler: Sampler) -> Bench:
        workload = open_workload(spec.workload)
        if spec.reference_limit_s is not None:
            workload = replace(workload, reference_limit_s=spec.reference_limit_s)
        return Bench(
            workload,
            device,
            space=spec.space,
            cases=performance_cases(workload, spec.sizes, device.info),
            protocol=spec.protocol,
            seed=self._device.seed,
            sink=self._log.sink,
            allow_shared=spec.allow_shared,
            quiet=sampler.paused,
            alive=self._control.check,
        )

    def _limit(self, spec: RunSpec) -> Control:
        """The run's control, with what is left of its time limit from now on."""
        if spec.time_limit_s is None:
            return self._control
        return Limited(self._control, max(spec.time_limit_s - self._before.active_s, 0.0))

    def _search(self, spec: RunSpec, bench: Bench, told: list[Evaluation], control: Control) -> SearchReport:
        control = self._limit(spec) if control is self._control else control
        context = replace(self._context(), control=control)
        strategy = registry.make(spec.agent, bench, seed=spec.seed, options=spec.options, context=context)
        if registry.agent_spec(spec.agent).writes_code:
            self._device.expect_sources(strategy.lookahead)
        if spec.first:
            strategy = Primed(strategy, spec.first, bench.space)
        self._searching = True
        try:
            return search(
                bench,
                strategy,
                steps=spec.steps,
                control=control,
                sink=self._log.sink,
                told=[(proposal_of(evaluation, spec), evaluation) for evaluation in told],
            )
        finally:
            self._searching = False

    def _context(self) -> Context:
        """What the agent gets beside the bench."""
        past = [(event.kind, event.data) for event in self._store.events(kinds=AGENT_KINDS)]
        return Context(self._store.folder, self._log.sink, self._log.flush, self._control, past)

    # -- going on ----------------------------------------------------------------------------------------

    def _restore(self, bench: Bench) -> list[Evaluation]:
        """Hand the bench what an earlier process measured, and log the step that it died before logging."""
        info = self._before.info
        if info is None:
            return []
        self._refuse_other_device(bench)
        registry.prepare(info.agent, bench, self._context())
        logged = {kind: self._logged(kind) for kind in (Kind.BASELINE, Kind.EVALUATION)}
        told = logged[Kind.EVALUATION]
        sources = {variant.source_hash for variant in bench.workload.variants.values()}
        for evaluation in (*logged[Kind.BASELINE], *told):
            if evaluation.candidate.source_hash not in sources:
                raise UsageError(
                    f"session {self._store.id}: the source of variant '{evaluation.candidate.variant}' has "
                    "changed since; its results would not be comparable: start a new run"
                )
        bench.restore(logged[Kind.BASELINE], told)
        speedups = [bench.speedup(evaluation) for evaluation in told] if logged[Kind.BASELINE] else []
        for number in range(self._before.step, len(speedups)):  # usually none, at most one
            known = [speedup for speedup in speedups[: number + 1] if speedup is not None]
            self._log.sink(
                Kind.STEP, step_of(number + 1, told[number], speedups[number], max(known, default=None))
            )
        return told

    def _logged(self, kind: Kind) -> list[Evaluation]:
        found = []
        for event in self._store.events(kinds=[kind]):
            try:
                found.append(Evaluation.from_json(event.data))
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                raise UsageError(
                    f"session {self._store.id} is damaged: event {event.seq} ({kind}): {error}"
                ) from None
        return found

    def _refuse_other_device(self, bench: Bench) -> None:
        was, now = self._before.info and self._before.info.device, bench.device
        if was and (was.name, was.recorded, was.uuid, was.date) != (
            now.name,
            now.recorded,
            now.uuid,
            now.date,
        ):
            raise UsageError(
                f"session {self._store.id} was measured on {was.label}, which is not {now.label}: "
                "start a new run there"
            )

    # -- what the log begins with ------------------------------------------------------------------------

    def _start(self, spec: RunSpec, bench: Bench) -> None:
        """Log the `start` event; a resumed run repeats its first one with what was asked for now."""
        steps: int | None = spec.steps
        if not registry.agent_spec(spec.agent).needs_context:
            # No agent evaluates a configuration twice, so a space may end before the budget does.
            steps = min(spec.steps, len(bench.configs()))
        elif spec.steps >= ALL_STEPS:
            steps = None  # an agent of sources ends with them; the space is that of its first one only
        budget = {"steps": steps, "time_limit_s": spec.time_limit_s}
        if self._before.info is not None:
            self._log.sink(Kind.START, {**self._before.info.data, **budget})
            return
        device, workload, header = bench.device, bench.workload, self._store.header()
        versions = facts.versions()
        self._store.set_header(
            {
                "device": device.to_json(),
                "gpu": {"name": device.name, "uuid": device.uuid},
                "driver": device.driver,
                "clocks": {"sm_max_mhz": device.sm_clock_max_mhz},
                "toolchain": versions,
                "git": facts.git_revision(workload.folder),
            }
        )
        if (device.recorded or device.emulated) and spec.device == "auto":
            self._message("info", f"no CUDA GPU here; {device.label}")
        notes = self._cautions(spec, bench)
        self._log.sink(
            Kind.START,
            {
                "workload": workload.name,
                "agent": spec.agent,
                "seed": spec.seed,
                "space": spec.space,
                "origins": dict(workload.origins),
                "from": spec.origin,
                "cases": [{"name": case.name, "params": dict(case.params)} for case in bench.cases],
                "device": device.to_json(),
                "protocol": _protocol(bench),
                "notes": notes,
                **budget,
                "command": header.get("command"),
                "versions": versions,
                "baseline": dict(bench.baseline_candidate.config),
                "knobs": {name: list(values) for name, values in bench.space.knobs.items()},
                "total_configs": len(bench.configs()),
                "known": _known(bench),
                "floors": bench.floors(),
                "launch_floor_ms": device.launch_floor_ms,
            },
        )
        if bench.vendor_ready:  # else as soon as it is, between two evaluations
            bench.vendor()

    def _cautions(self, spec: RunSpec, bench: Bench) -> list[str]:
        """Say what a reader of the numbers should know; what belongs to every result is returned."""
        workload, backend = bench.workload, bench.backend
        slow = slow_warning(workload, bench.cases) if bench.device.emulated else None
        if slow is not None:
            self._message("warning", slow)
        notes: list[str] = []
        trusts = {workload.trust, *(variant.trust for variant in workload.variants.values())}
        if spec.agent == "llm" or trusts & {Trust.GENERATED, Trust.REMOTE}:
            isolation = sandbox.record()
            self._store.set_header({"sandbox": isolation})
            if not isolation["isolated"]:
                notes.append("code of others runs without a sandbox here")
                self._message("warning", notes[-1])
        if workload.generated_reference:
            checks = workload.origins.get("checks", "nothing cross-checked it")
            notes.append(f"generated reference ({workload.generated_reference}): {checks}")
            self._message("warning", notes[-1])
        if isinstance(backend, RecordedBackend):
            if backend.stale:
                cases = ", ".join(backend.stale)
                self._message(
                    "warning", f"recorded from another version of the kernel's source: case {cases}"
                )
            notes += backend.notes
            for text in backend.notes:
                self._message("info", text)
            if backend.nvml:
                self._log.sink(Kind.SAMPLE, backend.nvml)
        return notes

    def _sample(self, snapshot: Any) -> None:
        with suppress(WarpdeckError):  # the run's own events will say so
            self._log.sink(Kind.SAMPLE, snapshot.to_json())

    def _message(self, level: str, text: str) -> None:
        self._log.sink(Kind.MESSAGE, {"level": level, "text": text})


def proposal_of(evaluation: Evaluation, spec: RunSpec) -> Any:
    """What the agent had asked for: a candidate, if it works on more than one space."""
    candidate = evaluation.candidate
    return candidate if registry.agent_spec(spec.agent).needs_context else candidate.config


def _protocol(bench: Bench) -> dict[str, Any]:
    """How times were measured; of a recording what its file tells, whatever was asked for now."""
    if isinstance(bench.backend, RecordedBackend):
        return {"cache": str(bench.protocol.cache), **bench.backend.protocol}
    return bench.protocol.to_json()


def _known(bench: Bench) -> dict[str, Any] | None:
    """What a recording knows of the whole space, for readers of the log: no agent sees it."""
    if not isinstance(bench.backend, RecordedBackend):
        return None
    scores = bench.backend.scores(bench.configs(), bench.cases, bench.protocol.cache)
    times = sorted(round(score, 9) for score in scores if score is not None)
    return {"ms": times, "failed": len(scores) - len(times)}


def main(folders: Sequence[str]) -> int:
    """What `process` does; the messages of stderr go to the session's run.log."""
    if not folders:
        print("usage: python -m warpdeck.sessions.process SESSION_FOLDER...", file=sys.stderr)
        return ExitCode.USAGE
    sys.setswitchinterval(SWITCH_S)
    try:
        return run_sessions(folders, signals=True)
    except WarpdeckError as error:
        print(f"warpdeck: {error}", file=sys.stderr)
        return error.exit_code
    except Terminated:
        return ExitCode.INTERRUPTED
