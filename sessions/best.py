"""The best of a session as one file that stands alone: knobs baked in, and a dispatch by size."""

from __future__ import annotations

from ..core.errors import UsageError
from ..core.model import Config, DeviceInfo, Trust
from ..core.workload import Variant, Workload
from . import paths, standalone_cuda, standalone_numba
from .attempts import workload_of
from .choices import best_of, choose
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
    info = state.info
    workload, variant, _ = subject(store, state)
    choices = choose(store, state, variant)
    lines = [
        f"{workload.name}: the best of session {store.id}",
        f"Variant {variant.name}, {_where(info.device if info else None)}.",
    ]
    if workload.generated_reference:
        lines.append(f"Judged by a reference that was {workload.generated_reference}.")
    for choice in choices:
        knobs = ", ".join(f"{name}={value}" for name, value in choice.config.items())
        after = f"; {knobs}" if knobs else ""
        if choice.median_ms is None:
            lines.append(f"{choice.case}: correct, not timed{after}")
            continue
        gain = f", {choice.baseline_ms / choice.median_ms:.2f}x the baseline" if choice.baseline_ms else ""
        lines.append(f"{choice.case}: {choice.median_ms * 1e3:.2f} µs{gain}{after}")
    if variant.language == "numba":
        return "best.py", standalone_numba.generate(workload, variant, choices, lines)
    folder = _folder(store, workload)
    return "best.cu", standalone_cuda.generate(workload, variant, choices, lines, folder=folder)


def subject(store: SessionStore, state: RunState | None = None) -> tuple[Workload, Variant, Config]:
    """The workload of a session, with the sources that it tried, its best variant, and that one's knobs.

    Raises UsageError: nothing worked, the workload is gone, or it is a recording's.
    """
    state = state or store.state()
    try:
        best = best_of(state)
    except UsageError:
        raise UsageError(f"session {store.id} has no measured configuration to export") from None
    workload = workload_of(store, state.info.workload if state.info else None)
    if workload.recorded:
        raise UsageError(f"{workload.name} was imported: a recording holds no kernel")
    return workload, workload.variant(str(best["variant"])), dict(best["config"])


def _folder(store: SessionStore, workload: Workload) -> str | None:
    """Where the file, among the artifacts, finds its workload; None: by its name."""
    if workload.trust is Trust.BUNDLED:
        return None
    artifacts = (store.folder / paths.ARTIFACTS).resolve()
    inside = workload.folder.is_relative_to(artifacts)
    return workload.folder.relative_to(artifacts).as_posix() if inside else str(workload.folder)


def _where(device: DeviceInfo | None) -> str:
    if device is None:
        return "on an unknown device"
    if device.emulated:
        return f"correct on {device.label}, which times nothing"
    return device.label if device.recorded else f"measured on {device.label}"
