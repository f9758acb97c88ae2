"""The occupancy of one configuration, compiled here or as recorded: the work of the command `occupancy`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..core.bench import performance_cases
from ..core.errors import UsageError
from ..core.model import Candidate, Protocol
from ..core.toolchain import compile_candidate
from ..kernels.loader import load_workload
from ..kernels.recordings import open_device
from ..telemetry import nvml, occupancy
from .contenders import completed, implementation

DEFAULT_CC = (9, 0)


def parse_cc(text: str) -> tuple[int, int]:
    """A compute capability: 9.0, 90, sm_90 or sm_90a. Raises UsageError if it is none that is known."""
    digits = text.strip().lower().removeprefix("sm_").rstrip("af").replace(".", "")
    if digits.isdecimal() and 2 <= len(digits) <= 3:
        cc = int(digits[:-1]), int(digits[-1])
        if cc in occupancy.LIMITS:
            return cc
    known = " ".join(f"{major}.{minor}" for major, minor in occupancy.LIMITS)
    raise UsageError(f"--cc {text!r}: use one of {known}")


def local_cc() -> tuple[int, int]:
    """Of this machine's first GPU; 9.0 where there is none, or none that is known."""
    gpu = nvml.device(0)
    found = gpu.compute_capability if gpu else None
    return found if found is not None and found in occupancy.LIMITS else DEFAULT_CC


def numbers(
    cc: tuple[int, int], registers: int, threads: int, shared: int = 0, barriers: int = 0
) -> dict[str, Any]:
    """`occupancy.document` of numbers that a user gives. Raises UsageError for impossible ones."""
    try:
        return occupancy.document(cc, registers, threads, 0, shared, barriers)
    except ValueError as error:
        raise UsageError(str(error)) from None


def of_workload(
    workload: str,
    *,
    device: str | None = None,
    cc: tuple[int, int] | None = None,
    knobs: Mapping[str, str] | None = None,
    variant: str | None = None,
    space: str | None = None,
    size: int | None = None,
) -> dict[str, Any]:
    """`occupancy.document` of a configuration's first launch, and what it is of.

    Args:
        workload: name or folder.
        device: a recorded one, to take the numbers from there; None: compile.
        cc: what to compile for; None: this machine's GPU, else 9.0. A recorded device has its own.
        knobs: values by name, as texts; others take the baseline's.
        variant: a variant's name, or a source file for the same task; None: the space's.
        space: whose knobs are named; None: the variant's first, or the first that has all the knobs.
        size: None: the workload's own performance case, or its default size.

    Raises:
        UsageError: an unknown name, an impossible value, or nothing is recorded of it.
        CompileError: it doesn't compile.
        ToolchainError: no compiler is installed.
    """
    loaded = load_workload(workload)
    sizes = () if size is None else (size,)
    chosen, where = implementation(loaded, variant, space, knobs=knobs or {})
    loaded = dataclasses.replace(loaded, variants={**loaded.variants, chosen.name: chosen})
    config = completed(where, knobs or {}, loaded, sizes)
    candidate = Candidate(chosen.name, config, chosen.source_hash)
    case = performance_cases(loaded, sizes)[0]
    barriers = 0
    if device is not None:
        opened = open_device(device)
        try:
            if not opened.info.recorded or cc is not None:
                raise UsageError(f"--device {device}: name a recorded device, without --cc; or leave it out")
            backend = opened.prepare(loaded, space=where.name, cases=[case], seed=0)
            evaluation = backend.evaluate(candidate, [case], Protocol())
            backend.close()
            target, label = opened.info.compute_capability, opened.info.label
        finally:
            opened.close()
        resources = evaluation.resources
        if resources is None or target is None or case.name not in evaluation.launches:
            raise UsageError(f"{label} holds no resources of {_text(config)}: {evaluation.message}")
        launch, registers, static = (
            evaluation.launches[case.name][0],
            resources.registers,
            resources.shared_bytes,
        )
    else:
        target, label = cc or local_cc(), None
        compiled = compile_candidate(loaded, candidate, case, target)
        launch = compiled.launches[0]
        info = compiled.kernels[launch.entry]
        registers, static, barriers = info.registers, info.shared_bytes, info.barriers
    x, y, z = launch.block
    about = {"workload": loaded.name, "variant": chosen.name, "config": config, "case": case.name}
    found = occupancy.document(target, registers, x * y * z, static, launch.shared, barriers)
    return {**about, "device": label, "kernel": launch.entry, **found}


def _text(config: Mapping[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in config.items())
