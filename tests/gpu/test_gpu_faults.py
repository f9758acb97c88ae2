"""A kernel that hangs, faults, overflows memory or takes its worker down costs only itself."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from warpdeck.core.bench import Bench
from warpdeck.core.devices.cuda import CudaDevice
from warpdeck.core.model import Candidate, Status, Trust
from warpdeck.kernels import load_workload
from warpdeck.kernels.scaffold import new_workload
from warpdeck.telemetry import nvml

pytestmark = pytest.mark.gpu

USABLE_S = 10.0  # after a failure
HANG = "while (true) *reinterpret_cast<volatile float *>(y) = 0.0f;"
FAILING = {  # what stands before the kernel, what it begins with, and what becomes of it
    "hang": ("", HANG, Status.TIMEOUT),
    "fault": ("", "*reinterpret_cast<volatile float *>(16) = 1.0f;", Status.RUNTIME_ERROR),
    "memory": (
        "__device__ float hog[1ull << 36];",
        "if (hog[threadIdx.x << 20] != 0.0f) y[0] = 1.0f;",
        Status.OUT_OF_MEMORY,
    ),
}


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    opened = CudaDevice(0)
    yield opened
    opened.close()


@pytest.fixture
def bench(device: CudaDevice, tmp_path: Path) -> Iterator[Bench]:
    new_workload(tmp_path / "axpy", "cuda")
    workload = load_workload(tmp_path / "axpy")
    made = Bench(workload, device, cases=[c for c in workload.cases if c.name == "million"])
    yield made
    made.close()


def variant(bench: Bench, name: str, trust: Trust, before: str = "", first: str = "") -> Candidate:
    """The template's kernel with blocks of 128 threads and something in front."""
    kernel = bench.workload.variant("kernel")
    start = kernel.source().index("{") + 1
    text = f"#define BLOCK 128\n{before}\n{kernel.source()[:start]}{first}\n{kernel.source()[start:]}"
    file = kernel.file.with_name(f"{name}.cu")
    file.write_text(text)
    launches = tuple(
        dataclasses.replace(x, grid=("ceil_div(n, 128)",), block=("128",)) for x in kernel.launches
    )
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return bench.add_variant(
        dataclasses.replace(kernel, name=name, file=file, launches=launches, source_hash=digest, trust=trust)
    )


def usable(bench: Bench, trust: Trust) -> None:
    """Judge a kernel that works."""
    started = time.monotonic()
    evaluation = bench.evaluate(variant(bench, "sound", trust))
    assert evaluation.status is Status.OK, evaluation.message
    assert time.monotonic() - started < USABLE_S


@pytest.mark.parametrize("trust", [Trust.OWN, Trust.GENERATED])
@pytest.mark.parametrize("kind", FAILING)
def test_a_failing_kernel_costs_its_limit_and_the_next_one_nothing(
    bench: Bench, kind: str, trust: Trust
) -> None:
    before, first, wanted = FAILING[kind]
    bench.baseline()
    started = time.monotonic()
    failed = bench.evaluate(variant(bench, kind, trust, before, first))
    assert failed.status is wanted, failed.message
    assert time.monotonic() - started < 10 + USABLE_S
    usable(bench, trust)


def test_a_worker_that_segfaults_costs_one_candidate(bench: Bench, device: CudaDevice) -> None:
    bench.baseline()
    before = device.workers.pids()

    def shoot() -> None:
        for pid in device.workers.pids() - before or before:
            os.kill(pid, signal.SIGSEGV)

    hanging = variant(bench, "hang", Trust.OWN, "", HANG)
    timer = threading.Timer(3.0, shoot)
    timer.start()
    evaluation = bench.evaluate(hanging)
    timer.join()
    assert evaluation.status is Status.RUNTIME_ERROR and "SIGSEGV" in evaluation.message
    usable(bench, Trust.OWN)
    listed = {process.pid for process in nvml.compute_processes(str(device.info.uuid))}
    assert not any(pid in listed for pid in before if not Path(f"/proc/{pid}").exists())
