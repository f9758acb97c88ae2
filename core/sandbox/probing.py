"""Which layers work on this machine: found by running one small program in each, and by what it could do."""

from __future__ import annotations

import functools
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import WarpdeckError
from . import filters
from .commands import Layer, bubblewrap_path, landlock_abi
from .errors import SandboxError
from .policy import Policy
from .process import execute

PROBE_LIMIT_S = 20.0
REMEDY = (
    "install bubblewrap (apt-get install bubblewrap) where user namespaces are allowed, or use Linux 5.13 or "
    "newer with Landlock; --allow-unsandboxed runs such code with your rights"
)
# Everything here must fail but the first and the last step; the answer lists what didn't.
_ATTACK = """
import os, sys
secret, parent, port, inside = sys.argv[1:5]
found = []
def attempt(name, action):
    try:
        action()
    except OSError:
        return
    found.append(name)
def connect():
    import _socket
    _socket.socket().connect(("127.0.0.1", int(port)))
attempt("files of others can be read", lambda: open(secret).read())
attempt("files outside can be written", lambda: open(secret + ".new", "w"))
attempt("other processes can be read", lambda: open(f"/proc/{parent}/environ", "rb").read(1))
attempt("the network can be used", connect)
open(os.path.join(inside, "written"), "w").write("yes")
print("found", *found, sep="\\n")
"""


@dataclass(frozen=True)
class Probe:
    """Whether one layer works; `detail` says what there is, or why not."""

    works: bool
    detail: str


@dataclass(frozen=True)
class Layers:
    """What isolates here. `seccomp` is the system-call filter, which goes with either of the others."""

    bubblewrap: Probe
    landlock: Probe
    seccomp: Probe

    @property
    def best(self) -> Layer:
        """The strongest that works."""
        if self.bubblewrap.works:
            return Layer.BUBBLEWRAP
        return Layer.LANDLOCK if self.landlock.works else Layer.NONE

    @property
    def active(self) -> tuple[str, ...]:
        """Names of what a sandboxed process is held by, strongest first."""
        isolation = () if self.best is Layer.NONE else (str(self.best),)
        return (*isolation, *(("seccomp",) if self.seccomp.works else ()), "limits")

    def to_json(self) -> dict[str, Any]:
        """For `doctor` and a session's record."""
        return {
            "active": list(self.active),
            **{
                name: {"works": probe.works, "detail": probe.detail}
                for name, probe in (
                    ("bubblewrap", self.bubblewrap),
                    ("landlock", self.landlock),
                    ("seccomp", self.seccomp),
                )
            },
        }


_trying = threading.Lock()


def layers() -> Layers:
    """What works here, tried once in this process (some 0.2 s)."""
    with _trying:  # who asks while it is tried waits for the answer
        return _tried()


@functools.cache
def _tried() -> Layers:
    if sys.platform != "linux":
        no = Probe(False, f"not on {sys.platform}")
        return Layers(no, no, no)
    return Layers(_guarded(_bubblewrap), _guarded(_landlock), _seccomp())


def _guarded(probe: Callable[[], Probe]) -> Probe:
    try:
        return probe()
    except (OSError, WarpdeckError) as error:
        return Probe(False, str(error))


def _bubblewrap() -> Probe:
    path = bubblewrap_path()
    if path is None:
        return Probe(False, "bwrap is not installed")
    problem = _attacked(Layer.BUBBLEWRAP)
    return Probe(not problem, problem or path)


def _landlock() -> Probe:
    abi = landlock_abi()
    if not abi:
        return Probe(False, "the kernel has no Landlock, or it is switched off (lsm= on its command line)")
    if not filters.supported():
        return Probe(False, f"ABI {abi}, but no system-call filter for {os.uname().machine}")
    problem = _attacked(Layer.LANDLOCK)
    return Probe(not problem, problem or f"ABI {abi}")


def _seccomp() -> Probe:
    if not filters.supported():
        return Probe(False, f"no system-call filter for {os.uname().machine}")
    done = execute([sys.executable, "-I", "-S", "-c", "pass"], Policy(python=True), PROBE_LIMIT_S, Layer.NONE)
    return Probe(done.returncode == 0, "works" if done.returncode == 0 else done.said())


def _attacked(layer: Layer) -> str:
    """Why a layer doesn't hold, from a program that tries what it must not; empty if it does."""
    with tempfile.TemporaryDirectory(prefix="warpdeck-probe-") as folder, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        inside = Path(folder, "inside")
        inside.mkdir()
        secret = Path(folder, "secret")
        secret.write_text("secret")
        port = listener.getsockname()[1]
        argv = [sys.executable, "-I", "-S", "-c", _ATTACK]
        argv += [str(secret), str(os.getpid()), str(port), str(inside)]
        done = execute(argv, Policy(write=(inside,), python=True), PROBE_LIMIT_S, layer)
        lines = done.stdout.decode(errors="replace").splitlines()
        if done.returncode or lines[:1] != ["found"]:
            return f"it can't make a sandbox: {done.said()}"
        return f"it doesn't hold: {'; '.join(lines[1:])}" if lines[1:] else ""


# -- what to do without ------------------------------------------------------------------------------

_allowed = threading.Event()


def allow_unsandboxed(allow: bool) -> None:
    """Let this process run untrusted code with limits only where nothing isolates (`--allow-unsandboxed`).

    Where a layer works it is used all the same.
    """
    if allow:
        _allowed.set()
    else:
        _allowed.clear()


def require(found: Layers | None = None, *, allowed: bool | None = None) -> Layer:
    """The layer to use.

    Args:
        found: None: `layers()`.
        allowed: whether it may be none; None: what `allow_unsandboxed` said.

    Raises:
        SandboxError: nothing isolates and that isn't allowed.
    """
    found = layers() if found is None else found
    allowed = _allowed.is_set() if allowed is None else allowed
    if found.best is Layer.NONE and not allowed:
        raise SandboxError(
            "code that a model or a client wrote can't be isolated here (bubblewrap: "
            f"{found.bubblewrap.detail}; Landlock: {found.landlock.detail}): {REMEDY}"
        )
    return found.best


def record() -> dict[str, Any]:
    """What isolates code of others in this process, for a session's record: `layers()` in JSON form,
    `isolated`, and whether it may run without (`allow_unsandboxed`)."""
    found = layers()
    return {
        **found.to_json(),
        "isolated": found.best is not Layer.NONE,
        "allow_unsandboxed": _allowed.is_set(),
    }
