"""The sandbox in which code of others is compiled, and what its compile process can read."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from ..errors import UsageError
from ..sandbox import Policy, default_memory
from .compiled import CompileRequest
from .sources import header_folders

_PACKAGE = Path(__file__).resolve().parents[2]
_PARTS = ("core", "telemetry", "__pycache__")  # of this package; the rest is nothing to a compiler
MEMORY = 6 << 30  # a template bomb ends here, or at the time limit
FILE_BYTES = 64 << 20
_TOOLKIT = ("CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH")


def policy(
    request: CompileRequest, files: Mapping[str, str], folder: Path, environment: Mapping[str, str]
) -> Policy:
    """For a compile process: the compilers, this package and, for Numba, the kernel's own module.

    Args:
        request: the first one it gets; with Numba, whose modules run there, the only one.
        files: what `sources.source_files` found for it.
        folder: its private one.
        environment: what a compile process has otherwise; it gets what the compilers read of it.
    """
    read = [_PACKAGE / part for part in _PARTS] + sorted(_PACKAGE.glob("*.py"))
    read += [*header_folders(), *_toolkit()]
    if request.language == "numba":
        read += [Path(name) for name in files]
    return Policy(
        python=True,
        read=read,
        write=(folder,),
        listed=(_PACKAGE,),
        memory=min(MEMORY, default_memory()),
        file_size=FILE_BYTES,
        disk=2 * FILE_BYTES,
        environment={
            n: v for n, v in environment.items() if n in _TOOLKIT or n.startswith(("NUMBA_", "CUDA_"))
        },
    )


def _toolkit() -> list[Path]:
    """Folders of a toolkit that isn't installed as packages; one that holds the home folder is left out."""
    found = []
    for name in _TOOLKIT:
        for text in os.environ.get(name, "").split(os.pathsep):
            path = Path(text)
            if text and path.is_dir():
                try:
                    Policy(read=(path,)).readable()
                except UsageError:
                    continue
                found.append(path)
    return found


def installed_path(path: list[str]) -> list[str]:
    """Of a module search path, what is installed: no folder of the user's."""
    known = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib", "platstdlib")}
    kept = []
    for entry in path:
        inside = any(entry == folder or entry.startswith(folder + os.sep) for folder in known)
        if inside or entry.endswith(".zip") or Path(entry).name in ("site-packages", "dist-packages"):
            kept.append(entry)
    return kept
