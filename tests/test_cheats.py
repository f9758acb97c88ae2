"""Every cheat that device code can try is rejected on device cpu, with its reason; honest kernels aren't."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cheating import FOLDER, Cheat, bench, cheats, evaluated, honest, misjudged, proposed

from warpdeck.core.bench import Bench
from warpdeck.core.devices import Device, open_device
from warpdeck.core.model import Status
from warpdeck.core.workload import LaunchSpec

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="device cpu needs g++")
SIZE = 64


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARPDECK_HOME", str(tmp_path_factory.mktemp("cheats")))
        opened = open_device("cpu")
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def bench_of(device: Device) -> Iterator[Callable[[str], Bench]]:
    made: dict[str, Bench] = {}

    def get(workload: str) -> Bench:
        if workload not in made:
            made[workload] = bench(device, workload, SIZE)
        return made[workload]

    yield get
    for one in made.values():
        one.close()


def test_the_table_names_every_file() -> None:
    listed = [cheat.file.name for cheat in cheats()]
    assert sorted(listed) == sorted(path.name for path in FOLDER.glob("*.cu"))


def test_the_documentation_names_every_cheat() -> None:
    text = (Path(__file__).parents[1] / "docs" / "cheats.md").read_text(encoding="utf-8")
    assert [cheat.name for cheat in cheats() if f"`{cheat.name}`" not in text] == []


@pytest.mark.parametrize("cheat", cheats(), ids=lambda cheat: cheat.name)
def test_a_cheat_is_rejected(cheat: Cheat, bench_of: Callable[[str], Bench]) -> None:
    evaluation = evaluated(bench_of(cheat.workload), cheat)
    assert misjudged(cheat, evaluation, "cpu") is None
    assert not evaluation.measurements


@pytest.mark.parametrize("seed", range(3))
def test_no_honest_rung_is_rejected(seed: int, device: Device, tmp_path: Path) -> None:
    gemm = bench(device, "gemm", SIZE, seed=seed)
    try:
        for rung, candidate in honest(gemm, tmp_path):
            evaluation = gemm.evaluate(candidate)
            # Tensor cores can't be emulated; where they run, they aren't float32.
            wanted = Status.OK if rung.precision is None else Status.UNSUPPORTED
            assert evaluation.status is wanted, f"{rung.name}: {evaluation.message}"
    finally:
        gemm.close()


def test_constant_tables_are_no_memory(bench_of: Callable[[str], Bench], tmp_path: Path) -> None:
    file = tmp_path / "tables.cu"
    file.write_text(
        "__constant__ float ones[2] = {1.0f, 1.0f};\n"
        "__device__ const float zeros[2] = {0.0f, 0.0f};\n"
        "constexpr float HALF[] = {0.5f, 0.5f};\n"
        'extern "C" __global__ void f(const float *x, float *y, long long m, long long n) {\n'
        "    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < m * n) y[i % n * m + i / n] = x[i] * (2 * HALF[i % 2]) * ones[i % 2] + zeros[i % 2];\n"
        "}\n",
        encoding="utf-8",
    )
    transpose = bench_of("transpose")
    variant = proposed(file, (LaunchSpec("f", ("ceil_div(m * n, 256)",), ("256",)),))
    evaluation = transpose.evaluate(transpose.add_variant(variant))
    assert evaluation.status is Status.OK, evaluation.message
