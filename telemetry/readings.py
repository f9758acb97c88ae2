"""What NVML says, as plain data: a GPU, one reading of it, its processes. Nothing here calls the driver.

Units are in the names; memory is bytes, ratios are percent. None: this GPU, driver or user can't read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Bits of the clock event reasons (once "throttle reasons"); those unknown to us are shown raw.
CLOCK_EVENT_REASONS: dict[int, str] = {
    0x001: "idle",
    0x002: "applications clocks",
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
    0x100: "display clock setting",
    0x200: "board limit",
    0x400: "reliability",
}
# The reasons that spoil a measurement; a software power cap is only worth a label.
DISTURBING_REASONS: frozenset[str] = frozenset(
    {
        "hardware slowdown",
        "software thermal slowdown",
        "hardware thermal slowdown",
        "hardware power brake",
        "reliability",
    }
)


def decode_reasons(mask: int | None) -> tuple[str, ...]:
    """Names of the clock event reasons in a bit mask; unknown bits as hexadecimal. Idle alone is kept."""
    if not mask:
        return ()
    names = [name for bit, name in CLOCK_EVENT_REASONS.items() if mask & bit]
    rest = mask & ~sum(CLOCK_EVENT_REASONS)
    if rest:
        names.append(hex(rest))
    return tuple(names)


@dataclass(frozen=True)
class Gpu:
    """What does not change while a process lives."""

    index: int
    name: str
    uuid: str
    pci_bus_id: str | None = None
    memory_total: int | None = None
    memory_bus_bits: int | None = None
    compute_capability: tuple[int, int] | None = None
    cuda_cores: int | None = None
    sm_max_mhz: int | None = None
    sm_default_mhz: int | None = None  # the default applications clock
    mem_max_mhz: int | None = None
    power_default_limit_w: float | None = None
    slowdown_temp_c: int | None = None
    shutdown_temp_c: int | None = None
    mig: bool | None = None
    persistence: bool | None = None
    compute_mode: str | None = None  # "default", "exclusive process", "prohibited"
    display_active: bool | None = None  # a screen is driven by it
    pcie_max_gen: int | None = None
    pcie_max_width: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """One reading. None: this GPU, driver or user can't read it (never a made-up zero)."""

    t: float  # seconds since the epoch
    gpu_util: int | None = None
    mem_util: int | None = None  # share of time in which memory was read or written
    mem_used: int | None = None
    mem_total: int | None = None
    temp_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    mem_mhz: int | None = None
    mem_max_mhz: int | None = None
    throttle: tuple[str, ...] | None = None  # decoded clock event reasons
    pstate: int | None = None
    fan_pct: int | None = None
    ecc_uncorrected: int | None = None
    energy_j: float | None = None  # since the driver was loaded
    pcie_rx_kbs: int | None = None
    pcie_tx_kbs: int | None = None
    pcie_gen: int | None = None
    pcie_width: int | None = None
    graphics_mhz: int | None = None
    video_mhz: int | None = None
    encoder_util: int | None = None
    decoder_util: int | None = None
    bar1_used: int | None = None
    mem_temp_c: int | None = None
    nvlink_tx_kib: int | None = None  # of data, all links, since the counters were reset
    nvlink_rx_kib: int | None = None
    # Of each process: `pid`, `name`, `user`, `mem_used` (bytes), `sm_util` (%), `graphics` (does it draw).
    processes: tuple[Mapping[str, Any], ...] | None = None
    # Of each other GPU: `index`, `name` and `neighbours.FIELDS`; only in the first one after a slow reading.
    others: tuple[Mapping[str, Any], ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """The `sample` event's data."""
        data = dict(self.__dict__)
        for name in ("throttle", "processes", "others"):
            data[name] = None if data[name] is None else list(data[name])
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Snapshot:
        """Inverse of `to_json`; unknown keys are ignored."""
        known = {name: value for name, value in data.items() if name in cls.__dataclass_fields__}
        for name in ("throttle", "processes", "others"):
            known[name] = None if known.get(name) is None else tuple(known[name])
        return cls(**known)


@dataclass(frozen=True)
class ComputeProcess:
    """A process with a CUDA context on a GPU."""

    pid: int
    memory_used: int | None
    name: str | None
