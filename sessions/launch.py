"""Start, resume and stop the process of a run, from any console."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..agents import registry
from ..agents.llm.settings import LlmSettings, check_ready
from ..core.bench import performance_cases
from ..core.errors import ExitCode, UsageError, WarpdeckError
from ..core.workload import Workload
from ..kernels.assemble import assemble, derived, missing, refusal
from ..kernels.imported import open_workload
from ..kernels.loader import is_foreign, list_workloads
from ..kernels.parts import Parts
from . import alive, facts, paths, process
from .events import Kind, Lifecycle
from .process import LOG
from .spec import RunSpec
from .store import SessionStore
from .tail import send

WORKLOAD = "workload"  # among the artifacts: the folder of a workload made of parts


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Launched:
    """A run whose process was started here. It outlives this one.

    `following`: the sessions that the same process runs after this one, if it ends well.
    """

    folder: Path
    process: subprocess.Popen[bytes]
    following: tuple[Path, ...] = ()

    @property
    def session(self) -> str:
        """The session's id."""
        return self.folder.name

    def wait(self, timeout_s: float | None = None) -> ExitCode:
        """What the run ended with, once it has ended; RUN_FAILED if it was killed. Raises TimeoutError."""
        if self.following:
            with SessionStore.open(self.folder) as store:
                ended = store.state().exit_code
            if ended == ExitCode.OK:  # else the process ends with it
                return ExitCode.OK
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"session {self.session} still runs") from None
        return ExitCode(code) if code in list(ExitCode) else ExitCode.RUN_FAILED

    def last_words(self) -> str | None:
        """The last line the process printed; why it failed, where its session couldn't say so."""
        try:
            lines = (self.folder / LOG).read_text(errors="replace").split("\n")
        except OSError:
            return None
        said = [line.strip().removeprefix("warpdeck: ") for line in lines if line.strip()]
        return said[-1] if said else None


def check(spec: RunSpec) -> Workload:
    """Refuse what can be refused without opening a device: names, sizes, an empty space.

    Returns the workload. Raises UsageError.
    """
    workload = open_workload(spec.workload)
    if workload.recorded and not spec.device.startswith("recorded:"):
        raise UsageError(
            f"{spec.workload} was imported; it holds no kernel: --device recorded:{spec.workload}"
        )
    check_agent(spec)
    if spec.agent == "ladder" and not workload.ladder():
        raise UsageError(f"workload '{workload.name}' has no ladder; use another agent, for example llm")
    space = workload.space(spec.space)
    for case in performance_cases(workload, spec.sizes):
        if not space.any_valid(case.params):
            raise UsageError(
                f"workload '{workload.name}', space '{space.name}': no configuration satisfies the "
                f"restrictions for size {case.name}"
            )
    return workload


def check_agent(spec: RunSpec) -> None:
    """Refuse an agent's bad options, a missing extra, and a device that can't run what it tries.

    Raises UsageError.
    """
    registry.settings(spec.agent, spec.options)
    if spec.agent == "ppo":
        registry.require_rl()
    if spec.agent == "llm":
        check_ready(LlmSettings.from_options(spec.options))
    if registry.agent_spec(spec.agent).needs_context and spec.device.startswith("recorded:"):
        raise UsageError(
            f"agent '{spec.agent}' runs sources, which a recording can't: --device cuda:0, or cpu (emulated)"
        )


def create(
    spec: RunSpec,
    *,
    name: str | None = None,
    sessions: Path | None = None,
    parts: Parts | None = None,
    into: Path | None = None,
) -> SessionStore:
    """A new session that waits to be run. Raises as `check`, `assemble` and `SessionStore.create`."""
    if parts is not None:
        return _create_assembled(spec, parts, name, sessions, into)
    workload = check(spec)
    spec = spec.absolute(workload)
    session_id = paths.new_id(workload.name, spec.agent) if name is None else name
    header = _header(spec, workload.name)
    return SessionStore.create(sessions or paths.home().sessions, session_id, header)


def _header(spec: RunSpec, workload: str) -> dict[str, Any]:
    return {
        "spec": spec.to_json(),
        "workload": workload,
        "agent": spec.agent,
        "seed": spec.seed,
        "command": facts.command_line(),
    }


def _create_assembled(
    spec: RunSpec, parts: Parts, name: str | None, sessions: Path | None, into: Path | None
) -> SessionStore:
    """A session whose workload is made of parts: whole now, or by its agent before anything else."""
    check_agent(spec)
    parts = derived(parts)
    lacking = missing(parts)
    if lacking and spec.agent != "llm":
        raise refusal(lacking)
    title = parts.name or "workload"
    session_id = paths.new_id(re.sub(r"[^\w.-]+", "-", title), spec.agent) if name is None else name
    store = SessionStore.create(sessions or paths.home().sessions, session_id, _header(spec, title))
    folder = (into or store.folder / paths.ARTIFACTS / WORKLOAD).absolute()
    try:
        if lacking:
            spec = replace(spec, workload=str(folder), parts=parts.to_json())
        else:
            assemble(parts, folder)
            spec = replace(spec, workload=str(folder))
            check(spec)
    except WarpdeckError:
        store.close()
        shutil.rmtree(store.folder, ignore_errors=True)
        raise
    store.set_header({"spec": spec.to_json()})
    return store


def launch_run(
    spec: RunSpec,
    *,
    name: str | None = None,
    sessions: Path | None = None,
    parts: Parts | None = None,
    into: Path | None = None,
    starting: Callable[[], None] = _nothing,
) -> Launched:
    """Create a session and start its process.

    Args:
        spec: What to run.
        name: The session's id; made from workload, agent and time if None.
        sessions: Folder of sessions; the home's if None.
        parts: What its workload is made of, instead of the spec's.
        into: Folder for that workload; None: in the session.
        starting: Called just before the process is started: from then on it must not be left behind.

    Raises:
        UsageError: an unknown name, an impossible value, or a session of that name exists.
        WarpdeckError: the disk can't be written, or no process can be started.
    """
    store = create(spec, name=name, sessions=sessions, parts=parts, into=into)
    store.close()
    return _spawn(store.folder, device=spec.device, starting=starting)


def launch_runs(
    specs: Sequence[RunSpec], *, sessions: Path | None = None, starting: Callable[[], None] = _nothing
) -> list[Launched]:
    """Create a session for each spec and start one process that runs them in turn, on one device.

    Raises as `launch_run`.
    """
    folders = []
    for spec in specs:
        with create(spec, sessions=sessions) as store:
            folders.append(store.folder)
    first = _spawn(*folders, device=specs[0].device, starting=starting)
    return [Launched(folder, first.process, tuple(folders[n + 1 :])) for n, folder in enumerate(folders)]


def resume_run(
    folder: Path,
    *,
    steps: int | None = None,
    time_limit_s: float | None = None,
    starting: Callable[[], None] = _nothing,
) -> Launched:
    """Go on with a run that ended before its budget did, or with a larger budget.

    What it evaluated is told to the agent, not measured again.

    Args:
        folder: The session's folder.
        steps: New total of evaluations; None keeps it.
        time_limit_s: New total of running seconds; None keeps it.
        starting: As `launch_run`'s.

    Raises:
        UsageError: it runs, it has nothing left to do, it isn't a tuning run, or a stranger set it up.
    """
    running = alive.runner_pid(folder)
    if running is not None:
        raise UsageError(
            f"session {folder.name} still runs (process {running}); `warpdeck attach {folder.name}` shows it"
        )
    with SessionStore.open(folder, writable=True) as store:
        stored = store.header().get("spec")
        if not stored:
            raise UsageError(f"session {folder.name} isn't a tuning run; it can't be resumed")
        spec = RunSpec.from_json(stored)
        _check_origin(folder, spec)
        spec = replace(
            spec,
            steps=spec.steps if steps is None else steps,
            time_limit_s=spec.time_limit_s if time_limit_s is None else time_limit_s,
        )
        if spec.parts is None:
            check(spec)
        else:
            check_agent(spec)
        state = store.state()
        if state.lifecycle is Lifecycle.FINISHED and state.evaluations >= spec.steps:
            raise UsageError(
                f"session {folder.name} has finished its {state.evaluations} steps; "
                f"give a larger --steps to go on, or start a new run"
            )
        used_up = spec.time_limit_s is not None and state.active_s >= spec.time_limit_s
        if state.lifecycle is Lifecycle.FINISHED and used_up:
            raise UsageError(
                f"session {folder.name} has used up its time limit of {spec.time_limit_s:g} s; "
                f"give a larger --time-limit, a total, to go on"
            )
        store.set_header({"spec": spec.to_json()})
        for command in store.commands(pending=True):  # meant for the process that died
            store.acknowledge([command.id], "not received")
    return _spawn(folder, device=spec.device, starting=starting)


def _check_origin(folder: Path, spec: RunSpec) -> None:
    """What an imported session says of its run is a stranger's word: it must not choose the server that gets
    the user's key, the files that a model may search, whose code runs, or that no sandbox is needed.
    """
    harmless = spec.agent != "llm" and spec.parts is None and not spec.allow_unsandboxed
    if is_foreign(folder) and not (harmless and spec.workload in list_workloads()):
        raise UsageError(
            f"session {folder.name} was imported: its settings are someone else's, so it isn't resumed; "
            f"begin a run of your own with --from {folder.name}"
        )


def _spawn(
    folder: Path, *following: Path, device: str = "", starting: Callable[[], None] = _nothing
) -> Launched:
    if not sys.executable:
        raise WarpdeckError("this Python does not know its own path, so that it can't start a run process")
    for each in (folder, *following):
        alive.announce(each)
    starting()
    try:
        started = process.start([folder, *following], device)
    except OSError as error:
        raise WarpdeckError(
            f"session {folder.name}: its process can't be started: {error.strerror}"
        ) from None
    return Launched(folder, started, following)


class Stopped(StrEnum):
    """How a run came to its end."""

    NOT_RUNNING = "not running"
    STOPPED = "stopped"  # between two steps, by itself
    TERMINATED = "terminated"  # SIGTERM
    KILLED = "killed"  # SIGKILL


def stop_run(
    folder: Path,
    *,
    process: subprocess.Popen[bytes] | None = None,
    grace_s: float = 10.0,
    terminate_s: float = 5.0,
    kill_s: float = 5.0,
    origin: str = "console",
    notify: Callable[[str], None] = lambda text: None,
) -> Stopped:
    """Stop a run: ask it, then SIGTERM, then SIGKILL to its whole session group; says which it took.

    Args:
        folder: The session's folder.
        process: The run's process, where the caller started it; it may not have come to its lock yet.
        grace_s: Seconds the run has to end its step and write its artifacts.
        terminate_s: Seconds after SIGTERM.
        kill_s: Seconds after SIGKILL.
        origin: Who asks, for the session's record.
        notify: Told in a few words before each harsher means.

    Raises:
        WarpdeckError: it lives on even after SIGKILL, or belongs to another user.
    """
    if not _goes_on(folder, process):
        return Stopped.NOT_RUNNING
    with suppress(WarpdeckError):  # a session whose disk is full can still be signalled
        send(folder, "stop", origin)
    if _ended(folder, process, grace_s):
        return Stopped.STOPPED
    pid = alive.runner_pid(folder) or (process.pid if process is not None else None)
    if pid is not None:
        notify(f"it did not stop within {grace_s:g} s; sending SIGTERM")
        _signal(folder, pid, signal.SIGTERM)
    if _ended(folder, process, terminate_s):
        return Stopped.TERMINATED
    if pid is not None:
        notify(f"it did not end within {terminate_s:g} s; sending SIGKILL")
        _signal(folder, pid, signal.SIGKILL)
    if not _ended(folder, process, kill_s):
        raise WarpdeckError(f"session {folder.name}: process {pid} lives on after SIGKILL; its GPU may hang")
    with SessionStore.open(folder, writable=True) as store:
        reason = "killed: it did not answer"
        store.append(
            Kind.STATE,
            {"state": Lifecycle.CANCELLED, "reason": reason, "exit_code": int(ExitCode.INTERRUPTED)},
        )
    return Stopped.KILLED


def _goes_on(folder: Path, process: subprocess.Popen[bytes] | None) -> bool:
    """Whether the run's process lives, or is on the way to its lock."""
    if alive.is_running(folder):
        return True
    return alive.is_starting(folder) if process is None else process.poll() is None


def _ended(folder: Path, process: subprocess.Popen[bytes] | None, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while _goes_on(folder, process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def _signal(folder: Path, pid: int, number: signal.Signals) -> None:
    try:
        if number is signal.SIGKILL and os.getpgid(pid) != os.getpgid(0):
            os.killpg(os.getpgid(pid), number)  # its GPU worker and compilers too
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        raise WarpdeckError(
            f"session {folder.name}: process {pid} belongs to another user; only that user can stop it"
        ) from None
