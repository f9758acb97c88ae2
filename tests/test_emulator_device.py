"""The device `cpu`: the bench's and `check`'s view of the emulator."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from warpdeck.core.bench import performance_cases
from warpdeck.core.devices import Device, open_device
from warpdeck.core.emulator import EmulatorError, find_compiler
from warpdeck.core.errors import UsageError
from warpdeck.core.model import CacheMode, Evaluation, Protocol, Status
from warpdeck.core.profiling import NcuFailure
from warpdeck.core.verify import Verification, verify
from warpdeck.core.workload import Workload
from warpdeck.kernels.loader import load_workload

WORKLOAD = """
[workload]
name = "rows"
tolerance = { rtol = 1e-5, atol = 1e-5 }
[sizes]
n = "size"
[[argument]]
name = "x"
kind = "buffer"
dtype = "float32"
shape = ["n"]
direction = "in"
[[argument]]
name = "y"
kind = "buffer"
dtype = "float32"
shape = ["n"]
direction = "out"
[[argument]]
name = "part"
kind = "workspace"
dtype = "float32"
shape = ["n"]
[[argument]]
name = "n"
kind = "scalar"
dtype = "int32"
value = "n"
language = "cuda"
[[case]]
name = "odd"
n = 97
[[case]]
name = "some"
n = 300
[[variant]]
name = "main"
file = "kernel.cu"
language = "cuda"
entry = "second"
[variant.knobs]
BLOCK = [32, 64]
reg_cap = [0, 32]
[[variant.launch]]
entry = "first"
block = ["BLOCK"]
grid = ["ceil_div(n, BLOCK)"]
[[variant.launch]]
entry = "second"
block = ["BLOCK"]
grid = ["ceil_div(n, BLOCK)"]
shared = "4 * BLOCK"
[[variant]]
name = "python"
file = "kernel.py"
language = "numba"
entry = "k"
[[variant.launch]]
block = ["32"]
grid = ["1"]
"""
REFERENCE = "def reference(x, n):\n    return 2.0 * x + 1.0\n"
KERNEL = """
extern "C" __global__ void first(const float *x, float *y, float *part, int n) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) part[i] = 2.0f * x[i];
}
extern "C" __global__ void second(const float *x, float *y, float *part, int n) {
    extern __shared__ float s[];
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    s[threadIdx.x] = i < n ? part[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = s[threadIdx.x] + 1.0f;
}
"""


@pytest.fixture(scope="module")
def cpu() -> Iterator[Device]:
    opened = open_device("cpu")
    yield opened
    opened.close()


def folder(path: Path, kernel: str = KERNEL) -> Workload:
    """The workload of this file with another kernel."""
    (path / "workload.toml").write_text(WORKLOAD)
    (path / "reference.py").write_text(REFERENCE)
    (path / "kernel.cu").write_text(kernel)
    (path / "kernel.py").write_text("def make():\n    def k(x, y, part):\n        pass\n    return k\n")
    return load_workload(str(path))


def checked(device: Device, workload: Workload) -> Verification:
    return verify(workload, device, workload.variant("main"))


def evaluated(device: Device, workload: Workload, variant: str = "main", size: int = 128) -> list[Evaluation]:
    space = workload.space_of(variant)
    cases = [workload.size_case(size)]
    backend = device.prepare(workload, space=space.name, cases=cases, seed=1)
    try:
        candidates = [workload.candidate(space.name, config) for config in space.configs(cases[0].params)]
        return list(backend.evaluate_many(candidates, cases, Protocol()))
    finally:
        backend.close()


def test_it_says_what_it_is(cpu: Device) -> None:
    assert cpu.info.emulated and cpu.info.spec == "cpu" and cpu.info.date is None
    assert "emulated" in cpu.info.label


def test_a_right_candidate_is_ok_without_times(cpu: Device, tmp_path: Path) -> None:
    found = evaluated(cpu, folder(tmp_path))
    assert [e.status for e in found] == [Status.OK] * 4
    for e in found:
        assert e.measurements == () and e.score_ms is None
        assert [c.case for c in e.checks] == ["odd", "some", "128"]
        assert [x.entry for x in e.launches["128"]] == ["first", "second"]
    assert sum(e.same_as is not None for e in found) == 2  # reg_cap means nothing here


def test_check_gives_a_verdict_for_every_case(cpu: Device, tmp_path: Path) -> None:
    found = checked(cpu, folder(tmp_path))
    assert found.ok and found.configs == 4
    assert {"odd", "some"} < {c.case for c in found.cases}
    assert found.to_json()["device"]["emulated"] is True


@pytest.mark.parametrize(
    ("old", "new", "status", "words"),
    [
        ("+ 1.0f", "+ 1.5f", "incorrect", "elements are wrong"),
        ("if (i < n) part", "part", "runtime_error", "kernel.cu:4: block ("),
        (
            "__syncthreads();",
            "if (threadIdx.x < 3) __syncthreads();",
            "runtime_error",
            "kernel.cu:10: block (",
        ),
        ("y[i] = s[threadIdx.x]", "y[i] = s[threadIdx.x ^ 1]", "incorrect", "case odd: y: "),
        (
            "part[i] = 2.0f",
            "const_cast<float *>(x)[0] = 3.0f, part[i] = 2.0f",
            "incorrect",
            "changed its input x",
        ),
        ("2.0f * x[i];", "2.0f * x[i]", "compile_error", "kernel.cu:"),
        ("part[i] = ", 'asm(""); part[i] = ', "unsupported", "inline PTX (asm) can't run on the cpu device"),
    ],
)
def test_a_wrong_candidate_is_told_why(
    cpu: Device, tmp_path: Path, old: str, new: str, status: str, words: str
) -> None:
    found = checked(cpu, folder(tmp_path, KERNEL.replace(old, new)))
    assert found.status == status, found.reason
    assert words in found.reason


def test_a_race_that_gives_the_right_result_is_an_error(cpu: Device, tmp_path: Path) -> None:
    racy = KERNEL.replace(
        "    __syncthreads();",
        "    float other = s[threadIdx.x ^ 1]; if (other == 1e30f) s[threadIdx.x] = 0;",
    )
    found = checked(cpu, folder(tmp_path, racy))
    assert found.status == "runtime_error"
    assert "race in shared memory: kernel.cu:" in found.reason and "thread (" in found.reason


def test_correct_for_some_launches_is_not_enough(cpu: Device, tmp_path: Path) -> None:
    counting = KERNEL.replace(
        "if (i < n) part[i] =", "if (i == 0) ++calls;\n    if (i < n && calls < 20) part[i] ="
    )
    found = checked(cpu, folder(tmp_path, "__device__ int calls;\n" + counting))
    assert found.status == "incorrect"
    assert "wrong on later data" in found.reason


def test_a_remembered_result_is_found_in_the_evaluation(cpu: Device, tmp_path: Path) -> None:
    remembering = KERNEL.replace(
        "if (i < n) part[i] =",
        "if (i < n && n == 128 && kept[i]) part[i] = kept[i];\n    else if (i < n) kept[i % 512] = part[i] =",
    )
    found = evaluated(cpu, folder(tmp_path, "__device__ float kept[512];\n" + remembering))
    assert {e.status for e in found} == {Status.INCORRECT}
    assert all(e.message.startswith("case 128: y: ") for e in found)


def test_numba_is_unsupported(cpu: Device, tmp_path: Path) -> None:
    (found,) = evaluated(cpu, folder(tmp_path), "python")
    assert found.status is Status.UNSUPPORTED
    assert found.message == "the cpu device runs CUDA C++; kernel.py is for Numba"


def test_launches_that_no_gpu_has_room_for_are_restricted(cpu: Device, tmp_path: Path) -> None:
    workload = folder(tmp_path)
    main = workload.variant("main")
    large = dataclasses.replace(
        main, launches=(*main.launches[:1], dataclasses.replace(main.launches[1], shared="300000"))
    )
    found = evaluated(cpu, dataclasses.replace(workload, variants={**workload.variants, "main": large}))
    assert {e.status for e in found} == {Status.RESTRICTED}
    assert found[0].message == "300000 bytes of shared memory a block; 232448 at most"


def test_arguments_that_do_not_fit_the_kernel_are_a_launch_error(cpu: Device, tmp_path: Path) -> None:
    found = evaluated(cpu, folder(tmp_path, KERNEL.replace("float *part, int n", "float *part, long long n")))
    assert {e.status for e in found} == {Status.LAUNCH_ERROR}
    assert "parameter 4 (n) has 8 bytes; the argument has 4" in found[0].message


def test_it_measures_nothing(cpu: Device, tmp_path: Path) -> None:
    workload = folder(tmp_path)
    (case,) = performance_cases(workload, [], cpu.info)
    assert case.params["n"] <= 256
    backend = cpu.prepare(workload, space="main", cases=[case], seed=1)
    try:
        candidate = workload.baseline("main")
        with pytest.raises(UsageError, match="measures nothing; use --device cuda:0"):
            backend.compare(candidate, candidate, [case], CacheMode.COLD, blocks={case.name: 2})
        with pytest.raises(UsageError, match="measures nothing"):
            backend.quick(candidate, case, cache=CacheMode.COLD)
        assert backend.vendor(case, CacheMode.COLD) is None and backend.vendor_ready
        assert backend.floor_ms(case, CacheMode.COLD) is None
        (counters,) = backend.counters([candidate], case)
        assert isinstance(counters, NcuFailure) and "reads no hardware counters" in counters.reason
    finally:
        backend.close()


def test_without_a_compiler_the_remedy_is_told(tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match=r"no g\+\+ here: install it .*apt install g\+\+"):
        find_compiler(str(tmp_path))


BUNDLED = [  # but for the ladders, which test_cheats and test_kernels_ladder have
    (name, variant)
    for name in ("gemm", "reduction", "softmax")
    for variant, about in load_workload(name).variants.items()
    if about.language == "cuda" and about.ladder is None
]
NEED_MORE = {("gemm", "pipelined")}  # inline PTX


@pytest.mark.parametrize(("name", "variant"), BUNDLED)
def test_bundled_kernels_are_right(cpu: Device, name: str, variant: str) -> None:
    workload = load_workload(name)
    space = workload.space_of(variant)
    cases = [workload.size_case(64)]
    backend = cpu.prepare(workload, space=space.name, cases=cases, seed=1)
    try:
        config = next(c for c in space.configs(cases[0].params))
        found = backend.evaluate(workload.candidate(space.name, config), cases, Protocol())
    finally:
        backend.close()
    expected = Status.UNSUPPORTED if (name, variant) in NEED_MORE else Status.OK
    assert found.status is expected, found.message
