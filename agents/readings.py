"""Readings for the observation, of NVML and of hardware counters: live, a recording's, or zeros."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.devices.recorded import RecordedBackend
from ..core.errors import WarpdeckError
from ..core.model import Candidate
from ..core.profiling import HOPELESS, NcuFailure
from ..telemetry import nvml
from .observation import COUNTERS, nvml_features

if TYPE_CHECKING:
    from .tasks import Task

# NVML's own averages move no faster than these. Utilisation and memory take 10 µs to read, the temperature
# 400 µs; a full reading, which takes 50 ms, would cost as much as 40 steps.
_FAST_S, _TEMPERATURE_S = 0.05, 2.0
# A start of Nsight Compute costs as much as some ten configurations: spaces up to this size take one a case.
_TOGETHER = 16


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


@dataclass(frozen=True)
class CounterReading:
    """The four counter slots in [0, 1]. Not `ok`: all zero, and `reason` says why."""

    ok: bool = False
    reason: str = ""
    values: tuple[float, ...] = (0.0,) * len(COUNTERS)


class CounterReader:
    """Hardware counters of configurations, each read once on each case, whoever asks.

    On a live device Nsight Compute runs in processes of its own, for seconds: once a case for all of a small
    space, else once a configuration. A recording answers at once.

    Args:
        timeout_s: time limit of one start of Nsight Compute.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._known: dict[tuple[str, str], CounterReading] = {}
        self._hopeless: CounterReading | None = None

    def read(self, task: Task, candidate: Candidate) -> CounterReading:
        """The counters of a configuration that was measured on a task. Never raises for a failure of them."""
        key = (candidate.id, task.case.name)
        if key not in self._known:
            self._known[key] = self._hopeless or self._collect(task, candidate)
        return self._known[key]

    def _collect(self, task: Task, candidate: Candidate) -> CounterReading:
        bench = task.bench
        configs = bench.configs() if len(bench.configs()) <= _TOGETHER else []
        wanted = [candidate, *(c for c in map(bench.candidate, configs) if c.id != candidate.id)]
        try:
            found, *_ = bench.backend.counters(
                wanted, task.case, cache=bench.protocol.cache, timeout_s=self._timeout_s
            )
        except WarpdeckError as error:
            return CounterReading(reason=str(error))
        if isinstance(found, NcuFailure):
            reading = CounterReading(reason=found.text)
            if found.kind in HOPELESS:  # it would be the same for every other configuration
                self._hopeless = reading
            return reading
        values = []
        for name in COUNTERS:
            norm = found.metrics[name].norm if name in found.metrics else None
            if norm is None:
                return CounterReading(reason=f"{name}: {found.missing.get(name, 'no share of anything')}")
            values.append(min(max(norm, 0.0), 1.0))
        return CounterReading(True, "", tuple(values))
