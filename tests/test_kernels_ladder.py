"""The ladders of the bundled workloads: their rungs, machine code and results, and the new references."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from warpdeck.core.check import CheckPlan
from warpdeck.core.devices import open_device
from warpdeck.core.devices.base import Device
from warpdeck.core.model import Case, Protocol, Role, Status
from warpdeck.core.workload import Workload
from warpdeck.kernels import load_workload

Array = NDArray[np.float64]

ROWS = ("layernorm", "reduction", "softmax", "transpose")
NAMES = ("gemm", *ROWS)
RUNGS = [(name, v.name) for name in NAMES for v in load_workload(name).ladder()]
MAX_CONFIGS = 24  # of a rung of `ROWS`: few enough to try all


def a_case(workload: Workload, **params: int) -> Case:
    return Case("small", Role.CORRECTNESS, params)


# -- files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_rungs_are_numbered_from_0_without_gaps(name: str) -> None:
    ladder = load_workload(name).ladder()
    assert len(ladder) >= 4
    assert [v.ladder for v in ladder] == list(range(len(ladder)))
    for variant in ladder:
        assert variant.file.parent.name == "ladder" and variant.file.name.startswith(f"{variant.ladder}_")


@pytest.mark.parametrize(("name", "rung"), RUNGS)
def test_a_rung_says_what_it_changes(name: str, rung: str) -> None:
    variant = load_workload(name).variant(rung)
    lines = variant.source().splitlines()
    head = " ".join(lines[: next(i for i, line in enumerate(lines) if not line.startswith("//"))])
    assert f"rung {variant.ladder}" in head
    if variant.ladder:
        assert f"rung {variant.ladder - 1}" in head
    assert len(lines) <= 200


@pytest.mark.parametrize(("name", "rung"), [r for r in RUNGS if r[0] in ROWS])
def test_a_rung_runs_on_the_cpu_too_and_has_few_configurations(name: str, rung: str) -> None:
    workload = load_workload(name)
    code = re.sub(r"//.*", "", workload.variant(rung).source())
    assert not re.search(r"\b(asm|__CUDA_ARCH__|cuda::|#include)\b", code)
    knobs = workload.space_of(rung).knobs
    assert all(re.search(rf"\b{knob}\b", code) for knob in knobs if knob != "BLOCKS")
    for size in (1, 256, 8192):
        case = workload.size_case(size)
        configs = workload.space_of(rung).configs(case.params)
        assert 1 <= len(configs) <= MAX_CONFIGS
        assert configs[0] == workload.space_of(rung).first  # first values are the defaults, and allowed
        for config in configs:
            assert workload.launches(workload.candidate(workload.space_of(rung).name, config), case)


def test_partial_sums_fit_their_workspace() -> None:
    """As many blocks as the largest matrix asks for."""
    workload = load_workload("reduction")
    case = workload.size_case(32768)
    (room,) = workload.shapes(case)["partials"]
    for rung in ("workspace", "vectors", "ticket"):
        space = workload.space_of(rung)
        for config in space.configs():
            launches = workload.launches(workload.candidate(space.name, config), case)
            assert launches[0].grid[0] == config["BLOCKS"]
            assert launches[0].grid[0] <= room


# -- machine code -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rung"), RUNGS)
def test_a_rung_compiles_and_keeps_everything_in_registers(name: str, rung: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the cuda extra")
    from warpdeck.core.toolchain import compile_candidate

    workload = load_workload(name)
    space = workload.space_of(rung)
    candidate = workload.candidate(space.name, space.first)
    compiled = compile_candidate(workload, candidate, workload.size_case(8192), (9, 0))
    assert compiled.resources.spill_bytes == 0
    assert compiled.resources.local_bytes == 0
    if name in ROWS and rung == load_workload(name).ladder()[-1].name:
        assert compiled.ptx is not None
        assert re.search(r"ld\.global[.\w]*\.v4\.[fu]32", compiled.ptx)
        if name != "reduction":
            assert re.search(r"st\.global[.\w]*\.v4\.[fu]32", compiled.ptx)


# -- results ----------------------------------------------------------------------------------------

# Large enough that the few blocks of the wide reductions walk over it more than once.
WALKED = {"m": 1100, "n": 1003}
MORE = [
    ("reduction", "workspace", {"BLOCK": 256, "BLOCKS": 264, "UNROLL": 4}),
    ("reduction", "vectors", {"BLOCK": 256, "BLOCKS": 264, "UNROLL": 4}),
    ("reduction", "ticket", {"BLOCK": 256, "BLOCKS": 264, "UNROLL": 4}),
    ("softmax", "one-barrier", {"BLOCK": 128, "KEEP": 2, "STREAM": 1}),
    ("transpose", "vectors", {"TILE": 32, "BLOCK": 64, "STREAM": 1, "BAND": 8}),
]


@pytest.fixture(scope="module")
def cpu() -> Iterator[Device]:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    device = open_device("cpu")
    yield device
    device.close()


@pytest.mark.parametrize("name", ROWS)
def test_every_rung_is_right_on_the_cpu(cpu: Device, name: str) -> None:
    """On all correctness cases, of fewer rows here, with guard bands and sanitizers."""
    workload = load_workload(name)
    fewer = [replace(c, params={**c.params, "m": min(c.params["m"], 7)}) for c in workload.cases]
    workload = replace(workload, cases=tuple(fewer))
    chosen = [(rung.name, workload.space_of(rung.name).first) for rung in workload.ladder()]
    chosen += [(rung, config) for which, rung, config in MORE if which == name]
    candidates = [workload.candidate(workload.space_of(rung).name, config) for rung, config in chosen]
    case = workload.shape_case(WALKED) if name == "reduction" else workload.size_case(96)
    backend = cpu.prepare(workload, space=workload.space_of(chosen[0][0]).name, cases=[case], seed=1)
    try:
        found = list(backend.evaluate_many(candidates, [case], Protocol()))
    finally:
        backend.close()
    assert len(found) == len(candidates)
    for evaluation in found:
        assert evaluation.status is Status.OK, (evaluation.candidate, evaluation.message)
        assert len(evaluation.checks) > len(workload.correctness_cases())


# -- references -------------------------------------------------------------------------------------

SHAPES = st.tuples(st.integers(1, 7), st.integers(2, 40))
SEEDS = st.integers(0, 2**32 - 1)


def reference(name: str) -> Callable[..., Array]:
    return load_workload(name).reference_module().reference


layernorm, transpose = reference("layernorm"), reference("transpose")


@given(SHAPES, SEEDS)
def test_layernorm_has_the_weights_spread_around_the_biases(shape: tuple[int, int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    weight, bias = rng.standard_normal((2, shape[1]))
    plain = layernorm(x, np.ones(shape[1]), np.zeros(shape[1]), 1e-5)
    variance = np.array([sum((v - sum(row) / len(row)) ** 2 for v in row) / len(row) for row in x])
    assert np.allclose(plain.mean(axis=1), 0, atol=1e-12)
    assert np.allclose((plain**2).mean(axis=1), variance / (variance + 1e-5))
    assert np.allclose(layernorm(x, weight, bias, 1e-5), plain * weight + bias)


@given(SHAPES, SEEDS, st.floats(0.5, 8), st.floats(-100, 100))
def test_layernorm_ignores_shift_and_scale(
    shape: tuple[int, int], seed: int, scale: float, shift: float
) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    weight, bias = rng.standard_normal((2, shape[1]))
    moved = layernorm(x * scale + shift, weight, bias, 1e-5 * scale**2)
    assert np.allclose(moved, layernorm(x, weight, bias, 1e-5), atol=1e-8)


@given(SHAPES, SEEDS)
def test_transposing_twice_changes_nothing(shape: tuple[int, int], seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal(shape)
    y = transpose(x)
    assert y.shape == shape[::-1] and y.flags.c_contiguous
    assert all(y[j, i] == x[i, j] for i in range(shape[0]) for j in range(shape[1]))
    assert np.array_equal(transpose(y), x)


def test_layernorm_s_exact_inputs_have_exact_outputs() -> None:
    workload = load_workload("layernorm")
    case = next(c for c in workload.cases if c.exact)
    inputs = workload.reference_module().make_inputs(case, np.random.default_rng(5))
    inputs = {name: array.astype(np.float64) for name, array in inputs.items()}
    y = layernorm(**inputs, eps=1e-5)
    assert np.array_equal(y, np.broadcast_to(inputs["bias"], y.shape))
    assert len(np.unique(inputs["bias"])) > 3


# What a hurried kernel does instead; x as given to it, with weight and bias.
WRONG: dict[str, Callable[[Array, Array, Array], Array]] = {
    "n - 1": lambda x, w, b: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True, ddof=1) * w + b,
    "no mean": lambda x, w, b: x / np.sqrt((x * x).mean(1, keepdims=True)) * w + b,
    "no bias": lambda x, w, b: layernorm(x, w, np.zeros_like(b), 1e-5),
    "no variance": lambda x, w, b: (x - x.mean(1, keepdims=True)) * w + b,
    "a tail skipped": lambda x, w, b: layernorm(x, w, b, 1e-5) * (np.arange(x.shape[1]) < x.shape[1] - 3),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_check_refuses_a_layernorm_that_is_nearly_right(what: str) -> None:
    workload = load_workload("layernorm")
    case = a_case(workload, m=67, n=1003)
    with CheckPlan(workload, [case], seed=2) as plan:
        given_ = plan.inputs(case, 0)
        x, w, b = (np.array(given_[k], dtype=np.float64) for k in ("x", "weight", "bias"))
        right = layernorm(x, w, b, 1e-5).astype(np.float32)
        assert plan.verify(case, 0, {"y": right}).status is Status.OK
        y = WRONG[what](x, w, b).astype(np.float32)
        assert plan.verify(case, 0, {"y": y}).status is Status.INCORRECT


def test_the_check_refuses_a_transpose_with_one_element_changed() -> None:
    workload = load_workload("transpose")
    case = a_case(workload, m=67, n=130)
    with CheckPlan(workload, [case], seed=2) as plan:
        y = np.array(plan.inputs(case, 0)["x"]).T.copy()
        assert plan.verify(case, 0, {"y": y}).status is Status.OK
        y[129, 66] = np.nextafter(y[129, 66], np.float32(9))
        assert plan.verify(case, 0, {"y": y}).status is Status.INCORRECT
