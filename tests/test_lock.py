"""The GPU lock: exclusive between processes, names its holder, dies with it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from warpdeck.core.errors import WarpdeckError
from warpdeck.core.lock import gpu_lock, holder, lock_path

UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"
HOLD = """
import sys
from warpdeck.core.lock import gpu_lock
with gpu_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WARPDECK_LOCK_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until its stdin closes."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, UUID], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_process_is_refused_and_told_who_holds_it(other: subprocess.Popen[str]) -> None:
    with pytest.raises(WarpdeckError, match=f"process {other.pid} "), gpu_lock(UUID):
        pass
    assert holder(UUID) == other.pid


def test_the_lock_dies_with_its_holder(other: subprocess.Popen[str]) -> None:
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert holder(UUID) is None
    with gpu_lock(UUID):
        assert holder(UUID) == os.getpid()


def test_waiting_ends_when_the_holder_lets_go(other: subprocess.Popen[str]) -> None:
    assert other.stdin is not None
    threading.Timer(0.2, other.stdin.close).start()
    with gpu_lock(UUID, timeout_s=20):
        assert holder(UUID) == os.getpid()


def test_two_gpus_are_two_locks(other: subprocess.Popen[str]) -> None:
    with gpu_lock("GPU-other"):
        assert holder("GPU-other") == os.getpid()


def test_the_lock_can_be_taken_again_and_by_other_users() -> None:
    for _ in range(2):
        with gpu_lock(UUID) as path:
            assert stat.S_IMODE(path.stat().st_mode) == 0o666
    assert holder(UUID) is None


def test_started_programs_do_not_inherit_it() -> None:
    with gpu_lock(UUID):
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
        )
    try:
        with gpu_lock(UUID):
            pass
    finally:
        child.kill()
        child.wait()


def test_an_unusable_folder_is_one_plain_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPDECK_LOCK_DIR", str(tmp_path / "missing"))
    with pytest.raises(WarpdeckError, match="WARPDECK_LOCK_DIR"), gpu_lock(UUID):
        pass
    assert holder(UUID) is None


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    lock_path(UUID).symlink_to(target)
    with pytest.raises(WarpdeckError, match="lock file"), gpu_lock(UUID):
        pass
    assert target.read_text() == "precious"
