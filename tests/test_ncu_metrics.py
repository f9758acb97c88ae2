"""Metric sets, quantities, units and the known failures of Nsight Compute."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.telemetry.ncu import errors
from warpdeck.telemetry.ncu.counters import Metric
from warpdeck.telemetry.ncu.errors import NcuError, explain
from warpdeck.telemetry.ncu.launch import base_unit, display_name, has_no_value, number
from warpdeck.telemetry.ncu.metrics import (
    QUANTITIES,
    SEED,
    SETS,
    STALLS,
    derive,
    label,
    meaning,
    normalise,
    stall_name,
    unit,
)

DATA = Path(__file__).parent / "data" / "ncu"


def test_every_set_has_the_four_seed_quantities_and_the_duration() -> None:
    assert set(SETS) == {"seed", "cheap", "roofline", "stalls", "memory", "full"}
    for chosen in SETS.values():
        assert {*SEED, "duration_ns"} <= set(chosen.quantities)
        for capability in ((7, 0), (9, 0), (12, 0), None):
            assert {QUANTITIES[name].ways[0].counters[0] for name in SEED} <= set(chosen.counters(capability))


def test_the_inner_loop_never_asks_for_the_ten_passes_of_sm_throughput() -> None:
    for name in ("seed", "cheap", "stalls", "memory"):
        assert not any(c.startswith("sm__throughput") for c in SETS[name].counters((9, 0)))
    assert any(c.startswith("sm__throughput") for c in SETS["roofline"].counters((9, 0)))


def test_full_has_every_quantity_of_the_other_sets() -> None:
    for chosen in SETS.values():
        assert set(chosen.quantities) <= set(SETS["full"].quantities)


def test_every_quantity_is_in_a_set_and_explained() -> None:
    in_sets = {name for chosen in SETS.values() for name in chosen.quantities}
    assert in_sets == set(QUANTITIES)
    for name, quantity in QUANTITIES.items():
        assert quantity.name == name and label(name) == quantity.label and unit(name) == quantity.unit
        assert meaning(name).endswith(".") and meaning(name).count(".") - meaning(name).count("0.8") == 1
    assert label("smsp__cycles_active.avg") == "smsp__cycles_active.avg"
    assert unit("smsp__cycles_active.avg") == meaning("smsp__cycles_active.avg") == ""


def test_arguments_of_a_set() -> None:
    assert SETS["seed"].arguments()[0] == "--metrics"
    assert SETS["seed"].arguments()[1].split(",")[0] == "gpu__time_duration.sum"
    full = SETS["full"].arguments((9, 0))
    assert full[:2] == ["--set", "full"] and full[-2:] == ["--import-source", "yes"]
    stalls = SETS["stalls"].arguments((9, 0))
    assert stalls[:2] == ["--section", "SourceCounters"] and "--import-source" in stalls
    assert not any("launch__" in word for word in stalls)  # in every report without asking


def test_counters_of_one_chip_are_not_asked_of_another() -> None:
    gmma = "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio"
    imc = "smsp__average_warps_issue_stalled_imc_miss_per_issue_active.ratio"
    stalls = SETS["stalls"]
    assert gmma in stalls.counters((9, 0)) and gmma not in stalls.counters((8, 0))
    assert imc in stalls.counters((8, 0)) and imc not in stalls.counters((10, 0))
    assert {gmma, imc} <= set(stalls.counters(None))


def test_what_is_absent_is_missing_with_its_reason_and_never_zero() -> None:
    raw = {"lts__t_sector_hit_rate.pct": Metric(40.0, "%")}
    absent = {"sm__warps_active.avg.pct_of_peak_sustained_active": "no value"}
    found, missing = derive(raw, absent, ("stall_gmma", "dram_read_bytes"), (12, 0))
    assert found == {"l2_hit_rate": Metric(40.0, "%", 0.4)}
    assert missing["achieved_occupancy"].endswith("sustained_active: no value")
    assert missing["dram_bw_pct"] == "not collected; it is in the metric set seed"
    assert missing["stall_gmma"] == "compute capability 12.0 has no such counter"
    assert missing["dram_read_bytes"] == "compute capability 12.0 has no such counter"
    assert set(missing) == {*SEED, "stall_gmma", "dram_read_bytes"} - {"l2_hit_rate"}


def test_a_counter_of_ncus_own_that_was_wanted_is_missing_too() -> None:
    _, missing = derive({}, {"a__b.sum": "no value"}, ("a__b.sum", "c__d.sum"))
    assert missing["a__b.sum"] == "no value" and missing["c__d.sum"] == "not collected"


def test_another_way_is_taken_where_the_first_counter_was_not_read() -> None:
    raw = {
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": Metric(66.0, "%"),
        "sm__cycles_active.avg": Metric(90.0, "cycle"),
        "sm__cycles_elapsed.avg": Metric(120.0, "cycle"),
    }
    found, _ = derive(raw)
    assert found["dram_bw_pct"].value == 66.0 and found["sm_active_pct"] == Metric(75.0, "%", 0.75)


def test_a_share_of_nothing_is_missing() -> None:
    raw = {
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": Metric(0.0, ""),
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": Metric(0.0, ""),
        "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": Metric(0.0, "%"),
    }
    found, missing = derive(raw, {}, ("bank_conflict_pct", "global_load_efficiency"))
    assert found["shared_bank_conflicts"].value == 0.0  # counted: none
    assert missing["bank_conflict_pct"] == "the launch did not use shared memory"
    assert missing["global_load_efficiency"] == "the launch has no global loads"


def test_floating_point_operations_are_the_same_from_sums_and_from_rates() -> None:
    counts = {"add": 3.0, "mul": 5.0, "fma": 7.0}
    name = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
    sums = {name.format(f"h{op}"): Metric(n, "inst") for op, n in counts.items()}
    rates = {f"{n}.per_cycle_elapsed": Metric(m.value / 10, "inst/cycle") for n, m in sums.items()}
    rates["smsp__cycles_elapsed.avg"] = Metric(10.0, "cycle")
    want = 2 * 3 + 2 * 5 + 4 * 7  # an instruction on halves works on two
    assert derive(sums)[0]["flops_fp16"].value == want
    assert derive(rates)[0]["flops_fp16"].value == pytest.approx(want)


@pytest.mark.parametrize(
    ("value", "norm"),
    [
        (0.0, 0.0),
        (50.0, 0.5),
        (100.0, 1.0),
        (103.0, 1.0),
        (110.0, 1.0),
        (-0.2, 0.0),
        (8524.0, None),
        (-3, None),
    ],
)
def test_a_percentage_becomes_a_share(value: float, norm: float | None) -> None:
    assert normalise(value, "%") == norm
    assert normalise(value, "byte") is None


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_share_is_between_0_and_1(value: float) -> None:
    norm = normalise(value, "%")
    assert norm is None or 0.0 <= norm <= 1.0


@pytest.mark.parametrize(
    ("value", "unit", "want"),
    [
        (1.5, "Tbyte/s", (1.5e12, "byte/s")),
        (57.568, "us", (57568.0, "ns")),
        (58592.0, "ns", (58592.0, "ns")),
        (2.0, "msecond", (2e6, "ns")),
        (1.95, "Ghz", (1.95e9, "hz")),
        (1.95, "cycle/nsecond", (1.95e9, "hz")),
        (165.5, "sector/ns", (165.5e9, "sector/s")),
        (295.3, "sector/ms", (295.3e3, "sector/s")),
        (1.504, "Kbyte/cycle", (1504.0, "byte/cycle")),
        (3.072, "Kbyte/block", (3072.0, "byte/block")),
        (16.0, "register/thread", (16.0, "register/thread")),
        (132.0, "SM", (132.0, "SM")),
        (7.0, "%", (7.0, "%")),
        (7.0, "", (7.0, "")),
    ],
)
def test_units_become_base_units(value: float, unit: str, want: tuple[float, str]) -> None:
    got = base_unit(value, unit)
    assert got[0] == pytest.approx(want[0], rel=1e-12) and got[1] == want[1]


def test_numbers_as_the_tool_prints_them() -> None:
    assert number("16,896") == 16896.0 and number("1,234,567.5") == 1234567.5 and number(" -3 ") == -3.0
    assert number("6.291456e+06") == 6291456.0
    for text in ("", "nan", "inf", "-nan", "(!) n/a", "no data", "0x10", "1 000", "PolicySpread", "1e999"):
        assert number(text) is None
    assert all(has_no_value(text) for text in ("", "(!) n/a", "no data", "nan", "-nan", "inf"))
    assert not has_no_value("all")


@given(st.integers(-(10**15), 10**15))
def test_thousands_commas_are_read(value: int) -> None:
    assert number(f"{value:,}") == value


def test_stall_reasons_have_one_name() -> None:
    assert stall_name("long_sb") == stall_name("long_scoreboard") == "long_scoreboard"
    assert stall_name("no_instructions") == stall_name("no_inst") == stall_name("no_instruction")
    assert stall_name("warpgroup_arrive") == stall_name("gmma") == "gmma"
    assert stall_name("of_the_future") == "of_the_future"
    assert {f"stall_{reason}" for reason in STALLS} <= set(QUANTITIES)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("saxpy(const float *, float *, int)", "saxpy"),
        ("saxpy", "saxpy"),
        ("_Z5saxpyPKfPfi", "saxpy"),
        ("void ns::reduce<ns::Op<float>, (int)256>(T *, (anonymous namespace)::Pair<int>)", "reduce"),
        ("(anonymous namespace)::copy(int)", "copy"),
        (
            "cudapy::gemm::kernel[abi:v1][abi:cw51cXTL](Array<float, (int)1, C, mutable, aligned>, int)",
            "kernel",
        ),
        ("_ZN6cudapy4gemm6kernelB2v1B12cw51cXTLSUwvE5ArrayIfLi1E1C7mutable7alignedE", "kernel"),
        (  # as numba-cuda 0.30 names a function made in a function
            "_ZN8__main__4make12_3clocals_3e12gemm_classicB2v1B92cw51cXTLSUwv1sDUaKthqaNgoKmjgOR3W3CwAkMXLaJtQYk"
            "OIgxJU0gCqOkEJoHkbttqdVhoqlspQGNFHSgJ5BnXagIAE5ArrayIfLi1E1C7mutable7alignedE"
            "5ArrayIfLi1E1C7mutable7alignedEi",
            "gemm_classic",
        ),
        ("_ZN99short", "_ZN99short"),
        ("", ""),
    ],
)
def test_kernel_names_to_show(kernel: str, name: str) -> None:
    assert display_name(kernel) == name


@given(st.text(max_size=60))
def test_any_kernel_name_can_be_shown(kernel: str) -> None:
    assert isinstance(display_name(kernel), str)
    assert bool(display_name(kernel)) == bool(kernel.strip()) or not kernel.strip()


def _recorded(name: str) -> tuple[str, int]:
    output, _, code = (DATA / f"{name}_stdout.txt").read_text().rpartition("exit ")
    return output, int(code)


def test_recorded_failures_are_recognised() -> None:
    nothing = explain(*_recorded("no_kernel"))
    assert nothing is not None and nothing.kind == "no_kernel" and _recorded("no_kernel")[1] == 0
    assert "launched: saxpy, softmax_rows, spilling_gemm" in nothing.message
    program = explain(*_recorded("no_program"))
    assert program is not None and program.kind == "no_program" and "'./nosuch'" in program.message
    held = explain(*_recorded("held"))  # by another start of the tool, which began later and went on
    assert held is not None and held.kind == "counters_held" and "dcgmi" in held.remedy
    assert explain(*_recorded("bad_metric")) is None  # the rest was read: that metric is missing
    assert explain((DATA / "three_full.log").read_text(), 0) is None
    assert explain((DATA / "three_seed_metrics_stdout.csv").read_text(), 0) is None


TAIL = (
    "==PROF== Trying to shutdown target application\n==ERROR== The application returned an error code (9).\n"
)


@pytest.mark.parametrize(
    ("output", "code", "kind", "says"),
    [
        (
            "==PROF== Connected to process 3\n"
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance "
            "Counters on the target device 0. For instructions see https://x\n"
            "==WARNING== No kernels were profiled.\n",
            1,
            "permission",
            "CAP_PERFMON",
        ),
        (
            "==ERROR== An error was reported by the driver:\n"
            "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool "
            "(like DCGM) is concurrently collecting profiling data.\n"
            '==ERROR== Failed to profile "k" in process 7\n' + TAIL,
            9,
            "counters_held",
            "dcgmi profile --pause",
        ),
        (
            "==ERROR== An error was reported by the driver:\n"
            "==ERROR== Cuda driver is not compatible with Nsight Compute.\n"
            "==PROF== Connected to process 23\n==ERROR== The application returned an error code (11).\n",
            11,
            "driver_mismatch",
            "driver",
        ),
        (
            "==ERROR== Failed to initialize the profiler: LibraryNotLoaded. Check that a compatible driver "
            "library is loaded.\n" + TAIL,
            9,
            "driver_mismatch",
            "driver",
        ),
        (
            "==ERROR== Nsight Compute failed to connect to the CUDA driver (stub libcuda.so[.1] on path?).\n"
            + TAIL,
            1,
            "no_driver",
            "LD_LIBRARY_PATH",
        ),
        ("==ERROR== Failed to open/create lock file /tmp/nsight-compute-lock.\n", 9, "lock_file", "TMPDIR"),
        ("==ERROR== InterprocessLockFailed\n", 9, "lock_file", "TMPDIR"),
        (
            "==ERROR== Profiling is not supported on device 0. To find out supported GPUs refer --list-chips "
            "option.\n==WARNING== No kernels were profiled.\n",
            0,
            "unsupported_gpu",
            "7.0",
        ),
        ("==ERROR== Failed to prepare kernel for profiling\n", 9, "launch_failed", "replayed"),
        ("==ERROR== unrecognised option '--pm-sampling-max-passes'\n", 1, "bad_option", "--pm-sampling"),
        (
            "==PROF== Connected\n==ERROR== The application returned an error code (3).\n",
            3,
            "program_failed",
            "(3)",
        ),
        ("==ERROR== An error occurred.\n==ERROR== UnknownError\n", 1, "failed", "An error occurred"),
        ("Segmentation fault\n", 139, "failed", "139: Segmentation fault"),
        ("", -9, "failed", "was killed by signal 9"),
        ("", None, "failed", "was ended"),
    ],
)
def test_known_failures(output: str, code: int | None, kind: str, says: str) -> None:
    failure = explain(output, code)
    assert failure is not None and failure.kind == kind
    assert says in str(failure) and "\n" not in str(failure)
    assert failure.remedy and str(failure) == f"{failure.message}; {failure.remedy}"


def test_what_the_program_prints_is_not_taken_for_the_tools() -> None:
    assert explain("ERR_NVGPUCTRPERM lock file No kernels were profiled.\n==PROF== Report: x\n", 0) is None


@given(st.text(), st.one_of(st.none(), st.integers(-20, 260)))
def test_any_output_is_explained_in_one_line(output: str, code: int | None) -> None:
    failure = explain(output, code)
    if code != 0:
        assert failure is not None
    if failure is not None:
        assert len(str(failure).splitlines()) == 1 and str(failure).isprintable()


def test_failures_cross_processes() -> None:
    for failure in (
        errors.not_installed(["PATH"]),
        errors.timed_out(2.5),
        errors.bad_report("x.ncu-rep", "it is empty"),
    ):
        again = pickle.loads(pickle.dumps(failure))
        assert isinstance(again, NcuError)
        assert (again.kind, again.message, again.remedy) == (failure.kind, failure.message, failure.remedy)
    assert "2.5 s" in str(errors.timed_out(2.5)) and "PATH" in str(errors.not_installed(["PATH"]))


def test_derived_values_are_finite() -> None:
    raw = {name: Metric(0.0, "") for q in QUANTITIES.values() for way in q.ways for name in way.counters}
    found, missing = derive(raw, {}, QUANTITIES)
    assert all(math.isfinite(metric.value) for metric in found.values())
    assert set(found) | set(missing) == set(QUANTITIES) and not set(found) & set(missing)
