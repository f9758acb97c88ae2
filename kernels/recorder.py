"""`sweep --record`: measure whole spaces of workloads on a live device, into recording files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

from ..core import recording as recordings
from ..core.bench import performance_cases
from ..core.errors import UsageError
from ..core.record import PER_ROUND, ROUNDS, LiveBackend, record
from ..core.recording import SUFFIX
from ..telemetry import nvml
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


def short_name(gpu: str) -> str:
    """A recording's name from a GPU's: "NVIDIA H200" is "h200", "NVIDIA GeForce RTX 4090" "rtx4090"."""
    words = [w for w in re.split(r"[^a-z0-9]+", gpu.lower()) if w and w not in ("nvidia", "geforce", "tesla")]
    return "".join(words) or "gpu"


def _sample(uuid: str | None) -> dict[str, object]:
    found = nvml.snapshot(uuid) if uuid else None
    return found.to_json() if found else {}
