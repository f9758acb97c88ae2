"""The emulator's verdicts and a GPU's on every bundled CUDA C++ kernel. (Cheats: test_gpu_cheats.)"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from warpdeck.core.devices import Device, open_device
from warpdeck.core.model import Evaluation, Protocol, Status
from warpdeck.kernels.loader import list_workloads, load_workload

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
BRIEF = Protocol(warmup=1, samples=3, min_samples=3, adaptive=False)


@pytest.fixture(scope="module")
def gpu() -> Iterator[Device]:
    opened = open_device("cuda:0")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def cpu() -> Iterator[Device]:
    opened = open_device("cpu")
    yield opened
    opened.close()


def evaluated(device: Device, name: str) -> dict[str, Evaluation]:
    """Verdicts on the CUDA C++ variants of a workload, each in its first configuration."""
    workload = load_workload(name)
    spaces = [workload.space_of(v.name) for v in workload.variants.values() if v.language == "cuda"]
    case = workload.size_case(128)
    candidates = [workload.candidate(s.name, next(iter(s.configs(case.params)))) for s in spaces]
    backend = device.prepare(workload, space=spaces[0].name, cases=[case], seed=1)
    try:
        return {e.candidate.variant: e for e in backend.evaluate_many(candidates, [case], BRIEF)}
    finally:
        backend.close()


@pytest.mark.parametrize("name", list_workloads())
def test_verdicts_agree(gpu: Device, cpu: Device, name: str) -> None:
    here, there = evaluated(cpu, name), evaluated(gpu, name)
    assert here.keys() == there.keys() and len(here) >= 4
    for variant, found in there.items():
        emulated = here[variant]
        assert found.status is Status.OK, (variant, found.message)
        assert emulated.status in (Status.OK, Status.UNSUPPORTED), (variant, emulated.message)
        if emulated.status is Status.OK:
            assert {c.case for c in emulated.checks} == {c.case for c in found.checks}, variant
    assert sum(e.status is Status.OK for e in here.values()) >= 3
