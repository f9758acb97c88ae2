"""The worker on a real GPU: clocks, checks, faults, and the GPU usable after each of them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from warpdeck.core.devices.cuda import CudaDevice
from warpdeck.core.model import CacheMode, Protocol, Status
from warpdeck.core.worker import Exchange, WorkerDied, WorkerFault, WorkerHandle, WorkerTimeout
from warpdeck.telemetry import nvml

pytestmark = pytest.mark.gpu

HEAD = 'extern "C" __global__ void {}(float* x, float* y, int n) {{ int i = blockIdx.x * 256 + threadIdx.x; '
BODIES = {
    "right": "if (i < n) y[i] = 2.0f * x[i] + 1.0f; }",
    "slow": "float v = i < n ? x[i] : 1.0f; for (int k = 0; k < n; ++k) v = __fsqrt_rn(v * v + 1e-30f);"
    " if (i < n) y[i] = 2.0f * x[i] + v; }",
    "overrun": "if (i <= n) y[i] = 2.0f * (i < n ? x[i] : 0.0f) + 1.0f; }",
    "underrun": "if (i < n) y[i] = 2.0f * x[i] + 1.0f; if (i == 0) y[-1] = 0; }",
    "spoil": "if (i < n) y[i] = 2.0f * x[i] + 1.0f; if (i == 3) x[3] = 7; }",
    "partial": "if (i < n && i % 5) y[i] = 2.0f * x[i] + 1.0f; }",
    "tiring": "if (i < n && launches <= 8 * gridDim.x) y[i] = 2.0f * x[i] + 1.0f;"
    " if (threadIdx.x == 0) atomicAdd(&launches, 1u); }",
    "numbered": "if (i < n) y[i] = launches; __syncthreads(); if (i == 0) ++launches; }",
    "slip": "if (i < n) y[i] = 2.0f * x[i] + 1.0f; if (i == 0 && launches++ == 2) y[-1] = 0; }",
    "hang": "while (n) ((volatile float*)y)[0] = x[0]; }",
    "wild": "y[1ll << 40] = x[0]; }",
    "trap": 'asm volatile("trap;"); }',
}
SOURCE = "__device__ unsigned launches;\n" + "\n".join(HEAD.format(k) + body for k, body in BODIES.items())


class Bed:
    """A device, the test kernels, and one vector case per size."""

    def __init__(self, folder: Path) -> None:
        self.device = CudaDevice(0)
        self.cubin = self.device.pool.submit_cuda(SOURCE, "test.cu", self.device.cc).result().cubin
        self.exchange = Exchange()
        self.folder = folder
        self._worker: WorkerHandle | None = None

    @property
    def worker(self) -> WorkerHandle:
        if self._worker is None or not self._worker.alive:
            self.use(self.device.spawn())
        assert self._worker is not None
        return self._worker

    def use(self, worker: WorkerHandle) -> None:
        """Work in this one from now on."""
        self._worker = worker
        worker.load("t", self.cubin, list(BODIES), "cuda")

    def job(self, entry: str, n: int = 1 << 16, **more: Any) -> dict[str, Any]:
        """Bind a case of n elements with three draws; a job's payload."""
        draws = {}
        for draw in range(3):
            path = self.folder / f"x{n}-{draw}"
            if not path.exists():
                np.random.default_rng(draw).standard_normal(n, dtype=np.float32).tofile(path)
            draws[draw] = {"x": {"path": str(path), "offset": 0}}
        vector = {"kind": "buffer", "dtype": "float32", "shape": [n], "nbytes": 4 * n}
        arguments = [
            {"name": "x", "direction": "in", **vector},
            {"name": "y", "direction": "out", **vector},
            {"name": "n", "kind": "scalar", "dtype": "int32", "value": n},
        ]
        out = {"y": {"path": str(self.exchange.allocate(f"y{n}", 4 * n)), "offset": 0}}
        self.worker.bind(f"n{n}", {"arguments": arguments, "seeds": draws, "outputs": out})
        launches = [[entry, [n // 256 + 1, 1, 1], [256, 1, 1], 0]]
        return {"code": "t", "key": f"n{n}", "launches": launches, **more}

    def right(self, draw: int, n: int = 1 << 16) -> bool:
        """Whether the shared file holds the right outputs for a draw."""
        x = np.fromfile(self.folder / f"x{n}-{draw}", np.float32)
        y = np.fromfile(self.exchange.allocate(f"y{n}", 4 * n), np.float32, count=n)
        return bool(np.allclose(y, 2 * x + 1, rtol=1e-5, atol=1e-6))

    def close(self) -> None:
        self.device.close()
        self.exchange.close()


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    made = Bed(tmp_path_factory.mktemp("data"))
    yield made
    made.close()


def fixed(cache: CacheMode, samples: int = 60) -> dict[str, Any]:
    return Protocol(cache, 5, samples, samples, False).to_json()


def test_facts_and_floors_are_plausible(bed: Bed) -> None:
    worker, info = bed.device.spawn(), bed.device.info
    floors = worker.call("floors", {}, 60)
    bed.device.workers.give(worker)
    assert 1e-4 < floors["launch_ms"] < 0.01
    assert info.dram_gbs and info.l2_gbs
    assert 0.5 * info.dram_gbs < floors["dram_read_gbs"] < 1.05 * info.dram_gbs
    assert info.l2_gbs > floors["dram_read_gbs"]
    assert info.fp32_tflops and 0.8 * info.fp32_tflops < floors["fp32_tflops"] < 1.02 * info.fp32_tflops


@pytest.mark.parametrize("n", [1, 257, 1 << 16, 1 << 22])
def test_a_right_kernel_is_right_on_every_draw(bed: Bed, n: int) -> None:
    for draw in (0, 2, 1):
        assert bed.worker.call("run", bed.job("right", n, seed=draw))["damage"] is None
        assert bed.right(draw, n)


@pytest.mark.parametrize(
    ("entry", "said"), [("overrun", "after y"), ("underrun", "before y"), ("spoil", "its input x")]
)
def test_what_a_kernel_must_not_write_is_noticed(bed: Bed, entry: str, said: str) -> None:
    job = bed.job(entry, seed=0)
    assert said in bed.worker.call("run", job)["damage"]
    bed.worker.kill()


def test_unwritten_elements_are_wrong(bed: Bed) -> None:
    bed.worker.call("run", bed.job("right", seed=0))
    bed.worker.call("run", bed.job("partial", seed=0))
    assert not bed.right(0)


@pytest.mark.parametrize("cache", [CacheMode.COLD, CacheMode.HOT])
def test_timed_launches_are_checked_on_contents_that_changed(bed: Bed, cache: CacheMode) -> None:
    answer = bed.worker.call("time", bed.job("right", protocol=fixed(cache)))
    assert len(answer["samples_ms"]) == 60
    assert bed.right(answer["seed"])
    bed.worker.kill()  # `tiring` counts launches in its module's memory
    answer = bed.worker.call("time", bed.job("tiring", protocol=fixed(cache)))
    assert not bed.right(answer["seed"])


def test_strangers_can_not_tell_which_launch_is_their_last(bed: Bed) -> None:
    bed.worker.kill()
    last = []
    for _ in range(6):
        bed.worker.call("time", bed.job("numbered", 200, protocol=fixed(CacheMode.HOT), poison=True))
        last.append(float(np.fromfile(bed.exchange.allocate("y200", 800), np.float32, count=1)[0]))
    assert len(set(np.diff(last))) > 1


def test_one_slip_outside_any_buffer_is_noticed_at_the_end(bed: Bed) -> None:
    for _ in range(3):
        bed.worker.kill()
        answer = bed.worker.call("time", bed.job("slip", 200, protocol=fixed(CacheMode.COLD)))
        assert "before y" in answer["damage"]
    bed.worker.kill()


def test_the_two_clocks_differ_by_a_constant(bed: Bed) -> None:
    medians: dict[tuple[str, int], float] = {}
    for n in (1 << 12, 1 << 16, 1 << 18):
        for clock in ("cupti", "event"):
            bed.worker.call("clock", {"clock": clock})
            answer = bed.worker.call("time", bed.job("right", n, protocol=fixed(CacheMode.HOT)))
            assert answer["clock"] == clock
            medians[clock, n] = 1e3 * float(np.median(answer["samples_ms"]))
    bed.worker.call("clock", {"clock": "cupti"})
    gaps = [medians["event", n] - medians["cupti", n] for n in (1 << 12, 1 << 16, 1 << 18)]
    assert min(gaps) > 1
    assert max(gaps) < 5
    assert max(gaps) - min(gaps) < 0.6


def test_cold_is_slower_than_hot_and_interleaving_finds_no_difference_to_itself(bed: Bed) -> None:
    medians = {}
    for cache in (CacheMode.COLD, CacheMode.HOT):
        answer = bed.worker.call("time", bed.job("right", 1 << 20, protocol=fixed(cache)))
        medians[cache] = float(np.median(answer["samples_ms"]))
        side = {k: bed.job("right", 1 << 20)[k] for k in ("code", "launches")}
        job = {"key": f"n{1 << 20}", "a": side, "b": side, "cache": str(cache), "blocks": 64, "warmup": 5}
        pair = bed.worker.call("pair", job)
        ratios = np.median(pair["a_ms"]) / np.median(pair["b_ms"])
        assert np.shape(pair["a_ms"]) == (64, 2)
        assert 0.98 < ratios < 1.02
    assert medians[CacheMode.COLD] > 1.05 * medians[CacheMode.HOT]


def test_many_candidates_in_one_round(bed: Bed) -> None:
    items = [{k: bed.job(entry, 1 << 12)[k] for k in ("code", "launches")} for entry in ("right", "slow")]
    job = {"key": f"n{1 << 12}", "items": items, "caches": ["cold", "hot"], "samples": 4, "warmup": 2}
    right, slow = bed.worker.call("rounds", job)["items"]
    assert len(right["cold"]["samples_ms"]) == len(slow["hot"]["samples_ms"]) == 4
    assert np.median(slow["hot"]["samples_ms"]) > 3 * np.median(right["hot"]["samples_ms"])


def test_quick_is_quick(bed: Bed) -> None:
    job = bed.job("right", cache="hot", samples=5)
    bed.worker.call("quick", job)
    started = time.perf_counter()
    for _ in range(100):
        assert len(bed.worker.call("quick", job)["samples_ms"]) == 5
    assert time.perf_counter() - started < 0.5


@pytest.mark.parametrize(
    ("entry", "status"),
    [("hang", Status.TIMEOUT), ("wild", Status.RUNTIME_ERROR), ("trap", Status.RUNTIME_ERROR)],
)
def test_a_fault_ends_the_worker_and_the_gpu_is_usable_at_once(bed: Bed, entry: str, status: Status) -> None:
    worker, job = bed.worker, bed.job(entry, seed=0)
    with pytest.raises(WorkerTimeout if entry == "hang" else WorkerFault) as caught:
        worker.call("run", job, 2.0)
    assert caught.value.status is status
    assert worker.gone
    assert not Path(f"/proc/{worker.pid}").exists()
    started = time.monotonic()
    assert bed.worker.call("run", bed.job("right", seed=0))["damage"] is None
    assert bed.right(0)
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("entry", ["hang", "wild", "trap"])
def test_idle_contexts_outlive_a_neighbour_that_fails(bed: Bed, entry: str) -> None:
    worker, job = bed.worker, bed.job(entry, seed=0)
    neighbours = [bed.device.spawn() for _ in range(2)]
    with pytest.raises(WorkerFault):
        worker.call("run", job, 2.0)
    for neighbour in neighbours:
        bed.use(neighbour)
        assert bed.worker.call("run", bed.job("right", seed=0))["damage"] is None
        assert bed.worker is neighbour and bed.right(0)
        neighbour.kill()


def test_an_ended_worker_leaves_nothing_on_the_gpu(bed: Bed) -> None:
    uuid = str(bed.device.info.uuid)

    def used() -> int:
        return getattr(nvml.load(uuid), "mem_used", None) or 0

    bed.worker.call("run", bed.job("right", 1 << 26, seed=0))
    ended, before = bed.worker, used()
    bed.device.workers.end(ended)
    with bed.device.workers.timing():
        assert ended.gone and not Path(f"/proc/{ended.pid}").exists()
        assert ended.pid not in {process.pid for process in nvml.compute_processes(uuid)}
        assert before - used() > 4 << 26  # its buffers, at least


def test_a_segfault_of_the_worker_is_survived(bed: Bed) -> None:
    worker = bed.worker
    os.kill(worker.pid, signal.SIGSEGV)
    with pytest.raises(WorkerDied, match="SIGSEGV"):
        worker.call("ping")
    assert bed.worker.call("run", bed.job("right", seed=0))["damage"] is None


def test_what_cannot_be_launched_or_allocated_costs_nothing(bed: Bed) -> None:
    worker = bed.worker
    job = bed.job("right", seed=0)
    job["launches"][0][2] = [2048, 1, 1]
    with pytest.raises(WorkerFault) as caught:
        worker.call("run", job)
    assert caught.value.status is Status.LAUNCH_ERROR
    huge = {"name": "y", "kind": "buffer", "dtype": "float32", "shape": [1 << 40], "nbytes": 1 << 42}
    worker.bind("huge", {"arguments": [{**huge, "direction": "out"}], "seeds": {"0": {}}, "outputs": {}})
    with pytest.raises(WorkerFault) as caught:
        worker.call("run", {**bed.job("right", seed=0), "key": "huge"})
    assert caught.value.status is Status.OUT_OF_MEMORY
    assert worker.call("run", bed.job("right", seed=0))["damage"] is None
