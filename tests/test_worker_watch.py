"""Who else is on a GPU, told from NVML's process list."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from warpdeck.core.worker.watch import foreign
from warpdeck.telemetry.readings import ComputeProcess


def listed(*pids: int) -> list[ComputeProcess]:
    return [ComputeProcess(pid, None, "/usr/bin/python3") for pid in pids]


@pytest.fixture
def child() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process.pid
    process.kill()
    process.wait()


def test_workers_this_process_and_its_children_are_ours(child: int) -> None:
    assert foreign(listed(child, os.getpid()), {child}) == ()
    assert foreign(listed(child), {os.getpid()}) == ()


def test_another_process_is_named(child: int) -> None:
    assert foreign(listed(child, 1), {child}) == ("process 1 (python3)",)
    assert foreign(listed(1), set()) == ("process 1 (python3)",)


def test_a_listed_process_that_has_ended_was_ours(child: int) -> None:
    assert foreign(listed(child, 2**22 + 1), {child}) == ()


def test_ids_of_another_namespace_are_only_counted(child: int) -> None:
    assert foreign(listed(2**22 + 1), {child}) == ()
    assert foreign(listed(2**22 + 1, 2**22 + 2, 2**22 + 3), {child}) == ("2 other processes",)
    assert foreign([], {child}) == ()
