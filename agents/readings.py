"""NVML readings for the observation: live, a recording's stored ones, or zeros."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from ..core.devices.recorded import RecordedBackend
from ..telemetry import nvml
from .observation import nvml_features

if TYPE_CHECKING:
    from .tasks import Task

# NVML's own averages move no faster than these. Utilisation and memory take 10 µs to read, the temperature
# 400 µs; a full reading, which takes 50 ms, would cost as much as 40 steps.
_FAST_S, _TEMPERATURE_S = 0.05, 2.0


class NvmlReader:
    """The four NVML slots. A live device needs one reader however many environments share it.

    Readings are taken by the caller's thread, between measurements, so that none disturbs one.

    Args:
        task: On a recorded device, its case's own recording answers.
    """

    def __init__(self, task: Task) -> None:
        backend, info = task.bench.backend, task.bench.device
        self._uuid: str | None = None
        self._read = self._read_temperature = -math.inf
        self._temperature: int | None = None
        sample: dict[str, Any] = {}
        if isinstance(backend, RecordedBackend):
            sample = dict(backend.nvml_of(task.case))
            self.source = info.label if sample else "none: the recording holds no NVML sample"
        elif info.uuid is None or nvml.unavailable():
            self.source = f"none: {nvml.unavailable() or 'the device has no NVML identity'}"
        else:
            self._uuid = info.uuid
            self.source = "live"
        self._features = nvml_features(sample)

    def read(self) -> tuple[float, float, float, float]:
        """Values in [0, 1]. Live readings are reused for 50 ms, the temperature for 2 s."""
        if self._uuid is None:
            return self._features
        now = time.monotonic()
        if now - self._read < _FAST_S:
            return self._features
        self._read = now
        if now - self._read_temperature >= _TEMPERATURE_S:
            self._read_temperature = now
            self._temperature = nvml.temperature(self._uuid)
        reading = nvml.load(self._uuid)
        if reading is not None:
            self._features = nvml_features({**reading.to_json(), "temp_c": self._temperature})
        return self._features
