"""The counters of one configuration, from what a command or a script names: `profile`'s work."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from ..core.bench import performance_cases
from ..core.devices.base import Device
from ..core.devices.recorded import RecordedDevice
from ..core.devices.stored_counters import default, file_name, save
from ..core.errors import UsageError, WarpdeckError
from ..core.model import Candidate, Case
from ..core.profiling import NcuFailure, ProfileOptions, profile
from ..core.workload import Workload
from ..kernels.loader import load_workload
from ..kernels.recorder import short_name
from ..kernels.recordings import open_device
from ..telemetry.ncu.counters import Counters
from ..telemetry.ncu.errors import NcuError
from ..telemetry.ncu.run import metric_set
from .contenders import completed, implementation


def profile_one(
    workload: str,
    device: str | Device = "auto",
    *,
    knobs: Mapping[str, str] | None = None,
    variant: str | None = None,
    space: str | None = None,
    size: int | None = None,
    options: ProfileOptions | None = None,
    record: Path | None = None,
    seed: int = 0,
    allow_shared: bool = False,
) -> Counters:
    """The hardware counters of one configuration.

    A recorded device has what was recorded, whatever the options; without knobs, variant and space that is
    the profile it holds of this size.

    Args:
        workload: name or folder.
        device: as `--device`, or one that is open (which stays open).
        knobs: values by name, as texts; others take the baseline's value.
        variant: a variant's name, or a source file that implements the same task; None: the space's.
        space: whose knobs are named; None: the variant's first, or the first that has all the knobs.
        size: None: the workload's own performance case, or its default size.
        options: what to read, and how; None: the seed set.
        record: a folder of recordings to keep the profile in.
        seed: of the inputs.
        allow_shared: go on although other processes use the GPU.

    Raises:
        UsageError: an unknown name, an impossible value, or nothing is recorded.
        NoDeviceError: the device isn't there.
        ProfileError: the candidate or Nsight Compute failed; it says what to do.
    """
    options = options or ProfileOptions()
    try:
        metric_set(options.set, options.metrics)  # a mistyped name is told before a device is opened
    except NcuError as error:
        raise UsageError(str(error)) from None
    loaded, candidate, case = _subject(load_workload(workload), knobs or {}, variant, space, size)
    opened = open_device(device, allow_shared=allow_shared) if isinstance(device, str) else device
    try:
        info = opened.info
        if info.recorded and (options.keep or record):
            raise UsageError(f"{info.label}: only a live device's counters can be kept; use --device cuda:0")
        if info.emulated:
            raise UsageError(
                f"{info.label}: reads no hardware counters; use --device cuda:0 or recorded:h200"
            )
        if isinstance(opened, RecordedDevice) and not knobs and not space:
            found = default(opened, loaded, case, candidate.variant, only=variant is not None)
            if found is not None:
                return _lacking(found, options.metrics)
        fields = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
        result = profile(loaded, opened, [candidate], case, seed=seed, allow_shared=allow_shared, **fields)[0]
    finally:
        if isinstance(device, str):
            opened.close()
    if isinstance(result, NcuFailure):
        raise result.error()
    if info.recorded:
        return _lacking(result, options.metrics)
    if record is not None:
        keep(result, record, short_name(info.name))
    return result


def _lacking(counters: Counters, wanted: tuple[str, ...]) -> Counters:
    """The same, with the reason for what was asked for by name and isn't recorded."""
    absent = [name for name in wanted if name not in counters.metrics and name not in counters.missing]
    missing = {**counters.missing, **dict.fromkeys(absent, "not recorded; it takes a CUDA GPU")}
    return dataclasses.replace(counters, missing=missing)


def keep(counters: Counters, folder: Path, name: str) -> Path:
    """Put a profile beside the recordings of a device; returns its file. WarpdeckError if that fails.

    Of the sources' paths it keeps the names: where they lay on one machine says nothing on another.
    """
    meta = counters.meta
    spots = tuple(dataclasses.replace(spot, file=Path(spot.file).name) for spot in counters.hotspots)
    counters = dataclasses.replace(counters, hotspots=spots)
    path = folder / file_name(name, str(meta["workload"]), str(meta["variant"]), str(meta["case"]))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save(counters, path)
    except OSError as error:
        raise WarpdeckError(f"{path}: can't be written: {error.strerror or error}") from None
    return path


def _subject(
    workload: Workload, knobs: Mapping[str, str], variant: str | None, space: str | None, size: int | None
) -> tuple[Workload, Candidate, Case]:
    sizes = () if size is None else (size,)
    chosen, where = implementation(workload, variant, space, knobs=knobs)
    workload = dataclasses.replace(workload, variants={**workload.variants, chosen.name: chosen})
    config = completed(where, knobs, workload, sizes)
    return workload, Candidate(chosen.name, config, chosen.source_hash), performance_cases(workload, sizes)[0]
