"""For the emulator's tests: one kernel, built once a session and run in a process of its own."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from warpdeck.core.emulator import Array, Build, Builder, Built, Job, Process, Report, Scalar, collect
from warpdeck.core.model import Launch, Trust, Value

KERNELS = Path(__file__).parent / "data" / "emulator"


@functools.cache
def builder() -> Builder:
    """One for all tests of this process: its precompiled header takes seconds."""
    return Builder()


@dataclass
class Ran:
    """What a run left behind."""

    outputs: dict[str, np.ndarray]
    reports: list[Report] = field(default_factory=list)


def argument(name: str, value: Any) -> Array | Scalar:
    """An array is an input, ("out" | "inout" | "workspace", array) another buffer, else a NumPy scalar."""
    if isinstance(value, tuple):
        role, like = value
        return Array(name, role, str(like.dtype), like.shape, like if role == "inout" else None)
    if isinstance(value, np.ndarray):
        return Array(name, "in", str(value.dtype), value.shape, value)
    return Scalar(name, str(value.dtype), value.item())


def built(
    source: str | Path,
    entries: Sequence[str],
    build: Build = Build.CHECKED,
    knobs: Mapping[str, Value] | None = None,
    trust: Trust = Trust.OWN,
) -> Built:
    """Build a file, or text as kernel.cu."""
    with tempfile.TemporaryDirectory() as folder:
        file = source if isinstance(source, Path) else Path(folder) / "kernel.cu"
        if isinstance(source, str):
            file.write_text(source, encoding="utf-8")
        collected = collect(file, tuple(entries), knobs or {})
    return builder().build(collected, build, trust)


def serve(
    program: Built,
    entries: Sequence[str],
    launches: Sequence[Launch],
    arguments: Mapping[str, Any],
    *,
    schedule: int = 0,
    kernel_s: float = 10.0,
    trust: Trust = Trust.OWN,
) -> Ran:
    """Run launches once, in a process of their own."""
    process = Process(program, entries, trust, kernel_s=kernel_s)
    try:
        job = Job("case", [argument(n, v) for n, v in arguments.items()], launches, schedule)
        outputs, reports = process.run(job)
        return Ran(outputs, [process.located(report) for report in reports])
    finally:
        process.close()


def run(
    source: str | Path,
    launches: Launch | Sequence[Launch],
    arguments: Mapping[str, Any],
    *,
    build: Build = Build.CHECKED,
    schedule: int = 0,
    knobs: Mapping[str, Value] | None = None,
    kernel_s: float = 10.0,
    trust: Trust = Trust.OWN,
) -> Ran:
    """`built`, then `serve`."""
    several = [launches] if isinstance(launches, Launch) else list(launches)
    entries = tuple(dict.fromkeys(launch.entry for launch in several))
    program = built(source, entries, build, knobs, trust)
    return serve(program, entries, several, arguments, schedule=schedule, kernel_s=kernel_s, trust=trust)


def launch(entry: str, grid: Any = 1, block: Any = 32, shared: int = 0) -> Launch:
    """A launch whose extents may be single numbers."""

    def triple(extent: Any) -> tuple[int, int, int]:
        x, y, z = (*(extent if isinstance(extent, tuple) else (extent,)), 1, 1)[:3]
        return x, y, z

    return Launch(entry, triple(grid), triple(block), shared)
