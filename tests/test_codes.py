"""What a device refuses before anything is compiled, and what it knows of compiled code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="needs the cuda extra")

from warpdeck.core.devices.codes import Codes
from warpdeck.core.errors import UsageError
from warpdeck.core.toolchain import CompilePool
from warpdeck.core.toolchain.cache import CompileCache
from warpdeck.core.toolchain.disassembly import disassemble
from warpdeck.core.workload import Workload
from warpdeck.kernels import load_workload
from warpdeck.kernels.scaffold import new_workload

LIMITS = {"max_shared_bytes": 200_000}


@pytest.fixture
def cache(tmp_path: Path) -> CompileCache:
    return CompileCache(tmp_path / "cache")


@pytest.fixture
def pool(cache: CompileCache) -> Iterator[CompilePool]:
    with CompilePool(1, cache=cache) as running:
        yield running


def workload(folder: Path, launch: str) -> Workload:
    new_workload(folder, "cuda")
    path = folder / "workload.toml"
    text = re.sub(r"^\[launch\].*?(?=^\[knobs\])", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    path.write_text(f"{text}\n[launch]\n{launch}\n")
    return load_workload(folder)


@pytest.mark.parametrize(
    ("launch", "fault"),
    [
        (
            'grid = [1]\nblock = [64]\nshared = "100 * n"',
            "204800 bytes of shared memory a block; 200000 at most",
        ),
        ('grid = [1]\nblock = ["2 * n"]', "outside 1 to"),
    ],
)
def test_an_impossible_launch_of_any_case_is_refused_without_compiling(
    tmp_path: Path, pool: CompilePool, cache: CompileCache, launch: str, fault: str
) -> None:
    made = workload(tmp_path / "axpy", launch)
    codes = Codes(made, pool, (9, 0), LIMITS)
    candidate = made.baseline("full")
    small, large = made.size_case(32), made.size_case(2048)
    with pytest.raises(UsageError, match=fault):
        codes.get(candidate, [small, large])
    assert not list(cache.folder.rglob("*"))
    assert codes.problem(codes.get(candidate, [small]), [small]) is None  # this case is possible


def test_code_is_compiled_once_and_gathers_the_launches_of_its_cases(
    tmp_path: Path, pool: CompilePool
) -> None:
    made = workload(tmp_path / "axpy", 'grid = ["ceil_div(n, 64)"]\nblock = [64]')
    codes = Codes(made, pool, (9, 0), LIMITS)
    candidate = made.baseline("full")
    first, second = made.size_case(64), made.size_case(128)
    one = codes.get(candidate, [first])
    both = codes.get(candidate, [second])
    assert both.compiled is one.compiled
    assert {name: x[0].grid[0] for name, x in both.launches.items()} == {"64": 1, "128": 2}


@pytest.mark.parametrize("space", ["classic", "full"])
def test_markers_do_not_change_how_many_warps_share_an_sm(pool: CompilePool, space: str) -> None:
    """In both they take a few registers more than fit; a cap without spills keeps the occupancy."""
    workload = load_workload("reduction")
    case = workload.size_case(1024)
    candidate = workload.baseline("classic")
    if space == "full":
        candidate = workload.candidate("full", workload.space("full").configs(case.params)[0])
    codes = Codes(workload, pool, (9, 0), LIMITS)
    plain, traced = (codes.get(candidate, [case], trace=trace) for trace in (False, True))
    uncapped = pool.submit(workload, candidate, case, (9, 0), trace=True).result()
    assert (uncapped.resources.occupancy or 0) < (plain.compiled.resources.occupancy or 0)
    before, after = plain.compiled.resources, traced.compiled.resources
    assert traced.compiled.stages and not plain.compiled.stages
    assert traced.key != plain.key
    assert after.occupancy == before.occupancy
    assert after.spill_bytes == before.spill_bytes


def test_two_bodies_keep_the_occupancy_with_a_little_spilled(pool: CompilePool) -> None:
    """48 registers a thread become 56 with both bodies; with a cap the traced one alone goes to memory."""
    workload = load_workload("softmax")
    case = workload.size_case(1024)
    config = {"BLOCK": 128, "ROWS": 2, "VECTOR": 4, "CACHED": 4, "FAST": 0}
    codes = Codes(workload, pool, (9, 0), LIMITS)
    candidate = workload.candidate("cuda", config)
    plain = codes.get(candidate, [case]).compiled
    traced = codes.get(candidate, [case], trace=True, split=(0, 31, 16, 512, 1, 1)).compiled
    if "no ptxas" in traced.unsplit:
        pytest.skip(traced.unsplit)
    before, after = plain.resources, traced.resources
    assert not traced.unsplit and after.occupancy == before.occupancy
    assert 0 < after.local_bytes <= 32
    lines = disassemble(traced.cubin)
    spilled = [x.address for x in lines if x.text.startswith(("LDL", "STL"))]
    marks = [x.address for x in lines if "SR_CLOCK" in x.text]
    assert min(marks) < min(spilled) and max(spilled) < max(marks)


def test_two_small_bodies_take_no_more_registers_than_the_untraced_one(pool: CompilePool) -> None:
    workload = load_workload("softmax")
    case = workload.size_case(8192)
    candidate = workload.candidate("cuda", {"BLOCK": 512, "ROWS": 1, "VECTOR": 4, "CACHED": 4, "FAST": 1})
    codes = Codes(workload, pool, (9, 0), LIMITS)
    plain = codes.get(candidate, [case]).compiled.resources
    traced = codes.get(candidate, [case], trace=True, split=(0, 493, 16, 8192, 1, 1)).compiled
    if "no ptxas" in traced.unsplit:
        pytest.skip(traced.unsplit)
    assert not traced.unsplit and traced.resources.local_bytes == plain.local_bytes == 0
    assert traced.resources.registers <= -(-plain.registers // 8) * 8 < 64
