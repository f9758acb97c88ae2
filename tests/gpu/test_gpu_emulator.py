"""The emulator's verdicts and a GPU's on every bundled CUDA C++ kernel. (Cheats: test_gpu_cheats.)"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from warpdeck.core.devices import Device, open_device
from warpdeck.core.model import Evaluation, Protocol, Status
from warpdeck.kernels.loader import list_workloads, load_workload

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
BRIEF = Protocol(warmup=1, samples=3, min_samples=3, adaptive=False)
KERNELS = [
    (name, variant)
    for name in list_workloads()
    for variant, about in load_workload(name).variants.items()
    if about.language == "cuda"
]


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


def evaluated(device: Device, name: str, variant: str) -> Evaluation:
    workload = load_workload(name)
    space = workload.space_of(variant)
    cases = [workload.size_case(128)]
    backend = device.prepare(workload, space=space.name, cases=cases, seed=1)
    try:
        config = next(iter(space.configs(cases[0].params)))
        return backend.evaluate(workload.candidate(space.name, config), cases, BRIEF)
    finally:
        backend.close()


@pytest.mark.parametrize(("name", "variant"), KERNELS)
def test_verdicts_agree(gpu: Device, cpu: Device, name: str, variant: str) -> None:
    here, there = evaluated(cpu, name, variant), evaluated(gpu, name, variant)
    assert there.status is Status.OK, there.message
    assert here.status in (Status.OK, Status.UNSUPPORTED), here.message
    if here.status is Status.OK:
        assert {c.case for c in here.checks} == {c.case for c in there.checks}
