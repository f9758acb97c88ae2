"""What tests of the command line share: a small recording of their own, and the command in a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import synthetic

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


TUNE = ("tune", "softmax", "--device", "recorded:synthetic", "--space", "classic", "--headless")


def best_of(document: Mapping[str, Any]) -> Any:
    return document["best"]["config"]
