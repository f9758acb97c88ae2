"""The bundled workloads: their files, references, launches, compiled code, and (emulated) results."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from warpdeck.core.devices.recorded import RecordedDevice
from warpdeck.core.model import Case, Role
from warpdeck.core.toolchain import compile_candidate
from warpdeck.core.workload import Workload
from warpdeck.kernels.loader import load_workload
from warpdeck.kernels.recordings import open_device

pytest.importorskip("numba.cuda")

import emulator  # needs Numba

NAMES = ("gemm", "reduction", "softmax")
GEMM = {"tile_m": 32, "tile_n": 32, "tile_k": 8, "thread_m": 4, "thread_n": 4, "vector": 4, "pad": 4}
GEMM |= {"buffers": 2, "unroll": 8, "reg_cap": 0}
REDUCTION = {"block_size": 128, "blocks": 132, "vector": 4, "unroll": 2, "streaming": 1, "finish": "ticket"}
REDUCTION |= {"reg_cap": 0}
SOFTMAX = {"row_threads": 32, "rows": 2, "vector": 4, "cached": 2, "streaming": 0, "fastmath": 0}
SOFTMAX |= {"reg_cap": 0}


@pytest.fixture(scope="module", params=NAMES)
def workload(request: pytest.FixtureRequest) -> Workload:
    return load_workload(request.param)


def inputs(workload: Workload, case: Case, seed: int = 0) -> dict[str, np.ndarray]:
    """Every argument of a case: drawn inputs, poisoned outputs, zeroed workspace."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, shape in workload.shapes(case).items():
        a = workload.argument(name)
        if a.kind == "workspace":
            made[name] = np.zeros(shape, a.dtype)
        elif a.is_output:
            made[name] = np.full(shape, np.nan, a.dtype)
        elif case.data == "integers":
            made[name] = rng.integers(-4, 5, shape).astype(a.dtype)
        else:
            made[name] = rng.standard_normal(shape).astype(a.dtype)
    if case.data == "python":
        made |= workload.reference_module().make_inputs(case, rng)
    return made


def expected(workload: Workload, arguments: Mapping[str, np.ndarray]) -> np.ndarray:
    reference = workload.reference_module().reference
    wanted = inspect.signature(reference).parameters
    return reference(**{k: v.astype(np.float64) for k, v in arguments.items() if k in wanted})


# -- files ------------------------------------------------------------------------------------------


def test_spaces_have_the_promised_sizes(workload: Workload) -> None:
    classic = workload.space("classic")
    assert classic.knobs == {"block_size": (64, 128, 256), "reg_cap": (0, 32, 64)}
    assert len(classic.configs()) == 9
    assert 500 <= len(workload.space("full").configs()) <= 1000
    for space in ("classic", "full"):
        assert dict(workload.baseline(space).config) == {"block_size": 256, "reg_cap": 0}


@pytest.mark.parametrize("size", [256, 1000, 8192])
def test_every_configuration_has_a_launch_that_covers_the_output(workload: Workload, size: int) -> None:
    case = workload.size_case(size)
    for space in ("classic", "full"):
        for config in workload.space(space).configs(case.params):
            (launch,) = workload.launches(workload.candidate(space, config), case)
            assert launch.block[0] % 32 == 0 and launch.block[0] >= 64
            if workload.name == "softmax":
                assert launch.grid[0] * int(config.get("rows", 1)) >= size
            elif workload.name == "reduction":
                assert launch.grid[0] <= workload.shapes(case)["partials"][0]


def test_each_classic_block_size_is_another_launch(workload: Workload) -> None:
    case = workload.size_case(512)
    launches = {
        workload.launches(workload.candidate("classic", {"block_size": b, "reg_cap": 0}), case)
        for b in (64, 128, 256)
    }
    assert len(launches) == 3


def test_every_workload_has_odd_and_exact_cases(workload: Workload) -> None:
    cases = workload.correctness_cases()
    assert any(c.exact for c in cases)
    assert any(all(v % 2 for v in c.params.values()) for c in cases)
    assert all(c.role is Role.CORRECTNESS for c in cases)


def test_references_agree_with_the_textbook() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((5, 7)), rng.standard_normal((7, 4))
    gemm = load_workload("gemm").reference_module()
    assert np.allclose(gemm.reference(a, b), [[sum(r * c) for c in b.T] for r in a])
    reduction = load_workload("reduction").reference_module()
    assert reduction.reference(a)[0] == pytest.approx(math.fsum(a.ravel()))
    assert reduction.scale(a)[0] == pytest.approx(math.fsum(abs(a).ravel()))
    y = load_workload("softmax").reference_module().reference(a + 700)
    assert np.allclose(y.sum(axis=1), 1) and np.allclose(np.log(y / y[:, :1]), a - a[:, :1])


def test_exact_softmax_inputs_have_exact_outputs() -> None:
    softmax = load_workload("softmax")
    case = next(c for c in softmax.cases if c.exact)
    y = expected(softmax, inputs(softmax, case))
    assert np.array_equal(y, y.astype(np.float32).astype(np.float64))
    assert len(np.unique(y)) > 3


# -- results, emulated ------------------------------------------------------------------------------

EMULATED = [
    ("gemm", "classic", {"block_size": 64}, {"m": 9, "n": 17, "k": 11}),
    ("gemm", "classic", {"block_size": 128}, {"m": 9, "n": 17, "k": 33}),
    ("gemm", "full", GEMM, {"m": 1, "n": 1, "k": 1}),
    ("gemm", "full", GEMM, {"m": 33, "n": 36, "k": 20}),  # a last tile, narrower in every direction
    ("gemm", "full", GEMM, {"m": 32, "n": 64, "k": 16}),  # whole tiles only
    ("gemm", "full", GEMM, {"m": 31, "n": 34, "k": 9}),  # pitches that rule vector loads out
    ("gemm", "full", GEMM, {"m": 3, "n": 4, "k": 40}),
    ("gemm", "full", {**GEMM, "vector": 1, "unroll": 2}, {"m": 35, "n": 33, "k": 17}),
    ("gemm", "full", {**GEMM, "buffers": 1, "tile_k": 16}, {"m": 40, "n": 36, "k": 52}),
    ("gemm", "full", {**GEMM, "tile_n": 64, "thread_n": 8, "pad": 0}, {"m": 30, "n": 68, "k": 28}),
    ("gemm", "full", {**GEMM, "tile_m": 64, "thread_m": 8}, {"m": 65, "n": 28, "k": 20}),
    ("reduction", "classic", {"block_size": 64}, {"m": 7, "n": 31}),
    ("reduction", "full", REDUCTION, {"m": 1, "n": 1}),
    ("reduction", "full", REDUCTION, {"m": 4, "n": 1024}),  # whole batches
    ("reduction", "full", REDUCTION, {"m": 3, "n": 1001}),
    ("reduction", "full", {**REDUCTION, "finish": "atomic"}, {"m": 5, "n": 477}),
    ("reduction", "full", {**REDUCTION, "vector": 1, "unroll": 4, "streaming": 0}, {"m": 11, "n": 97}),
    ("softmax", "classic", {"block_size": 64}, {"m": 3, "n": 70}),
    ("softmax", "full", SOFTMAX, {"m": 3, "n": 256}),  # the row fills the registers
    ("softmax", "full", SOFTMAX, {"m": 2, "n": 132}),
    ("softmax", "full", SOFTMAX, {"m": 3, "n": 700}),  # and is longer than they hold
    ("softmax", "full", SOFTMAX, {"m": 3, "n": 3}),
    ("softmax", "full", {**SOFTMAX, "row_threads": 64, "rows": 1}, {"m": 2, "n": 517}),
    ("softmax", "full", {**SOFTMAX, "row_threads": 64, "vector": 2, "streaming": 1}, {"m": 3, "n": 514}),
]


@pytest.mark.parametrize(("name", "space", "config", "params"), EMULATED)
def test_a_kernel_computes_its_reference(
    name: str, space: str, config: dict[str, Any], params: dict[str, int]
) -> None:
    workload = load_workload(name)
    case = workload.shape_case(params)
    full = {"reg_cap": 0, **config}
    assert workload.space(space).why_invalid(full, params) is None
    candidate = workload.candidate(space, full)
    variant = workload.variant(candidate.variant)
    make = emulator.load(variant.file).make
    kernel = make(**{k: v for k, v in config.items() if k in inspect.signature(make).parameters})
    arguments = inputs(workload, case)
    output = next(a.name for a in workload.arguments if a.is_output)
    before = {k: v.copy() for k, v in arguments.items()}
    wanted = expected(workload, arguments)
    for _ in range(2):  # the second launch finds the workspace as the first one left it
        arguments[output].fill(np.nan)
        for launch in workload.launches(candidate, case):
            emulator.launch(kernel, launch, arguments)
        error = np.abs(arguments[output] - wanted)
        assert np.all(error <= 1e-5 + 1e-5 * np.abs(wanted))
    for a in workload.arguments:
        if a.is_input:
            assert np.array_equal(arguments[a.name], before[a.name])


@pytest.mark.parametrize("name", NAMES)
def test_exact_cases_are_exact(name: str) -> None:
    workload = load_workload(name)
    file_case = next(c for c in workload.cases if c.exact)
    params = {"m": 5, "n": 40, "k": 24}
    few = {p: params[p] for p in file_case.params}
    case = Case("small", Role.CORRECTNESS, few, data=file_case.data, exact=True)
    config = {"gemm": GEMM, "reduction": REDUCTION, "softmax": SOFTMAX}[name]
    candidate = workload.candidate("full", config)
    make = emulator.load(workload.variant(candidate.variant).file).make
    kernel = make(**{k: v for k, v in config.items() if k in inspect.signature(make).parameters})
    arguments = inputs(workload, case, seed=5)
    wanted = expected(workload, arguments)
    (launch,) = workload.launches(candidate, case)
    emulator.launch(kernel, launch, arguments)
    output = next(a.name for a in workload.arguments if a.is_output)
    assert np.array_equal(arguments[output], wanted.astype(np.float32))


def test_recordings_are_of_the_sources_that_ship(workload: Workload) -> None:
    """A source's text is part of what was measured: one byte changed, and every run warns of it."""
    sources = {variant.source_hash for variant in workload.variants.values()}
    device = open_device("recorded:h200")
    assert isinstance(device, RecordedDevice)
    found = device.recordings(workload.name)
    assert len(found) >= 8
    assert [r.file_name for r in found if not {r.source_hash, r.baseline_hash} <= sources] == []


# -- compiled code ----------------------------------------------------------------------------------

BEST = [
    ("gemm", {**GEMM, "tile_m": 128, "tile_n": 256, "thread_m": 8, "thread_n": 16, "buffers": 1}),
    ("gemm", {**GEMM, "tile_m": 128, "tile_n": 128, "thread_m": 8, "thread_n": 8, "reg_cap": 128}),
    ("reduction", {**REDUCTION, "block_size": 512, "blocks": 528, "unroll": 8}),
    ("softmax", {**SOFTMAX, "row_threads": 256, "rows": 1, "cached": 8, "fastmath": 1}),
]


@pytest.mark.parametrize(("name", "config"), BEST)
def test_the_best_kernels_keep_everything_in_registers(name: str, config: dict[str, Any]) -> None:
    workload = load_workload(name)
    candidate = workload.candidate("full", config)
    compiled = compile_candidate(workload, candidate, workload.size_case(1024), ptx=True)
    assert compiled.resources.spill_bytes == 0
    assert compiled.resources.local_bytes == 0  # arrays indexed by constants only, once loops are unrolled
    assert compiled.resources.shared_bytes <= 48 * 1024
    hint = ".cs" if config.get("streaming") else ""
    assert compiled.ptx is not None and f"ld.global{hint}.v4.f32" in compiled.ptx
