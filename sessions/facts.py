"""Facts about a run's surroundings that its session keeps: versions, git revision, command line."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from pathlib import Path

from ..core import versions as core_versions
from ..core.environment import without_secrets


def versions() -> dict[str, str]:
    """Versions of what results depend on, and the platform."""
    return {**core_versions.versions(), "platform": platform.platform()}


def command_line() -> str:
    """What was typed, as a shell would take it again."""
    name = Path(sys.argv[0]).name if sys.argv else "python"
    program = "warpdeck" if name in ("warpdeck", "__main__.py", "runner.py") else name
    return shlex.join([program, *sys.argv[1:]])


def git_revision(folder: Path) -> str | None:
    """The commit that a folder's sources are at, with `-dirty` if they were changed; None without git."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
            env=without_secrets(),
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
