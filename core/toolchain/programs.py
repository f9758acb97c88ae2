"""NVIDIA's programs: from a wheel of this environment, else from a CUDA toolkit."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

from .compiled import ToolchainError


def find(name: str, wheel: str) -> Path:
    """A program. Raises ToolchainError, which names the wheel, where there is none."""
    for entry in dict.fromkeys([*sys.path, sysconfig.get_path("purelib")]):
        for tool in sorted(Path(entry or ".").glob(f"nvidia/*/bin/{name}")):
            return tool
    found = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if found is None:
        raise ToolchainError(f"no {name} here: pip install {wheel}, or install a CUDA toolkit")
    return Path(found)
