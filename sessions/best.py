"""The best of a session as one file that stands alone: knobs baked in, and a dispatch by size."""

from __future__ import annotations

from ..core.errors import UsageError
from ..core.model import DeviceInfo
from ..kernels.imported import open_workload
from . import standalone_cuda, standalone_numba
from .choices import choose
from .spec import RunSpec
from .state import RunState
from .store import SessionStore


def standalone(store: SessionStore, state: RunState | None = None) -> tuple[str, str]:
    """File name and text of the best kernel: `best.py` (needs Numba) or `best.cu` (needs nvcc).

    Every case of the session gets the configuration that was fastest for it, unless the overall best is
    tied with that one; other sizes take the nearest case's.

    Raises:
        UsageError: nothing was measured, the workload is gone, its source has changed, or it can't be
            put into one file.
    """
    state = state or store.state()
    best, info = state.best, state.info
    if best is None or info is None:
        raise UsageError(f"session {store.id} has no measured configuration to export")
    workload = open_workload(_workload_name(store, info.workload))
    if workload.recorded:
        raise UsageError(f"{workload.name} was imported: a recording holds no kernel")
    variant = workload.variant(best.variant)
    choices = choose(store, state, variant)
    lines = [
        f"{workload.name}: the best of session {store.id}",
        f"Variant {variant.name}, {_where(info.device)}.",
    ]
    for choice in choices:
        knobs = ", ".join(f"{name}={value}" for name, value in choice.config.items())
        gain = f", {choice.baseline_ms / choice.median_ms:.2f}x the baseline" if choice.baseline_ms else ""
        lines.append(f"{choice.case}: {choice.median_ms * 1e3:.2f} µs{gain}; {knobs}")
    if variant.language == "numba":
        return "best.py", standalone_numba.generate(workload, variant, choices, lines)
    return "best.cu", standalone_cuda.generate(workload, variant, choices, lines)


def _where(device: DeviceInfo | None) -> str:
    if device is None:
        return "on an unknown device"
    return device.label if device.recorded else f"measured on {device.label}"


def _workload_name(store: SessionStore, name: str) -> str:
    spec = store.header().get("spec")
    return RunSpec.from_json(spec).workload if spec else name
