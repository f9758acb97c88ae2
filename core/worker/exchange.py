"""Files in shared memory through which arrays pass between the run process and its workers.

/dev/shm where it has room (containers often give it 64 MB), else the temporary directory. Space is allocated
at once, because writing to a mapped file on a full file system kills the process instead of failing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import WarpdeckError
from ..scratch import make_folder

_PREFIX = "warpdeck-"


class Exchange:
    """One run's folder of mapped files; `close` removes it. Folders of dead processes go on the way."""

    def __init__(self) -> None:
        self._folders: dict[Path, Path] = {}
        self._files: dict[str, tuple[Path, int]] = {}

    def allocate(self, name: str, nbytes: int) -> Path:
        """A file of at least `nbytes` bytes under this name; grows in a new file if it was smaller.

        Raises WarpdeckError when no file system has room.
        """
        known = self._files.get(name)
        if known and known[1] >= nbytes:
            return known[0]
        if known:
            known[0].unlink(missing_ok=True)
        for root in _roots():
            if shutil.disk_usage(root).free < nbytes * 1.25:
                continue
            folder = self._folder(root)
            if folder is None:
                continue
            path = folder / f"{name}-{nbytes}"
            try:
                with open(path, "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, max(nbytes, 1))
            except OSError:
                path.unlink(missing_ok=True)
                continue
            self._files[name] = (path, nbytes)
            return path
        raise WarpdeckError(
            f"no room for {nbytes / 1e6:.0f} MB of shared arrays in {' or '.join(map(str, _roots()))}: "
            "free some space, or set TMPDIR to a larger file system"
        )

    def close(self) -> None:
        """Remove everything."""
        for folder in self._folders.values():
            shutil.rmtree(folder, ignore_errors=True)
        self._folders.clear()
        self._files.clear()

    def _folder(self, root: Path) -> Path | None:
        if root not in self._folders:
            try:
                self._folders[root] = make_folder(root, _PREFIX)
            except OSError:
                return None
        return self._folders[root]


def view(path: Path, shape: tuple[int, ...], dtype: str, offset: int = 0) -> NDArray[np.generic]:
    """A read-only array over a part of a mapped file."""
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape)


def _roots() -> list[Path]:
    found = [Path("/dev/shm"), Path(tempfile.gettempdir())]
    return [root for root in found if root.is_dir() and os.access(root, os.W_OK)]
