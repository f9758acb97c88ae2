"""The machine's other GPUs, in short: they share power, air and the host with the one that is measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import nvml

FIELDS = (
    *("gpu_util", "mem_used", "mem_total", "temp_c"),
    *("power_w", "power_limit_w", "sm_mhz", "sm_max_mhz", "throttle"),
)


class Neighbours:
    """All GPUs but `which`; which those are is asked once."""

    def __init__(self, which: nvml.Selector) -> None:
        self._which = which
        self._found: list[tuple[int, str]] | None = None

    def read(self) -> list[Mapping[str, Any]] | None:
        """A reading of each: `index`, `name` and `FIELDS`, None where unsupported; None without others."""
        if self._found is None:
            mine = nvml.device(self._which) if nvml.device_count() > 1 else None
            every = [] if mine is None else nvml.devices()
            self._found = [
                (gpu.index, gpu.name) for gpu in every if mine is not None and gpu.uuid != mine.uuid
            ]
        readings = []
        for index, name in self._found:
            snapshot = nvml.snapshot(index, slow=False)
            if snapshot is not None:
                data = {**snapshot.to_json(), "temp_c": nvml.temperature(index)}
                readings.append({"index": index, "name": name, **{field: data[field] for field in FIELDS}})
        return readings or None
