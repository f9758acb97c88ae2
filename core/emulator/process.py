"""The process in which a candidate runs: sandboxed as its trust asks, limited, and ended with all it started.

It serves jobs until it is closed, so that what a kernel keeps from launch to launch (device globals, counts
of launches) survives between them, as it does on a GPU. It never holds the expected outputs.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import sandbox
from ..errors import WarpdeckError
from ..model import Launch, Status, Trust
from ..scratch import make_folder
from .build import Build, Built, layer_of
from .errors import CandidateFault, EmulatorError
from .faults import Report, fault_of, warning_of

KERNEL_S = 10.0  # processor time of one kernel
GRACE_S = 10.0  # wall time beyond that, once per job
_START_S = 30.0
_TRIES = 3
_WATCH_S = 0.1
_LINE = 1 << 20
_MEMORY_MB = 4096
_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:handle_segv=0:handle_sigbus=0:"
    f"handle_sigfpe=0:handle_abort=0:allocator_may_return_null=1:symbolize=0:hard_rss_limit_mb={_MEMORY_MB}",
    "UBSAN_OPTIONS": "print_stacktrace=0:symbolize=0",
}


@dataclass(frozen=True)
class Array:
    """One buffer of a job. `contents` None: poison for an output, zeros for a workspace."""

    name: str
    role: str  # in | out | inout | workspace
    dtype: str
    shape: tuple[int, ...]
    contents: NDArray[Any] | None = None

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Scalar:
    """One scalar argument of a job."""

    name: str
    dtype: str
    value: int | float


@dataclass(frozen=True)
class Job:
    """Launches of one case, in order, all with the same arguments.

    `case` names the buffers: those of one case stay at the same addresses. `schedule`: in which order threads
    and blocks run: 0 forward, 1 backward, others at random.
    """

    case: str
    arguments: Sequence[Array | Scalar]
    launches: Sequence[Launch]
    schedule: int = 0


class Process:
    """One candidate's process.

    Args:
        built: the program.
        entries: names of its kernels, as it was built with.
        trust: whose code it is.

    Raises:
        CandidateFault: it ends before it is ready, in a constructor of the candidate's, say.
        SandboxError: it must be isolated, and nothing isolates here.
    """

    def __init__(
        self, built: Built, entries: Sequence[str], trust: Trust, *, kernel_s: float = KERNEL_S
    ) -> None:
        self._built = built
        self._entries = {name: number for number, name in enumerate(entries)}
        self._kernel_s = kernel_s
        self._cases: dict[str, int] = {}
        self._ended = False
        self._folder = make_folder(_room(len(built.program)), "warpdeck-emulated-")
        try:
            self._program = self._folder / "program"
            self._program.write_bytes(built.program)
            self._program.chmod(0o700)
            self._policy = sandbox.Policy(
                write=(self._folder,),
                memory=_MEMORY_MB << 20,
                address_space=False,
                environment=_OPTIONS,
            )
            command = sandbox.wrap([str(self._program)], self._policy, layer_of(trust))
            self._start(command)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _start(self, command: list[str]) -> None:
        """Start the program and wait until it is ready. A sanitizer may find its addresses taken, by chance,
        where the system spreads memory widely: then another try helps."""
        for left in reversed(range(_TRIES)):
            self._pending = self._stderr = b""
            self._process = sandbox.spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            try:
                self._until("ready", _START_S)
                return
            except CandidateFault as fault:
                sandbox.end(self._process)
                if not left:
                    message = f"before any kernel was launched: {fault.message}"
                    raise CandidateFault(fault.status, message, fault.kind) from None
            except BaseException:
                sandbox.end(self._process)
                raise

    @property
    def alive(self) -> bool:
        """Whether it takes jobs."""
        return not self._ended

    def run(self, job: Job) -> tuple[dict[str, NDArray[Any]], list[Report]]:
        """Run a job: what the outputs hold afterwards (in declared type and shape), and what was noticed.

        Raises:
            CandidateFault: the candidate failed; the process is gone then.
            EmulatorError: this machine did.
        """
        try:
            self._send(job)
            wall = len(job.launches) * self._kernel_s * 2 + GRACE_S
            reports = self._until("done", wall)
            outputs = {
                a.name: self._output(a)
                for a in job.arguments
                if isinstance(a, Array) and a.role in ("out", "inout")
            }
            return outputs, reports
        except CandidateFault:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise EmulatorError(f"{self._folder}: {error.strerror or error}") from None

    def _send(self, job: Job) -> None:
        case = self._cases.setdefault(job.case, len(self._cases))
        lines = [f"limit {self._kernel_s}", f"schedule {job.schedule}"]
        for a in job.arguments:
            if isinstance(a, Scalar):
                raw = np.array(a.value, dtype=a.dtype).tobytes()
                lines.append(f"value {a.name} {len(raw)} {raw.hex()}")
                continue
            source = "-"
            if a.contents is not None:
                source = f"in-{a.name}"
                data = np.ascontiguousarray(a.contents).reshape(-1).view(np.uint8).data
                sandbox.write_file(self._folder / source, data)
            target = f"out-{a.name}" if a.role in ("out", "inout") else "-"
            lines.append(f"buffer {case} {a.name} {a.role} {a.nbytes} {source} {target}")
        for launch in job.launches:
            numbers = " ".join(map(str, (*launch.grid, *launch.block, launch.shared)))
            lines.append(f"launch {self._entries[launch.entry]} {numbers}")
        sandbox.write_file(self._folder / "job", ("\n".join(lines) + "\n").encode())
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # what ended it is told by its last words
            self._process.stdin.write(b"job\n")
            self._process.stdin.flush()

    def _output(self, a: Array) -> NDArray[Any]:
        try:
            data = sandbox.read_file(self._folder / f"out-{a.name}", a.nbytes)
        except WarpdeckError as error:
            raise CandidateFault(Status.RUNTIME_ERROR, str(error)) from None
        if len(data) != a.nbytes:
            raise CandidateFault(
                Status.RUNTIME_ERROR, f"output {a.name} has {len(data)} bytes, not {a.nbytes}"
            )
        return np.frombuffer(data, dtype=a.dtype).reshape(a.shape)

    # -- answers -----------------------------------------------------------------------------------

    def _until(self, wanted: str, seconds: float) -> list[Report]:
        """Read answers up to the wanted one; what was noticed on the way."""
        deadline = time.monotonic() + seconds
        reports: list[Report] = []
        while True:
            answer = self._answer(deadline, seconds)
            kind = answer.get("kind")
            if kind == wanted:
                return reports
            report = Report.of(answer, self._built.places)
            if kind in ("warning", "race", "uninitialised"):
                reports.append(report)
                continue
            raise fault_of(report.located(self._program))

    def _answer(self, deadline: float, seconds: float) -> dict[str, Any]:
        """The next line that is an answer. A kernel may have written other lines before `main`."""
        while True:
            line, found, rest = self._pending.partition(b"\n")
            if found:
                self._pending = rest
                with contextlib.suppress(ValueError):
                    answer = json.loads(line)
                    if isinstance(answer, dict):
                        return answer
                continue
            if len(self._pending) > _LINE:
                raise CandidateFault(Status.RUNTIME_ERROR, "the process wrote what is no answer")
            self._pending += self._read(deadline, seconds)

    def _read(self, deadline: float, seconds: float) -> bytes:
        """Some bytes of standard output. Raises CandidateFault: time or memory are over, or it has ended."""
        assert self._process.stdout is not None and self._process.stderr is not None
        out, err = self._process.stdout.fileno(), self._process.stderr.fileno()
        while True:
            poll = select.poll()
            for descriptor in (out, err):
                poll.register(descriptor, select.POLLIN)
            ready = dict(poll.poll(_WATCH_S * 1e3))
            if ready.get(err, 0) & select.POLLIN:
                self._stderr = (self._stderr + os.read(err, 1 << 16))[-4096:]
            if out in ready:
                data = os.read(out, 1 << 16)
                if data:
                    return data
                raise self._died()
            if time.monotonic() > deadline:
                raise CandidateFault(Status.TIMEOUT, f"still running after {seconds:g} s", "timeout")
            over = sandbox.excess(self._process.pid, self._policy)
            if over is not None:
                status = Status.OUT_OF_MEMORY if over.kind == "memory" else Status.RUNTIME_ERROR
                raise CandidateFault(status, over.text)

    def _died(self) -> CandidateFault:
        """What ended a process that said nothing."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        assert self._process.stderr is not None
        with contextlib.suppress(OSError):
            os.set_blocking(self._process.stderr.fileno(), False)
            self._stderr = (self._stderr + (os.read(self._process.stderr.fileno(), 1 << 16) or b""))[-4096:]
        said = self._stderr.decode(errors="replace").strip().splitlines()
        if any("rss limit" in line for line in said):
            return CandidateFault(Status.OUT_OF_MEMORY, f"it used more than {_MEMORY_MB} MB of memory")
        last = f": {said[-1][:300]}" if said else ""
        code = self._process.returncode
        return CandidateFault(
            Status.RUNTIME_ERROR, f"the kernel's process ended with code {code}{last}", "crash"
        )

    def located(self, report: Report) -> Report:
        """A report with its file and line, where its code tells."""
        return report.located(self._program)

    def close(self) -> None:
        """End it with all that it started, and remove its files."""
        if not self._ended:
            self._ended = True
            sandbox.end(self._process)
            shutil.rmtree(self._folder, ignore_errors=True)


def _room(nbytes: int) -> Path:
    """Where the files go: shared memory where it has room for small cases, else the temporary folder."""
    shared = Path("/dev/shm")
    if (
        shared.is_dir()
        and os.access(shared, os.W_OK)
        and shutil.disk_usage(shared).free > nbytes + (256 << 20)
    ):
        return shared
    return Path(tempfile.gettempdir())


def warnings_of(reports: Sequence[Report]) -> list[str]:
    """Warnings, each once, in words."""
    return list(dict.fromkeys(warning_of(report) for report in reports if report.kind == "warning"))


def races_of(built: Built, reports: Sequence[Report]) -> list[Report]:
    """The races among what a run of the second build noticed."""
    assert built.build is Build.RACES
    return [report for report in reports if report.kind == "race"]
