"""Hot spots, roofline and diagnosis: what is said, at which values, and what is left unsaid."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdeck.telemetry.ncu import hotspots, pages, report, roofline
from warpdeck.telemetry.ncu.counters import Counters, HotSpot, Metric
from warpdeck.telemetry.ncu.diagnosis import Diagnosis, diagnose
from warpdeck.telemetry.ncu.metrics import ISSUED, QUANTITIES, SETS, normalise

DATA = Path(__file__).parent / "data" / "ncu"


@pytest.fixture(scope="module")
def real() -> list[Counters]:
    """The three launches of the real report, from its pages."""
    launches = pages.parse_raw((DATA / "three_full_raw.csv").read_text())
    found = pages.parse_source((DATA / "three_full_source_cuda.csv").read_text())
    both = report.with_instructions(launches, found)
    return [report.counters(launch, metric_set="full") for launch in both]


def made(*spots: HotSpot, **values: float) -> Counters:
    """Counters with these quantities, in their units."""
    metrics = {}
    for name, value in values.items():
        unit = QUANTITIES[name].unit if name in QUANTITIES else ""
        metrics[name] = Metric(value, unit, normalise(value, unit))
    return Counters("k", metrics, {}, spots)


def spot(line: int, samples: int, *, sass: str = "MOV", file: str = "/x/k.py", **stalls: int) -> HotSpot:
    return HotSpot(file, line, sass, 16 * line, samples, stalls, executed=32, source=f"line {line}")


def kinds(counters: Counters) -> list[str]:
    return [sentence.kind for sentence in diagnose(counters)]


def one(counters: Counters, kind: str) -> Diagnosis:
    (found,) = [sentence for sentence in diagnose(counters) if sentence.kind == kind]
    return found


# -- hot spots ----------------------------------------------------------------------------------


def test_hot_lines_of_the_real_report(real: list[Counters]) -> None:
    saxpy, softmax, gemm = (hotspots.by_line(c) for c in real)
    assert saxpy[0].place == "kernels.cu:6" and saxpy[0].samples == 6499
    assert saxpy[0].share == pytest.approx(6499 / 7114)
    assert saxpy[0].source.startswith("if (i < n)") and saxpy[0].executed == 6291456
    assert saxpy[0].top(1) == [("long_scoreboard", pytest.approx(6062 / 6499))]
    assert [line.place for line in softmax[:2]] == ["kernels.cu:12", "kernels.cu:25"]
    assert gemm[0].place == "kernels.cu:35"  # acc += a[ty][j] * b[tx][j], the conflicts made on purpose
    for lines, counters in zip((saxpy, softmax, gemm), real, strict=True):
        assert sum(line.samples for line in lines) == hotspots.samples(counters)
        assert sum(line.share for line in lines) == pytest.approx(1.0)
        assert sum(len(line.spots) for line in lines) == len(counters.hotspots)


def test_a_lines_samples_are_those_of_the_page(real: list[Counters]) -> None:
    """The page has its own sums by line."""
    import csv

    rows = list(csv.reader((DATA / "three_full_source_cuda.csv").open()))
    first = rows[3 : next(i for i in range(3, len(rows)) if rows[i][0] == "File Path")]
    sums = {int(row[0]): int(row[6]) for row in first if row[0].isdecimal()}
    ours = {line.line: line.samples for line in hotspots.by_line(real[0])}
    assert ours == {number: samples for number, samples in sums.items() if number in ours}
    assert all(samples == 0 for number, samples in sums.items() if number not in ours)


def test_hot_lines_of_ptx() -> None:
    load = replace(spot(3, 9, wait=9), ptx="ld.global.f32 %f1, [%rd4];")
    counters = made(load, replace(load, address=96, samples=4, stalls={"wait": 4}), spot(3, 50))
    (line,) = hotspots.by_ptx(counters)
    assert (line.ptx, line.place, line.samples, line.stalls) == (load.ptx, "k.py:3", 13, {"wait": 13})
    assert line.share == 13 / 63 and len(line.spots) == 2 and line.to_json()["ptx"] == load.ptx
    assert hotspots.by_ptx(made(spot(3, 50))) == []


def test_lines_that_are_not_known_are_one() -> None:
    counters = made(spot(3, 5), spot(0, 2, file=""), spot(0, 4, file="/x/k.py"), spot(9, 1, file=""))
    lines = hotspots.by_line(counters)
    assert [(line.place, line.samples) for line in lines] == [("", 7), ("k.py:3", 5)]
    assert hotspots.share(counters.hotspots[0], counters) == 5 / 12
    assert hotspots.by_line(made()) == [] and hotspots.share(spot(1, 0), made()) == 0.0


def test_places_are_short() -> None:
    assert hotspots.place("/a/b/softmax.py", 57) == "softmax.py:57"
    assert hotspots.place("C:\\a\\k.cu", 2) == "k.cu:2"
    assert hotspots.place("", 3) == hotspots.place("k.cu", 0) == ""


def test_stalls_leave_out_warps_that_issued(real: list[Counters]) -> None:
    saxpy = hotspots.stalls(real[0])
    assert saxpy[0].reason == "long_scoreboard"
    assert saxpy[0].share == pytest.approx(6062 / (7114 - 94))
    assert sum(stall.share for stall in saxpy) == pytest.approx(1.0)
    assert "selected" not in {stall.reason for stall in saxpy}


def test_stalls_from_whatever_was_read(real: list[Counters]) -> None:
    """Totals, samples by instruction and averages by instruction tell the same first reason."""
    gemm = real[2]
    totals = hotspots.stalls(replace(gemm, hotspots=()))
    sampled = hotspots.stalls(
        replace(gemm, metrics={n: m for n, m in gemm.metrics.items() if "pcsamp" not in n})
    )
    averages = hotspots.stalls(
        replace(gemm, hotspots=(), metrics={n: m for n, m in gemm.metrics.items() if "pcsamp" not in n})
    )
    assert [(s.reason, s.share) for s in totals] == [(s.reason, s.share) for s in sampled]
    assert [s.reason for s in averages[:3]] == [s.reason for s in totals[:3]]
    assert averages[0].counter == "stall_mio_throttle"
    assert averages[0].share == pytest.approx(totals[0].share, abs=0.03)
    assert hotspots.stalls(made()) == []


def test_where_a_reason_is() -> None:
    counters = made(spot(3, 9, wait=6, barrier=3), spot(4, 4, wait=4), spot(0, 90, file="", wait=90))
    found = hotspots.where(counters, "wait")
    assert found is not None and found[0].line == 3 and found[1] == 6 / 100
    assert hotspots.where(counters, "membar") is None
    assert hotspots.where(made(spot(0, 9, file="", wait=9)), "wait") is None


# -- roofline -----------------------------------------------------------------------------------


def test_the_roofline_point_of_the_real_report(real: list[Counters]) -> None:
    saxpy, _, gemm = (roofline.point(c) for c in real)
    assert saxpy is not None and gemm is not None
    assert saxpy.flops == pytest.approx(2 * (1 << 24)) and saxpy.kind == "fp32" and saxpy.roof == "memory"
    assert saxpy.intensity == pytest.approx(0.1833, abs=1e-4)
    assert saxpy.of_roof == pytest.approx(0.6613, abs=1e-3)  # what its DRAM throughput says too
    assert gemm.roof == "compute" and gemm.of_roof == pytest.approx(0.0443, abs=1e-3)
    assert saxpy.peak_flops_per_s == pytest.approx(132 * 128 * 2 * 1.95e9, rel=0.01)
    assert saxpy.peaks_from == "report" and saxpy.missing == {}


def test_measured_peaks_take_the_place_of_the_reports(real: list[Counters]) -> None:
    def on(**peaks: object) -> roofline.Roofline:
        counters = replace(real[0], meta={"peaks": peaks})
        at = roofline.point(counters)
        assert at is not None
        (dram,) = roofline.roofs(counters, at)
        assert dram.measured is at.memory_measured and dram.bytes_per_s == at.peak_bytes_per_s
        return at

    at = on(dram_gbs=4180.0)
    assert at.peaks_from == "report and measured" and at.memory_measured
    assert at.of_roof == pytest.approx(3.179e12 / 4.18e12, rel=1e-3)
    both = on(dram_gbs=4180.0, fp32_tflops=50.0)
    assert both.peaks_from == "measured" and both.ridge == 5e13 / 4.18e12
    assert json.loads(json.dumps(both.to_json()))["peaks_from"] == "measured"
    for odd in (0.0, -1.0, float("nan"), float("inf"), True, "4180", None):
        assert on(dram_gbs=odd, fp32_tflops=odd).peaks_from == "report"


def test_only_the_main_precision_counts_against_its_peak() -> None:
    """A register that is set to 0 by HFMA2 counts as four half-precision operations."""
    launch = dict(flops_fp32=1e10, flops_fp16=4e9, dram_bytes=1e9, **PEAKS)
    at = roofline.point(replace(made(**launch), meta={"peaks": {"fp32_tflops": 2.0}}))
    assert at is not None and at.kind == "fp32" and at.flops == 1e10 and at.intensity == 10.0
    assert at.peak_flops_per_s == 2e12 and at.compute_measured and not at.memory_measured
    half = roofline.point(replace(made(**launch | {"flops_fp32": 1e9}), meta={"peaks": {"fp32_tflops": 2.0}}))
    assert half is not None and half.kind == "fp16" and half.flops == 4e9 and not half.compute_measured


def test_a_roofline_without_everything_says_what_is_missing() -> None:
    assert roofline.point(made(dram_bw_pct=50.0)) is None
    at = roofline.point(
        replace(made(duration_ns=1e6, dram_bytes=2e6), missing={"flops_fp64": "not on this chip"})
    )
    assert at is not None
    assert at.bytes_per_s == 2e9 and at.flops is None and at.of_roof is None and at.roof is None
    assert at.missing["flops_fp64"] == "not on this chip"
    assert "metric set roofline" in at.missing["flops_fp32"]
    assert "peak_dram_bytes_per_s" in at.missing
    without_time = roofline.point(made(flops_fp32=10.0))
    assert without_time is not None and without_time.flops_per_s is None and without_time.intensity is None


PEAKS = {"peak_flops_fp32": 1e12, "peak_dram_bytes_per_s": 1e11, "duration_ns": 1e9}


@pytest.mark.parametrize(
    ("flops", "moved", "roof", "of_roof"),
    [
        (9e9, 1e9, "memory", 0.01),  # ridge: 10 flop/byte
        (1e10, 1e9, "compute", 0.01),
        (5e11, 1e9, "compute", 0.5),
        (0.0, 5e10, "memory", 0.5),  # no operation at all: bytes alone
    ],
)
def test_which_roof(flops: float, moved: float, roof: str, of_roof: float) -> None:
    at = roofline.point(made(flops_fp32=flops, flops_fp64=0.0, dram_bytes=moved, **PEAKS))
    assert at is not None and at.roof == roof and at.of_roof == pytest.approx(of_roof)


def test_all_traffic_in_caches_has_no_intensity() -> None:
    at = roofline.point(made(flops_fp32=1e9, dram_bytes=0.0, **PEAKS))
    assert at is not None and at.intensity is None and at.roof is None and at.of_roof is None


def test_operations_of_tensor_cores_are_not_claimed() -> None:
    values = dict(flops_fp32=1e9, flops_fp16=0.0, dram_bytes=1e9, **PEAKS)
    busy = roofline.point(made(**values, tensor_active_pct=5.0))
    moves = roofline.point(made(**values, tensor_active_pct=4.99))
    assert busy is not None and "tensor_operations" in busy.missing
    assert moves is not None and "tensor_operations" not in moves.missing
    assert "roofline" not in kinds(made(**values, tensor_active_pct=5.0))
    assert "roofline" in kinds(made(**values, tensor_active_pct=4.99))


@pytest.mark.parametrize(
    ("sass", "matrix"),
    [
        ("HMMA.16816.F32 R4, R8, R12, R4", True),
        ("HGMMA.64x128x16.F32 R24, gdesc[UR4], R24", True),
        ("IMMA.16832.S8.S8 R4, R8.ROW, R12.COL, R4", True),
        ("UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8]", True),
        ("HFMA2.MMA R3, -RZ, RZ, 0, 0", False),  # a register set to 0
        ("FFMA R3, R4, R5, R6", False),
    ],
)
def test_the_machine_code_tells_tensor_cores_from_moves(sass: str, matrix: bool) -> None:
    counters = made(spot(3, 9, sass=sass), tensor_active_pct=4.0 if matrix else 40.0)
    assert (roofline.tensor_cores(counters) is not None) == ("tensor" in kinds(counters)) == matrix


def test_speed_of_light_has_all_bars_or_reasons(real: list[Counters]) -> None:
    bars = roofline.speed_of_light(real[2])
    assert [bar.label for bar in bars] == ["Compute", "Memory", "DRAM", "L2", "L1 and shared", "Tensor cores"]
    assert all(bar.name in QUANTITIES for bar in bars)
    assert bars[1].share == pytest.approx(0.9467, abs=1e-4) and bars[1].missing == ""
    empty = roofline.speed_of_light(replace(made(dram_bw_pct=25.0), missing={"l2_throughput_pct": "why"}))
    assert [bar.share for bar in empty] == [None, None, 0.25, None, None, None]
    assert empty[3].missing == "why" and "metric set roofline" in empty[0].missing


# -- diagnosis ----------------------------------------------------------------------------------


def test_the_diagnosis_of_the_real_report(real: list[Counters]) -> None:
    saxpy, softmax, gemm = ([s.text for s in diagnose(c)] for c in real)
    assert saxpy[0] == "memory bound: DRAM at 66% and L2 at 79% of peak, L2 hit 34%"
    assert saxpy[1] == (
        "86% of stalls are long scoreboard (data from global, local or texture memory) at kernels.cu:6"
    )
    assert softmax[0] == "latency bound: neither computing (53% of peak) nor memory (48%) is busy"
    assert gemm[:2] == [
        "memory bound: L1 and shared memory at 97% of peak",
        "bank conflicts: 68% of the passes through shared memory are repeats (116 M of 171 M)",
    ]
    assert "occupancy 71%, at most 75%, limited by registers (38 a thread)" in gemm
    assert not any("spill" in text or "uncoalesced" in text for text in (*saxpy, *softmax, *gemm))


def test_every_sentence_has_its_evidence(real: list[Counters]) -> None:
    for counters in real:
        for sentence in diagnose(counters):
            assert sentence.evidence
            for name, value in sentence.evidence.items():
                if name in QUANTITIES:
                    assert value == counters.value(name)
            assert json.loads(json.dumps(sentence.to_json()))["text"] == sentence.text


def test_most_important_first(real: list[Counters]) -> None:
    for counters in real:
        weights = [sentence.weight for sentence in diagnose(counters)]
        assert weights == sorted(weights, reverse=True) and all(0 <= w <= 100 for w in weights)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"dram_bw_pct": 60.0, "sm_throughput_pct": 60.0}, "memory_bound"),
        ({"dram_bw_pct": 60.0, "sm_throughput_pct": 60.1}, "compute_bound"),
        ({"dram_bw_pct": 59.9, "sm_throughput_pct": 60.0}, "compute_bound"),
        ({"dram_bw_pct": 59.9, "sm_throughput_pct": 59.9, "memory_throughput_pct": 59.9}, "latency_bound"),
        ({"dram_bw_pct": 59.9, "sm_throughput_pct": 59.9}, None),  # the rest of memory is not known
        ({"dram_bw_pct": 59.9, "sm_throughput_pct": 10.0, "memory_throughput_pct": 60.0}, "memory_bound"),
        ({"dram_bw_pct": 79.9}, "memory_is_busy"),  # computing is not known
        ({"dram_bw_pct": 80.0}, "memory_bound"),
        ({"dram_bw_pct": 59.9}, None),
        ({"sm_throughput_pct": 90.0}, None),
        ({}, None),
    ],
)
def test_what_bounds(values: dict[str, float], kind: str | None) -> None:
    bounds = {"memory_bound", "compute_bound", "latency_bound", "memory_is_busy"}
    assert [k for k in kinds(made(**values)) if k in bounds] == ([kind] if kind else [])


def test_the_bound_names_all_that_is_busy() -> None:
    said = one(made(dram_bw_pct=87.0, l2_hit_rate=12.0), "memory_bound")
    assert said.text == "memory bound: DRAM at 87% of peak, L2 hit 12%"
    assert said.evidence == {"dram_bw_pct": 87.0, "l2_hit_rate": 12.0}
    hidden = one(
        made(dram_bw_pct=10.0, memory_throughput_pct=70.0, sm_throughput_pct=65.0, l2_hit_rate=1.0),
        "memory_bound",
    )
    assert hidden.text == "memory bound: the memory system at 70% of peak; computing is at 65% too"


@pytest.mark.parametrize(
    ("pipes", "issued", "words"),
    [
        ({}, 70.0, "the SMs at 70% of peak, memory"),
        ({"alu": 50.0, "fma": 30.0}, 70.0, "issuing instructions at 70% of peak (the busiest pipe, integer"),
        ({"alu": 50.0, "fma": 30.0}, 60.0, "the SMs at 70% of peak (the busiest pipe, integer and logic"),
        ({"fma": 67.0, "xu": 3.0}, 70.0, "the float32 (FMA) pipe at 67% of peak, memory"),
        ({"odd": 70.0}, None, "the odd pipe at 70% of peak"),
    ],
)
def test_what_of_computing_is_busy(pipes: dict[str, float], issued: float | None, words: str) -> None:
    counters = made(sm_throughput_pct=70.0, dram_bw_pct=10.0)
    names = {f"sm__inst_executed_pipe_{p}.avg.pct_of_peak_sustained_elapsed": v for p, v in pipes.items()}
    names |= {} if issued is None else {ISSUED: issued}
    metrics = {**counters.metrics, **{n: Metric(v, "%", v / 100) for n, v in names.items()}}
    said = one(replace(counters, metrics=metrics), "compute_bound")
    assert said.text.startswith(f"compute bound: {words}")
    assert all(value in said.evidence.values() for value in pipes.values() if value == max(pipes.values()))


@pytest.mark.parametrize(("issue", "said"), [(79.9, True), (80.0, False), (None, True)])
def test_stalls_do_not_matter_where_the_schedulers_issue(issue: float | None, said: bool) -> None:
    values = {} if issue is None else {"issue_active_pct": issue}
    counters = made(spot(57, 10, long_scoreboard=8, selected=2), **values)
    assert ("stall" in kinds(counters)) == said


def test_stalls_of_some_size_at_their_lines() -> None:
    counters = made(
        spot(57, 60, long_scoreboard=41, wait=19), spot(60, 40, wait=15, barrier=15, mio_throttle=10)
    )
    texts = [s.text for s in diagnose(counters) if s.kind == "stall"]
    assert texts == [
        "41% of stalls are long scoreboard (data from global, local or texture memory) at k.py:57",
        "34% of stalls are wait (a fixed latency between dependent instructions), 56% of them at k.py:57",
        "15% of stalls are barrier (other warps of the block at a barrier) at k.py:60",
    ]
    assert diagnose(counters)[0].evidence == {"samples: long_scoreboard": 41.0, "share": 0.41, "k.py:57": 41}
    unplaced = made(stall_barrier=86.0, stall_wait=14.0)
    assert [s.text for s in diagnose(unplaced) if s.kind == "stall"] == [
        "86% of stalls are barrier (other warps of the block at a barrier)"
    ]


@pytest.mark.parametrize(
    ("achieved", "possible", "waves", "said"),
    [
        (80.0, 100.0, 5.0, False),
        (79.9, 100.0, 5.0, True),
        (79.9, 100.0, 0.9, False),  # few blocks: told by another sentence
        (79.9, 100.0, None, True),
        (75.0, 75.0, 5.0, True),
        (99.5, 99.5, 5.0, False),
    ],
)
def test_occupancy(achieved: float, possible: float, waves: float | None, said: bool) -> None:
    values = {"achieved_occupancy": achieved, "theoretical_occupancy": possible}
    if waves is not None:
        values["waves"] = waves
    assert ("occupancy" in kinds(made(**values))) == said


def test_occupancy_names_every_limiter() -> None:
    counters = made(
        achieved_occupancy=24.0,
        theoretical_occupancy=25.0,
        limit_registers=2,
        limit_shared=2,
        limit_warps=8,
        limit_blocks=32,
        registers=128,
        shared_bytes=99_328,
    )
    said = one(counters, "occupancy")
    assert said.text == (
        "occupancy 24%, at most 25%, limited by registers (128 a thread) and shared memory (99.3 kB a block)"
    )
    assert said.evidence["limit_registers"] == 2 and said.evidence["registers"] == 128
    few = one(replace(counters, metrics={**counters.metrics, "waves": Metric(0.65, "wave")}), "occupancy")
    assert few.text == "occupancy 24%, at most 25%, which 0.65 waves of blocks don't fill"
    assert few.evidence["waves"] == 0.65 and "limit_registers" not in few.evidence
    assert "occupancy" not in kinds(made(achieved_occupancy=20.0))  # without the possible one no claim
    assert said.weight > one(made(achieved_occupancy=50.0, theoretical_occupancy=50.0), "occupancy").weight


@pytest.mark.parametrize(
    ("grid", "waves", "kind"),
    [
        (131, 0.5, "few_blocks"),
        (132, 0.5, "few_blocks"),
        (132, 0.9, None),
        (132, 0.89, "few_blocks"),
        (132, 1.0, None),
        (500, 1.8, None),
        (500, 1.79, "tail"),
        (500, 1.01, "tail"),
        (5000, 9.01, None),
        (5000, 62.06, None),
    ],
)
def test_blocks_and_waves(grid: int, waves: float, kind: str | None) -> None:
    found = [k for k in kinds(made(grid_size=grid, sm_count=132, waves=waves)) if k in ("few_blocks", "tail")]
    assert found == ([kind] if kind else [])


def test_few_blocks_say_how_few() -> None:
    said = one(made(grid_size=33, sm_count=132), "few_blocks")
    assert said.text == "too few blocks: 33 for 132 SMs, 75% of them stay idle"
    assert said.evidence == {"grid_size": 33, "sm_count": 132}


@pytest.mark.parametrize(
    ("kind", "below", "at"),
    [
        ("idle_sms", {"sm_active_pct": 79.9}, {"sm_active_pct": 80.0}),
        ("low_issue", {"issue_active_pct": 49.9}, {"issue_active_pct": 50.0}),
        ("divergence", {"active_threads_per_inst": 23.9}, {"active_threads_per_inst": 24.0}),
        ("uncoalesced", {"global_load_efficiency": 79.9}, {"global_load_efficiency": 80.0}),
        ("uncoalesced", {"global_store_efficiency": 79.9}, {"global_store_efficiency": 80.0}),
        ("tensor", {"tensor_active_pct": 5.0}, {"tensor_active_pct": 4.9}),
        (
            "bank_conflicts",
            {"shared_bank_conflicts": 1.0, "bank_conflict_pct": 10.0},
            {"shared_bank_conflicts": 1.0, "bank_conflict_pct": 9.9},
        ),
        (
            "bank_conflicts",
            {"shared_bank_conflicts": 5.0, "bank_conflict_pct": 50.0},
            {"shared_bank_conflicts": 5.0},
        ),
        (
            "spills",
            {"local_load_sectors": 1.0, "local_store_sectors": 0.0},
            {"local_load_sectors": 0.0, "local_store_sectors": 0.0},
        ),
        ("spills", {"local_load_sectors": 1.0, "local_store_sectors": 1.0}, {"local_load_sectors": 1.0}),
    ],
)
def test_thresholds(kind: str, below: dict[str, float], at: dict[str, float]) -> None:
    assert kinds(made(**below)).count(kind) == 1
    assert kind not in kinds(made(**at))
    assert set(below) <= set(one(made(**below), kind).evidence)


def test_spills_are_located_and_weighed() -> None:
    sectors = {"local_load_sectors": 3_000_000.0, "local_store_sectors": 1_000_000.0}
    counters = made(
        spot(8, 9, sass="@P0 STL [R1+0x8], R5"), spot(9, 99, sass="LDG R2"), **sectors, local_sector_pct=40.0
    )
    said = one(counters, "spills")
    assert said.text == (
        "spills: 128 MB of local memory moved, 40% of the traffic at L1 "
        "(registers over the cap, or arrays indexed at run time), first at k.py:8"
    )
    assert one(made(**sectors, local_sector_pct=0.9), "spills").weight < 15 < said.weight


def test_uncoalesced_access_says_how_bad_it_is() -> None:
    said = one(made(global_load_efficiency=12.5, global_load_sectors_per_request=32.0), "uncoalesced")
    assert said.text == (
        "uncoalesced global loads: 12% of the bytes in their sectors are used, 32.0 sectors a request"
    )


def test_uncoalesced_access_counts_as_much_as_it_wastes() -> None:
    """Two fifths of a store's bytes are little where nearly all sectors are those of loads."""
    sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
    many = made(**{"global_store_efficiency": 40.0, sectors.format("ld"): 20.0, sectors.format("st"): 80.0})
    few = made(**{"global_store_efficiency": 40.0, sectors.format("ld"): 91.0, sectors.format("st"): 9.0})
    said = one(many, "uncoalesced")
    assert said.text.endswith("used; 80% of the sectors of global memory are theirs") and said.weight > 50
    assert said.evidence[sectors.format("st")] == 80.0
    assert one(few, "uncoalesced").weight < 15


def test_requests_of_one_sector_have_nothing_to_coalesce() -> None:
    """A block's one thread that stores its sum uses an eighth of a sector, and can't do better."""
    alone = made(global_store_efficiency=12.5, global_store_sectors_per_request=1.0)
    assert "uncoalesced" not in kinds(alone)
    assert "uncoalesced" in kinds(made(global_store_efficiency=12.5, global_store_sectors_per_request=1.5))


def test_warps_that_were_not_selected_are_no_reason() -> None:
    ready = made(spot(3, 90, not_selected=60, wait=30), spot(4, 10, selected=10))
    (said,) = [sentence for sentence in diagnose(ready) if sentence.kind == "stall"]
    assert said.text == "33% of stalls are wait (a fixed latency between dependent instructions) at k.py:3"


def test_what_was_not_collected_is_told_with_the_set_that_has_it() -> None:
    seed = pages.parse_raw((DATA / "three_seed_metrics_stdout.csv").read_text())[1]
    said = diagnose(report.counters(seed, metric_set="seed"))[-1]
    assert said.kind == "not_collected"
    for name in ("roofline", "stalls", "memory"):
        assert name in SETS and f"(metric set {name})" in said.text
    stalls = Counters("k", {}, {}, (), {"set": "stalls"})
    assert "why warps wait" not in diagnose(stalls)[-1].text
    assert "not_collected" not in kinds(Counters("k", {}, {}, (), {"set": "full"}))


def test_a_seed_counter_that_could_not_be_read_is_told() -> None:
    said = diagnose(replace(made(), missing={"l2_hit_rate": "Nsight Compute gave no value (n/a)"}))[-1]
    assert "L2 hit rate (Nsight Compute gave no value (n/a))" in said.text
    assert said.evidence["l2_hit_rate"] == "Nsight Compute gave no value (n/a)"


quantities = st.dictionaries(
    st.sampled_from(sorted(QUANTITIES)),
    st.one_of(st.just(0.0), st.floats(0, 1e13), st.floats(0, 100)),
    max_size=30,
)
lines = st.lists(
    st.builds(
        lambda line, samples, reason: spot(line, samples, **({reason: samples} if samples else {})),
        st.integers(0, 5),
        st.integers(0, 100),
        st.sampled_from(["wait", "long_scoreboard", "selected", "of_the_future"]),
    ),
    max_size=6,
)


@settings(deadline=None, max_examples=200)
@given(quantities, lines)
def test_whatever_was_read_each_claim_rests_on_it(values: dict[str, float], spots: list[HotSpot]) -> None:
    counters = made(*spots, **values)
    roofline.speed_of_light(counters)
    for sentence in diagnose(counters):
        assert sentence.evidence and not re.search(r"\b(nan|inf|None)\b", sentence.text)
        if sentence.kind != "not_collected":
            assert all(counters.value(n) == v for n, v in sentence.evidence.items() if n in QUANTITIES)
    at = roofline.point(counters)
    if at is not None:
        json.dumps(at.to_json(), allow_nan=False)
