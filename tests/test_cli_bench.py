"""bench's parts that need no GPU: verdicts, remembered versions, and who competes with whom."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import synthetic
from numpy.typing import NDArray

from warpdeck.cli.output import clock_words
from warpdeck.core.compare import Comparison, Contender, compare
from warpdeck.core.devices import open_device
from warpdeck.core.devices.base import Paired, Uninstrumented
from warpdeck.core.errors import UsageError
from warpdeck.core.model import (
    CacheMode,
    Candidate,
    Case,
    CheckResult,
    DeviceInfo,
    Evaluation,
    Launch,
    Measurement,
    Protocol,
    Resources,
    Status,
)
from warpdeck.core.stats import Verdict
from warpdeck.core.verify import verify
from warpdeck.core.workload import Variant, Workload
from warpdeck.kernels import load_workload
from warpdeck.kernels.recorder import record_spaces, short_name
from warpdeck.kernels.scaffold import new_workload
from warpdeck.kernels.versions import KEPT, Versions
from warpdeck.sessions.contenders import implementation


class Stopwatch(Uninstrumented):
    """A device whose kernels take as long as the number in their source's first line says (µs)."""

    info = DeviceInfo("Stopwatch", "cuda:0")

    def __init__(self, noise: float = 0.002) -> None:
        self._rng = np.random.default_rng(7)
        self._noise = noise
        self._workload: Workload | None = None

    def prepare(
        self, workload: Workload, *, space: str, cases: Sequence[Case], seed: int, allow_shared: bool = False
    ) -> Stopwatch:
        self._workload = workload
        return self

    def _source(self, candidate: Candidate) -> str:
        assert self._workload is not None
        return self._workload.variants[candidate.variant].source()

    def _draw(self, candidate: Candidate, n: int) -> NDArray[np.float64]:
        us = float(self._source(candidate).split("\n")[0].removeprefix("// "))
        return us / 1e3 * np.exp(self._rng.normal(0, self._noise, n))

    def evaluate(self, candidate: Candidate, cases: Sequence[Case], protocol: Protocol) -> Evaluation:
        if "WRONG" in self._source(candidate):
            return Evaluation(candidate, Status.INCORRECT, "case odd: y: 3 of 1,003 elements are wrong")
        measured = tuple(
            Measurement(c.name, protocol.cache, "stopwatch", self._draw(candidate, 30)) for c in cases
        )
        code = self._source(candidate).split("\n")[0] + repr(sorted(candidate.config.items()))
        launch = {c.name: (Launch("k", (1, 1, 1), (64, 1, 1)),) for c in cases}
        return Evaluation(candidate, Status.OK, "", measured, launch, Resources(8, code_hash=code))

    def evaluate_many(
        self, candidates: Iterable[Candidate], cases: Sequence[Case], protocol: Protocol
    ) -> Iterator[Evaluation]:
        return (self.evaluate(c, cases, protocol) for c in candidates)

    def recheck(self, candidate: Candidate, cases: Sequence[Case], draw: int) -> Sequence[CheckResult]:
        later = "BREAKS LATER" in self._source(candidate) and draw == 5
        status = Status.INCORRECT if later else Status.OK
        return [CheckResult(c.name, c.role, status, "y: 1 element is wrong" if later else "") for c in cases]

    def quick(
        self, candidate: Candidate, case: Case, *, cache: CacheMode, samples: int = 5, rng: object = None
    ) -> tuple[Status, NDArray[np.float64]]:
        return Status.OK, self._draw(candidate, samples)

    def compare(
        self,
        a: Candidate,
        b: Candidate,
        cases: Sequence[Case],
        cache: CacheMode,
        *,
        blocks: Mapping[str, int],
    ) -> list[Paired]:
        pairs = []
        for case in cases:
            count = blocks[case.name]
            first, second = (self._draw(c, 2 * count).reshape(count, 2) for c in (a, b))
            pairs.append(Paired(case.name, cache, "stopwatch", first, second))
        return pairs

    vendor_ready = True
    vendor_problem = None

    def vendor(self, case: Case, cache: CacheMode) -> Measurement | None:
        return None

    def floor_ms(self, case: Case, cache: CacheMode) -> float | None:
        return None

    def close(self) -> None:
        pass


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "axpy"
    new_workload(path, "cuda")
    return path


def write(folder: Path, us: float, extra: str = "") -> Workload:
    """Make the kernel take so long; returns the workload as it is now."""
    body = "\n".join((folder / "kernel.cu").read_text().split("\n")[1:])
    (folder / "kernel.cu").write_text(f"// {us}\n{body}{extra}")
    return load_workload(folder)


def contender(workload: Workload) -> Contender:
    variant = workload.variants["kernel"]
    return Contender("kernel.cu", variant, workload.spaces["full"].first)


def duel(folder: Path, tmp_path: Path, new: float, old: float, extra: str = "") -> Comparison:
    shutil.copytree(folder, tmp_path / "old", dirs_exist_ok=True)
    before = contender(write(tmp_path / "old", old))
    workload = write(folder, new, extra)
    cases = [c for c in workload.cases if c.role == "performance"]
    return compare(workload, Stopwatch(), contender(workload), before, cases, space="full")


@pytest.mark.parametrize(
    ("new", "old", "verdict"), [(90, 100, Verdict.WIN), (100, 90, Verdict.LOSS), (100, 100.1, Verdict.TIE)]
)
def test_verdicts(folder: Path, tmp_path: Path, new: float, old: float, verdict: Verdict) -> None:
    found = duel(folder, tmp_path, new, old)
    assert found.verdict is verdict and found.speedup is not None
    assert found.speedup.lo <= old / new <= found.speedup.hi
    document = found.to_json()
    assert document["verdict"] == str(verdict)
    assert document["subject"]["source_hash"] != document["against"]["source_hash"]
    assert document["cases"][0]["median_ms"] == pytest.approx(new / 1e3, rel=0.01)


def test_fail_if_slower_needs_evidence(folder: Path, tmp_path: Path) -> None:
    found = duel(folder, tmp_path, 103, 100)
    assert found.slower_by_more_than(2) and not found.slower_by_more_than(4)
    assert not duel(folder, tmp_path, 100, 103).slower_by_more_than(0)


def test_a_wrong_kernel_is_never_timed(folder: Path, tmp_path: Path) -> None:
    found = duel(folder, tmp_path, 50, 100, "\n// WRONG\n")
    assert found.failed_check and found.verdict is None and found.cases == ()
    assert "elements are wrong" in found.to_json()["subject"]["reason"]


def test_faster_than_physics_fails_the_check(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stopwatch, "floor_ms", lambda self, case, cache: 0.06)
    found = duel(folder, tmp_path, 50, 100)
    assert found.failed_check and found.verdict is None and found.cases == ()
    assert found.subject_evaluation.status is Status.IMPLAUSIBLE
    assert "below the physical floor" in found.to_json()["subject"]["reason"]


def test_a_recording_says_nothing_of_an_edited_kernel(folder: Path, tmp_path: Path) -> None:
    workload = load_workload(folder)
    device = open_device("recorded:test", synthetic.write(tmp_path, workload, "full", [1024]))
    cases = [workload.size_case(1024)]
    assert verify(workload, device, workload.variants["kernel"], sizes=[1024]).ok
    assert compare(workload, device, contender(workload), contender(workload), cases, space="full").identical
    edited = write(folder, 1)
    with pytest.raises(UsageError, match="source has changed since it was recorded"):
        compare(edited, device, contender(edited), contender(edited), cases, space="full")
    with pytest.raises(UsageError, match="source has changed since it was recorded"):
        verify(edited, device, edited.variants["kernel"], sizes=[1024])


def test_event_times_stand_beside_what_an_empty_pair_reads(folder: Path) -> None:
    workload = write(folder, 10)
    case = workload.size_case(1024)
    measured = Measurement(case.name, CacheMode.COLD, "event", np.full(30, 0.01), event_floor_ms=0.0031)
    candidate = Candidate("kernel", {}, "0")
    assert Evaluation(candidate, Status.OK, measurements=(measured,)).event_floor_ms == 0.0031
    assert clock_words("event", 0.0031) == "event clock (an empty pair reads 3.10 µs)"
    assert clock_words("cupti", None) == "cupti clock"


def test_check_goes_on_to_changed_data(folder: Path) -> None:
    workload = write(folder, 10)
    assert verify(workload, Stopwatch(), workload.variants["kernel"]).ok
    workload = write(folder, 10, "\n// BREAKS LATER\n")
    found = verify(workload, Stopwatch(), workload.variants["kernel"])
    assert found.status == "incorrect" and "wrong on later data: y: 1 element is wrong" in found.reason


def test_equal_machine_code_is_a_tie_without_timing(folder: Path, tmp_path: Path) -> None:
    found = duel(folder, tmp_path, 50, 50, "\n// a comment\n")
    assert found.identical and found.verdict is Verdict.TIE and found.cases == ()


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_watching_outlives_broken_edits_and_a_folder_that_is_away(folder: Path, isolated_home: Path) -> None:
    command = [sys.executable, "-m", "warpdeck", "bench", str(folder), "--device", "cpu", "--watch", "--json"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None and process.stderr is not None
    assert json.loads(process.stdout.readline())["verdict"] == "tie"
    assert process.stderr.readline().startswith("watching")
    away = folder.rename(folder.with_name("away"))
    assert f"{folder}: no such folder" in process.stderr.readline()
    with (away / "kernel.cu").open("a") as file:
        file.write(")")
    away.rename(folder)
    assert json.loads(process.stdout.readline())["subject"]["status"] == "compile_error"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err


def test_versions_remember_what_was_before(folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = write(folder, 1)
    assert Versions(home, first).before(first.variants["kernel"]) is None
    Versions(home, first).remember(first, first.variants["kernel"])
    assert Versions(home, first).before(first.variants["kernel"]) is None
    second = write(folder, 2)
    earlier = Versions(home, second).before(second.variants["kernel"])
    assert earlier is not None and earlier.source().startswith("// 1\n")
    Versions(home, second).remember(second, second.variants["kernel"])
    third = write(folder, 3)
    earlier = Versions(home, third).before(third.variants["kernel"])
    assert earlier is not None and earlier.source().startswith("// 2\n")


def test_versions_are_bounded_and_survive_a_broken_one(folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    kept = home
    for us in range(KEPT + 5):
        workload = write(folder, us)
        kept = Versions(home, workload).remember(workload, workload.variants["kernel"])
    assert len(list(kept.parent.iterdir())) == KEPT
    now = write(folder, 99)
    (kept / "workload.toml").write_text("broken")
    earlier = Versions(home, now).before(now.variants["kernel"])
    assert earlier is not None and earlier.source().startswith(f"// {KEPT + 3}\n")


def test_a_file_is_never_taken_for_the_variant_it_stands_in_for(folder: Path, tmp_path: Path) -> None:
    workload = load_workload(folder)
    other = tmp_path / "kernel.cu"
    other.write_text("// another\n")
    variant, space = implementation(workload, str(other), None)
    assert variant.name.startswith("kernel@") and space.name == "full"
    assert implementation(workload, str(folder / "kernel.cu"), None)[0] == workload.variants["kernel"]
    with pytest.raises(UsageError, match="no variant"):
        implementation(workload, "kernl", None)
    (tmp_path / "kernel.f90").write_text("")
    with pytest.raises(UsageError, match=r"ends in \.py or \.cu"):
        implementation(workload, str(tmp_path / "kernel.f90"), None)


def test_spaces_are_found_by_their_knobs() -> None:
    workload = load_workload("softmax")
    assert implementation(workload, None, None, knobs=["block_size"])[1].name == "classic"
    assert implementation(workload, "classic", None)[1].name == "classic"
    assert isinstance(implementation(workload, None, "classic")[0], Variant)


def test_a_contender_is_a_candidate() -> None:
    workload = load_workload("softmax")
    space = workload.spaces["classic"]
    config = space.first
    made = Contender("x", workload.variants["classic"], config).candidate
    assert made == workload.candidate("classic", config)
    assert dataclasses.replace(made) == made


@pytest.mark.parametrize(
    ("gpu", "name"),
    [("NVIDIA H200", "h200"), ("NVIDIA GeForce RTX 4090", "rtx4090"), ("Tesla T4", "t4"), ("", "gpu")],
)
def test_a_recording_is_named_after_its_gpu(gpu: str, name: str) -> None:
    assert short_name(gpu) == name


def test_several_recordings_do_not_fit_one_file(tmp_path: Path) -> None:
    target = tmp_path / "x.t4.json.gz"
    with pytest.raises(UsageError, match="name a folder"):
        next(record_spaces(["softmax", "gemm"], target, device="recorded:none"))
