"""One user of a GPU at a time: an OS lock by the GPU's UUID, shared between users, gone with its holder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .errors import WarpdeckError

_POLL_S = 0.1


def lock_folder() -> Path:
    """`$WARPDECK_LOCK_DIR`, else /run/lock, else the temporary directory."""
    named = os.environ.get("WARPDECK_LOCK_DIR")
    if named:
        return Path(named)
    shared = Path("/run/lock")
    return shared if shared.is_dir() and os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


def lock_path(uuid: str) -> Path:
    """The lock file of a GPU."""
    return lock_folder() / f"warpdeck-{re.sub(r'[^A-Za-z0-9-]', '_', uuid)}.lock"


@contextlib.contextmanager
def gpu_lock(uuid: str, timeout_s: float = 0.0) -> Iterator[Path]:
    """Hold a GPU; yields the lock's file.

    The lock ends with this process however it dies, because the operating system holds it; the file stays and
    only says who. Not inherited by programs this process starts. Raises WarpdeckError, naming the holder, if
    somebody else still has the GPU after `timeout_s`, or if the file can't be used.
    """
    path = lock_path(uuid)
    fd = _open(path)
    try:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise WarpdeckError(
                        f"GPU {uuid} is in use by {_holder(fd)}: wait for it, or stop it (lock {path})"
                    ) from None
                time.sleep(_POLL_S)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        try:
            yield path
        finally:
            os.ftruncate(fd, 0)
    finally:
        os.close(fd)


def holder(uuid: str) -> int | None:
    """Process id of whoever holds the GPU now; None if nobody does (or nobody can be named)."""
    try:
        fd = os.open(lock_path(uuid), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid(fd)
    else:
        return None
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    # Without O_CREAT first: in a sticky folder Linux refuses O_CREAT on another user's existing file.
    with contextlib.suppress(FileNotFoundError):
        return _attempt(path, os.O_RDWR)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except FileExistsError:
        return _attempt(path, os.O_RDWR)
    except OSError as error:
        raise _unusable(path, error) from None
    os.fchmod(fd, 0o666)  # the umask must not shut other users out
    return fd


def _attempt(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: OSError) -> WarpdeckError:
    return WarpdeckError(
        f"can't use the lock file {path}: {error.strerror}; set WARPDECK_LOCK_DIR to a folder that every user"
        " of this GPU can write"
    )


def _pid(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).decode(errors="replace").strip()
    return int(text) if text.isdecimal() else None


def _holder(fd: int) -> str:
    pid = _pid(fd)
    if pid is None:
        return "another process"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        command = ""
    return f"process {pid}" + (f" ({command.strip()[:80]})" if command.strip() else "")
