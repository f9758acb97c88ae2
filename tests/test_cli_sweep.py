"""`sweep` over several workloads: one process, a session each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_support import warpdeck, write_recordings

from warpdeck.core.errors import ExitCode

SWEEP = ("sweep", "--device", "recorded:synthetic", "--size", "256")


@pytest.fixture(autouse=True)
def recorded(isolated_home: Path) -> None:
    write_recordings(isolated_home)


def sessions() -> list[dict[str, str]]:
    return json.loads(warpdeck("sessions", "list", "--json").stdout)["sessions"]


def test_a_sweep_of_two_has_two_sessions_and_one_table() -> None:
    done = warpdeck(*SWEEP, "softmax", "softmax", "--json")
    assert done.returncode == ExitCode.OK, done.stderr
    document = json.loads(done.stdout)
    assert len(document["rows"]) == 18
    assert sorted(document["sessions"]) == sorted(s["id"] for s in sessions())


def test_what_did_not_get_its_turn_leaves_no_session() -> None:
    # The device opens, and holds no recording of gemm.
    done = warpdeck(*SWEEP, "gemm", "softmax")
    assert done.returncode == ExitCode.USAGE and "gemm" in done.stderr
    assert "Traceback" not in done.stderr
    assert sessions() == []


def test_what_ended_before_a_failure_stays() -> None:
    done = warpdeck(*SWEEP, "softmax", "gemm", "softmax")
    assert done.returncode == ExitCode.USAGE and "gemm" in done.stderr
    assert [s["state"] for s in sessions()] == ["finished"]
