"""Traces and profiles beside recordings, as the lists name them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_support import here

from warpdeck.kernels.loader import BUNDLED, list_workloads, load_workload
from warpdeck.kernels.stored import list_stored


def test_what_ships_is_listed_with_the_command_that_shows_it(isolated_home: Path) -> None:
    found = list_stored()
    shipped = {p for suffix in ("wdtrace", "counters.json.gz") for p in BUNDLED.rglob(f"*.{suffix}")}
    assert {s.path for s in found} == shipped and all(s.bundled and not s.error for s in found)
    for name in list_workloads():
        mine = list_stored(name)
        assert {s.workload for s in mine} <= {name}
        assert {s.variant for s in mine if s.kind == "trace"} <= set(load_workload(name).variants)
    words = here("recordings", "list").stdout
    assert words.count("warpdeck trace ") + words.count("warpdeck profile ") == len(shipped)


def test_a_workload_names_its_traces_and_profiles(isolated_home: Path) -> None:
    words = here("workloads", "show", "gemm").stdout
    assert "traces on recorded:h200: " in words and "shown by: warpdeck profile gemm" in words
    told = json.loads(here("workloads", "show", "gemm", "--json").stdout)["traces_and_profiles"]
    assert {t["kind"] for t in told} == {"trace", "profile"}


@pytest.mark.parametrize("suffix", ["wdtrace", "counters.json.gz"])
def test_a_damaged_one_is_told_and_the_list_goes_on(isolated_home: Path, suffix: str) -> None:
    folder = isolated_home / "recordings"
    folder.mkdir()
    (folder / "mine-softmax-classic-1024.t4.json.gz").write_bytes(b"junk")
    bad = folder / f"mine-softmax-classic-1024.{suffix}"
    bad.write_bytes(b"junk")
    done = here("recordings", "list", "--json")
    assert done.returncode == 0 and str(bad) in done.stderr
    listed = json.loads(done.stdout)["traces_and_profiles"]
    assert [x["path"] for x in listed if x["error"]] == [str(bad)]
    assert here("workloads", "show", "softmax").returncode == 0
