"""The cheats on a real GPU; 0 honest rungs rejected; kernels that stop working in mid-measurement."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cheating import FOLDER, Cheat, bench, cheats, evaluated, honest, misjudged, proposed

from warpdeck.core.bench import Bench
from warpdeck.core.devices import Device, open_device
from warpdeck.core.model import Status, Trust
from warpdeck.core.workload import LaunchSpec

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(400)]
SIZE = 256
SEEDS = 10
WORKLOADS = ("gemm", "reduction", "softmax", "layernorm", "transpose")


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    opened = open_device("cuda:0")
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


@pytest.mark.parametrize("cheat", cheats(), ids=lambda cheat: cheat.name)
def test_a_cheat_is_rejected(cheat: Cheat, bench_of: Callable[[str], Bench]) -> None:
    evaluation = evaluated(bench_of(cheat.workload), cheat)
    assert misjudged(cheat, evaluation, "gpu") is None
    assert not evaluation.measurements


@pytest.mark.parametrize("workload", WORKLOADS)
def test_no_honest_rung_is_rejected(workload: str, device: Device, tmp_path: Path) -> None:
    rejected = []
    for seed in range(SEEDS):
        judge = bench(device, workload, SIZE, seed=seed)
        try:
            rungs, candidates = zip(*honest(judge, tmp_path), strict=True)
            for rung, evaluation in zip(rungs, judge.evaluate_many(candidates), strict=True):
                # As generated code, tensor cores are held to the workload's own precision.
                wanted = Status.OK if rung.precision is None else Status.INCORRECT
                if evaluation.status is not wanted:
                    rejected.append(f"{rung.name}, seed {seed}: {evaluation.status}: {evaluation.message}")
        finally:
            judge.close()
    assert not rejected


def test_a_copy_of_the_tensor_core_rung_has_no_verdict_of_the_rung(
    bench_of: Callable[[str], Bench], tmp_path: Path
) -> None:
    gemm = bench_of("gemm")
    rung = next(variant for variant in gemm.workload.ladder() if variant.precision)
    own = gemm.evaluate(gemm.workload.candidate(rung.name, gemm.workload.space_of(rung.name).first))
    assert own.status is Status.OK
    copy = next(candidate for variant, candidate in honest(gemm, tmp_path) if variant is rung)
    assert gemm.evaluate(copy).status is Status.INCORRECT  # the same machine code, judged as float32


@pytest.mark.parametrize("attempt", range(6))
def test_a_kernel_that_stops_while_it_is_timed_is_found_out(
    attempt: int, bench_of: Callable[[str], Bench], tmp_path: Path
) -> None:
    # The user's own code may keep memory between launches: only the check of a timed launch helps.
    transpose = bench_of("transpose")
    before = len(transpose.workload.correctness_cases()) + 1 + 3  # launches before the first timed one
    last = random.Random(attempt).randrange(before, before + 20)  # of those that work; 30 are timed
    text = (FOLDER / "correct_n_launches.cu").read_text(encoding="utf-8")
    assert "launches < 20" in text
    file = tmp_path / f"stops-{attempt}.cu"
    file.write_text(text.replace("launches < 20", f"launches < {last}"), encoding="utf-8")
    launch = LaunchSpec("cheat", ("ceil_div(m * n, 256)",), ("256",))
    evaluation = transpose.evaluate(transpose.add_variant(proposed(file, (launch,), trust=Trust.OWN)))
    assert evaluation.status is Status.INCORRECT
    assert "wrong in a timed launch" in evaluation.message
