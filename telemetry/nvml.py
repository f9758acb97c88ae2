"""NVML, wrapped once: what the driver tells about its GPUs, with None for whatever a GPU can't tell.

Nothing here raises for a missing driver, library, GPU, permission or field: counts are 0, lists empty,
values None, and `unavailable()` says why. A GPU is named by its index or, safer under
`CUDA_VISIBLE_DEVICES`, by its UUID. Units are in the names; memory is bytes, ratios are percent.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .readings import ComputeProcess, Gpu, Snapshot, decode_reasons

Selector = int | str  # index, or UUID as CUDA and NVML print it ("GPU-…")

_VIOLATION_POLICIES = {"power": 0, "thermal": 1, "sync_boost": 2, "board_limit": 3, "reliability": 5}
_VIOLATION_FIELDS = {
    "software_thermal": 269,
    "hardware_thermal": 270,
    "power_brake": 271,
}
_POWER_INSTANT = 186
_TOTAL_ENERGY = 83
_MEMORY_TEMPERATURE = 82
_NVLINK_TX, _NVLINK_RX = 138, 139
_ALL_LINKS = 0xFFFFFFFF
_CLOCK_GRAPHICS, _CLOCK_VIDEO = 0, 3
_COMPUTE = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")
_GRAPHICS = ("nvmlDeviceGetGraphicsRunningProcesses",)
_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


@dataclass
class _Library:
    """The binding, initialised in this process. `why` says why it is unusable."""

    nvml: Any
    why: str | None
    pid: int
    unsupported: set[tuple[str, str]] = field(default_factory=set)  # (device, function)
    handles: dict[Selector, Any] = field(default_factory=dict)
    static: dict[str, dict[str, Any]] = field(default_factory=dict)

    def call(self, function: str, *args: Any, device: str = "") -> Any:
        """The function's value, or None for any NVML error. What is unsupported is asked only once."""
        if self.nvml is None or (device, function) in self.unsupported:
            return None
        try:
            return getattr(self.nvml, function)(*args)
        except AttributeError:
            self.unsupported.add((device, function))
        except self.nvml.NVMLError as error:
            code = getattr(error, "value", None)
            # 3 not supported, 13 function not found in this driver, 25 argument version mismatch
            if code in (3, 13, 25):
                self.unsupported.add((device, function))
        except (UnicodeDecodeError, ValueError):
            pass
        return None


_lock = threading.Lock()
_library: _Library | None = None


def _open(binding: Any = None) -> _Library:
    """Initialise NVML once per process; a forked child initialises its own."""
    global _library
    with _lock:
        if _library is not None and _library.pid == os.getpid():
            return _library
        _library = _initialise(binding)
        return _library


def _initialise(binding: Any) -> _Library:
    if binding is None:
        try:
            import pynvml as binding
        except ImportError:
            return _Library(None, "the package nvidia-ml-py is not installed", os.getpid())
    try:
        binding.nvmlInit()
    except (binding.NVMLError, OSError) as error:
        code = getattr(error, "value", None)
        why = {
            9: "the NVIDIA driver is not loaded",
            12: "no NVIDIA driver (its library libnvidia-ml.so.1 was not found)",
            18: "the driver and its NVML library have different versions; restart the machine",
        }.get(code or 0, f"NVML does not start: {error}")
        return _Library(None, why, os.getpid())
    return _Library(binding, None, os.getpid())


def use_binding(binding: Any) -> None:
    """Use another module in place of `pynvml`, or None to go back; forgets everything known."""
    global _library
    with _lock:
        _library = None if binding is None else _initialise(binding)


def unavailable() -> str | None:
    """Why NVML can't be used, or None if it can."""
    return _open().why


def driver_version() -> str | None:
    """For instance "580.159.03"."""
    return _open().call("nvmlSystemGetDriverVersion")


def cuda_version() -> tuple[int, int] | None:
    """The newest CUDA version the driver supports."""
    value = _open().call("nvmlSystemGetCudaDriverVersion_v2")
    return None if value is None else (value // 1000, value % 1000 // 10)


def device_count() -> int:
    """GPUs the driver sees; 0 without one."""
    return _open().call("nvmlDeviceGetCount") or 0


def devices() -> list[Gpu]:
    """All GPUs, in NVML's order (by PCI bus)."""
    found = (device(index) for index in range(device_count()))
    return [gpu for gpu in found if gpu is not None]


def device(which: Selector) -> Gpu | None:
    """One GPU, or None if there is none of that index or UUID."""
    library = _open()
    handle = _handle(library, which)
    if handle is None:
        return None
    nvml, ask = library.nvml, _asker(library, handle, which)
    uuid = ask("nvmlDeviceGetUUID")
    index = ask("nvmlDeviceGetIndex")
    pci = ask("nvmlDeviceGetPciInfo")
    memory = ask("nvmlDeviceGetMemoryInfo")
    capability = ask("nvmlDeviceGetCudaComputeCapability")
    limit = ask("nvmlDeviceGetPowerManagementDefaultLimit")
    mig = ask("nvmlDeviceGetMigMode")
    persistence = ask("nvmlDeviceGetPersistenceMode")
    mode = ask("nvmlDeviceGetComputeMode")
    display = ask("nvmlDeviceGetDisplayActive")
    bus_id = getattr(pci, "busId", None)
    return Gpu(
        index=int(index) if index is not None else (which if isinstance(which, int) else -1),
        name=ask("nvmlDeviceGetName") or "unnamed GPU",
        uuid=uuid or str(which),
        pci_bus_id=bus_id.decode() if isinstance(bus_id, bytes) else bus_id,
        memory_total=getattr(memory, "total", None),
        memory_bus_bits=ask("nvmlDeviceGetMemoryBusWidth"),
        compute_capability=tuple(capability) if capability else None,
        cuda_cores=ask("nvmlDeviceGetNumGpuCores"),
        sm_max_mhz=ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        sm_default_mhz=ask("nvmlDeviceGetDefaultApplicationsClock", nvml.NVML_CLOCK_SM),
        mem_max_mhz=ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM),
        power_default_limit_w=None if limit is None else limit / 1000,
        slowdown_temp_c=ask("nvmlDeviceGetTemperatureThreshold", nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
        shutdown_temp_c=ask("nvmlDeviceGetTemperatureThreshold", nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
        mig=None if mig is None else bool(mig[0]),
        persistence=None if persistence is None else bool(persistence),
        compute_mode={0: "default", 2: "prohibited", 3: "exclusive process"}.get(mode),
        display_active=None if display is None else bool(display),
        pcie_max_gen=ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        pcie_max_width=ask("nvmlDeviceGetMaxPcieLinkWidth"),
    )


def snapshot(which: Selector, *, slow: bool = True) -> Snapshot | None:
    """Read a GPU now; None if it isn't there.

    `slow=False` leaves out what takes longer than 10 µs a call: temperatures, energy, PCIe, NVLink, ECC, fan,
    processes, and what hardly ever matters here (encoder, decoder, BAR1).
    """
    library = _open()
    handle = _handle(library, which)
    if handle is None:
        return None
    return Snapshot(t=time.time(), **_fast(library, handle, which), **(slow_fields(which) if slow else {}))


def load(which: Selector) -> Snapshot | None:
    """Utilisation and memory alone, in 10 µs; None if the GPU isn't there."""
    library = _open()
    handle = _handle(library, which)
    if handle is None:
        return None
    return Snapshot(t=time.time(), **_load(_asker(library, handle, which)))


def temperature(which: Selector) -> int | None:
    """°C, in 0.4 ms; None where it can't be read."""
    library = _open()
    handle = _handle(library, which)
    return None if handle is None else _temperature(library, _asker(library, handle, which))


def compute_processes(which: Selector) -> list[ComputeProcess]:
    """Processes with a context on the GPU, in no order. In a container the pids can be the host's."""
    library = _open()
    handle = _handle(library, which)
    if handle is None:
        return []
    return list((_running(library, _asker(library, handle, which), _COMPUTE) or {}).values())


def _running(
    library: _Library, ask: Callable[..., Any], functions: Sequence[str]
) -> dict[int, ComputeProcess] | None:
    """The processes that these list, by pid; None if the first can't be asked."""
    lists = [ask(function) for function in functions]
    if lists[0] is None:
        return None
    return {
        p.pid: ComputeProcess(p.pid, p.usedGpuMemory, library.call("nvmlSystemGetProcessName", p.pid))
        for listed in lists
        for p in listed or ()
    }


def clock_event_reasons(which: Selector) -> tuple[str, ...] | None:
    """What holds the clocks down now, in microseconds; None where it can't be read."""
    library = _open()
    handle = _handle(library, which)
    if handle is None:
        return None
    return _reasons(_asker(library, handle, which))


def violations(which: Selector) -> dict[str, int]:
    """Nanoseconds the clocks were held down so far, by reason; only counters this GPU has.

    Compare two readings: what grew in between disturbed the time in between.
    """
    library = _open()
    handle = _handle(library, which)
    if handle is None:
        return {}
    ask = _asker(library, handle, which)
    counters: dict[str, int] = {}
    for name, policy in _VIOLATION_POLICIES.items():
        status = ask("nvmlDeviceGetViolationStatus", policy, key=f"violation {name}")
        if status is not None:
            counters[name] = int(status.violationTime)
    counters.update(
        {
            name: int(value)
            for name, value in _fields(library, handle, which, _VIOLATION_FIELDS).items()
            if value is not None
        }
    )
    return counters


def _handle(library: _Library, which: Selector) -> Any:
    if which not in library.handles:
        by_uuid = isinstance(which, str)
        function = "nvmlDeviceGetHandleByUUID" if by_uuid else "nvmlDeviceGetHandleByIndex"
        handle = library.call(function, which)
        if handle is None:
            return None
        library.handles[which] = handle
    return library.handles[which]


def _asker(library: _Library, handle: Any, which: Selector) -> Callable[..., Any]:
    def ask(function: str, *args: Any, key: str | None = None) -> Any:
        device_key = f"{which} {key or (args if args else '')}"
        return library.call(function, handle, *args, device=device_key)

    return ask


def _fields(
    library: _Library, handle: Any, which: Selector, ids: Mapping[str, int | tuple[int, int]]
) -> dict[str, Any]:
    """Several field values in one call, by id or (id, scope); each None where its own return code isn't 0."""
    values = _asker(library, handle, which)("nvmlDeviceGetFieldValues", list(ids.values()))
    if values is None:
        return dict.fromkeys(ids)
    result: dict[str, Any] = {}
    for name, value in zip(ids, values, strict=True):
        known = value.nvmlReturn == 0 and value.valueType < len(_VALUE_MEMBERS)
        result[name] = getattr(value.value, _VALUE_MEMBERS[value.valueType]) if known else None
    return result


def _fast(library: _Library, handle: Any, which: Selector) -> dict[str, Any]:
    """Fields that take microseconds."""
    nvml, ask = library.nvml, _asker(library, handle, which)
    power = _fields(library, handle, which, {"instant": _POWER_INSTANT})["instant"]
    if power is None:
        power = ask("nvmlDeviceGetPowerUsage")
    limit = ask("nvmlDeviceGetEnforcedPowerLimit")
    pstate = ask("nvmlDeviceGetPerformanceState")
    fixed = library.static.setdefault(
        str(which),
        {
            "sm_max_mhz": ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
            "mem_max_mhz": ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM),
        },
    )
    return {
        **_load(ask),
        "power_w": None if power is None else power / 1000,
        "power_limit_w": None if limit is None else limit / 1000,
        "sm_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        "mem_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        "graphics_mhz": ask("nvmlDeviceGetClockInfo", _CLOCK_GRAPHICS),
        "video_mhz": ask("nvmlDeviceGetClockInfo", _CLOCK_VIDEO),
        "throttle": _reasons(ask),
        "pstate": pstate if pstate is not None and pstate < 16 else None,  # 32: unknown
        **fixed,
    }


def _load(ask: Callable[..., Any]) -> dict[str, Any]:
    utilisation = ask("nvmlDeviceGetUtilizationRates")  # not supported under MIG
    memory = ask("nvmlDeviceGetMemoryInfo")
    return {
        "gpu_util": getattr(utilisation, "gpu", None),
        "mem_util": getattr(utilisation, "memory", None),
        "mem_used": getattr(memory, "used", None),
        "mem_total": getattr(memory, "total", None),
    }


def _temperature(library: _Library, ask: Callable[..., Any]) -> int | None:
    value = ask("nvmlDeviceGetTemperatureV", library.nvml.NVML_TEMPERATURE_GPU)
    return ask("nvmlDeviceGetTemperature", library.nvml.NVML_TEMPERATURE_GPU) if value is None else value


def _reasons(ask: Callable[..., Any]) -> tuple[str, ...] | None:
    mask = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if mask is None:  # drivers before 535 know the old name only
        mask = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    return None if mask is None else decode_reasons(mask)


def slow_fields(which: Selector) -> dict[str, Any]:
    """Fields that take 0.3 ms or more; PCIe throughput alone integrates over 20 ms."""
    library = _open()
    handle = _handle(library, which)
    if handle is None:
        return {}
    nvml, ask = library.nvml, _asker(library, handle, which)
    ids = {"energy": _TOTAL_ENERGY, "memory": _MEMORY_TEMPERATURE}
    links = {"tx": (_NVLINK_TX, _ALL_LINKS), "rx": (_NVLINK_RX, _ALL_LINKS)}
    values = _fields(library, handle, which, ids)
    nvlink = _fields(library, handle, which, links)
    energy, coders = values["energy"], {}
    for name in ("Encoder", "Decoder"):
        found = ask(f"nvmlDeviceGet{name}Utilization")  # and the sampling period, µs
        coders[name] = int(found[0]) if isinstance(found, Sequence) and found else None
    return {
        "temp_c": _temperature(library, ask),
        "energy_j": None if energy is None else energy / 1000,
        "fan_pct": ask("nvmlDeviceGetFanSpeed"),
        "ecc_uncorrected": ask(
            "nvmlDeviceGetTotalEccErrors",
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        ),
        "pcie_rx_kbs": ask("nvmlDeviceGetPcieThroughput", nvml.NVML_PCIE_UTIL_RX_BYTES),
        "pcie_tx_kbs": ask("nvmlDeviceGetPcieThroughput", nvml.NVML_PCIE_UTIL_TX_BYTES),
        "pcie_gen": ask("nvmlDeviceGetCurrPcieLinkGeneration"),
        "pcie_width": ask("nvmlDeviceGetCurrPcieLinkWidth"),
        "encoder_util": coders["Encoder"],
        "decoder_util": coders["Decoder"],
        "bar1_used": getattr(ask("nvmlDeviceGetBAR1MemoryInfo"), "bar1Used", None),
        "mem_temp_c": values["memory"] or None,  # 0 where there is no sensor
        "nvlink_tx_kib": nvlink["tx"],
        "nvlink_rx_kib": nvlink["rx"],
        "processes": _processes(library, ask),
    }


def _processes(library: _Library, ask: Callable[..., Any]) -> tuple[Mapping[str, Any], ...] | None:
    """Who computes or draws, with users and shares of SM time since the driver's last samples."""
    compute, graphics = _running(library, ask, _COMPUTE), _running(library, ask, _GRAPHICS)
    if compute is None and graphics is None:
        return None
    latest: dict[int, tuple[int, int]] = {}
    for sample in ask("nvmlDeviceGetProcessUtilization", 0) or ():
        pid, when, share = int(sample.pid), int(sample.timeStamp), int(sample.smUtil)
        if share <= 100 and when > latest.get(pid, (-1, 0))[0]:  # garbage is known to occur
            latest[pid] = (when, share)
    return tuple(
        {
            "pid": process.pid,
            "name": process.name,
            "user": _user(process.pid),
            "mem_used": process.memory_used,
            "sm_util": latest[process.pid][1] if process.pid in latest else None,
            "graphics": process.pid in (graphics or {}),
        }
        for process in {**(graphics or {}), **(compute or {})}.values()
    )


def _user(pid: int) -> str | None:
    """Who runs a process of this machine; None if that can't be told (another container's, say)."""
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return str(uid)
