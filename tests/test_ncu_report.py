"""Reports of Nsight Compute, read through its module and through its pages, whole and damaged."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from warpdeck.telemetry.ncu import report
from warpdeck.telemetry.ncu.container import inspect
from warpdeck.telemetry.ncu.counters import Counters
from warpdeck.telemetry.ncu.errors import NcuError
from warpdeck.telemetry.ncu.metrics import QUANTITIES, SEED, SETS

DATA = Path(__file__).parent / "data" / "ncu"
REPORT = DATA / "three_full.ncu-rep"
KERNELS = ["saxpy", "softmax_rows", "spilling_gemm"]

needs_module = pytest.mark.skipif(
    report.importlib.util.find_spec("ncu_report") is None, reason="needs the package ncu-report"
)


def _program(path: Path, lines: str) -> Path:
    path.write_text("#!/bin/sh\n" + lines)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture(scope="module")
def ncu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in for the tool, which prints the pages that the real one printed of the same report."""
    return _program(
        tmp_path_factory.mktemp("ncu") / "ncu",
        f"""
case "$*" in
*"--page raw"*) echo "==PROF== a line of the log"; cat {DATA}/three_full_raw.csv ;;
*"--print-source cuda,sass"*) cat {DATA}/three_full_source_cuda.csv ;;
*"--print-source sass"*) cat {DATA}/three_full_source_sass.csv ;;
*) echo "==ERROR== unrecognised option '$*'"; exit 1 ;;
esac
""",
    )


@pytest.fixture
def without_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_MODULE", "a_module_that_nobody_has")


@pytest.fixture(scope="module")
def by_module() -> list[Counters]:
    pytest.importorskip("ncu_report")
    return report.read(REPORT, metric_set="full")


@needs_module
def test_the_launches_in_their_order(by_module: list[Counters]) -> None:
    assert [c.kernel for c in by_module] == KERNELS
    assert [c.meta["launch"] for c in by_module] == [0, 1, 2]
    first = by_module[0]
    assert first.meta["signature"] == "saxpy(const float *, float *, int)"
    assert first.meta["grid"] == [65536, 1, 1] and first.meta["block"] == [256, 1, 1]
    assert first.meta["tool"] == "2025.3.1" and first.meta["set"] == "full" and first.meta["passes"] == 38
    assert first.meta["device"] == {"name": "NVIDIA H200", "capability": [9, 0]}


@needs_module
def test_quantities_of_the_real_report(by_module: list[Counters]) -> None:
    saxpy, softmax, gemm = by_module
    n = 1 << 24
    assert saxpy.value("flops_fp32") == 2 * n  # one fused operation an element
    assert saxpy.value("global_load_efficiency") == 100.0
    assert saxpy.value("dram_read_bytes") == pytest.approx(2 * 4 * n, rel=0.01)  # x and y, cold
    assert gemm.value("flops_fp32") == 2 * 1024**3
    assert gemm.value("theoretical_occupancy") == 75.0 and gemm.value("registers") == 38
    assert gemm.value("bank_conflict_pct") == pytest.approx(67.74, abs=0.01)
    assert softmax.value("peak_dram_bytes_per_s") == pytest.approx(4.81e12, rel=0.01)
    for counters in by_module:
        for name in SETS["full"].quantities:
            assert (name in counters.metrics) != (name in counters.missing), name
        for name in SEED:
            norm = counters.metrics[name].norm
            assert norm is not None and 0.0 < norm <= 1.0
        # Asked for by the set, but this report is of another command line.
        assert "no value" in counters.missing["tensor_inst_pct"]
        assert "sass__inst_executed_register_spilling_mem_local" in counters.missing


@needs_module
def test_hot_spots_know_sass_ptx_and_source(by_module: list[Counters]) -> None:
    top = by_module[0].hotspots[0]
    assert (top.sass, top.line, top.samples, top.address) == ("FFMA R7, R2, 2, R7", 6, 6071, 0xF0)
    assert top.ptx.startswith("fma.rn.f32") and top.file.endswith("kernels.cu")
    assert top.source == "if (i < n) y[i] = 2.f * x[i] + y[i];"
    assert top.stalls["long_scoreboard"] == 6062 and sum(top.stalls.values()) == top.samples
    assert sum(h.samples for h in by_module[0].hotspots) == 7114
    ordered = [h.samples for h in by_module[1].hotspots]
    assert ordered == sorted(ordered, reverse=True)


@needs_module
def test_both_ways_agree(by_module: list[Counters], ncu: Path, without_module: None) -> None:
    by_pages = report.read(REPORT, metric_set="full", ncu=ncu)
    assert len(by_pages) == 3
    for one, other in zip(by_module, by_pages, strict=True):
        assert one.kernel == other.kernel and one.meta == other.meta
        assert one.missing.keys() == other.missing.keys()
        assert one.metrics.keys() == other.metrics.keys() and len(one.metrics) > 1500
        for name, metric in one.metrics.items():
            printed = other.metrics[name]
            # The page rounds: to 2 digits after the point without a unit, else to 6 in its own unit.
            near = 0.00501 if not metric.unit or name in QUANTITIES else 1e-6
            assert printed.value == pytest.approx(metric.value, rel=1e-4, abs=near), name
            # Newer versions of the module name units that the tool of the report left out.
            assert printed.unit in (metric.unit, ""), name
        mine = {h.address: h for h in one.hotspots}
        theirs = {h.address: h for h in other.hotspots}
        assert mine.keys() == theirs.keys() and len(mine) > 15
        for address, spot in mine.items():
            page = theirs[address]
            assert (spot.sass, spot.samples, spot.executed) == (page.sass, page.samples, page.executed)
            assert (spot.file, spot.line, spot.source) == (page.file, page.line, page.source)
            assert spot.stalls == page.stalls


@needs_module
def test_a_report_survives_json(by_module: list[Counters]) -> None:
    for counters in by_module:
        assert Counters.from_json(counters.to_json()) == counters


@needs_module
def test_source_is_read_from_disk_where_the_report_has_none(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text("from numba import cuda\n\n\n    y[i] = a * x[i]\n")
    spot = report.Instruction(address=16, sass="FMUL R1, R2, R3", file=str(kernel), line=4, samples=3)
    launch = report.Launch("k", {}, instructions=(spot,), base=16)
    assert report.counters(launch).hotspots[0].source == "y[i] = a * x[i]"
    other = tmp_path / "id_rsa"
    other.write_text("a\nb\nc\nsecret\n")
    foreign = report.Launch("k", {}, instructions=(report.replace(spot, file=str(other)),), base=16)
    assert report.counters(foreign).hotspots[0].source == ""
    gone = report.Launch("k", {}, instructions=(report.replace(spot, file="/no/such/file.py"),), base=16)
    assert report.counters(gone).hotspots[0].source == ""
    assert report.counters(gone).hotspots[0].address == 0


# -- what is wrong with a report ----------------------------------------------------------------


def _refused(path: Path, **options: object) -> NcuError:
    with pytest.raises(NcuError) as caught:
        report.read(path, **options)  # pyright: ignore[reportArgumentType]
    assert caught.value.kind == "report" and "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return caught.value


def test_files_that_are_no_report(tmp_path: Path) -> None:
    assert "no such file" in str(_refused(tmp_path / "none.ncu-rep"))
    assert "no file" in str(_refused(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    assert "no file" in str(_refused(tmp_path / "pipe"))  # at once, and not when somebody writes
    for name, content, says in (
        ("empty", b"", "empty"),
        ("text", b"not a report at all", "no report of Nsight Compute"),
        ("gzip", b"\x1f\x8b\x08" + bytes(50), "no report of Nsight Compute"),
        ("magic", b"NVR\0", "damaged or cut short"),
        ("nothing", REPORT.read_bytes()[:10], "no launch"),
    ):
        path = tmp_path / f"{name}.ncu-rep"
        path.write_bytes(content)
        assert says in str(_refused(path))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, REPORT.stat().st_size - 1))
@example(REPORT.stat().st_size - 1)
@example(2_000_000)  # NVIDIA's module reads two launches of this one and says nothing
def test_a_report_cut_anywhere_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "cut.ncu-rep"
    path.write_bytes(REPORT.read_bytes()[:length])
    with pytest.raises(NcuError) as caught:
        inspect(path)
    assert caught.value.kind == "report"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400))
def test_any_bytes_are_refused_or_counted(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "odd.ncu-rep"
    path.write_bytes(b"NVR\0" + body)
    try:
        assert inspect(path).results > 0
    except NcuError as error:
        assert error.kind == "report"


@needs_module
@pytest.mark.parametrize("seed", range(6))
def test_flipped_bits_give_counters_or_one_error(tmp_path: Path, seed: int) -> None:
    """There is no checksum: a flip among values may pass; it never ends or hangs this process."""
    draw = random.Random(seed)
    data = bytearray(REPORT.read_bytes())
    start, stop = draw.choice([(0, 300), (1_155_000, 1_160_000), (1_160_000, len(data))])
    for _ in range(20):
        data[draw.randrange(start, stop)] ^= 1 << draw.randrange(8)
    path = tmp_path / "flipped.ncu-rep"
    path.write_bytes(data)
    try:
        assert [c.meta["launch"] for c in report.read(path)] == [0, 1, 2]
    except NcuError as error:
        assert error.kind == "report"


@needs_module
def test_a_launch_that_the_module_gives_empty_is_damage(tmp_path: Path) -> None:
    data = bytearray(REPORT.read_bytes())
    data[2_658_806] ^= 0x80  # in the third launch, which comes without a name and without a counter
    path = tmp_path / "flipped.ncu-rep"
    path.write_bytes(data)
    assert [bool(launch.kernel) for launch in report.read_module(path, 60.0)] == [True, True, False]
    assert "2 of its 3 launches can be read" in str(_refused(path))


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import os; os.abort()", "crashed with signal 6"),
        ("import sys; sys.exit('odd report')", "odd report"),
        ("import sys, pathlib; pathlib.Path(sys.argv[2]).write_text('{')", "answer is odd"),
        ("import sys, pathlib; pathlib.Path(sys.argv[2]).write_text('{\"launches\": [1]}')", "answer is odd"),
        ("", "answer is odd"),
        (
            "import sys, pathlib; pathlib.Path(sys.argv[2]).write_text('{\"launches\": []}')",
            "0 of its 3 launches can be read",
        ),
    ],
)
@needs_module
def test_a_reader_that_crashes_or_babbles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, says: str
) -> None:
    """NVIDIA's native code aborts on some damaged reports (20 flipped bits in the head, 1 in 250 tries)."""
    script = tmp_path / "extract.py"
    script.write_text(program)
    monkeypatch.setattr(report, "_EXTRACT", script)
    assert says in str(_refused(REPORT))


@needs_module
def test_a_reader_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "extract.py"
    script.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(report, "_EXTRACT", script)
    with pytest.raises(NcuError) as caught:
        report.read(REPORT, timeout_s=0.3)
    assert caught.value.kind == "timeout" and str(REPORT) in str(caught.value)


def test_a_module_that_is_not_there_leaves_the_pages(ncu: Path, without_module: None) -> None:
    counters = report.read(REPORT, ncu=ncu)
    assert [c.kernel for c in counters] == KERNELS
    assert counters[0].hotspots[0].line == 6 and counters[0].hotspots[0].ptx == ""


def test_a_module_older_than_the_report_leaves_the_pages(ncu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(report.importlib.metadata, "version", lambda name: "2025.2.0")
    assert [c.hotspots[0].ptx for c in report.read(REPORT, ncu=ncu)] == ["", "", ""]
    error = _refused(REPORT, ncu="/no/such/ncu")
    assert "can't be started" in str(error)


def test_nothing_to_read_with(without_module: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(report.run, "_PLACES", ())
    error = _refused(REPORT)
    assert "ncu-report is not installed" in error.message and "pip install" in error.remedy


def test_a_report_is_printed_by_the_tool_that_is_named(
    ncu: Path, without_module: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`WARPDECK_NCU` names the tool for reading, too, where it isn't on the path."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("WARPDECK_NCU", str(ncu))
    assert len(report.read(REPORT)) == 3


def test_a_tool_that_fails_to_print(without_module: None, tmp_path: Path) -> None:
    refuses = _program(tmp_path / "refuses", "echo '==ERROR== Failed to open report file'; exit 1")
    assert "Failed to open report file" in str(_refused(REPORT, ncu=refuses))
    silent = _program(tmp_path / "silent", "exit 0")
    error = None
    with pytest.raises(NcuError) as caught:
        report.read(REPORT, ncu=silent)
    error = caught.value
    assert error.kind == "report" and "no header row" in str(error)


def test_metrics_are_read_where_the_tool_prints_no_source(without_module: None, tmp_path: Path) -> None:
    program = _program(
        tmp_path / "ncu",
        f'case "$*" in *"--page raw"*) cat {DATA}/three_full_raw.csv ;;\n'
        '*) echo "==ERROR== no source"; exit 1 ;; esac\n',
    )
    counters = report.read(REPORT, ncu=program)
    assert [c.kernel for c in counters] == KERNELS and not any(c.hotspots for c in counters)


def test_importing_does_not_load_the_module() -> None:
    code = (
        "import sys\n"
        "from warpdeck.telemetry.ncu import diagnosis, errors, hotspots, metrics, report, roofline\n"
        "assert 'ncu_report' not in sys.modules and '_ncu_report' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ})
