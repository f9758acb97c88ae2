"""Which recordings there are: those that ship with the bundled workloads, and those the user imported."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import platformdirs

from ..core import devices
from ..core import recording as recordings
from ..core.devices.base import Device
from ..core.errors import UsageError
from ..core.expr import near
from ..core.recording import SUFFIX, Recording
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


@dataclass(frozen=True)
class RecordingInfo:
    """A line of `recordings list`. `error` says what is wrong with a damaged file."""

    id: str  # the file's name without its suffix; what `recordings export` takes
    path: Path
    bundled: bool
    bytes: int
    recording: Recording | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        found = self.recording
        known = (
            {
                "device": f"recorded:{found.name}",
                "workload": found.workload,
                "space": found.space,
                "case": found.case,
                "gpu": found.device.name,
                "date": found.date,
                "configs": len(found.entries),
                "statuses": recordings.statuses(found.entries.values()),
            }
            if found
            else {}
        )
        return {
            "id": self.id,
            "path": str(self.path),
            "bundled": self.bundled,
            "bytes": self.bytes,
            **known,
            "error": self.error,
        }


def list_recordings() -> list[RecordingInfo]:
    """Every recording, read; a damaged file is told, not raised."""
    return [_info(file) for file in recording_files()]


def _info(file: Path) -> RecordingInfo:
    about = RecordingInfo(
        file.name.removesuffix(SUFFIX), file, file.is_relative_to(BUNDLED), file.stat().st_size
    )
    try:
        return replace(about, recording=recordings.load(file))
    except UsageError as error:
        return replace(about, error=str(error))


def find_recording(name: str) -> Path:
    """A recording's file by its id. UsageError with near names if there is none."""
    files = {file.name.removesuffix(SUFFIX): file for file in recording_files()}
    if name not in files:
        raise UsageError(f"there is no recording '{name}'; {near(name, files)}")
    return files[name]


def import_recording(file: Path) -> Path:
    """Copy a recording among the user's, after reading all of it; returns where it lies.

    Raises:
        UsageError: not a recording, or one of the same name is there already.
    """
    loaded = recordings.load(file)
    target = user_folder() / loaded.file_name
    if target.exists():
        raise UsageError(f"{target} exists already; remove it first to replace it")
    recordings.save(loaded, target)
    return target


def export_recording(name: str, target: Path) -> Path:
    """Copy a recording (a valid T4 file) to `target`: a file, or a folder to put it in."""
    source = find_recording(name)
    path = target / source.name if target.is_dir() else target
    recordings.save(recordings.load(source), path)
    return path
