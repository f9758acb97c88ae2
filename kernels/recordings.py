"""Which recordings there are: those that ship with the bundled workloads, and those the user imported."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from ..core import devices
from ..core.devices.base import Device
from ..core.errors import UsageError
from ..core.recording import SUFFIX
from .loader import BUNDLED


def user_folder() -> Path:
    """Where imported recordings are kept: in `WARPDECK_HOME`, else in the platform's data folder."""
    home = os.environ.get("WARPDECK_HOME") or platformdirs.user_data_dir("warpdeck")
    return Path(home).expanduser() / "recordings"


def recording_files() -> list[Path]:
    """Every recording's file: bundled ones first, each group sorted by name. Nothing is read."""
    return [*sorted(BUNDLED.rglob(f"*{SUFFIX}")), *sorted(user_folder().glob(f"*{SUFFIX}"))]


def open_device(spec: str = "auto", *, allow_shared: bool = False) -> Device:
    """Open a device; recorded ones are looked up by name among `recording_files()`.

    Args:
        spec: `auto` (a CUDA GPU, else the default recording), `cuda:N`, `recorded:NAME` or `recorded:FILE`.
        allow_shared: measure although other processes use the GPU.

    Raises:
        UsageError: not a device, an unknown recording, or a file that is none.
        NoDeviceError: the CUDA device or its driver isn't there.
    """
    return devices.open_device(spec, recording_files(), allow_shared=allow_shared)


def recorded_workload(spec: str) -> str:
    """The one workload that a recorded device knows. UsageError if it isn't recorded, or knows several."""
    if not spec.startswith("recorded:"):
        raise UsageError("which workload? `warpdeck workloads list` shows the bundled ones")
    opened = devices.open_recorded(spec, recording_files())
    try:
        names = sorted({recording.workload for recording in opened.recordings()})
    finally:
        opened.close()
    if len(names) != 1:
        raise UsageError(f"{spec} holds recordings of {', '.join(names)}: say which, as in `tune {names[0]}`")
    return names[0]
