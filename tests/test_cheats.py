"""Every cheat that device code can try is rejected on device cpu, with its reason; honest kernels aren't."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cheating import FOLDER, Cheat, bench, cheats, evaluated, honest, misjudged, proposed

from warpdeck.core.bench import Bench
from warpdeck.core.check import UNSEEN, CheckPlan, derived_cases
from warpdeck.core.devices import Device, open_device
from warpdeck.core.model import Status
from warpdeck.core.toolchain import CompilePool
from warpdeck.core.verify import verify
from warpdeck.core.workload import LaunchSpec, Variant, Workload
from warpdeck.kernels import load_workload

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


def test_every_cheat_comes_as_far_as_a_gpu() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the cuda extra")
    with CompilePool(2) as pool:
        compiling = [pool.submit_cuda(cheat.file.read_text(), cheat.name, (9, 0)) for cheat in cheats()]
        for cheat, compiled in zip(cheats(), compiling, strict=True):
            refused = compiled.exception(120) is not None
            assert refused is (cheat.status["gpu"] == "compile_error"), (cheat.name, compiled.exception())


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


PRINTED = 64  # elements that tell one draw from another, also where a part of it changed


def _print(x: np.ndarray) -> int:
    mark = 0
    for i in range(PRINTED):
        mark = (mark * 31 + int(x.view(np.uint32)[x.size * i // PRINTED])) % 2**32
    return mark


def learnt_by_heart(workload: Workload, file: Path, seed: int) -> Variant:
    """A kernel that adds nothing up: it knows the sums of all the data that are drawn with this seed."""
    derived = derived_cases(workload, workload.space("ladder"))
    cases = [*workload.correctness_cases(), *derived, workload.size_case(SIZE)]
    with CheckPlan(workload, cases, seed=seed) as plan:
        draws = [np.asarray(plan.inputs(case, k)["x"]).reshape(-1) for case in cases for k in range(UNSEEN)]
    known = [(x.size, _print(x), float(x.astype(np.float64).sum())) for x in draws]
    rows = ",".join(f"{{{size},{mark}u,(float){total!r}}}" for size, mark, total in known)
    file.write_text(
        "struct Row { long long size; unsigned mark; float total; };\n"
        f"__constant__ Row rows[] = {{{rows}}};\n"
        'extern "C" __global__ void cheat(const unsigned *x, float *total, float *partials, int *ticket,'
        " long long m, long long n) {\n"
        "    unsigned mark = 0;\n"
        f"    for (int i = 0; i < {PRINTED}; ++i) mark = mark * 31 + x[m * n * i / {PRINTED}];\n"
        "    for (const Row &r : rows)\n"
        "        if (r.size == m * n && r.mark == mark) total[0] = r.total;\n"
        "}\n",
        encoding="utf-8",
    )
    return proposed(file, (LaunchSpec("cheat", ("1",), ("1",)),), name="learnt")


def test_sums_learnt_by_heart_are_no_result(device: Device, tmp_path: Path) -> None:
    told: list[tuple[str, Mapping[str, Any]]] = []
    workload = load_workload("reduction")
    reduction = Bench(
        workload,
        device,
        space="ladder",
        cases=[workload.size_case(SIZE)],
        sink=lambda kind, data: told.append((kind, data)),
    )
    try:
        (_, honestly), *_ = honest(reduction, tmp_path)
        assert reduction.evaluate(honestly).status is Status.OK
        cheat = reduction.add_variant(learnt_by_heart(workload, tmp_path / "learnt.cu", seed=0))
        assert reduction.evaluate(cheat).status is Status.OK  # it was told all of these
        best = reduction.finish().best
    finally:
        reduction.close()
    assert best is not None and best.evaluation.candidate.id == honestly.id
    warnings = [data["text"] for kind, data in told if kind == "message"]
    assert any("learnt is wrong on data that it wasn't tried on before" in text for text in warnings)


def test_nor_are_the_sums_of_a_check_with_a_seed(device: Device, tmp_path: Path) -> None:
    workload = load_workload("reduction")
    variant = learnt_by_heart(workload, tmp_path / "learnt.cu", seed=0)
    assert verify(workload, device, variant, space="ladder", sizes=[SIZE], seed=0).status == Status.INCORRECT
