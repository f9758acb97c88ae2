"""`check` of a bare .cu file and of a replay request, and what is wrong with such files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from authored import KERNEL, REFERENCE, SIGNATURE
from cli_support import warpdeck

from warpdeck.cli.app import run
from warpdeck.core.errors import ExitCode, UsageError
from warpdeck.core.model import Candidate, Trust
from warpdeck.core.workload import LaunchSpec, Workload
from warpdeck.kernels import load_workload
from warpdeck.kernels.assemble import assemble
from warpdeck.kernels.bare import MARK, fixed, head_line, read_bare
from warpdeck.kernels.parts import Parts
from warpdeck.sessions import standalone_cuda
from warpdeck.sessions.choices import Choice
from warpdeck.sessions.replayed import replay
from warpdeck.sessions.requests import write_requests

TRICKY = """
#include "/etc/hostname"
extern "C" __global__ void rowsum(const float* x, float* y, int m, int n) {}
"""


@pytest.fixture
def rowsum(tmp_path: Path) -> Workload:
    launch = {"grid": ["ceil_div(m, BLOCK)"], "block": ["BLOCK"]}
    kernel = KERNEL.replace("blockDim.x", "BLOCK")
    parts = Parts(
        signature=SIGNATURE,
        reference=REFERENCE,
        kernel=kernel,
        launches=(launch,),
        knobs={"BLOCK": [32, 64]},
        cases=({"name": "odd", "role": "correctness", "m": 5, "n": 7},),
    )
    return assemble(parts, tmp_path / "w")


def best_cu(workload: Workload, *configs: Any, folder: str | None = "w") -> str:
    """As a session would write it, with one case a configuration."""
    cases = [workload.size_case(8 * (i + 1)) for i in range(len(configs))]
    choices = [Choice(c.name, c.params, config, None, None) for c, config in zip(cases, configs, strict=True)]
    return standalone_cuda.generate(workload, workload.variant("initial"), choices, ["best"], folder=folder)


def requested(workload: Workload, folder: Path, **run_of: Any) -> dict[str, Path]:
    """The requests of the second configuration, by case."""
    variant = workload.variant("initial")
    candidate = Candidate(variant.name, {"BLOCK": 64}, variant.source_hash)
    cases = [workload.size_case(8), workload.size_case(12)]
    files = list(write_requests(folder, workload, variant, candidate, cases, device="cpu", **run_of))
    return {case.name: file for case, file in zip(cases, files, strict=True)}


def edited(file: Path, **changes: Any) -> Path:
    request = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({k: v for k, v in request.items() if v is not ...}))
    return file


# -- bare files ------------------------------------------------------------------------------------------


def test_a_bare_file_knows_its_launches(rowsum: Workload, tmp_path: Path) -> None:
    file = tmp_path / "best.cu"
    file.write_text(best_cu(rowsum, {"BLOCK": 32}, {"BLOCK": 64}))
    workload, variant = read_bare(file)
    assert workload.folder == rowsum.folder and variant.trust is Trust.GENERATED
    candidate = workload.candidate("file", {})
    first, second, other = (workload.size_case(n) for n in (8, 16, 100))
    assert workload.launches(candidate, first)[0].block == (32, 1, 1)
    assert workload.launches(candidate, second)[0].block == (64, 1, 1)
    (launch,) = workload.launches(candidate, other)
    assert (launch.entry, launch.grid) == ("rowsum_config0", (4, 1, 1))
    assert all(f"void {name}(" in file.read_text() for name in ("rowsum_config0", "rowsum_config1"))


def test_check_of_a_source_in_its_workload_s_folder(
    rowsum: Workload, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = rowsum.folder / "kernel.cu"
    assert run(["check", str(own), "--device", "cpu", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["variant"] == "initial"
    other = rowsum.folder / "other.cu"
    other.write_text(own.read_text().replace("sum += x", "sum += 2 * x"))
    assert run(["check", str(other), "--device", "cpu", "--json"]) == ExitCode.VERIFICATION
    found = json.loads(capsys.readouterr().out)
    assert found["variant"].startswith("other@") and found["status"] == "incorrect"
    assert run(["check", str(rowsum.folder / "reference.py"), "--device", "cpu"]) == ExitCode.USAGE
    assert "reference.py: a file; a workload is a folder" in capsys.readouterr().err


def test_knobs_become_numbers_in_launches() -> None:
    spec = LaunchSpec("k", ("ceil_div(n, T * 2) if n > T else 1",), ("T",), "4 * T")
    assert fixed(spec, {"T": 16, "V": True}) == LaunchSpec(
        "k", ("ceil_div(n, 16 * 2) if n > 16 else 1",), ("16",), "4 * 16"
    )


def test_check_of_a_bare_file(rowsum: Workload, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "best.cu"
    file.write_text(best_cu(rowsum, {"BLOCK": 32}, {"BLOCK": 64}))
    assert run(["check", str(file), "--device", "cpu", "--size", "8", "--json"]) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "ok" and document["workload"] == "rowsum"
    assert {c["name"] for c in document["cases"]} >= {"odd", "8"}
    assert all(c["status"] == "ok" for c in document["cases"])
    file.write_text(file.read_text().replace("float sum = 0", "float sum = 1"))
    assert run(["check", str(file), "--device", "cpu", "--size", "8"]) == ExitCode.VERIFICATION
    assert "elements are wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("int x;\n", "no comment in it says which workload"),
        (f"{MARK}{{\n", "is damaged"),
        (f"{MARK}[]\n", "is damaged"),
        (MARK + "[" * 100_000 + "\n", "is damaged"),
        (f'{MARK}{{"workload": "gemmm", "plans": []}}\n', "did you mean 'gemm'"),
        (f'{MARK}{{"workload": "gemm", "plans": []}}\n', "names no launches"),
        (f'{MARK}{{"workload": "gemm", "plans": [[{{"entry": "k"}}]]}}\n', "names no launches"),
        (f'{MARK}{{"folder": "gone", "plans": []}}\n', "is gone; say where it is"),
        ("\n" * 100 + MARK + "{}", "no comment in it"),
    ],
)
def test_a_bare_file_that_says_nothing_useful(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"^.*k\.cu|unknown") as caught:
        read_bare(file)
    assert words in str(caught.value)


def test_code_of_others_brings_no_file_of_this_machine_along(rowsum: Workload, tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text(head_line(rowsum, [rowsum.variant("initial").launches], {}, "w") + TRICKY)
    _, variant = read_bare(file)
    text, _ = standalone_cuda.baked(variant, {})
    assert Path("/etc/hostname").read_text().strip() not in text
    assert "/etc/hostname" in text  # for the compiler to refuse


# -- requests --------------------------------------------------------------------------------------------


def test_a_request_stands_alone(rowsum: Workload, tmp_path: Path) -> None:
    files = requested(rowsum, tmp_path / "requests", session="s1", seed=3)
    moved = tmp_path / "elsewhere"
    (tmp_path / "requests").rename(moved)
    for file in (tmp_path / "w").iterdir():
        file.unlink()
    file = moved / files["12"].name
    request = json.loads(file.read_text())
    assert (request["kernel"], request["grid"], request["block"]) == ("rowsum", [1, 1, 1], [64, 1, 1])
    assert (request["warmup"], request["iterations"], request["seed"]) == (10, 100, 3)
    x, y, m, _ = request["arguments"]
    assert (x["direction"], x["shape"], x["bytes"]) == ("input", [12, 12], 576)
    assert (y["direction"], m["value"]) == ("output", 12)
    found = replay(file)
    assert found.status == "ok" and found.to_json()["median_ms"] is None
    assert found.to_json()["device"]["emulated"] is True


def test_a_foreign_request_runs_its_reference_in_the_sandbox_whatever_it_says(
    rowsum: Workload, tmp_path: Path
) -> None:
    file = requested(rowsum, tmp_path / "got" / "requests")["8"]
    assert json.loads(file.read_text())["trust"] == "own"
    trace = tmp_path / "trace"
    reference = f"import os\n\n\ndef reference(x):\n    os.mkdir({str(trace)!r})\n    return x.sum(axis=1)\n"
    (file.parent / "reference.py").write_text(reference)
    (tmp_path / "got" / "FOREIGN").touch()
    with pytest.raises(UsageError, match="reference failed"):
        replay(file)
    assert not trace.exists()


def test_a_wrong_kernel_fails_its_request(
    rowsum: Workload, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = requested(rowsum, tmp_path)["8"]
    source = tmp_path / json.loads(file.read_text())["source"]
    source.write_text(source.read_text().replace("sum += x", "sum += 2 * x"))
    assert run(["check", "--request", str(file), "--json"]) == ExitCode.VERIFICATION
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "incorrect" and "elements are wrong" in document["reason"]
    assert document["cases"][0]["name"] == "8"
    assert run(["check", "--request", str(file)]) == ExitCode.VERIFICATION
    assert "not timed: emulated" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source": "none.cu"}, "which isn't there"),
        ({"source": ...}, "'source' is missing"),
        ({"reference": "reference.txt"}, "which isn't there"),
        ({"reference": "../reference.py"}, "outside of its folder"),
        ({"source": "/etc/hostname"}, "outside of its folder"),
        ({"source": "a/../../outside.cu"}, "outside of its folder"),
        ({"source": "link.cu"}, "outside of its folder"),
        ({"case": {"name": "8"}}, "'params' is missing"),
        ({"launches": [{"kernel": "rowsum", "grid": [1], "block": "x"}]}, "not a replay request"),
        ({"launches": [{"kernel": "rowsum", "grid": [1], "block": [4096]}]}, "4096"),
        ({"arguments": [{"name": "x"}]}, "'kind' is missing"),
        ({"cache": "warm"}, "'warm' is not a valid CacheMode"),
        ({"iterations": "many"}, "not a replay request"),
        ({"tolerance": 3}, "not a replay request"),
    ],
)
def test_a_damaged_request_is_one_plain_line(
    changes: dict[str, Any],
    words: str,
    rowsum: Workload,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = edited(requested(rowsum, tmp_path / "requests")["8"], **changes)
    (tmp_path / "outside.cu").write_text("secret")
    (tmp_path / "reference.py").write_text("secret")
    (tmp_path / "requests/link.cu").symlink_to(tmp_path / "outside.cu")
    assert run(["check", "--request", str(file)]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("warpdeck: error: ") and said.err.count("\n") == 1
    assert words in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check"], "which workload"),
        (["check", "--request", "/nowhere.json"], "can't be read"),
        (["check", "--request", "/dev/zero"], "larger than 4 MiB"),
        (["check", "gemm", "--request", "x.json"], "leave WORKLOAD"),
        (["check", "/nowhere.cu"], "can't be read"),
        (["check", "/nowhere.cu", "--variant", "x"], "is the variant"),
    ],
)
def test_bad_arguments(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


def test_a_request_of_a_numba_kernel_is_refused(tmp_path: Path) -> None:
    softmax = load_workload("softmax")
    variant = next(v for v in softmax.variants.values() if v.language == "numba")
    candidate = Candidate(variant.name, {}, variant.source_hash)
    with pytest.raises(UsageError, match="written in numba"):
        list(write_requests(tmp_path, softmax, variant, candidate, [softmax.size_case(8)]))


def test_without_a_gpu_what_no_recording_knows_is_emulated(rowsum: Workload) -> None:
    bare = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = warpdeck("check", str(rowsum.folder), "--size", "8", "--json", env=bare)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["device"]["emulated"] and "no CUDA GPU here" in done.stderr
