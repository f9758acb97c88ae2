"""What is better not emulated is told before it begins, or refused."""

from __future__ import annotations

import pytest

from warpdeck.cli.app import run
from warpdeck.core.devices import cpu
from warpdeck.core.errors import ExitCode
from warpdeck.kernels import list_workloads, load_workload


@pytest.mark.parametrize("name", list_workloads())
def test_only_large_cases_are_warned_of(name: str) -> None:
    workload = load_workload(name)
    assert cpu.slow_warning(workload, [workload.size_case(256)]) is None
    told = cpu.slow_warning(workload, [workload.size_case(8192)])
    assert told is not None and "8192 takes about" in told and "--size 256" in told


def test_the_guess_grows_with_the_work() -> None:
    gemm, softmax = load_workload("gemm"), load_workload("softmax")
    small, large = (cpu.burden(gemm, [gemm.size_case(n)]) for n in (512, 1024))
    assert 7 < large[0] / small[0] < 9 and large[1] == 4 * small[1]
    both = cpu.burden(softmax, [softmax.size_case(512), softmax.size_case(1024)])
    assert both[0] == pytest.approx(sum(cpu.burden(softmax, [softmax.size_case(n)])[0] for n in (512, 1024)))


def test_what_memory_can_not_hold_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cpu, "available_bytes", lambda: 1 << 20)
    command = ["check", "softmax", "--variant", "thread", "--device", "cpu", "--size", "1024"]
    assert run(command) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert "need about 0.1 GB of memory on the device cpu, and 0.0 GB are free" in said
    assert said.count("\n") == 1


def test_a_warning_comes_before_the_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cpu, "_LONG_S", 0.001)
    assert run(["check", "reduction", "--variant", "atomics", "--device", "cpu", "--size", "64"]) == 0
    assert "emulating 64 takes about 0 s an evaluation" in capsys.readouterr().err
