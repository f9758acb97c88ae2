"""NVML: unsupported is None, no driver is no GPU, and nothing is read while paused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.core.worker.watch import disturbances
from warpdeck.telemetry import nvml
from warpdeck.telemetry.neighbours import Neighbours
from warpdeck.telemetry.readings import CLOCK_EVENT_REASONS, Snapshot, decode_reasons


class DriverError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"code {value}")
        self.value = value


class Driver:
    """A stand-in for the driver's library: one GPU that can't read its fan, ECC or instant power."""

    NVMLError = DriverError
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    NVML_TEMPERATURE_GPU = 0
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, NVML_TEMPERATURE_THRESHOLD_SHUTDOWN = 1, 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
    NVML_PCIE_UTIL_RX_BYTES, NVML_PCIE_UTIL_TX_BYTES = 1, 0

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.reasons = 0x4 | 0x40000
        self.violation_ns = 1000

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index != 0:
            raise DriverError(6)
        return "handle"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-1":
            raise DriverError(6)
        return "handle"

    def __getattr__(self, name: str) -> Any:
        values = {
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetUUID": "GPU-1",
            "nvmlDeviceGetIndex": 0,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=1000, used=10),
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=7, memory=3),
            "nvmlDeviceGetPowerUsage": 350_000,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetClockInfo": 1500,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetTemperatureV": 41,
            "nvmlDeviceGetPerformanceState": 0,
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetMigMode": (0, 0),
            "nvmlDeviceGetComputeMode": 0,
            "nvmlSystemGetProcessName": "python",
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=5, usedGpuMemory=None)],
            "nvmlSystemGetCudaDriverVersion_v2": 13000,
            "nvmlDeviceGetEncoderUtilization": [3, 167_000],
            "nvmlDeviceGetDisplayActive": 0,
            "nvmlDeviceGetProcessUtilization": [
                SimpleNamespace(pid=5, timeStamp=1, smUtil=90),
                SimpleNamespace(pid=5, timeStamp=3, smUtil=40),
                SimpleNamespace(pid=5, timeStamp=4, smUtil=3_000_000_000),  # known to occur
                SimpleNamespace(pid=6, timeStamp=2, smUtil=10),
            ],
        }
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def function(*args: Any) -> Any:
            self.calls[name] = self.calls.get(name, 0) + 1
            if name == "nvmlDeviceGetCurrentClocksEventReasons":
                return self.reasons
            if name == "nvmlDeviceGetViolationStatus" and args[1] == 1:
                return SimpleNamespace(violationTime=self.violation_ns)
            if name in values:
                return values[name]
            raise DriverError(3)

        return function


@pytest.fixture
def driver() -> Iterator[Driver]:
    fake = Driver()
    nvml.use_binding(fake)
    yield fake
    nvml.use_binding(None)


@pytest.fixture
def no_driver() -> Iterator[None]:
    def fail() -> None:
        raise DriverError(12)

    nvml.use_binding(SimpleNamespace(NVMLError=DriverError, nvmlInit=fail))
    yield
    nvml.use_binding(None)


def test_without_a_driver_everything_answers(no_driver: None) -> None:
    assert "no NVIDIA driver" in (nvml.unavailable() or "")
    assert nvml.devices() == [] and nvml.device_count() == 0
    assert nvml.snapshot(0) is None and nvml.device("GPU-1") is None
    assert nvml.compute_processes(0) == [] and nvml.violations(0) == {}
    assert nvml.driver_version() is None and nvml.cuda_version() is None


class TwoGpus(Driver):
    """A machine with a second GPU, which is busier."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        if index > 1:
            raise DriverError(6)
        return ("handle", "second")[index]

    def __getattr__(self, name: str) -> Any:
        usual = super().__getattr__(name)
        second = {
            "nvmlDeviceGetUUID": "GPU-2",
            "nvmlDeviceGetIndex": 1,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=99, memory=50),
        }

        def function(*args: Any) -> Any:
            if name == "nvmlDeviceGetCount":
                return 2
            return second[name] if args[:1] == ("second",) and name in second else usual(*args)

        return function


def test_neighbours_are_all_other_gpus() -> None:
    nvml.use_binding(TwoGpus())
    try:
        for mine, other, util in (("GPU-1", 1, 99), (1, 0, 7)):
            found = Neighbours(mine).read()
            assert found is not None and [reading["index"] for reading in found] == [other]
            assert (found[0]["gpu_util"], found[0]["temp_c"], found[0]["power_w"]) == (util, 41, 350.0)
            assert json.loads(json.dumps(found)) == found
    finally:
        nvml.use_binding(None)


def test_a_gpu_alone_has_no_neighbours(driver: Driver) -> None:
    neighbours = Neighbours("GPU-1")
    assert neighbours.read() is None
    driver.calls.clear()
    assert neighbours.read() is None
    assert not driver.calls


def test_unsupported_is_none_and_the_rest_is_read(driver: Driver) -> None:
    reading = nvml.snapshot("GPU-1")
    assert reading is not None
    assert (reading.gpu_util, reading.mem_used, reading.power_w, reading.temp_c) == (7, 10, 350.0, 41)
    assert reading.fan_pct is None and reading.ecc_uncorrected is None and reading.energy_j is None
    assert reading.throttle == ("software power cap", "0x40000")
    assert reading.to_json()["throttle"] == ["software power cap", "0x40000"]
    assert Snapshot.from_json(json.loads(json.dumps(reading.to_json()))) == reading
    assert (reading.graphics_mhz, reading.video_mhz, reading.encoder_util) == (1500, 1500, 3)
    assert reading.bar1_used is None and reading.nvlink_tx_kib is None and reading.decoder_util is None
    assert reading.processes is not None
    (process,) = reading.processes
    assert {k: v for k, v in process.items() if k != "user"} == {
        "pid": 5,
        "name": "python",
        "mem_used": None,
        "sm_util": 40,
        "graphics": False,
    }


class Desktop(Driver):
    """A GPU that a display server and a program use; the latter both draws and computes."""

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=4, usedGpuMemory=300), SimpleNamespace(pid=5, usedGpuMemory=20)]


class Silent(Driver):
    """A GPU whose processes can't be listed."""

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> None:
        raise DriverError(3)


def test_who_draws_is_listed_but_only_who_computes_is_foreign(driver: Driver) -> None:
    nvml.use_binding(Desktop())
    listed = nvml.slow_fields(0)["processes"]
    assert {(p["pid"], p["graphics"], p["mem_used"]) for p in listed} == {(4, True, 300), (5, True, None)}
    assert [p.pid for p in nvml.compute_processes(0)] == [5]
    nvml.use_binding(Silent())
    assert nvml.slow_fields(0)["processes"] is None and nvml.compute_processes(0) == []


def test_load_and_temperature_ask_for_nothing_else(driver: Driver) -> None:
    reading = nvml.load(0)
    assert reading is not None
    assert (reading.gpu_util, reading.mem_util, reading.mem_used, reading.mem_total) == (7, 3, 10, 1000)
    assert nvml.temperature(0) == 41 and nvml.temperature(9) is None and nvml.load(9) is None
    asked = {name for name in driver.calls if "GetHandle" not in name}
    assert asked == {
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetTemperatureV",
    }


def test_what_is_unsupported_is_asked_once(driver: Driver) -> None:
    for _ in range(3):
        nvml.snapshot(0)
    assert driver.calls["nvmlDeviceGetFanSpeed"] == 1
    assert driver.calls["nvmlDeviceGetPowerUsage"] == 3


def test_device_facts(driver: Driver) -> None:
    (gpu,) = nvml.devices()
    assert (gpu.name, gpu.uuid, gpu.compute_capability, gpu.mig) == ("NVIDIA H200", "GPU-1", (9, 0), False)
    assert gpu.display_active is False and gpu.pcie_max_gen is None
    assert nvml.device(1) is None and nvml.cuda_version() == (13, 0)
    assert [p.pid for p in nvml.compute_processes(0)] == [5]


def test_violation_counters_name_what_disturbed(driver: Driver) -> None:
    before = nvml.violations(0)
    assert before == {"thermal": 1000}
    driver.violation_ns += 1
    assert disturbances(before, nvml.violations(0)) == ["thermal"]
    assert disturbances({"power": 1}, {"power": 9}) == []


@given(st.integers(min_value=0, max_value=2**64 - 1))
def test_every_reason_bit_is_told(mask: int) -> None:
    names = decode_reasons(mask)
    by_name = {name: bit for bit, name in CLOCK_EVENT_REASONS.items()}
    assert sum(by_name[name] if name in by_name else int(name, 16) for name in names) == mask


@pytest.mark.gpu
def test_a_real_gpu_reports() -> None:
    gpu = nvml.devices()[0]
    reading = nvml.snapshot(gpu.uuid)
    assert reading is not None and reading.mem_total == gpu.memory_total
    assert nvml.driver_version() and isinstance(nvml.violations(0), dict)
