"""The bundled kernels on a GPU: right in every case, and fast enough at large sizes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from warpdeck.core.devices import Backend, open_device
from warpdeck.core.model import CacheMode, Config, Protocol, Status
from warpdeck.core.workload import Workload
from warpdeck.kernels.loader import load_workload

pytestmark = pytest.mark.gpu

FAST = Protocol(warmup=3, samples=30, min_samples=10)
TILED = {"tile_m": 128, "tile_n": 256, "tile_k": 8, "thread_m": 8, "thread_n": 16, "vector": 4, "pad": 4}
TILED |= {"buffers": 1, "unroll": 8, "reg_cap": 0}
SUM = {"block_size": 512, "blocks": 1056, "vector": 4, "unroll": 4, "streaming": 0, "finish": "atomic"}
SUM |= {"reg_cap": 0}
ROWS = {"row_threads": 256, "rows": 1, "vector": 4, "cached": 8, "streaming": 0, "fastmath": 1, "reg_cap": 0}


@contextmanager
def prepared(workload: Workload, size: int) -> Iterator[Backend]:
    """A backend for the correctness cases and one size."""
    device = open_device("cuda:0")
    cases = [*workload.correctness_cases(), workload.size_case(size)]
    backend = device.prepare(workload, space="full", cases=cases, seed=1)
    try:
        yield backend
    finally:
        backend.close()
        device.close()


@pytest.mark.parametrize("name", ["gemm", "layernorm", "reduction", "softmax", "transpose"])
def test_a_spread_of_configurations_is_right(name: str) -> None:
    workload = load_workload(name)
    cases = [*workload.correctness_cases(), workload.size_case(512)]
    configs: list[tuple[str, Config]] = []
    for space in workload.spaces:
        valid = workload.space(space).configs()
        drawn = 40 if space == "full" else 20
        configs += [(space, c) for c in random.Random(7).sample(valid, min(drawn, len(valid)))]
    candidates = [workload.candidate(space, config) for space, config in configs]
    with prepared(workload, 512) as backend:
        for evaluation in backend.evaluate_many(candidates, cases, FAST):
            assert evaluation.status is Status.OK, (evaluation.candidate.config, evaluation.message)


@pytest.mark.parametrize(
    ("name", "config", "size", "least"),
    [("gemm", TILED, 4096, 0.45), ("reduction", SUM, 8192, 0.9), ("softmax", ROWS, 8192, 1.0)],
)
def test_a_good_configuration_keeps_up_with_the_vendor(
    name: str, config: Config, size: int, least: float
) -> None:
    workload = load_workload(name)
    case = workload.size_case(size)
    with prepared(workload, size) as backend:
        evaluation = backend.evaluate(workload.candidate("full", config), [case], FAST)
        vendor = backend.vendor(case, CacheMode.COLD)
        assert evaluation.status is Status.OK, evaluation.message
        if vendor is None:
            pytest.skip("no vendor library (PyTorch with CUDA) here")
        (ours,) = evaluation.measurements
        assert vendor.median_ms / ours.median_ms >= least
