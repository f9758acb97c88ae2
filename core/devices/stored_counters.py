"""Counters that were recorded: a profile in a file beside the recordings, or the seed set in a recording."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...telemetry.described import strange
from ...telemetry.ncu.counters import Counters, Metric
from ...telemetry.ncu.metrics import SEED
from ..errors import UsageError
from ..model import Candidate, Case, Status
from ..profiling import NcuFailure
from ..recording import Recording, config_key, read_json, save_bytes
from ..workload import Workload

if TYPE_CHECKING:
    from .recorded import RecordedDevice

SUFFIX = ".counters.json.gz"
FORMAT = 1


def file_name(name: str, workload: str, variant: str, case: str) -> str:
    """`h200-softmax-classic-1024.counters.json.gz`."""
    return f"{name}-{workload}-{variant}-{case}{SUFFIX}"


def save(counters: Counters, path: Path) -> None:
    """Write a profile; atomically, and compressed if the name ends with .gz. Raises OSError."""
    text = json.dumps({"format": FORMAT, **counters.to_json()}, separators=(",", ":"), allow_nan=False)
    save_bytes(text.encode(), path, packed=path.suffix == ".gz")


def load(path: Path) -> Counters:
    """Read a profile. UsageError if it is corrupt, foreign or from the future."""
    data = read_json(path)
    try:
        if int(data["format"]) > FORMAT:
            raise ValueError(f"written by a newer warpdeck (format {data['format']}); upgrade it")
        counters = Counters.from_json(data)
        _require_sound(counters)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"missing {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{path}: no profile, or a corrupt one: {what}") from None
    return counters


def _require_sound(counters: Counters) -> None:
    """Raise ValueError or TypeError for values that a screen couldn't show."""
    key = strange(counters.meta)
    if key is not None:
        raise ValueError(f"what it says of the launch's {key} makes no sense")
    for name, metric in counters.metrics.items():
        numbers = [metric.value] if metric.norm is None else [metric.value, float(metric.norm)]
        if not all(math.isfinite(n) for n in numbers):
            raise ValueError(f"metric {name} is no number")
    for spot in counters.hotspots:
        if not isinstance(spot.stalls, Mapping):
            raise TypeError("a hot spot's stalls are no mapping")
        whole = (spot.line, spot.address, spot.samples, spot.executed, *dict(spot.stalls).values())
        if not all(isinstance(n, int) for n in whole):
            raise ValueError("a hot spot's counts are no whole numbers")
        if not all(isinstance(t, str) for t in (spot.file, spot.sass, spot.source, spot.ptx, *spot.stalls)):
            raise ValueError("a hot spot's source is no text")


def find(
    folders: Iterable[Path], name: str, workload: str, variant: str | None = None, case: str | None = None
) -> list[Path]:
    """Files with profiles of a recorded device, of one variant and case or of all, sorted by name."""
    pattern = file_name(name, workload, variant or "*", case or "*")
    return sorted({file for folder in folders for file in folder.glob(pattern)})


def stored(
    device: RecordedDevice, workload: Workload, candidate: Candidate, case: Case
) -> Counters | NcuFailure:
    """A candidate's counters from a recorded device: its profile, else the seed set of its configuration."""
    others = []
    for path in find(device.folders, device.name, workload.name, candidate.variant, case.name):
        counters = load(path)
        if counters.meta.get("config") == dict(candidate.config):
            return labelled(counters, workload, device)
        others.append(_text(counters.meta.get("config") or {}))
    for recording in device.recordings(workload.name):
        if _answers(recording, case):
            found = of_recording(recording, candidate)
            if found is not None:
                return labelled(found, workload, device)
    every = find(device.folders, device.name, workload.name)
    known = ", ".join(p.name.removesuffix(SUFFIX).split("-", 2)[2] for p in every) or "none"
    hint = f"; a profile of {', '.join(others)} is there" if others else f"; stored profiles: {known}"
    reason = (
        f"no counters are recorded for {candidate.variant} {_text(candidate.config)}, case {case.name}, on"
        f" {device.info.spec}{hint}"
    )
    return NcuFailure(candidate, "not_recorded", reason, "profile it on a CUDA GPU")


def default(
    device: RecordedDevice, workload: Workload, case: Case, variant: str, *, only: bool = False
) -> Counters | None:
    """The counters of a case that a recorded device shows when no configuration is named, if it has any.

    The profile of `variant`, else (unless `only`) of another one; else what a recording holds of a baseline.
    """
    names = [variant, *(() if only else (v for v in workload.variants if v != variant))]
    for name in names:
        for path in find(device.folders, device.name, workload.name, name, case.name):
            return labelled(load(path), workload, device)
    for recording in device.recordings(workload.name):
        if recording.variant in names and _answers(recording, case):
            baseline = Candidate(recording.variant, recording.baseline.config, recording.source_hash)
            found = of_recording(recording, baseline)
            if found is not None:
                return labelled(found, workload, device)
    return None


def _answers(recording: Recording, case: Case) -> bool:
    return recording.case == case.name and dict(recording.params) == dict(case.params)


def of_recording(recording: Recording, candidate: Candidate) -> Counters | None:
    """The seed set that a recording holds of a configuration, as a profile; None if it holds none."""
    if candidate.variant != recording.variant:
        return None
    wanted = dict(candidate.config)
    entry = next((e for e in recording.entries.values() if dict(e.config) == wanted), None)
    if entry is None or entry.status is not Status.OK or not set(SEED) <= set(entry.counters):
        return None
    read = recording.counters
    return Counters(
        kernel=str(read.get("kernels", {}).get(candidate.variant, candidate.variant)),
        metrics={n: Metric(round(entry.counters[n] * 100, 9), "%", entry.counters[n]) for n in SEED},
        meta={
            "workload": recording.workload,
            "variant": candidate.variant,
            "source_hash": recording.source_hash,
            "config": wanted,
            "case": recording.case,
            "set": "seed",
            "cache": read.get("cache"),
            "invocation": read.get("invocation"),
            "tool": read.get("tool"),
            "device": recording.reading.to_json(),
            "date": read.get("date"),
        },
    )


def not_recorded(recording: Recording, candidate: Candidate) -> NcuFailure:
    """Why `of_recording` gave nothing."""
    key = config_key(candidate.config)
    why = recording.counters.get("failed", {}).get(key)
    if why is None and recording.counters:
        why = f"the recording holds no counters of {candidate.variant} {_text(candidate.config)}"
    return NcuFailure(candidate, "not_recorded", str(why or "the recording holds no hardware counters"))


def labelled(counters: Counters, workload: Workload, on: RecordedDevice) -> Counters:
    """The same, shown as recorded; `stale` where the kernel's source has changed since."""
    meta: dict[str, Any] = dict(counters.meta)
    device = dict(meta.get("device") or {})
    name, date = device.get("name", "unknown GPU"), meta.get("date") or device.get("date")
    meta["device"] = {
        **device,
        "spec": on.info.spec,
        "recorded": True,
        "date": date,
        "label": f"recorded on {name}, {date or 'date unknown'}",
    }
    variant = workload.variants.get(str(meta.get("variant")))
    meta["stale"] = variant is not None and meta.get("source_hash") not in (None, variant.source_hash)
    return Counters(counters.kernel, counters.metrics, counters.missing, counters.hotspots, meta)


def _text(config: Mapping[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in config.items())
