"""The best of a session as a file that stands alone."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import session_logs
from session_logs import AXPY_CU, AXPY_TOML, CASES, SOFTMAX, judged, start_event

from warpdeck.core.errors import UsageError
from warpdeck.core.model import CacheMode, Evaluation, Launch, Measurement, Status
from warpdeck.kernels import load_workload
from warpdeck.sessions import (
    best,
    paths,
    standalone_cuda,
    standalone_numba,
)
from warpdeck.sessions.choices import Choice
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore


@pytest.fixture
def sessions(isolated_home: Path) -> Path:
    return paths.home().sessions


@pytest.fixture
def swept(sessions: Path) -> Iterator[SessionStore]:
    with session_logs.swept_session(sessions) as store:
        yield store


def test_the_best_stands_alone_and_compiles(sessions, tmp_path):
    """Each size with the configuration that was clearly fastest there; code without warpdeck in it."""
    numba_cuda = pytest.importorskip("numba.cuda")
    small, large = SOFTMAX.space("full").configs(CASES[0].params)[5:7]
    with SessionStore.create(sessions, "s", {}) as store:
        store.append("start", start_event("full"))
        store.append("baseline", judged(small, 1.0, "full").to_json())
        first = judged(small, 0.5, "full")
        store.append("evaluation", {"step": 1, **first.to_json()})
        second = judged(large, 0.7, "full")
        at_large = Measurement("1024", CacheMode.COLD, "cupti", np.full(3, 0.9), ci95_ms=(0.9, 0.9))
        second = dataclasses.replace(second, measurements=(second.measurements[0], at_large))
        store.append("evaluation", {"step": 2, **second.to_json()})
        name, text = best.standalone(store)
    assert name == "best.py"
    assert "warpdeck" not in re.sub(r'^""".*?"""', "", text, count=1, flags=re.DOTALL)
    file = tmp_path / "best.py"
    file.write_text(text)
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
sys.modules["warpdeck"] = None
import best
print(best.knobs_for(256, 256) == {dict(small)!r}, best.knobs_for(900, 1200) == {dict(large)!r})
print(sorted(best.functions(best.knobs_for(256, 256))))
print(best.reference_function()(best.np.zeros((2, 4))).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "True True"
    assert lines[2] == str([[0.25] * 4] * 2)
    assert numba_cuda is not None


@pytest.mark.parametrize("name", ["gemm", "reduction", "softmax"])
@pytest.mark.parametrize("space", ["classic", "full"])
def test_a_standalone_file_compiles_to_the_measured_binary(name, space, tmp_path):
    pytest.importorskip("numba.cuda")
    from warpdeck.core.toolchain import compile_candidate

    workload = load_workload(name)
    variant = workload.variant(workload.space(space).variant)
    case = workload.size_case(1024)
    candidate = workload.candidate(space, workload.space(space).configs(case.params)[0])
    choice = Choice(case.name, case.params, candidate.config, 1.0, 2.0)
    file = tmp_path / "best.py"
    file.write_text(standalone_numba.generate(workload, variant, [choice], ["a title", "a line"]))
    alone = dataclasses.replace(
        workload, variants={**workload.variants, variant.name: dataclasses.replace(variant, file=file)}
    )
    measured, again = (compile_candidate(w, candidate, case) for w in (workload, alone))
    assert again.resources.code_hash == measured.resources.code_hash


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["gemm", "reduction", "softmax"])
@pytest.mark.parametrize("space", ["classic", "full"])
def test_a_standalone_file_runs_and_is_right(name, space, tmp_path):
    workload = load_workload(name)
    variant = workload.variant(workload.space(space).variant)
    case = workload.size_case(256)
    config = workload.space(space).configs(case.params)[0]
    file = tmp_path / "best.py"
    choices = [Choice(case.name, case.params, config, 1.0, 2.0)]
    file.write_text(standalone_numba.generate(workload, variant, choices, ["a title"]))
    done = subprocess.run(
        [sys.executable, str(file), "256"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    error = re.search(r"error at most \S+, (\S+) of the largest", done.stdout)
    assert error is not None
    assert float(error[1]) < 1e-3
    assert "median of 20 calls" in done.stdout


def test_a_cuda_variant_stands_alone(isolated_home, sessions, tmp_path):
    folder = tmp_path / "axpy"
    folder.mkdir()
    (folder / "workload.toml").write_text(AXPY_TOML)
    (folder / "kernel.cu").write_text(AXPY_CU)
    (folder / "scale.cuh").write_text("#pragma once\n#include <cuda_fp16.h>\n#define SCALE 2\n")
    (folder / "reference.py").write_text("def reference(x, y, n, a):\n    return {'y': y + a * x}\n")
    workload = load_workload(folder)
    space = next(iter(workload.spaces))
    cases = [workload.size_case(n) for n in (1000, 100_000)]
    spec = RunSpec(str(folder), space=space)
    with SessionStore.create(sessions, "s", {"spec": spec.to_json()}) as store:
        store.append(
            "start",
            {**start_event(), "cases": [{"name": c.name, "params": dict(c.params)} for c in cases]},
        )
        for step, (block, times) in enumerate({64: (1.0, 9.0), 256: (2.0, 4.0)}.items(), 1):
            candidate = workload.candidate(space, {"BLOCK": block, "reg_cap": 32 if block == 256 else 0})
            measured = tuple(
                Measurement(c.name, CacheMode.COLD, "cupti", np.full(3, ms), ci95_ms=(ms, ms))
                for c, ms in zip(cases, times, strict=True)
            )
            launches = {c.name: (Launch("axpy", (1, 1, 1), (block, 1, 1)),) for c in cases}
            evaluation = Evaluation(candidate, Status.OK, measurements=measured, launches=launches)
            store.append("evaluation", {"step": step, **evaluation.to_json()})
        name, text = best.standalone(store)
    assert name == "best.cu"
    assert text.count("#include <cuda_fp16.h>") == 1
    assert "scale.cuh" not in text
    assert "{1000, 0}, {100000, 1}" in text
    assert "unsigned(ceil_div(n_, 256))" in text
    pytest.importorskip("cuda.bindings.nvrtc")
    from warpdeck.core.toolchain import compile_cuda

    compiled = compile_cuda(text, "best.cu", (9, 0))
    names = " ".join(compiled.entries.values())
    assert "axpy_config0" in names
    assert "axpy_config1" in names


@pytest.mark.parametrize(
    ("name", "space"),
    [("gemm", "cuda"), ("gemm", "pipelined"), ("reduction", "cuda"), ("softmax", "cuda")],
)
def test_a_bundled_cuda_variant_stands_alone(name, space, tmp_path):
    """Two configurations in one file, without this package's header: the machine code that was measured."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs the cuda extra")
    from warpdeck.core.toolchain import compile_candidate
    from warpdeck.core.toolchain.build import build
    from warpdeck.core.toolchain.requests import cuda_request

    workload = load_workload(name)
    variant = workload.variant(workload.space(space).variant)
    configs = workload.space(space).configs()
    chosen = [configs[0], configs[-1]]
    cases = [workload.size_case(n) for n in (256, 4096)]
    choices = [
        Choice(case.name, case.params, config, 1.0, 2.0) for case, config in zip(cases, chosen, strict=True)
    ]
    text = standalone_cuda.generate(workload, variant, choices, ["a title"])
    assert "warpdeck/" not in text
    alone = build(cuda_request(text, "best.cu", (9, 0)))
    assert set(alone.kernels) == {f"{variant.entry}_config{i}" for i in range(2)}
    for number, (config, case) in enumerate(zip(chosen, cases, strict=True)):
        measured = compile_candidate(workload, workload.candidate(space, config), case).resources
        kernel = alone.kernels[f"{variant.entry}_config{number}"]
        assert (kernel.registers, kernel.code_bytes) == (measured.registers, measured.code_bytes)
    nvcc = shutil.which("nvcc")
    if nvcc:  # the host's part too
        file = tmp_path / "best.cu"
        file.write_text(text)
        done = subprocess.run(
            [nvcc, "-std=c++17", "-arch=sm_90", "-c", str(file), "-o", str(tmp_path / "best.o")],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_a_session_without_results_has_no_best(sessions):
    with SessionStore.create(sessions, "s", {}) as store, pytest.raises(UsageError, match="no measured"):
        best.standalone(store)


def test_a_changed_source_is_not_passed_off_as_the_measured_one(swept):
    logged = next(swept.events(kinds=["evaluation"])).data
    swept.append("evaluation", {**logged, "source_hash": "0" * 16})
    with pytest.raises(UsageError, match="has changed since"):
        best.standalone(swept)


def test_modules_beside_the_kernel_are_put_into_the_file(tmp_path):
    folder = tmp_path / "twice"
    folder.mkdir()
    (folder / "workload.toml").write_text(AXPY_TOML)
    (folder / "kernel.py").write_text(
        '"""A kernel."""\nfrom __future__ import annotations\nfrom helpers import factor as by\n\n\n'
        "def make(BLOCK):\n    return by\n"
    )
    (folder / "helpers.py").write_text('"""Help."""\n\ndef factor(x):\n    return x\n')
    (folder / "reference.py").write_text("def reference(x, y):\n    return y\n")
    workload = load_workload(folder)
    variant = next(iter(workload.variants.values()))
    case = workload.size_case(64)
    choices = [Choice("64", case.params, {"BLOCK": 64, "reg_cap": 0}, 1.0, None)]
    text = standalone_numba.generate(workload, variant, choices, ["twice"])
    assert text.index("def factor(x)") < text.index("by = factor") < text.index("def make(BLOCK)")
    assert "import factor" not in text
    (folder / "helpers.py").write_text("def make(x):\n    return x\n\nfactor = make\n")
    with pytest.raises(UsageError, match="both define 'make'"):
        standalone_numba.generate(workload, variant, choices, ["twice"])
    (folder / "kernel.py").write_text("import helpers\n\n\ndef make(BLOCK):\n    return helpers.factor\n")
    with pytest.raises(UsageError, match="write `from helpers import"):
        standalone_numba.generate(workload, variant, choices, ["twice"])
