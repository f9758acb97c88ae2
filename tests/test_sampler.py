"""The NVML sampler and its process: still while paused; a driver that hangs, crashes or is gone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from warpdeck.telemetry.nvml_helper import Helper, Unavailable
from warpdeck.telemetry.readings import Snapshot
from warpdeck.telemetry.sampler import Sampler

# Stands in for the driver's binding in the sampler's process: one GPU, "GPU-1". Each call appends a line to
# the file `calls`; a file `hang` there makes calls of the function named in it block.
DRIVER = """
import os, time
from types import SimpleNamespace
HERE = os.path.dirname(os.path.abspath(__file__))
class NVMLError(Exception):
    def __init__(self, value):
        self.value = value
NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = NVML_VOLATILE_ECC = NVML_PCIE_UTIL_RX_BYTES = 1
NVML_PCIE_UTIL_TX_BYTES = 0
VALUES = {
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=7, memory=3),
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=1000, used=10),
    "nvmlDeviceGetTemperatureV": 41,
}
def nvmlInit():
    if os.path.exists(os.path.join(HERE, "gone")):
        raise NVMLError(12)
def __getattr__(name):
    if not name.startswith("nvml"):
        raise AttributeError(name)
    def function(*args):
        with open(os.path.join(HERE, "calls"), "a") as file:
            file.write(name + "\\n")
        hang = os.path.join(HERE, "hang")
        if os.path.exists(hang) and open(hang).read() == name:
            time.sleep(600)
        if name == "nvmlDeviceGetHandleByUUID" and args[0] == "GPU-1":
            return "handle"
        if name in VALUES:
            return VALUES[name]
        raise NVMLError(3)
    return function
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the stand-in."""
    (tmp_path / "pynvml.py").write_text(DRIVER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "calls").touch()
    return tmp_path


@pytest.fixture
def helper(driver: Path) -> Iterator[Helper]:
    helper = Helper("GPU-1", timeout_s=0.3)
    yield helper
    helper.close()


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def calls(driver: Path) -> int:
    return (driver / "calls").stat().st_size


def test_it_reads_and_stands_still_while_paused(driver: Path) -> None:
    seen: list[Snapshot] = []
    with Sampler("GPU-1", seen.append, interval_s=0.001, slow_interval_s=0.002) as sampler:
        until(lambda: seen and seen[-1].temp_c == 41)
        assert (seen[-1].gpu_util, seen[-1].mem_used, seen[-1].fan_pct) == (7, 10, None)
        for _ in range(5):
            with sampler.paused(), sampler.paused():
                before = calls(driver)
                time.sleep(0.02)
                assert calls(driver) == before
        count = len(seen)
        until(lambda: len(seen) > count)
        pid = sampler.pid
    assert pid is not None and sampler.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    before = calls(driver)
    time.sleep(0.02)
    assert calls(driver) == before


def test_one_process_reads_for_one_run_after_the_other(driver: Path) -> None:
    first: list[Snapshot] = []
    second: list[Snapshot] = []
    with Sampler("GPU-1", first.append, interval_s=0.001) as sampler:
        until(lambda: first)
        with sampler.paused():
            sampler.tell(second.append)
            told, pid = len(first), sampler.pid
        until(lambda: second)
        assert (len(first), sampler.pid) == (told, pid)


def test_starting_the_process_touches_no_driver(driver: Path, helper: Helper) -> None:
    helper.prepare()
    time.sleep(0.05)
    assert calls(driver) == 0
    assert (helper.ask("fast") or {})["gpu_util"] == 7


def test_a_hang_is_killed_and_reading_goes_on(driver: Path, helper: Helper) -> None:
    assert helper.ask("fast")
    first = helper.pid
    (driver / "hang").write_text("nvmlDeviceGetUtilizationRates")
    began = time.monotonic()
    assert helper.ask("fast") is None
    assert time.monotonic() - began < 30
    (driver / "hang").unlink()
    assert (helper.ask("fast") or {})["gpu_util"] == 7
    assert first is not None and helper.pid not in (None, first)


def test_a_slow_call_that_hangs_keeps_no_fast_one_waiting(driver: Path) -> None:
    seen: list[Snapshot] = []
    with Sampler("GPU-1", seen.append, interval_s=0.001, timeout_s=20) as sampler:
        (driver / "hang").write_text("nvmlDeviceGetTemperatureV")
        until(lambda: len(seen) > 20)
        assert sampler.pid is not None and all(s.temp_c is None for s in seen[-5:])


def test_a_crash_is_survived_three_times_are_enough(driver: Path, helper: Helper) -> None:
    for _ in range(3):
        assert helper.ask("fast")
        pid = helper.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: helper.pid is None)
    with pytest.raises(Unavailable, match="NVML doesn't answer"):
        helper.ask("fast")


def test_a_driver_that_always_hangs_is_told_once_and_never_blocks_a_measurement(driver: Path) -> None:
    (driver / "hang").write_text("nvmlDeviceGetUtilizationRates")
    said: list[str] = []
    with Sampler("GPU-1", lambda s: None, interval_s=0.001, timeout_s=0.1, problem=said.append) as sampler:
        until(lambda: calls(driver))
        began = time.monotonic()
        with sampler.paused():
            assert time.monotonic() - began < 30
        sampler._helper._starts = 3  # the next failure is the last
        until(lambda: said)
    assert said == ["NVML doesn't answer; there are no readings of the GPU any more"]


@pytest.mark.parametrize("which", ["GPU-2", "gone"])
def test_without_the_gpu_or_a_driver_nothing_is_sent_or_said(driver: Path, which: str) -> None:
    (driver / which).touch()
    seen: list[Snapshot] = []
    said: list[str] = []
    sampler = Sampler("GPU-1" if which == "gone" else which, seen.append, problem=said.append).start()
    until(lambda: sampler._stop.is_set())
    sampler.stop()
    assert seen == [] and said == []


def test_the_process_ends_with_the_one_that_reads(driver: Path, helper: Helper) -> None:
    assert helper.ask("slow")
    process = helper._process
    assert process is not None and process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0
