"""`sweep --record`: measure whole spaces of workloads on a live device, into recording files, or add hardware
counters to such files."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from ..core import recording as recordings
from ..core.bench import performance_cases
from ..core.devices.base import Backend
from ..core.errors import UsageError
from ..core.model import CacheMode, Candidate, Case, DeviceInfo, Status
from ..core.profiling import HOPELESS, TIMEOUT_S, NcuFailure, ProfileOptions
from ..core.record import PER_ROUND, ROUNDS, LiveBackend, record
from ..core.recording import SUFFIX, Recording
from ..core.workload import Workload
from ..telemetry import nvml
from ..telemetry.ncu.metrics import SEED
from .loader import load_workload
from .recordings import open_device

Progress = Callable[[str, int, int], None]  # (what, done, total)


def record_spaces(
    workloads: Sequence[str],
    target: Path,
    *,
    device: str = "auto",
    space: str = "classic",
    sizes: Sequence[int] = (),
    name: str | None = None,
    seed: int = 0,
    rounds: int = ROUNDS,
    per_round: int = PER_ROUND,
    allow_shared: bool = False,
    progress: Progress = lambda what, done, total: None,
) -> Iterator[Path]:
    """Record every size of every workload; yields each file once it is written.

    Args:
        workloads: names or folders.
        target: a file (ending in `.t4.json.gz`) for a single recording, else a folder.
        device: a live one.
        space: name of the space, all of whose configurations are measured.
        sizes: a recording each; empty means the workload's own performance cases, or its default size.
        name: the recordings' name; made from the GPU's if None ("h200").
        seed: of the order in each round.
        rounds: passes over the space.
        per_round: samples of each configuration and cache mode in a round.
        allow_shared: measure although other processes use the GPU.
        progress: told what is being done.

    Raises:
        UsageError: an unknown name, a recorded device, or several recordings for one file.
        NoDeviceError: the device isn't there.
        WarpdeckError: a baseline failed, or the target can't be written.
    """
    loaded = [load_workload(w) for w in workloads]
    todo = [(w, case) for w in loaded for case in performance_cases(w, sizes)]
    single = target.name.endswith(SUFFIX)
    if single and len(todo) > 1:
        raise UsageError(f"{target}: one file holds one recording, and this makes {len(todo)}; name a folder")
    if not single and target.exists() and not target.is_dir():
        raise UsageError(f"{target}: a recording's file name must end in {SUFFIX}")
    opened = open_device(device, allow_shared=allow_shared)
    try:
        info = opened.info
        if info.recorded or info.emulated:
            raise UsageError(f"{info.label}: only a live device can be recorded; use --device cuda:0")
        called = name or short_name(info.name)
        for workload in loaded:
            mine = [case for w, case in todo if w is workload]
            # One backend for all sizes: compiled code, checks and the vendor's library are loaded once.
            backend = opened.prepare(workload, space=space, cases=mine, seed=seed, allow_shared=allow_shared)
            try:
                for case in mine:
                    made = record(
                        cast("LiveBackend", backend),
                        workload,
                        space,
                        case,
                        name=called,
                        seed=seed,
                        rounds=rounds,
                        per_round=per_round,
                        nvml=lambda: _sample(info.uuid),
                        progress=lambda what, done, total, w=workload, c=case: progress(
                            f"{w.name} {space} {c.name}: {what}", done, total
                        ),
                    )
                    path = target if single else target / made.file_name
                    recordings.save(made, path)
                    yield path
            finally:
                backend.close()
    finally:
        opened.close()


@dataclass(frozen=True)
class CountersAdded:
    """A recording that got counters: how many configurations, and why others have none."""

    path: Path
    configs: int
    failed: Mapping[str, str]  # by configuration key


def record_counters(
    workloads: Sequence[str],
    target: Path,
    *,
    device: str = "auto",
    space: str = "classic",
    sizes: Sequence[int] = (),
    name: str | None = None,
    cache: CacheMode = CacheMode.COLD,
    timeout_s: float = TIMEOUT_S,
    seed: int = 0,
    allow_shared: bool = False,
    progress: Progress = lambda what, done, total: None,
) -> Iterator[CountersAdded]:
    """Add the seed set of hardware counters to recordings of the same sources; their times stay as they are.

    One start of Nsight Compute reads all configurations of a recording.

    Args:
        workloads: names or folders.
        target: a recording's file, or a folder that has them, at any depth.
        device: a live one, of the recordings' model.
        space: name of the space.
        sizes: whose recordings; empty: all that are there.
        name: the recordings' name; made from the GPU's if None ("h200").
        cache: state of the caches before each launch.
        timeout_s: time limit of one start of Nsight Compute.
        seed: of the inputs.
        allow_shared: go on although other processes use the GPU.
        progress: told what is being done.

    Raises:
        UsageError: an unknown name, a recorded device, no such recording, or one of other sources or GPUs.
        NoDeviceError: the device isn't there.
        WarpdeckError: Nsight Compute can't read counters here.
    """
    loaded = [load_workload(w) for w in workloads]
    opened = open_device(device, allow_shared=allow_shared)
    try:
        info = opened.info
        if info.recorded or info.emulated:
            raise UsageError(f"{info.label}: only a live device's counters can be read; use --device cuda:0")
        called = name or short_name(info.name)
        todo = [(w, _recorded(target, w, space, sizes, called, info)) for w in loaded]
        options = ProfileOptions(cache=cache, timeout_s=timeout_s)
        for workload, files in todo:
            cases = [workload.shape_case(r.params) for _, r in files]
            cases = [replace(case, name=r.case) for case, (_, r) in zip(cases, files, strict=True)]
            backend = opened.prepare(workload, space=space, cases=cases, seed=seed, allow_shared=allow_shared)
            try:
                for number, (case, (path, recording)) in enumerate(zip(cases, files, strict=True)):
                    progress(f"{workload.name} {space} {case.name}: counters", number, len(files))
                    yield _add_counters(backend, path, recording, case, options)
            finally:
                backend.close()
    finally:
        opened.close()


def _recorded(
    target: Path, workload: Workload, space: str, sizes: Sequence[int], name: str, info: DeviceInfo
) -> list[tuple[Path, Recording]]:
    """A workload's recordings of a space, in order of size."""
    start = f"{name}-{workload.name}-{space}-"
    paths = [target] if target.is_file() else sorted(target.rglob(f"{start}*{SUFFIX}"))
    read = [(path, recordings.load(path)) for path in paths]
    mine = [(p, r) for p, r in read if (r.workload, r.space, r.name) == (workload.name, space, name)]
    wanted = [str(size) for size in sizes]
    mine = [(p, r) for p, r in mine if not wanted or r.case in wanted]
    missing = [size for size in wanted if size not in {r.case for _, r in mine}]
    if not mine or missing:
        what = f" of size {missing[0]}" if missing else ""
        raise UsageError(
            f"{target}: no recording {start}*{SUFFIX}{what} to add counters to: record its times first,"
            " without --counters"
        )
    for path, recording in mine:
        if recording.source_hash != workload.variants[recording.variant].source_hash:
            raise UsageError(
                f"{path}: the kernel's source has changed since it was recorded; record it again"
            )
        if recording.device.name != info.name:
            raise UsageError(f"{path} was recorded on {recording.device.name}; this is {info.name}")
    return sorted(mine, key=lambda item: (len(item[1].case), item[1].case))


def _add_counters(
    backend: Backend, path: Path, recording: Recording, case: Case, options: ProfileOptions
) -> CountersAdded:
    entries = {key: e for key, e in recording.entries.items() if e.status is Status.OK}
    candidates = [Candidate(recording.variant, e.config, recording.source_hash) for e in entries.values()]
    read: dict[str, dict[str, float]] = {}
    failed: dict[str, str] = {}
    tool = kernel = None
    for key, found in zip(entries, backend.profile(candidates, case, options), strict=True):
        if isinstance(found, NcuFailure):
            if found.kind in HOPELESS:
                raise found.error()
            failed[key] = found.text
            continue
        norms = {n: found.metrics[n].norm for n in SEED if n in found.metrics}
        known = {n: round(norm, 6) for n, norm in norms.items() if norm is not None}
        if len(known) < len(SEED):
            failed[key] = "; ".join(
                f"{n}: {found.missing.get(n, 'no share')}" for n in SEED if n not in known
            )
            continue
        read[key] = known
        tool, kernel = found.meta.get("tool"), found.kernel
    protocol = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "set": options.set,
        "cache": str(options.cache),
        "invocation": options.invocation,
        "clock_control": "none",
        "tool": tool,
        "driver": backend.info.driver,
        "kernels": {recording.variant: kernel},
        "failed": failed,
    }
    document = recordings.with_counters(recordings.read_json(path), read, protocol)
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    recordings.save_bytes(text.encode(), path, packed=path.suffix == ".gz")
    return CountersAdded(path, len(read), failed)


def short_name(gpu: str) -> str:
    """A recording's name from a GPU's: "NVIDIA H200" is "h200", "NVIDIA GeForce RTX 4090" "rtx4090"."""
    words = [w for w in re.split(r"[^a-z0-9]+", gpu.lower()) if w and w not in ("nvidia", "geforce", "tesla")]
    return "".join(words) or "gpu"


def _sample(uuid: str | None) -> dict[str, object]:
    found = nvml.snapshot(uuid) if uuid else None
    return found.to_json() if found else {}
