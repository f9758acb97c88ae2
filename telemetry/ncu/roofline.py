"""The roofline point of a launch and its speed-of-light bars."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .counters import Counters

_KINDS = ("fp32", "fp64", "fp16")
TENSOR_PCT = 5.0  # below this, tensor activity may be that of half-precision moves, which share the pipe
_MATRIX = re.compile(r"\b(?:[A-Z]*GMMA|[HIDQBO]MMA|UTC\w*MMA)\b")  # not HFMA2.MMA, which is none


@dataclass(frozen=True)
class Roofline:
    """What a launch achieved against two roofs. What is not known is None, and `missing` says why.

    `kind`: the precision with most operations (fp32, fp64 or fp16), whose peak is the compute roof. Only its
    operations count: compilers also move constants with half-precision instructions.
    `flops`, `bytes`: of the launch, device memory's bytes. `*_per_s`: rates. `intensity`: flop/byte.
    `compute_measured`, `memory_measured`: whether a peak was measured on the device; else it is the report's,
    a theoretical one for the clock the launch ran at.
    """

    kind: str | None
    flops: float | None
    bytes: float | None
    flops_per_s: float | None
    bytes_per_s: float | None
    peak_flops_per_s: float | None
    peak_bytes_per_s: float | None
    compute_measured: bool = False
    memory_measured: bool = False
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def peaks_from(self) -> str:
        """ "report", "measured", or "report and measured"."""
        measured = (self.compute_measured, self.memory_measured)
        return "measured" if all(measured) else "report and measured" if any(measured) else "report"

    @property
    def intensity(self) -> float | None:
        """Operations by byte of device memory's traffic; None if there was none."""
        if self.flops is None or self.bytes is None or self.bytes <= 0:
            return None
        return self.flops / self.bytes

    @property
    def ridge(self) -> float | None:
        """The intensity at which the two roofs meet, flop/byte."""
        if self.peak_flops_per_s is None or not self.peak_bytes_per_s:
            return None
        ridge = self.peak_flops_per_s / self.peak_bytes_per_s
        return ridge if math.isfinite(ridge) else None

    @property
    def roof(self) -> str | None:
        """The lower roof at this intensity: "memory" or "compute"."""
        if self.intensity is None or self.ridge is None:
            return None
        return "memory" if self.intensity < self.ridge else "compute"

    @property
    def ceiling(self) -> float | None:
        """The rate that the lower roof allows, flop/s."""
        if self.intensity is None or self.peak_flops_per_s is None or self.peak_bytes_per_s is None:
            return None
        return min(self.peak_flops_per_s, self.intensity * self.peak_bytes_per_s)

    @property
    def of_roof(self) -> float | None:
        """How near the launch comes to the lower roof: 1 is at it; a measured roof may be exceeded."""
        if self.flops == 0 and self.bytes_per_s is not None and self.peak_bytes_per_s:
            return self.bytes_per_s / self.peak_bytes_per_s
        if not self.ceiling or self.flops_per_s is None:
            return None
        return self.flops_per_s / self.ceiling

    def to_json(self) -> dict[str, Any]:
        """JSON form, with what follows from the fields."""
        names = ("peaks_from", "intensity", "ridge", "roof", "ceiling", "of_roof")
        derived = {name: getattr(self, name) for name in names}
        return {**self.__dict__, "missing": dict(self.missing), **derived}


def point(counters: Counters) -> Roofline | None:
    """The roofline point of a launch; None if neither its operations nor its bytes are known.

    Peaks that were measured on the device, `meta["peaks"]`, take the place of the report's own.
    """
    missing: dict[str, str] = {}

    def get(name: str) -> float | None:
        value = counters.value(name)
        if value is None:
            missing[name] = counters.missing.get(name, "not collected; it is in the metric set roofline")
        return value

    seconds = get("duration_ns")
    operations = {kind: get(f"flops_{kind}") for kind in _KINDS}
    known = {kind: value for kind, value in operations.items() if value is not None}
    kind = max(known, key=lambda name: known[name]) if known else None
    flops = known[kind] if kind is not None else None
    moved = get("dram_bytes")
    if flops is None and moved is None:
        return None
    if tensor_cores(counters) is not None:
        missing["tensor_operations"] = "operations of the tensor cores are not counted"
    peak_flops = _measured(counters, "fp32_tflops", 1e12) if kind == "fp32" else None
    peak_bytes = _measured(counters, "dram_gbs", 1e9)
    compute_measured, memory_measured = peak_flops is not None, peak_bytes is not None
    if peak_flops is None and kind is not None:
        peak_flops = get(f"peak_flops_{kind}")
    if peak_bytes is None:
        peak_bytes = get("peak_dram_bytes_per_s")
    rate = 1e9 / seconds if seconds else None
    return Roofline(
        kind=kind,
        flops=flops,
        bytes=moved,
        flops_per_s=flops * rate if flops is not None and rate is not None else None,
        bytes_per_s=_rate(counters, moved, rate),
        peak_flops_per_s=peak_flops,
        peak_bytes_per_s=peak_bytes,
        compute_measured=compute_measured,
        memory_measured=memory_measured,
        missing=missing,
    )


def tensor_cores(counters: Counters) -> float | None:
    """Cycles in which the tensor cores worked, in percent; None if they did not, as far as can be told."""
    active = counters.value("tensor_active_pct")
    if not active:
        return None
    if counters.hotspots:
        return active if any(_MATRIX.search(spot.sass) for spot in counters.hotspots) else None
    return active if active >= TENSOR_PCT else None


def _measured(counters: Counters, name: str, unit: float) -> float | None:
    """One of the peaks that were measured on the launch's device."""
    peaks = counters.meta.get("peaks")
    value = peaks.get(name) if isinstance(peaks, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        return None
    return unit * value


def _rate(counters: Counters, moved: float | None, rate: float | None) -> float | None:
    """Bytes in a second: the counter's own, which was read in one pass, else bytes over duration."""
    own = counters.value("dram_bytes_per_s")
    if own is not None:
        return own
    return moved * rate if moved is not None and rate is not None else None


@dataclass(frozen=True)
class Roof:
    """A slope of the roofline plot: bytes a second, and whether that was measured or is theoretical."""

    label: str
    bytes_per_s: float
    measured: bool


def roofs(counters: Counters, point: Roofline | None) -> list[Roof]:
    """Memory's roofs: DRAM's as it was measured on this device, else by bus and clock, as Nsight Compute says
    it for this launch; the L2's where it was measured."""
    found = []
    if point is not None and point.peak_bytes_per_s:
        found.append(Roof("DRAM", point.peak_bytes_per_s, point.memory_measured))
    device = counters.meta.get("device")
    l2 = device.get("l2_gbs") if isinstance(device, dict) else None
    if isinstance(l2, int | float) and not isinstance(l2, bool) and l2 > 0:
        found.append(Roof("L2", 1e9 * l2, True))
    return found


@dataclass(frozen=True)
class Bar:
    """One speed-of-light bar: share of a peak, 0..1; None with the reason in `missing`."""

    name: str
    label: str
    share: float | None
    missing: str = ""


# (quantity, its label on the bar); the parts of the memory bar come after it.
_BARS = (
    ("sm_throughput_pct", "Compute"),
    ("memory_throughput_pct", "Memory"),
    ("dram_bw_pct", "DRAM"),
    ("l2_throughput_pct", "L2"),
    ("l1_throughput_pct", "L1 and shared"),
    ("tensor_active_pct", "Tensor cores"),
)


def speed_of_light(counters: Counters) -> list[Bar]:
    """Compute, memory and memory's parts as shares of their peaks, always all of them in this order."""
    bars = []
    for name, label in _BARS:
        metric = counters.metrics.get(name)
        why = "" if metric else counters.missing.get(name, "not collected; it is in the metric set roofline")
        bars.append(Bar(name, label, metric.norm if metric else None, why))
    return bars
