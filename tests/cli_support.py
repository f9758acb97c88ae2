"""What tests of the command line share: a small recording, and the command, in an own process or here."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import synthetic

from warpdeck.cli.app import run
from warpdeck.kernels import load_workload


def write_recordings(home: Path) -> Path:
    """Small synthetic recordings in a home, as `recorded:synthetic`; returns their folder."""
    folder = home / "recordings"
    synthetic.write(folder, load_workload("softmax"), "classic", [256, 1024], name="synthetic")
    return folder


def warpdeck(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "warpdeck", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        **options,
    )


def here(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """As `warpdeck`, but in this process, which saves Python's start and its imports: for commands of which
    words, files and exit code are the matter."""
    out, err = io.StringIO(), io.StringIO()
    folder = contextlib.nullcontext() if cwd is None else contextlib.chdir(cwd)
    with folder, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


TUNE = ("tune", "softmax", "--device", "recorded:synthetic", "--space", "classic", "--headless")


def best_of(document: Mapping[str, Any]) -> Any:
    return document["best"]["config"]
