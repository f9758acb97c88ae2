"""What Nsight Compute read about one launch, as plain data that sessions, recordings and `--json` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Metric:
    """A value in its unit; `norm` is 0..1 where the metric is a share of something, else None."""

    value: float
    unit: str
    norm: float | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {"value": self.value, "unit": self.unit, "norm": self.norm}


@dataclass(frozen=True)
class HotSpot:
    """Samples at one machine instruction.

    `file` and `line`: of the source it came from, if known (0 otherwise).
    `stalls`: samples by reason (`long_scoreboard`…). `executed`: warp instructions executed.
    """

    file: str
    line: int
    sass: str
    address: int  # offset of the instruction in the kernel, bytes
    samples: int
    stalls: Mapping[str, int] = field(default_factory=dict)
    executed: int = 0
    source: str = ""  # text of the source line
    ptx: str = ""

    def to_json(self) -> dict[str, Any]:
        """An entry of `hotspots`."""
        return {**self.__dict__, "stalls": dict(self.stalls)}


@dataclass(frozen=True)
class Counters:
    """One profiled launch.

    `metrics` by our names (`achieved_occupancy`…) and by Nsight Compute's own; `missing`: name -> why it is
    absent. `meta` has, as far as known: workload, variant, config, case, set, cache, grid, block, passes,
    tool (Nsight Compute's version), device (`DeviceInfo.to_json()`), date.
    """

    kernel: str
    metrics: Mapping[str, Metric]
    missing: Mapping[str, str] = field(default_factory=dict)
    hotspots: tuple[HotSpot, ...] = ()  # most samples first
    meta: Mapping[str, Any] = field(default_factory=dict)

    def value(self, name: str) -> float | None:
        """A metric's value; None if it is missing."""
        metric = self.metrics.get(name)
        return None if metric is None else metric.value

    def to_json(self) -> dict[str, Any]:
        """JSON form, without the diagnosis."""
        return {
            "kernel": self.kernel,
            "metrics": {name: m.to_json() for name, m in self.metrics.items()},
            "missing": dict(self.missing),
            "hotspots": [h.to_json() for h in self.hotspots],
            "meta": dict(self.meta),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Counters:
        """Inverse of `to_json`; unknown keys are ignored. Raises KeyError, TypeError or ValueError."""
        return cls(
            kernel=str(data["kernel"]),
            metrics={
                str(name): Metric(float(m["value"]), str(m["unit"]), m.get("norm"))
                for name, m in data["metrics"].items()
            },
            missing={str(k): str(v) for k, v in data.get("missing", {}).items()},
            hotspots=tuple(
                HotSpot(**{k: v for k, v in h.items() if k in HotSpot.__dataclass_fields__})
                for h in data.get("hotspots", ())
            ),
            meta=dict(data.get("meta", {})),
        )
