"""Comparisons on a real GPU: what a kernel does beside another one counts, not only what it does alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from warpdeck.core.bench import Bench
from warpdeck.core.devices import Device, open_device
from warpdeck.core.errors import WarpdeckError
from warpdeck.core.model import Protocol, Status, Trust
from warpdeck.core.workload import LaunchSpec, Variant
from warpdeck.kernels import load_workload

pytestmark = pytest.mark.gpu
SIZE = 1024
# Leaves its mark in shared memory, and works only where it finds none of another kernel's.
MOVES = """
extern "C" __global__ void moves(const float *x, float *y, long long m, long long n) {{
    __shared__ volatile unsigned mark[12288];
    const unsigned found = mark[threadIdx.x * 48];
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    {guard} if (i < m * n) y[i % n * m + i / n] = x[i];
    __syncthreads();
    for (int k = threadIdx.x; k < 12288; k += blockDim.x) mark[k] = {mark}u;
}}
"""


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    opened = open_device("cuda:0")
    yield opened
    opened.close()


def variant(folder: Path, name: str, *, guard: str, mark: int) -> Variant:
    file = folder / f"{name}.cu"
    file.write_text(MOVES.format(guard=guard, mark=mark), encoding="utf-8")
    launches = (LaunchSpec("moves", ("ceil_div(m * n, 256)",), ("256",)),)
    return Variant(name, file, "cuda", "moves", launches, name, trust=Trust.GENERATED)


def test_a_kernel_that_rests_after_another_one_is_found_out(device: Device, tmp_path: Path) -> None:
    workload = load_workload("transpose")
    protocol = Protocol(warmup=3, samples=30, min_samples=30, adaptive=False)
    bench = Bench(workload, device, space="ladder", cases=[workload.size_case(SIZE)], protocol=protocol)
    try:
        honest = bench.add_variant(variant(tmp_path, "honest", guard="", mark=7))
        rests = bench.add_variant(variant(tmp_path, "rests", guard="if (found != 7u)", mark=9))
        first, second = bench.evaluate(honest), bench.evaluate(rests)
        assert (first.status, second.status) == (Status.OK, Status.OK), second.message
        assert bench.compare(second, first).ratio > 0
        with pytest.raises(WarpdeckError, match=r"incorrect: case 1024: wrong beside another kernel"):
            bench.compare(first, second)
    finally:
        bench.close()
