"""Counters without a GPU: what recordings and stored profiles hold, the command, and the phase 1 table."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import fake_tools
import pytest
import synthetic
from cli_support import here
from hypothesis import given
from hypothesis import strategies as st

import warpdeck as package
from warpdeck.core import recording
from warpdeck.core.devices import stored_counters
from warpdeck.core.errors import UsageError, WarpdeckError
from warpdeck.core.model import CacheMode, Status
from warpdeck.core.profiling import ProfileOptions, document, profile
from warpdeck.kernels.loader import load_workload
from warpdeck.kernels.recorder import record_counters
from warpdeck.kernels.recordings import open_device
from warpdeck.sessions.profiles import keep
from warpdeck.telemetry.ncu.counters import Counters, HotSpot, Metric
from warpdeck.telemetry.ncu.metrics import SEED
from warpdeck.telemetry.ncu.report import read

PHASE0 = (
    "kernel,matrix_size,block_size,threads_per_block,reg_cap,est_regs,actual_regs,theor_occ,"
    "time_ms_mean,time_ms_std,time_ms_min,time_ms_max"
)
PHASE1 = (
    "ok,reason,achieved_occupancy_raw,achieved_occupancy_norm,l2_hit_rate_raw,l2_hit_rate_norm,"
    "dram_bw_pct_raw,dram_bw_pct_norm,sm_active_pct_raw,sm_active_pct_norm"
)


@pytest.fixture
def files(isolated_home: Path) -> list[Path]:
    """Recordings of softmax, classic, at 256 and 1024, as `recorded:test`."""
    folder = isolated_home / "recordings"
    folder.mkdir()
    return synthetic.write(folder, load_workload("softmax"), "classic", [256, 1024])


@cache
def real_counters() -> Counters:
    """Of a launch of softmax, read from the report: that takes a process."""
    return read(fake_tools.DATA / "three_full.ncu-rep", metric_set="full")[1]


def stored(files: list[Path], **config: int) -> Counters:
    """A profile of softmax at 1024, from a real report, beside the recordings."""
    real = real_counters()
    variant = load_workload("softmax").variants["classic"]
    meta = {
        **real.meta,
        "workload": "softmax",
        "variant": "classic",
        "source_hash": variant.source_hash,
        "config": {"block_size": 128, "reg_cap": 0, **config},
        "case": "1024",
        "set": "full",
        "cache": "cold",
        "date": "2026-02-03",
        "device": synthetic.DEVICE.to_json(),
    }
    counters = replace(real, meta=json.loads(json.dumps(meta)))
    name = stored_counters.file_name("test", "softmax", "classic", "1024")
    stored_counters.save(counters, files[0].parent / name)
    return counters


# -- recordings ------------------------------------------------------------------------------------------


def test_counters_leave_all_else_in_a_recording_as_it_is(files: list[Path]) -> None:
    before = recording.read_json(files[0])
    values = synthetic.add_counters(files[0], but=("64,32",))
    after = recording.read_json(files[0])
    read_back = recording.load(files[0])
    assert {k: dict(e.counters) for k, e in read_back.entries.items() if e.counters} == values
    assert read_back.counters["date"] == "2026-01-02"
    for row in after["results"]:
        row["warpdeck"]["counters"] = {}
    del after["metadata"]["warpdeck"]["counters"]
    assert json.dumps(after) == json.dumps(before)  # times, order and numbers, to the last digit
    assert recording.to_json(read_back)["metadata"]["warpdeck"]["counters"] == dict(read_back.counters)


def test_impossible_counters_are_refused(files: list[Path]) -> None:
    data = recording.read_json(files[0])
    data["results"][0]["warpdeck"]["counters"] = {"l2_hit_rate": 1.5}
    recording.save_bytes(json.dumps(data).encode(), files[0], packed=True)
    with pytest.raises(UsageError, match="impossible counter l2_hit_rate"):
        recording.load(files[0])


def test_a_recorded_device_answers_from_both(files: list[Path]) -> None:
    values = synthetic.add_counters(files[1])
    full = stored(files)
    workload = load_workload("softmax")
    device, case = open_device("recorded:test"), workload.size_case(1024)
    candidates = [workload.candidate("classic", c) for c in workload.space("classic").configs(case.params)]
    found = profile(workload, device, candidates, case)
    for candidate, counters in zip(candidates, found, strict=True):
        assert isinstance(counters, Counters)
        assert counters.meta["device"]["recorded"] is True
        if counters.meta["set"] == "full":
            assert candidate.config == {"block_size": 128, "reg_cap": 0} == counters.meta["config"]
            assert counters.metrics == full.metrics and counters.hotspots == full.hotspots
            assert counters.meta["device"]["label"] == "recorded on Synthetic GPU, 2026-02-03"
            continue
        wanted = values[recording.config_key(candidate.config)]
        assert {n: counters.metrics[n].norm for n in SEED} == wanted
        assert all(counters.metrics[n].value == pytest.approx(100 * wanted[n]) for n in SEED)
    assert sum(c.meta["set"] == "full" for c in found if isinstance(c, Counters)) == 1


def test_a_recorded_backend_says_why_there_are_none(files: list[Path]) -> None:
    synthetic.add_counters(files[0], but=("64,32",))
    workload = load_workload("softmax")
    cases = [workload.size_case(n) for n in (256, 1024)]
    backend = open_device("recorded:test").prepare(workload, space="classic", cases=cases, seed=0)
    candidates = [workload.candidate("classic", {"block_size": 64, "reg_cap": r}) for r in (0, 32)]
    there, failed = backend.counters(candidates, cases[0])
    assert isinstance(there, Counters)
    assert not isinstance(failed, Counters) and failed.reason == "Nsight Compute took longer than 120 s"
    (none,) = backend.counters(candidates[:1], cases[1])
    assert not isinstance(none, Counters) and "holds no hardware counters" in none.reason
    (profiled,) = backend.profile(candidates[:1], cases[1], ProfileOptions())
    assert not isinstance(profiled, Counters) and profiled.kind == "not_recorded"


def test_counters_can_only_be_recorded_live(files: list[Path]) -> None:
    with pytest.raises(UsageError, match="only a live device's counters"):
        list(record_counters(["softmax"], files[0].parent, device="recorded:test"))


# -- stored profiles ---------------------------------------------------------------------------------------


def test_a_profile_reads_back_as_it_was(files: list[Path], tmp_path: Path) -> None:
    counters = stored(files)
    for name in ("a.counters.json.gz", "a.counters.json"):
        stored_counters.save(counters, tmp_path / name)
        assert stored_counters.load(tmp_path / name) == counters
    assert (tmp_path / "a.counters.json").read_bytes().startswith(b"{")
    assert gzip.decompress((tmp_path / "a.counters.json.gz").read_bytes()).startswith(b"{")


def test_a_kept_profile_is_what_the_recorded_device_shows(files: list[Path]) -> None:
    counters = stored(files)
    path = files[0].parent / stored_counters.file_name("test", "softmax", "classic", "1024")
    path.unlink()
    spots = tuple(replace(spot, file=f"/home/someone/{spot.file}") for spot in counters.hotspots)
    assert keep(replace(counters, hotspots=spots), path.parent, "test") == path
    again = package.profile("softmax", "recorded:test")
    assert again.metrics == counters.metrics
    assert again.hotspots == tuple(replace(s, file=Path(s.file).name) for s in counters.hotspots)
    assert b"someone" not in gzip.decompress(path.read_bytes())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"\x1f\x8b\x08\x00nothing",
        b'{"format": 2, "kernel": "k", "metrics": {}}',
        b'{"format": 1, "kernel": "k", "metrics": {"m": {"value": NaN, "unit": "%"}}}',
        b'{"format": 1, "kernel": "k", "metrics": {"m": 3}}',
        b'{"format": 1, "kernel": "k", "metrics": {}, "hotspots": [{"file": "f"}]}',
        b'{"format": 1, "kernel": "k", "metrics": {}, "hotspots": [{"file": 1, "line": 1, "sass": "", '
        b'"address": 0, "samples": 1}]}',
        b'{"format": 1, "kernel": "k", "metrics": {}, "hotspots": [{"file": "f", "line": "x", "sass": "", '
        b'"address": 0, "samples": 1}]}',
        b'{"format": 1, "kernel": "k", "metrics": {}, "meta": 5}',
        b'{"format": 1, "kernel": "k", "metrics": {}, "hotspots": [{"file": "f", "line": 1, "sass": "", '
        b'"address": 0, "samples": 1, "stalls": []}]}',
    ],
)
def test_what_is_no_profile_is_one_plain_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.counters.json.gz"
    path.write_bytes(data)
    with pytest.raises(UsageError) as raised:
        stored_counters.load(path)
    assert str(path) in str(raised.value) and "\n" not in str(raised.value)


def test_a_profile_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_BYTES", 1 << 20)
    path = tmp_path / "x.counters.json"
    path.symlink_to("/dev/zero")
    with pytest.raises(UsageError, match=r"x\.counters\.json: larger than"):
        stored_counters.load(path)


SPOTS = st.builds(
    HotSpot,
    file=st.text(max_size=8),
    line=st.integers(0, 10_000),
    sass=st.text(max_size=8),
    address=st.integers(0, 1 << 40),
    samples=st.integers(0, 1 << 30),
    stalls=st.dictionaries(st.text(max_size=5), st.integers(0, 99), max_size=3),
)
METRICS = st.dictionaries(
    st.text(max_size=8),
    st.builds(
        Metric,
        value=st.floats(allow_nan=False, allow_infinity=False),
        unit=st.text(max_size=3),
        norm=st.none() | st.floats(0, 1),
    ),
    max_size=4,
)


@given(metrics=METRICS, spots=st.lists(SPOTS, max_size=3), cut=st.integers(0, 400))
def test_profiles_survive_a_file_and_cuts_are_noticed(
    tmp_path_factory: pytest.TempPathFactory, metrics: dict[str, Metric], spots: list[HotSpot], cut: int
) -> None:
    path = tmp_path_factory.mktemp("p") / "p.counters.json.gz"
    counters = Counters("kernel", metrics, {"a": "b"}, tuple(spots), {"case": "1024"})
    stored_counters.save(counters, path)
    assert stored_counters.load(path) == counters
    data = path.read_bytes()
    if cut < len(data):
        path.write_bytes(data[:cut])
        with pytest.raises(UsageError):
            stored_counters.load(path)


# -- the command -------------------------------------------------------------------------------------------


def test_profile_of_a_recorded_device(files: list[Path]) -> None:
    stored(files)
    done = here("profile", "softmax", "--device", "recorded:test", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["schema_version"] == 1 and found["kernel"] == "softmax_rows"
    assert found["device"]["recorded"] is True
    assert set(SEED) <= set(found["metrics"])
    assert set(found["metrics"]["l2_hit_rate"]) == {"value", "unit", "norm"}
    assert {"file", "line", "sass", "samples", "stalls"} <= set(found["hotspots"][0])
    assert all(d["text"] and d["evidence"] for d in found["diagnosis"])
    assert found["meta"]["config"] == {"block_size": 128, "reg_cap": 0} and isinstance(found["missing"], dict)


def test_profile_in_words(files: list[Path]) -> None:
    stored(files)
    done = here("profile", "softmax", "--device", "recorded:test", "--kernel", "x", "--invocation", "3")
    assert done.returncode == 0, done.stderr
    assert "shown as it was recorded: without --kernel, --invocation" in done.stderr
    for words in (
        "kernel softmax_rows, softmax classic, block_size=128 reg_cap=0, size 1024",
        "recorded on Synthetic GPU, 2026-02-03, metric set full, cold cache",
        "L2 hit rate",
        "kernels.cu:",
        "- ",
    ):
        assert words in done.stdout


def test_a_configuration_has_its_seed_set(files: list[Path]) -> None:
    values = synthetic.add_counters(files[0])
    done = here(
        *("profile", "softmax", "--device", "recorded:test", "--size", "256", "--space", "classic"),
        *("--knob", "block_size=64,reg_cap=32", "--json"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {n: found["metrics"][n]["norm"] for n in SEED} == values["64,32"]


def test_what_is_not_recorded_says_what_is(files: list[Path]) -> None:
    stored(files)
    arguments = ("profile", "softmax", "--device", "recorded:test", "--space", "classic")
    done = here(*arguments, "--knob", "block_size=64")
    assert done.returncode == 2 and done.stdout == ""
    assert "block_size=64 reg_cap=0" in done.stderr and "a profile of block_size=128 reg_cap=0" in done.stderr


def test_a_stale_profile_says_so(files: list[Path]) -> None:
    counters = stored(files)
    old = replace(counters, meta={**counters.meta, "source_hash": "0" * 16})
    name = stored_counters.file_name("test", "softmax", "classic", "1024")
    stored_counters.save(old, files[0].parent / name)
    done = here("profile", "softmax", "--device", "recorded:test")
    assert done.returncode == 0 and "source has changed since" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("softmax", "--metric-set", "ful"), "no metric set 'ful'; use seed, cheap"),
        (("softmax", "--metrics", "rm -rf"), "'rm -rf' is no metric"),
        (("softmax", "--metric-set", "seed", "--metrics", "l1_hit_rate"), "either --metric-set or --metrics"),
        (("softmax", "-o", "x.txt"), "ends in .ncu-rep"),
        (("softmax", "-o", "x.ncu-rep"), "only a live device's counters can be kept"),
        (("softmax", "--knob", "block_size=65", "--space", "classic"), "65"),
        (("softmax", "--cache", "warm"), "use cold or hot"),
        (("nothing.ncu-rep",), "nothing.ncu-rep"),
        (("nothing.counters.json.gz",), "nothing.counters.json.gz"),
        (("x.ncu-rep", "--knob", "a=1"), "is a report"),
        (("x.ncu-rep", "--metric-set", "seed"), "is a report"),
        (("x.counters.json.gz", "--size", "256"), "is a report"),
        (("softmax", "--metrics", " ,"), "name at least one"),
        (("softmax", "--timeout-s", "inf"), "--timeout-s"),
        (("softmax", "--show"), "needs a terminal"),
        (("softmax", "--show", "--json"), "choose one"),
        (("softmax", "--record", "/dev/null/x"), "is no folder"),
        (("softmax", "--device", "cpu"), "reads no hardware counters"),
    ],
)
def test_mistakes_are_told_in_one_line(
    files: list[Path], tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    named = arguments[0].endswith((".ncu-rep", ".gz")) or "--device" in arguments
    device = () if named else ("--device", "recorded:test")
    done = here("profile", *arguments, *device, cwd=tmp_path)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [("report.txt", "a profile's file name ends in .ncu-rep"), ("t.wdtrace", "`warpdeck trace t.wdtrace`")],
)
def test_a_file_with_another_name_is_no_unknown_workload(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / name).write_bytes(b"anything")
    done = here("profile", name, cwd=tmp_path)
    assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1


def test_a_recording_says_what_it_does_not_hold(files: list[Path]) -> None:
    stored(files)
    chosen = ("profile", "softmax", "--device", "recorded:test", "--json")
    done = here(*chosen, "--metrics", "l2_hit_rate,gpc__cycles_elapsed.nonsense")
    found = json.loads(done.stdout)
    assert "not recorded" in found["missing"]["gpc__cycles_elapsed.nonsense"]
    assert "l2_hit_rate" not in found["missing"] and found["device"]["spec"] == "recorded:test"
    for held in ("full", "stalls"):  # which full has all of
        assert here(*chosen, "--metric-set", held).stderr == ""
    synthetic.add_counters(files[1])
    done = here(*chosen, "--knob", "block_size=64", "--metric-set", "stalls")
    assert done.returncode == 0 and "the metric set seed; stalls takes a CUDA GPU" in done.stderr


def test_a_profile_is_kept_in_a_folder_that_was_not_there(files: list[Path], tmp_path: Path) -> None:
    path = keep(stored(files), tmp_path / "new" / "folder", "h1")
    assert stored_counters.load(path).kernel == stored(files).kernel


@pytest.mark.parametrize("limit", [0.0, -1.0, float("inf"), float("nan")])
def test_impossible_time_limits_are_refused(limit: float) -> None:
    with pytest.raises(UsageError, match="time limit"):
        ProfileOptions(timeout_s=limit)


def test_a_report_is_shown_with_all_its_launches() -> None:
    report = str(fake_tools.DATA / "three_full.ncu-rep")
    done = here("profile", report, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [x["kernel"] for x in found["launches"]] == ["saxpy", "softmax_rows", "spilling_gemm"]
    assert found["kernel"] == "spilling_gemm"  # the longest
    words = here("profile", report).stdout
    assert words.count("\nkernel ") == 2 and words.startswith("kernel saxpy")


def test_without_a_gpu_cuda_devices_are_exit_code_3() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is a GPU here")
    assert here("profile", "softmax", "--device", "cuda:0").returncode == 3


def test_profile_from_python(files: list[Path]) -> None:
    full = stored(files)
    counters = package.profile("softmax", "recorded:test", metrics="seed")
    assert counters.value("l2_hit_rate") == full.value("l2_hit_rate")
    assert document(counters)["device"]["recorded"] is True
    knobs = {"block_size": 64}
    with pytest.raises(WarpdeckError, match="no counters are recorded"):
        package.profile("softmax", "recorded:test", knobs=knobs, space="classic")
    with pytest.raises(UsageError, match="use 'cold' or 'hot'"):
        package.profile("softmax", "recorded:test", cache="as recorded")
    with pytest.raises(UsageError):
        ProfileOptions(cache=CacheMode.AS_RECORDED)


# -- phase 1 -----------------------------------------------------------------------------------------------


def rows_of(path: Path) -> tuple[str, list[dict[str, Any]]]:
    text = path.read_text()
    return text.splitlines()[0], list(csv.DictReader(text.splitlines()))


def test_the_phase_1_table_has_the_documents_columns(files: list[Path], tmp_path: Path) -> None:
    values = {"256": synthetic.add_counters(files[0], but=("64,32",)), "1024": {}}
    arguments = ("sweep", "softmax", "--device", "recorded:test", "--size", "256", "--size", "1024")
    done = here(*arguments, "--counters", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "wrote phase1_result.csv: 18 rows, 8 with counters" in done.stdout
    assert "10 of 18 rows have no counters" in done.stderr
    head, rows = rows_of(tmp_path / "phase1_result.csv")
    assert head == f"{PHASE0},{PHASE1}"
    for row in rows:
        assert float(row["time_ms_mean"]) > 0
        wanted = values[row["matrix_size"]].get(f"{row['block_size']},{row['reg_cap']}")
        assert row["ok"] == str(wanted is not None)
        for name in SEED:
            if wanted is None:
                assert row[f"{name}_raw"] == row[f"{name}_norm"] == ""
            else:
                assert float(row[f"{name}_norm"]) == wanted[name]
                assert float(row[f"{name}_raw"]) == round(100 * wanted[name], 9)  # no noise of the product
    reasons = {row["matrix_size"] + row["block_size"] + row["reg_cap"]: row["reason"] for row in rows}
    assert reasons["2566432"] == "Nsight Compute took longer than 120 s"
    assert reasons["2566464"] == "ok" and "holds no hardware counters" in reasons["10246464"]


def test_failed_configurations_are_rows_of_phase_1_and_not_of_phase_0(
    files: list[Path], tmp_path: Path
) -> None:
    rec = recording.load(files[0])
    broken = replace(rec.entries["64,0"], status=Status.TIMEOUT, message="no answer", series={})
    recording.save(replace(rec, entries={**rec.entries, "64,0": broken}), files[0])
    synthetic.add_counters(files[0])
    arguments = ("sweep", "softmax", "--device", "recorded:test", "--size", "256")
    done = here(*arguments, "--counters", "--csv", str(tmp_path / "p1.csv"), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["without_counters"] == 1 and len(found["rows"]) == 9 and found["csv"].endswith("p1.csv")
    _, rows = rows_of(tmp_path / "p1.csv")
    (failed,) = [row for row in rows if row["ok"] == "False"]
    assert failed["time_ms_mean"] == "" and failed["reason"] == "timeout: no answer"
    assert (failed["block_size"], failed["reg_cap"], failed["matrix_size"]) == ("64", "0", "256")
    done = here(*arguments, "--csv", str(tmp_path / "p0.csv"))
    head, rows = rows_of(tmp_path / "p0.csv")
    assert head == PHASE0 and len(rows) == 8
    assert "8 rows, 1 failed configuration(s) left out" in done.stdout
