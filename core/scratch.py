"""Folders for one process's temporary files, and the removal of those that killed processes left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path


def make_folder(parent: Path, prefix: str) -> Path:
    """A folder in `parent` that only this user can read (mode 0700). Raises OSError.

    Folders of this user with the same prefix whose process is gone are removed on the way.
    """
    _sweep(parent, prefix)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=parent))


def _sweep(parent: Path, prefix: str) -> None:
    for left in parent.glob(f"{prefix}*-*"):
        pid = left.name[len(prefix) :].partition("-")[0]
        if pid.isdecimal() and not _alive(int(pid)):
            with contextlib.suppress(OSError):
                if not hasattr(os, "getuid") or left.stat().st_uid == os.getuid():
                    shutil.rmtree(left, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # someone else's process
        return True
    return True
