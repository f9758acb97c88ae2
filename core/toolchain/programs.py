"""NVIDIA's programs: from a wheel of this environment, else from a CUDA toolkit."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from ..environment import without_secrets
from .compiled import ToolchainError

TIMEOUT_S = 60.0


def find(name: str, wheel: str) -> Path:
    """A program. Raises ToolchainError, which names the wheel, where there is none."""
    for entry in dict.fromkeys([*sys.path, sysconfig.get_path("purelib")]):
        for tool in sorted(Path(entry or ".").glob(f"nvidia/*/bin/{name}")):
            return tool
    found = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if found is None:
        raise ToolchainError(f"no {name} here: pip install {wheel}, or install a CUDA toolkit")
    return Path(found)


def run(tool: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever its exit code. Raises ToolchainError: it can't be run, or hangs."""
    try:
        return subprocess.run(
            [str(tool), *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=without_secrets(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{tool}: {error}") from None
