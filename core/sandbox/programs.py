"""Running programs in the best sandbox that works here."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..scratch import make_folder
from .commands import Layer, command
from .errors import SandboxError
from .policy import Policy
from .probing import require
from .process import OUTPUT, Completed, execute

PREFIX = "warpdeck-sandbox-"


def wrap(argv: Sequence[str], policy: Policy, layer: Layer | None = None) -> list[str]:
    """The command that runs `argv` under a policy, for whoever starts and watches processes of its own.

    Start it with `spawn`: a sandboxed process is killed when the *thread* that started it ends. It becomes
    the leader of a process group of its own and keeps its process number (under bubblewrap the target is its
    child, which dies with it); end it with `end`. Standard streams are inherited, other descriptors closed.
    Nobody but the caller watches its time, memory, disk and output: `excess` tells what it exceeds.

    Args:
        layer: None: the best that works here.

    Raises:
        UsageError: a path of the policy contains the home folder.
        SandboxError: nothing isolates here, and that isn't allowed.
    """
    return command(argv, policy, require() if layer is None else layer)


def run(
    argv: Sequence[str],
    policy: Policy,
    timeout_s: float,
    *,
    layer: Layer | None = None,
    stdin: bytes = b"",
    output: int = OUTPUT,
) -> Completed:
    """`process.execute` in the best layer that works here (`layer` None).

    Raises:
        SandboxError: nothing isolates here and that isn't allowed, or the sandbox can't be made.
        UsageError: a path of the policy contains the home folder.
    """
    layer = require() if layer is None else layer
    return execute(argv, policy, timeout_s, layer, stdin=stdin, output=output)


@dataclass(frozen=True)
class Sandbox:
    """A policy to run several programs under, each with a private folder as HOME and TMPDIR.

    Example: `Sandbox(Policy(python=True)).run([sys.executable, "-I", "f.py"], read=[Path("f.py")])`
    """

    policy: Policy = field(default_factory=Policy)
    layer: Layer | None = None

    def run(
        self,
        argv: Sequence[str],
        *,
        read: Sequence[Path] = (),
        write: Sequence[Path] = (),
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        stdin: bytes = b"",
        output: int = OUTPUT,
    ) -> Completed:
        """`run` with more paths and variables than the policy has. Raises as `run`."""
        with private_folder() as folder:
            policy = replace(
                self.policy,
                read=(*self.policy.read, *read),
                write=(folder, *self.policy.write, *write),
                environment={**self.policy.environment, **(env or {})},
            )
            return run(argv, policy, timeout_s, layer=self.layer, stdin=stdin, output=output)


def run_python(
    file: Path,
    arguments: Sequence[str] = (),
    *,
    read: Sequence[Path] = (),
    write: Sequence[Path] = (),
    stdin: bytes = b"",
    timeout_s: float = 60.0,
    memory: int | None = None,
) -> Completed:
    """Run a Python file with this interpreter and its packages (NumPy; PyTorch where installed).

    It can't import its siblings. What it is to leave behind goes below a folder of `write`; read it with
    `read_file`. Raises as `run`.
    """
    policy = Policy(python=True, read=(file, *read))
    if memory is not None:
        policy = replace(policy, memory=memory)
    argv = [sys.executable, "-I", "-B", str(Path(file).resolve()), *arguments]
    return Sandbox(policy).run(argv, write=write, stdin=stdin, timeout_s=timeout_s)


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A folder (mode 0700) that is removed at the end."""
    folder = make_folder(Path(tempfile.gettempdir()), PREFIX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_file(path: Path, limit: int) -> bytes:
    """What sandboxed code left in a file: not through a link, not from a pipe, never more than `limit`.

    Raises SandboxError if it is no plain file, or larger.
    """
    with open_plain(path, limit) as file:
        return file.read(limit)


def open_plain(path: Path, limit: int) -> io.FileIO:
    """Open a file that sandboxed code wrote; see `read_file`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SandboxError(f"{path.name}: can't be read back: {error.strerror}") from None
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode) or state.st_size > limit:
        os.close(descriptor)
        raise SandboxError(f"{path.name}: not a plain file of at most {limit:,} bytes")
    return io.FileIO(descriptor, "r")


def write_file(path: Path, data: bytes | memoryview) -> None:
    """Write a file in a folder that sandboxed code can change, as a new one: never through a link of its own.

    Raises OSError.
    """
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
