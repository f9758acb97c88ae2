"""doctor: every check answers, whatever is broken, and says how to mend it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from warpdeck.core import doctor, emulator, probes
from warpdeck.core.doctor import Check, examine
from warpdeck.core.emulator import find_compiler

EXPECTED = {
    "python",
    "driver",
    "nvml",
    "gpu",
    "cuda driver api",
    "numba",
    "nvrtc",
    "nvjitlink",
    "cupti",
    "ncu",
    "ncu counter permission",
    "ncu-report",
    "nvdisasm",
    "ptxas",
    "compute-sanitizer",
    "device cpu",
    "sandbox",
    "bubblewrap",
    "landlock",
    "user namespaces",
    "terminal",
    "disk space",
    "file system",
}


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_every_check_answers_and_every_failure_has_a_remedy(tmp_path: Path) -> None:
    checks = by_name(examine(tmp_path / "not" / "yet" / "there", filesystem="ext4"))
    assert set(checks) >= EXPECTED
    for check in checks.values():
        assert check.detail
        assert check.ok or check.remedy, check
        assert "\n" not in check.remedy
    assert checks["python"].ok
    json.dumps([check.to_json() for check in checks.values()])


@pytest.mark.parametrize("home", ["/proc/warpdeck", "{file}/home", "{folder}/" + "a" * 300])
def test_a_home_that_cannot_be_made_is_a_finding(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").touch()
    place = Path(home.format(file=tmp_path / "file", folder=tmp_path))
    found = by_name(examine(place, filesystem="ext4"))["disk space"]
    assert not found.ok and "can't be written" in found.detail and "WARPDECK_HOME" in found.remedy
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_probe_that_crashes_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = json.dumps({"name": "numba", "ok": True, "detail": "x", "remedy": ""})
    script = f"import os; print({ended!r}, flush=True); os.abort()"
    real = subprocess.run

    def run(command: tuple[str, ...], **options: object) -> object:
        return real((sys.executable, "-c", script), **options)  # type: ignore[call-overload]

    monkeypatch.setattr(doctor.subprocess, "run", run)
    checks = by_name(doctor._probes())
    assert checks["numba"].ok
    assert not checks["nvrtc"].ok and "did not end" in checks["nvrtc"].detail and checks["nvrtc"].remedy
    assert set(checks) == set(probes.PROBES)


@pytest.mark.parametrize(
    ("restricted", "capabilities", "ok"),
    [
        (0, "0000000000000000", True),
        (1, "0000000000000000", False),
        (1, "00000000a80425fb", False),  # root in a container
        (1, "000001ffffffffff", True),
        (1, "0000004000000000", True),  # CAP_PERFMON alone
    ],
)
def test_who_may_read_counters(tmp_path: Path, restricted: int, capabilities: str, ok: bool) -> None:
    for name, text in (
        ("driver/nvidia/params", f"EnableMSI: 1\nRmProfilingAdminOnly: {restricted}\n"),
        ("self/status", f"Name:\tpython\nCapEff:\t{capabilities}\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    found = doctor._counter_permission(tmp_path)
    assert found.ok is ok and (ok or "--cap-add=SYS_ADMIN" in found.remedy)


def test_under_wsl_windows_permits_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.release", lambda: "5.15.153.1-microsoft-standard-WSL2")
    assert "NVIDIA Control Panel" in doctor._counter_permission(tmp_path).detail


def test_a_check_that_raises_is_a_finding() -> None:
    def broken() -> Check:
        raise RuntimeError("no such luck")

    assert doctor._guarded("x", broken) == Check(
        "x", False, "the check itself failed: RuntimeError: no such luck", "report this"
    )


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"TERM": "xterm-256color"}, ("colours: 256",)),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, ("colours: truecolor",)),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x"}, ("inside tmux",)),
        ({"TERM": "xterm", "NO_COLOR": "1"}, ("NO_COLOR",)),
        ({}, ("TERM=unset",)),
    ],
)
def test_terminal(environ: dict[str, str], words: tuple[str, ...]) -> None:
    check = doctor._terminal(environ)
    assert all(word in check.detail for word in words)


def test_a_network_home_and_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    assert not doctor._filesystem(tmp_path, "nfs4", True).ok
    assert doctor._filesystem(tmp_path, "ext4", False).ok
    assert doctor._lock_folder({"WARPDECK_LOCK_DIR": str(tmp_path)}).ok
    assert not doctor._lock_folder({"WARPDECK_LOCK_DIR": str(tmp_path / "none")}).ok


def test_probes_never_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise ModuleNotFoundError("No module named 'cuda'")

    def odd() -> str:
        raise ValueError("odd")

    monkeypatch.setitem(probes.PROBES, "numba", missing)
    monkeypatch.setitem(probes.PROBES, "nvrtc", odd)
    for name in ("numba", "nvrtc"):
        found = probes.run(name)
        assert found["ok"] is False and found["remedy"]


def test_no_compiler_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "find_compiler", lambda: find_compiler(str(tmp_path)))
    found = doctor._emulator()
    assert not found.ok and "no g++ here" in found.detail and "apt install g++" in found.remedy
