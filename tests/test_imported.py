"""Tuning on what another tuner measured: labels, unpaired comparisons, and the commands for it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest
from cli_support import here, warpdeck
from test_exchange import SAMPLES, cache, fixture, kt_row, row, t4, write

import warpdeck as package
from warpdeck.core import exchange
from warpdeck.core.errors import ExitCode, UsageError
from warpdeck.core.model import CacheMode, Protocol, Status
from warpdeck.core.stats import Verdict, block_bootstrap, unpaired_speedup
from warpdeck.kernels.imported import open_workload

NOISE = np.exp(np.random.default_rng(0).normal(0, 0.01, (40, 32)))


def space(folder: Path, name: str = "conv.json") -> Path:
    """Forty configurations: 1 to 40 ms, the first two alike but for noise, the last one failed."""
    rows = []
    for x in range(1, 40):
        result = row(x, 1.0)
        result["times"]["runtimes"] = [float(s) * max(x - 1, 1) for s in NOISE[x]]
        result["measurements"] = []
        rows.append(result)
    return write(folder, t4(*rows, row(40, None), device_name="NVIDIA A100"), name)


# -- unpaired comparisons --------------------------------------------------------------------------


def test_unpaired_bounds_hold_without_pairs() -> None:
    rng = np.random.default_rng(1)
    errors = misses = found = 0
    result = unpaired_speedup([(np.ones(8), np.ones(8))])
    assert result.ratio == 1 and result.blocks == 0
    for n, spread in [(7, 0.01), (10, 0.04), (32, 0.01), (32, 0.04)] * 60:
        a, b = np.exp(rng.normal(0, 0.01, n)), np.exp(rng.normal(0, spread, n))
        result = unpaired_speedup([(a, b)])
        errors += result.win_bound > 1
        misses += not result.lo <= 1 <= result.hi
        found += unpaired_speedup([(a * 1.3, b)]).verdict is Verdict.WIN
    assert errors <= 8 and misses <= 18  # of 240, at levels of 1% and 5%
    assert found >= 230


def test_a_slow_drift_within_a_series_widens_its_interval() -> None:
    rng = np.random.default_rng(2)
    noise = np.exp(rng.normal(0, 0.01, 64))
    drifting = np.sort(noise)
    wide, narrow = block_bootstrap(drifting), block_bootstrap(noise)
    assert wide is not None and narrow is not None
    assert wide[1] - wide[0] > 1.5 * (narrow[1] - narrow[0])


def test_few_samples_never_win() -> None:
    few = unpaired_speedup([(np.full(6, 9.0), np.full(6, 1.0))])
    assert few.ratio == pytest.approx(9) and few.verdict is Verdict.TIE and few.hi == np.inf
    assert unpaired_speedup([(np.full(7, 9.0), np.full(7, 1.0))]).verdict is Verdict.WIN
    assert block_bootstrap([1.0]) is None and block_bootstrap([1.0, 2.0]) == (1.0, 2.0)


# -- the bench -------------------------------------------------------------------------------------


def test_a_bench_on_an_imported_space(tmp_path: Path) -> None:
    path = space(tmp_path)
    with package.open_bench(str(path), f"recorded:{path}") as bench:
        assert bench.device.label == "recorded on NVIDIA A100, 2023-12-22"
        assert bench.protocol.cache is CacheMode.AS_RECORDED and len(bench.configs()) == 40
        baseline = bench.baseline()
        assert baseline.candidate.config == {"x": 20, "y": "a"}  # the median of 39
        assert bench.evaluate({"x": 40, "y": "a"}).status is Status.RUNTIME_ERROR
        assert bench.evaluate({"x": 41, "y": "a"}).status is Status.RESTRICTED
        first, second = bench.evaluate({"x": 1, "y": "a"}), bench.evaluate({"x": 1, "y": "a"})
        measured = first.measurements[0]
        assert set(measured.samples_ms) <= set(np.round(NOISE[1], 6)) and measured.rounds is None
        assert measured.cache is CacheMode.AS_RECORDED and measured.clock == "unknown"
        assert first.score_ms != second.score_ms  # measuring again is a new draw
        for x in (2, 3):
            bench.evaluate({"x": x, "y": "a"})
        result = bench.finish()
    document = result.to_json()
    assert document["comparison"] == "unpaired" and document["cache"] == "as recorded"
    assert result.best is not None and result.best.speedup is not None
    assert result.best.speedup.ratio == pytest.approx(19, rel=0.02)
    assert result.best.speedup.verdict is Verdict.WIN
    assert sorted(c["x"] for c in document["tied"]) == [1, 2]
    assert document["cases"][0]["vendor_ms"] is None and document["cases"][0]["floor_ms"] is None


def test_an_imported_space_is_only_for_its_recording(tmp_path: Path) -> None:
    path = space(tmp_path)
    workload = open_workload(str(path))
    with (
        pytest.raises(UsageError, match="as recorded: leave it out"),
        package.open_bench(workload, f"recorded:{path}", protocol=Protocol(cache=CacheMode.COLD)),
    ):
        pass
    with (
        pytest.raises(UsageError, match="cold or hot"),
        package.open_bench("softmax", "recorded:h200", protocol=Protocol(cache=CacheMode.AS_RECORDED)),
    ):
        pass
    with (
        pytest.raises(UsageError, match="size 7 is not recorded"),
        package.open_bench(workload, f"recorded:{path}", sizes=[7]),
    ):
        pass


def test_recordings_of_ours_are_named_by_their_workload() -> None:
    file = next(Path(package.__file__).parent.glob("kernels/softmax/recordings/*classic-256*"), None)
    file = file or next(Path(package.__file__).parent.rglob("h200-softmax-classic-256*"))
    with pytest.raises(UsageError, match="is a recording of 'softmax'"):
        open_workload(str(file))


# -- the command line ------------------------------------------------------------------------------


def test_import_tune_and_export(isolated_home: Path, tmp_path: Path) -> None:
    done = here("recordings", "import", str(space(tmp_path)), "--name", "a100", "--workload", "conv-2d")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("recordings/a100-conv_2d-imported-as_recorded.t4.json.gz")
    assert "recorded on NVIDIA A100, 2023-12-22: 40 configurations (39 ok, 1 runtime_error)" in done.stderr
    again = here("recordings", "import", str(space(tmp_path)), "--name", "a100", "--workload", "conv-2d")
    assert again.returncode == ExitCode.USAGE and "exists already" in again.stderr
    bundled = here("recordings", "import", str(space(tmp_path)), "--name", "h200")
    assert bundled.returncode == ExitCode.USAGE and "give another --name" in bundled.stderr

    tuned = warpdeck(
        "tune", "--device", "recorded:a100", "--agent", "tpe", "--steps", "30", "--headless", "--json"
    )
    assert tuned.returncode == 0, tuned.stderr
    document = json.loads(tuned.stdout)
    assert (document["workload"], document["space"], document["cache"]) == (
        "conv_2d",
        "imported",
        "as recorded",
    )
    assert document["device"]["recorded"] and document["device"]["date"] == "2023-12-22"
    assert document["comparison"] == "unpaired" and document["protocol"]["samples"] == 32
    assert any("median configuration" in note for note in document["notes"])
    assert document["best"]["config"]["x"] in (1, 2) and document["steps"] == 30
    assert "comparisons are unpaired" in tuned.stderr

    refused = warpdeck("tune", "--device", "recorded:a100", "--cache", "cold", "--headless")
    assert refused.returncode == ExitCode.USAGE and "its cache is 'as recorded'" in refused.stderr
    resumed = warpdeck("tune", "--resume", document["session"], "--steps", "35", "--headless")
    assert resumed.returncode == 0, resumed.stderr
    assert "cache and clock as recorded, up to 32 samples, unpaired" in resumed.stdout

    recording_id = "a100-conv_2d-imported-as_recorded"
    for form, file in (
        ("t4", "plain.json"),
        ("kernel-tuner", "cache.json.gz"),
        ("warpdeck", "ours.t4.json.gz"),
    ):
        out = tmp_path / file
        done = here("recordings", "export", recording_id, str(out), "--format", form)
        assert done.returncode == 0, done.stderr
        assert len(exchange.read(out).entries) == 40
    wrong = here("recordings", "export", recording_id, str(tmp_path), "--format", "csv")
    assert wrong.returncode == ExitCode.USAGE and "unknown format 'csv'" in wrong.stderr


def test_a_foreign_file_is_tuned_as_it_lies(tmp_path: Path) -> None:
    rows = {f"{x},a": kt_row(x, times=[s * x for s in SAMPLES], time=9.0) for x in (1, 2, 4)}
    path = write(tmp_path, cache(rows), "pnpoly.json.gz")
    done = warpdeck("tune", "--device", f"recorded:{path}", "--agent", "sweep", "--headless")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("axpy, recorded on Test GPU, date unknown")
    assert "time of 3 of 3 configurations differs" in done.stderr
    live = warpdeck("tune", str(path), "--headless")
    assert live.returncode == ExitCode.USAGE and "holds no kernel" in live.stderr
    odd = write(tmp_path, {"results": 3}, "odd.json")
    refused = warpdeck("tune", "--device", f"recorded:{odd}", "--headless")
    assert refused.returncode == ExitCode.USAGE and refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "agent"),
    [("convolution_milo_A100.t4.json.gz", "tpe"), ("pnpoly_RTX_3090.kernel_tuner.json.gz", "random")],
)
def test_the_hubs_files_import_and_tune_quickly(name: str, agent: str) -> None:
    file = fixture(name)
    start = time.monotonic()
    done = here("recordings", "import", str(file), "--name", "hub", "--device-name", "the hub's GPU")
    assert done.returncode == 0, done.stderr
    imported = time.monotonic()
    done = warpdeck(
        "tune", "--device", "recorded:hub", "--agent", agent, "--steps", "220", "--headless", "--json"
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["steps"] == 220 and document["best"]["speedup"] > 1.2
    assert document["device"]["label"].startswith("recorded on the hub's GPU, 2023-")
    # On a busy machine; they take about 1 s and 5 s of processor time.
    assert imported - start < 30 and time.monotonic() - imported < 60
