"""`occupancy`: numbers, a compiled kernel, a recorded one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli_support import here, warpdeck, write_recordings

from warpdeck.core.errors import ExitCode
from warpdeck.telemetry.occupancy import occupancy


def test_numbers_in_words_and_as_json() -> None:
    numbers = ("occupancy", "--cc", "9.0", "--registers", "42", "--threads", "256", "--shared", "1024")
    said = here(*numbers)
    assert said.returncode == ExitCode.OK, said.stderr
    assert "62.5%" in said.stdout and "2 registers fewer a thread (40) → 6 blocks" in said.stdout
    assert "256 *" in said.stdout
    document = json.loads(here(*numbers, "--json").stdout)
    fit = occupancy((9, 0), 42, 256, 1024)
    assert (document["blocks"], document["limiter"]) == (fit.blocks, fit.limiter)
    assert document["next"][0]["registers"] == 40 and len(document["table"]) == 10


def test_a_launch_that_fails_is_told() -> None:
    said = here("occupancy", "--cc", "sm_90", "--registers", "255", "--threads", "512")
    assert "the launch fails: registers" in said.stdout


def test_a_recorded_kernel(isolated_home: Path) -> None:
    write_recordings(isolated_home)
    recorded = (
        "occupancy",
        "softmax",
        "--device",
        "recorded:synthetic",
        "--knob",
        "block_size=128",
        "--json",
    )
    done = here(*recorded)
    assert done.returncode == ExitCode.OK, done.stderr
    document = json.loads(done.stdout)
    assert document["config"]["block_size"] == document["threads"] == 128
    assert "recorded" in document["device"]


def test_a_compiled_kernel() -> None:
    pytest.importorskip("numba")
    done = here("occupancy", "softmax", "--space", "classic", "--cc", "8.6", "--json")
    assert done.returncode == ExitCode.OK, done.stderr
    document = json.loads(done.stdout)
    assert document["compute_capability"] == "8.6" and document["sm"]["warps"] == 48
    assert document["registers"] > 0 and document["threads"] == 256


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--registers"),
        (("--registers", "32", "--cc", "5.2"), "--cc '5.2'"),
        (("--registers", "32", "--knob", "a=1"), "need a WORKLOAD"),
        (("softmax", "--threads", "64"), "--threads"),
        (("softmax", "--device", "recorded:h200", "--cc", "9.0"), "without --cc"),
        (("nonsense",), "nonsense"),
    ],
)
def test_mistakes_are_usage_errors(arguments: tuple[str, ...], said: str) -> None:
    done = here("occupancy", *arguments)
    assert done.returncode == ExitCode.USAGE
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["occupancy", "sass"])
def test_a_package_that_is_not_installed_is_told_as_every_command_tells_it(
    command: str, tmp_path: Path
) -> None:
    absent = tmp_path / "numba"
    absent.mkdir()
    raised = "raise ModuleNotFoundError(\"No module named 'numba'\", name='numba')"
    (absent / "__init__.py").write_text(raised)
    said = warpdeck(command, "softmax", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert said.returncode == ExitCode.USAGE, said.stderr
    assert "pip install 'warpdeck[cuda]'" in said.stderr and len(said.stderr.splitlines()) == 1
