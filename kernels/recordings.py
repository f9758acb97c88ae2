"""Which recordings there are: those that ship with the bundled workloads, and those the user imported."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import platformdirs

from ..core import devices, exchange
from ..core import recording as recordings
from ..core.check import Plans
from ..core.devices.base import Device
from ..core.errors import UsageError
from ..core.exchange.write import kernel_tuner_cache, t4_document
from ..core.expr import near
from ..core.model import CacheMode
from ..core.recording import SUFFIX, Recording
from .loader import BUNDLED, list_workloads

DEFAULT_SPACE = "full"
EXPORTS = {"warpdeck": SUFFIX, "t4": SUFFIX, "kernel-tuner": ".kernel_tuner.json.gz"}


def user_folder() -> Path:
    """Where imported recordings are kept: in `WARPDECK_HOME`, else in the platform's data folder."""
    home = os.environ.get("WARPDECK_HOME") or platformdirs.user_data_dir("warpdeck")
    return Path(home).expanduser() / "recordings"


def recording_files() -> list[Path]:
    """Every recording's file: bundled ones first, each group sorted by name. Nothing is read."""
    return [*sorted(BUNDLED.rglob(f"*{SUFFIX}")), *sorted(user_folder().glob(f"*{SUFFIX}"))]


def open_device(
    spec: str = "auto", *, allow_shared: bool = False, plans: Plans | None = None, ahead: int = 0
) -> Device:
    """Open a device; recorded ones are looked up by name among `recording_files()`.

    Args:
        spec: `auto` (a CUDA GPU, else the default recording), `cuda:N`, `recorded:NAME` or `recorded:FILE`.
        allow_shared: measure although other processes use the GPU.
        plans: check plans that were begun before; None: make them when needed.
        ahead: whole runs that follow: what they will need may be begun at once.

    Raises:
        UsageError: not a device, an unknown recording, or a file that is none.
        NoDeviceError: the CUDA device or its driver isn't there.
    """
    return devices.open_device(spec, recording_files(), allow_shared=allow_shared, plans=plans, ahead=ahead)


@dataclass(frozen=True)
class Subject:
    """What a run works on: a workload's name, or an imported recording's file; its space and cache mode."""

    workload: str
    space: str
    cache: str


def subject_of(
    spec: str, workload: str | None = None, space: str | None = None, cache: str | None = None
) -> Subject:
    """Fill in what a command left out: a recording names its workload, an imported one all three.

    Args:
        spec: the device.
        workload: a name, or a folder; None: the one that the recorded device knows.
        space: None: `full`.
        cache: None: `cold`.

    Raises:
        UsageError: no workload is named, and the device isn't recorded or knows several; an unknown
            recording; a space or cache mode that an imported recording hasn't.
    """
    plain = Subject(workload or "", space or DEFAULT_SPACE, cache or CacheMode.COLD)
    if not spec.startswith("recorded:"):
        if workload is None:
            raise UsageError("which workload? `warpdeck workloads list` shows the bundled ones")
        return plain
    if workload in list_workloads() or (workload and "/" in workload):
        return plain
    opened = devices.open_recorded(spec, recording_files())
    held = opened.recordings(workload)
    names = sorted({recording.workload for recording in held or opened.recordings()})
    if not held and workload is not None:
        return plain
    if len(names) != 1:
        raise UsageError(f"{spec} holds recordings of {', '.join(names)}: say which, as in `tune {names[0]}`")
    imported = [r for r in held if r.imported]
    if not imported:
        return replace(plain, workload=names[0])
    if len(imported) > 1:
        files = ", ".join(opened.file_of(r).name for r in imported)
        raise UsageError(f"{spec} holds several recordings of {names[0]}: name one's file ({files})")
    only = imported[0]
    for option, given, own in (("--space", space, only.space), ("--cache", cache, CacheMode.AS_RECORDED)):
        if given not in (None, own):
            raise UsageError(f"{spec} was imported; its {option[2:]} is '{own}': leave {option} {given} out")
    return Subject(str(opened.file_of(only)), only.space, CacheMode.AS_RECORDED)


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


def import_recording(
    file: Path,
    *,
    name: str | None = None,
    workload: str | None = None,
    device_name: str | None = None,
    t1: Path | None = None,
) -> tuple[Path, Recording]:
    """Put a recording, a T4 file or a Kernel Tuner cache among the user's recordings.

    Args:
        file: What to read, all of it.
        name: The recorded device's name; else the file's.
        workload: What was tuned, where it isn't a recording of ours; else the kernel's name.
        device_name: The GPU, where the file doesn't say.
        t1: The T1 file beside a T4 file.

    Returns:
        Where it lies now, and what it is; `origin["notes"]` holds what is odd about it.

    Raises:
        UsageError: as `exchange.read`, or a recording of the same name is there already.
    """
    loaded = exchange.read(file, name=name, workload=workload, device_name=device_name, t1=t1)
    bundled = {f.name.split("-", 1)[0] for f in BUNDLED.rglob(f"*{SUFFIX}")}
    if loaded.imported and loaded.name in bundled:
        raise UsageError(f"recorded:{loaded.name} ships with warpdeck; give another --name")
    target = user_folder() / loaded.file_name
    if target.exists():
        raise UsageError(f"{target} exists already; remove it first to replace it, or give another --name")
    recordings.save(loaded, target)
    return target, loaded


def recording_text(name: str, form: str = "warpdeck", cache: CacheMode | None = None) -> str:
    """A recording as JSON, for warpdeck or another tuner.

    Args:
        name: Its id.
        form: `warpdeck` (all that is known; a valid T4 file), `t4` (plain T4), `kernel-tuner` (its cache).
        cache: Whose samples the last two hold; None: cold, or the only ones there are.

    Raises:
        UsageError: an unknown id or form, or samples that it hasn't.
    """
    if form not in EXPORTS:
        raise UsageError(f"unknown format '{form}'; {near(form, EXPORTS)}")
    recording = exchange.read(find_recording(name))
    if form == "kernel-tuner":
        return kernel_tuner_cache(recording, cache)
    if form == "t4":
        return json.dumps(t4_document(recording, cache), separators=(",", ":")) + "\n"
    if cache is not None:
        raise UsageError("the format warpdeck holds every cache mode: leave --cache out")
    return recordings.text(recording)


def export_recording(name: str, target: Path, form: str = "warpdeck", cache: CacheMode | None = None) -> Path:
    """Write a recording to `target`: a file, or a folder to put it in; see `recording_text`.

    It is compressed if the file's name ends with .gz, and warpdeck's own form always.

    Raises:
        UsageError: as `recording_text`.
        WarpdeckError: the file can't be written.
    """
    text = recording_text(name, form, cache)
    path = target / f"{name}{EXPORTS[form]}" if target.is_dir() else target
    recordings.save_bytes(text.encode(), path, packed=path.suffix == ".gz" or form == "warpdeck")
    return path
