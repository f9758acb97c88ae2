"""Start a sandboxed process, feed and drain it, watch its limits, end all of it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from ..environment import without_secrets
from .commands import Layer, command
from .errors import SandboxError
from .launcher import FAILED, MARK
from .policy import Policy
from .watch import excess

OUTPUT = 1 << 20  # bytes kept of stdout and of stderr each; all of it is read
GRACE_S = 0.2  # between SIGTERM and SIGKILL
_WATCH_S = 0.05
_KILL_WAIT_S = 10.0


@dataclass(frozen=True)
class Completed:
    """How a sandboxed program ended.

    Attributes:
        returncode: its exit code, or minus the number of the signal that ended it.
        stdout, stderr: what it wrote; of more than the limit the first and the last half.
        truncated: whether something of either was left out.
        ended: why it was stopped: "timeout", "memory", "tasks" or "disk"; empty if it ended by itself.
        reason: that, as a clause for people ("took more than 10 s"), else how it ended.
        seconds: wall time.
        layer: what it was kept apart by.
    """

    returncode: int
    stdout: bytes
    stderr: bytes
    truncated: bool
    ended: str
    reason: str
    seconds: float
    layer: Layer

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.returncode == 0 and not self.ended

    def said(self) -> str:
        """One line: why it failed, and the last thing it wrote to stderr."""
        lines = self.stderr.decode(errors="replace").strip().splitlines()
        return ": ".join([self.reason, *(line.strip()[:400] for line in lines[-1:])])


def execute(
    argv: Sequence[str],
    policy: Policy,
    timeout_s: float,
    layer: Layer,
    *,
    stdin: bytes = b"",
    output: int = OUTPUT,
) -> Completed:
    """Run a program to its end under a policy, in a process group that is gone afterwards.

    Args:
        argv: the program and its arguments; a name without a slash is looked up in the system's folders.
        timeout_s: wall time; then SIGTERM, and 0.2 s later SIGKILL, to all that it started.
        stdin: what it reads; then end of file.
        output: bytes kept of stdout and stderr each.

    Raises:
        SandboxError: the sandbox can't be made.
        UsageError: a path of the policy contains the home folder.
    """
    start = time.monotonic()
    try:
        process = spawn(command(argv, policy, layer), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        raise SandboxError(f"can't start a sandboxed process: {error.strerror or error}") from None
    kept = (Tail(output), Tail(output))
    ended, reason = _supervise(process, policy, start + timeout_s, stdin, kept)
    if ended == "timeout":
        reason = f"took more than {timeout_s:g} s"
    code = exit_code(process.returncode, layer)
    out, err = kept[0].bytes(), kept[1].bytes()
    broken = {FAILED: MARK, 1: "bwrap: "}.get(code)
    if broken is not None and err.startswith(broken.encode()):
        why = err[len(broken) :].decode(errors="replace").strip()
        raise SandboxError(f"the sandbox can't be made ({layer}): {why}")
    return Completed(
        returncode=code,
        stdout=out,
        stderr=err,
        truncated=kept[0].truncated or kept[1].truncated,
        ended=ended,
        reason=reason or how_it_ended(code),
        seconds=time.monotonic() - start,
        layer=layer,
    )


# -- starting and ending ------------------------------------------------------------------------------

_starts: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
_starter: threading.Thread | None = None
_starter_lock = threading.Lock()


def spawn(argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """`subprocess.Popen` of what `wrap` returned, from a thread that lasts as long as this process.

    The kernel kills a sandboxed process with the thread that started it. stderr is a pipe unless `options`
    say otherwise. Raises OSError.
    """
    global _starter
    options = {"stderr": subprocess.PIPE, "bufsize": 0, "env": without_secrets(), **options}
    done: Future[Any] = Future()
    with _starter_lock:
        if _starter is None or not _starter.is_alive():  # also in a forked child
            _starter = threading.Thread(target=_start_all, name="warpdeck-sandbox", daemon=True)
            _starter.start()
    _starts.put((lambda: subprocess.Popen(argv, **options), done))
    return done.result()


def _start_all() -> None:
    while True:
        start, done = _starts.get()
        try:
            done.set_result(start())
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            done.set_exception(error)


def kill_group(pid: int, number: int = signal.SIGKILL) -> None:
    """A signal to a sandboxed process and all that it started."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:  # not yet a leader, or gone
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    except PermissionError:
        pass


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a sandboxed process with all that it started, and wait until it is gone."""
    if process.returncode is None:
        kill_group(process.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_WAIT_S)
        _wait_for_group(process.pid)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _wait_for_group(pid: int) -> None:
    """Until nothing of a killed group runs: what the leader started has no parent that would wait for it."""
    limit = time.monotonic() + _KILL_WAIT_S
    while time.monotonic() < limit:
        try:
            os.killpg(pid, signal.SIGKILL)
        except OSError:
            return
        if not _runs(pid):  # what is left are zombies, which init takes when it gets round to it
            return
        time.sleep(0.002)


def _runs(group: int) -> bool:
    """Whether a process of a group is more than a zombie."""
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                with open(f"{entry.path}/stat", "rb") as file:
                    state, _, own, *_ = file.read().rpartition(b")")[2].split()
            except (OSError, ValueError):
                continue
            if int(own) == group and state not in (b"Z", b"X"):
                return True
    return False


class Tail:
    """The first and the last half of a stream that may be too long to keep."""

    def __init__(self, limit: int) -> None:
        self._half = max(limit // 2, 1)
        self._first = bytearray()
        self._last = bytearray()
        self.truncated = False

    def add(self, data: bytes) -> None:
        """Take what came."""
        room = self._half - len(self._first)
        self._first += data[:room] if room > 0 else b""
        self._last += data[max(room, 0) :]
        if len(self._last) > self._half:
            del self._last[: len(self._last) - self._half]
            self.truncated = True

    def bytes(self) -> bytes:
        """What is kept."""
        between = b"\n[...]\n" if self.truncated else b""
        return bytes(self._first) + between + bytes(self._last)


def _supervise(
    process: subprocess.Popen[bytes],
    policy: Policy,
    deadline: float,
    stdin: bytes,
    kept: tuple[Tail, Tail],
) -> tuple[str, str]:
    """Feed and drain until the process has ended or must; then end its group. (what was exceeded, words)."""
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    outputs = {process.stdout.fileno(): kept[0], process.stderr.fileno(): kept[1]}
    left = memoryview(stdin)
    source = process.stdin.fileno()
    os.set_blocking(source, False)
    ended = reason = ""
    watched = time.monotonic() + _WATCH_S
    exited = _exit_of(process.pid)
    try:
        while True:
            if not left and not process.stdin.closed:
                process.stdin.close()
            writable = [source] if left else []
            now = time.monotonic()
            wait = min(max(deadline - now, 0), max(watched - now, 0), _WATCH_S if exited < 0 else 60)
            if exited < 0:
                wait = min(wait, 0.005)
            read, fed = ready([*outputs, *([exited] if exited >= 0 else [])], writable, wait)
            if fed:
                try:
                    left = left[os.write(source, left[: 1 << 16]) :]
                except BrokenPipeError:
                    left = left[len(left) :]
                except BlockingIOError:
                    pass
            _drain(read, outputs)
            if _has_ended(process.pid):
                break
            now = time.monotonic()
            if now >= deadline:
                ended = "timeout"
                break
            if now >= watched:
                found = excess(process.pid, policy)
                if found is not None:
                    ended, reason = found.kind, found.text
                    break
                watched = time.monotonic() + _WATCH_S
        if ended == "timeout":
            kill_group(process.pid, signal.SIGTERM)
            _wait(process.pid, outputs, GRACE_S)
        kill_group(process.pid)
        _wait(process.pid, outputs, _KILL_WAIT_S)
        _drain_rest(outputs)
    finally:
        if exited >= 0:
            os.close(exited)
        end(process)
    if ended and process.returncode is None:
        raise SandboxError("a sandboxed process can't be killed; it hangs in the kernel")
    return ended, reason


def _exit_of(pid: int) -> int:
    """A descriptor that is readable once the process has ended; -1 where there is none."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return -1


def _has_ended(pid: int) -> bool:
    """Whether the process has ended; it stays a zombie, so that its number and group stay taken."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _wait(pid: int, outputs: dict[int, Tail], seconds: float) -> None:
    limit = time.monotonic() + seconds
    while not _has_ended(pid) and time.monotonic() < limit:
        _drain(ready([*outputs], [], 0.005)[0], outputs)


def ready(reading: Sequence[int], writing: Sequence[int], seconds: float) -> tuple[list[int], list[int]]:
    """What can be read (or has ended), and written. Not select(): a large run has descriptors beyond 1024."""
    poll = select.poll()
    for descriptor in reading:
        poll.register(descriptor, select.POLLIN)
    for descriptor in writing:
        poll.register(descriptor, select.POLLOUT)
    found = [descriptor for descriptor, _ in poll.poll(max(seconds, 0) * 1000)]
    return [d for d in found if d in reading], [d for d in found if d in writing]


def _drain(read: Sequence[int], outputs: dict[int, Tail]) -> None:
    for descriptor in read:
        if descriptor in outputs:
            data = os.read(descriptor, 1 << 16)
            if data:
                outputs[descriptor].add(data)
            else:
                del outputs[descriptor]


def _drain_rest(outputs: dict[int, Tail]) -> None:
    """What is left in the pipes: no one writes any more, unless somebody passed them on."""
    limit = time.monotonic() + 1
    while outputs and time.monotonic() < limit:
        read = ready([*outputs], [], 0)[0]
        if not read:
            return
        _drain(read, outputs)


def exit_code(code: int | None, layer: Layer) -> int:
    """An exit code, or minus a signal's number; bubblewrap gives 128 + n for signal n."""
    if code is None:
        return -signal.SIGKILL
    known = {int(one) for one in signal.Signals}
    return -(code - 128) if layer is Layer.BUBBLEWRAP and code - 128 in known else code


def how_it_ended(code: int) -> str:
    """An exit code or signal in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    names = {known.value: known.name for known in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}"
