"""Devices: `cuda:N` measures here, `cpu` emulates, `recorded:NAME` and `recorded:FILE` answer from stored
samples."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import exchange
from ..check import Plans
from ..errors import NoDeviceError, UsageError
from ..recording import SUFFIX
from .base import Backend, Device, Paired
from .recorded import RecordedDevice

__all__ = ["Backend", "Device", "Paired", "names_file", "open_device", "open_recorded"]

DEFAULT_RECORDING = "recorded:h200"


def open_device(
    spec: str,
    recording_files: Iterable[Path] = (),
    *,
    allow_shared: bool = False,
    plans: Plans | None = None,
    ahead: int = 0,
) -> Device:
    """Open `auto`, `cuda:N`, `cpu`, `recorded:NAME` or `recorded:FILE`.

    `recording_files` are the files that a NAME is looked up in (bundled with workloads or imported by the
    user). `auto` takes the first CUDA GPU, else the default recording. NoDeviceError if a CUDA device was
    asked for and isn't there; UsageError for anything that can't be a device. `plans` and
    `ahead`: see `CudaDevice`.
    """
    if spec == "auto":
        try:
            return _open_cuda(0, allow_shared=allow_shared, plans=plans, ahead=ahead)
        except NoDeviceError:
            return open_recorded(DEFAULT_RECORDING, recording_files)
    if spec.startswith("recorded:"):
        return open_recorded(spec, recording_files)
    match = re.fullmatch(r"cuda(?::(\d{1,3}))?", spec)
    if match:
        return _open_cuda(int(match[1] or 0), allow_shared=allow_shared, plans=plans, ahead=ahead)
    if spec == "cpu":
        from .cpu import CpuDevice

        return CpuDevice(plans=plans)
    near = difflib.get_close_matches(spec, ["auto", "cuda:0", "cpu", DEFAULT_RECORDING], n=1, cutoff=0.4)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise UsageError(f"unknown device '{spec}': use auto, cuda:N, cpu, recorded:NAME or recorded:FILE{hint}")


def names_file(spec: str) -> bool:
    """Whether a recorded device's spec is a file's path and not a recording's name."""
    return "/" in spec or spec.endswith((".json", ".gz"))


def open_recorded(spec: str, files: Iterable[Path]) -> RecordedDevice:
    """A recorded device from `recorded:NAME` (looked up among `files`) or `recorded:PATH`."""
    name = spec.removeprefix("recorded:")
    if not name:
        raise UsageError("recorded: needs a name or a file, as in recorded:h200")
    if names_file(spec):
        path = Path(name)
        # a file named by the user is judged at once
        return RecordedDevice(spec, [path], {path: exchange.read(path)})
    all_files = [f for f in files if f.name.endswith(SUFFIX)]
    found = [f for f in all_files if f.name.split("-", 1)[0] == name]
    if not found:
        names = sorted({f.name.split("-", 1)[0] for f in all_files})
        have = ", ".join(f"recorded:{n}" for n in names) or "none"
        raise UsageError(f"unknown recording '{name}'; available: {have}")
    return RecordedDevice(spec, found)


def _open_cuda(index: int, **options: Any) -> Device:
    from .cuda import CudaDevice

    return CudaDevice(index, **options)
