"""The CSV pages of Nsight Compute: real ones, made ones, and anything at all."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdeck.telemetry.ncu import pages, report
from warpdeck.telemetry.ncu.counters import Metric
from warpdeck.telemetry.ncu.errors import NcuError
from warpdeck.telemetry.ncu.launch import NO_VALUE, Instruction, Launch
from warpdeck.telemetry.ncu.metrics import SEED, STALLS

DATA = Path(__file__).parent / "data" / "ncu"
RAW = (DATA / "three_full_raw.csv").read_text()
SASS = (DATA / "three_full_source_sass.csv").read_text()
CUDA = (DATA / "three_full_source_cuda.csv").read_text()
SEED_PAGE = (DATA / "three_seed_metrics_stdout.csv").read_text()


def _csv(*rows: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return text.getvalue()


FACTS = ["ID", "Process ID", "Kernel Name", "Block Size", "Device", "CC"]


def _raw(columns: dict[str, tuple[str, list[str]]], kernels: list[str]) -> str:
    """A page `raw`: counters by name, each with its unit and the cells of the launches."""
    rows = [[*FACTS, *columns], [""] * len(FACTS) + [unit for unit, _ in columns.values()]]
    for i, kernel in enumerate(kernels):
        cells = [column[i] for _, column in columns.values()]
        rows.append([str(i), "700", kernel, "(256, 1, 1)", "0", "9.0", *cells])
    return _csv(*rows)


def test_the_real_seed_page_with_log_lines_around_it() -> None:
    """Base units, thousands commas, the tool's and the program's own lines before the table."""
    assert SEED_PAGE.startswith("==WARNING==") and "no error" in SEED_PAGE
    launches = pages.parse_raw(SEED_PAGE)
    assert [launch.kernel.partition("(")[0] for launch in launches] == [
        "saxpy",
        "softmax_rows",
        "spilling_gemm",
    ]
    assert launches[0].metrics["gpu__time_duration.sum"] == Metric(58592.0, "ns")
    assert launches[0].texts["CC"] == "9.0" and launches[0].texts["Grid Size"] == "(65536, 1, 1)"
    first = report.counters(launches[0], metric_set="seed")
    assert [first.metrics[name].norm for name in SEED] == pytest.approx([0.7438, 0.339, 0.65, 0.9687])
    assert first.missing == {} and first.meta["passes"] == 3


def test_the_real_raw_page_in_scaled_units() -> None:
    gemm = pages.parse_raw(RAW)[2]
    assert gemm.metrics["gpu__time_duration.sum"] == Metric(727008.0, "ns")
    assert gemm.metrics["dram__bytes_read.sum"].value == pytest.approx(8395520)
    assert gemm.metrics["launch__shared_mem_per_block"] == Metric(3072.0, "byte/block")
    assert gemm.metrics["l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"].value == 115_693_426
    assert gemm.absent["sass__inst_executed_register_spilling_mem_local"] == NO_VALUE
    assert gemm.absent["derived_tempMetric4"] == NO_VALUE  # printed nan
    assert gemm.texts["device__attribute_display_name"] == "NVIDIA H200"


def test_an_unknown_metric_is_missing_not_zero() -> None:
    text = _raw({"a__b.avg": ("", ["(!) n/a"]), "c__d.sum": ("%", ["nan"]), "e__f": ("", ["0"])}, ["k"])
    (launch,) = pages.parse_raw(text)
    assert launch.metrics == {"e__f": Metric(0.0, "")}
    assert launch.absent == {"a__b.avg": NO_VALUE, "c__d.sum": NO_VALUE}
    counters = report.counters(launch, wanted=("a__b.avg",))
    assert counters.missing["a__b.avg"] == NO_VALUE and "a__b.avg" not in counters.metrics


def test_log_lines_between_rows_and_a_second_table() -> None:
    one = _raw({"x__y.sum": ("Kbyte", ["1,024.5", "2"])}, ["a", "b"])
    header, units, first, second = one.splitlines()
    text = "\n".join(
        [
            '"quoted", by the program',
            header,
            "==PROF== x",
            units,
            "no error",
            first,
            '"odd"',
            second,
            "",
            "end",
        ]
    )
    assert [launch.metrics["x__y.sum"].value for launch in pages.parse_raw(text)] == [1_024_500.0, 2000.0]
    other = _raw({"z__z.sum": ("", ["5"])}, ["c"])
    assert [launch.kernel for launch in pages.parse_raw(text + "\n" + other)] == ["a", "b", "c"]


def test_columns_are_found_by_name() -> None:
    """Another version: other facts in another order, and no row of units."""
    text = _csv(["ID", "Context", "x__y.sum", "Kernel Name"], ["0", "1", "7", "k(int)"])
    (launch,) = pages.parse_raw(text)
    assert launch.kernel == "k(int)" and launch.metrics == {"x__y.sum": Metric(7.0, "")}


names = st.from_regex(r"[a-z0-9]{1,8}__[a-z_]{1,12}\.(sum|avg|pct)", fullmatch=True)
values = st.floats(0, 1e15, allow_nan=False).map(lambda v: round(v, 6))


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(names, st.tuples(st.sampled_from(["", "%", "byte", "ns", "inst"]), values), max_size=6),
    st.lists(
        st.text(st.characters(codec="ascii", exclude_categories=("C",)), min_size=1), min_size=1, max_size=3
    ),
    st.sampled_from(["", "==PROF== Connected\n", "out, of\nthe program\n"]),
    st.booleans(),
)
def test_what_is_printed_is_read(
    columns: dict[str, tuple[str, float]], kernels: list[str], log: str, commas: bool
) -> None:
    cells = {
        name: (unit, [f"{value:,.6f}" if commas else f"{value:.6f}"] * len(kernels))
        for name, (unit, value) in columns.items()
    }
    launches = pages.parse_raw(log + _raw(cells, kernels))
    assert [launch.kernel for launch in launches] == kernels
    for launch in launches:
        assert launch.metrics.keys() == columns.keys()
        for name, (unit, value) in columns.items():
            assert launch.metrics[name].value == pytest.approx(value, abs=1e-6)
            assert launch.metrics[name].unit == unit


@pytest.mark.parametrize("view", [SASS, CUDA], ids=["sass", "cuda,sass"])
def test_the_real_source_pages(view: str) -> None:
    found = pages.parse_source(view)
    assert [page.kernel.partition("(")[0] for page in found] == ["saxpy", "softmax_rows", "spilling_gemm"]
    assert [sum(i.samples for i in page.instructions) for page in found] == [7114, 7989, 90075]
    assert [len(page.instructions) for page in found] == [32, 408, 280]
    hot = max(found[0].instructions, key=lambda i: i.samples)
    assert hot.sass == "FFMA R7, R2, 2, R7" and hot.samples == 6071 and hot.executed == 524288
    assert hot.stalls["long_scoreboard"] == 6062 and set(hot.stalls) <= set(STALLS)


def test_both_views_have_the_same_instructions_and_inlined_ones_once() -> None:
    for plain, lined in zip(pages.parse_source(SASS), pages.parse_source(CUDA), strict=True):
        without = [(i.address, i.sass, i.samples, i.executed, i.stalls) for i in lined.instructions]
        assert without == [(i.address, i.sass, i.samples, i.executed, i.stalls) for i in plain.instructions]
        assert len({i.address for i in lined.instructions}) == len(lined.instructions)
    shuffles = [i for i in pages.parse_source(CUDA)[1].instructions if i.sass.startswith("SHFL")]
    # They also stand under the header that they were inlined from.
    assert shuffles and {i.file for i in shuffles} == {"/tmp/fixture/kernels.cu"}
    assert {i.line for i in shuffles} == {13, 20}


COLUMNS = [
    "Warp Stall Sampling (All Samples)",
    "# Samples",
    "Instructions Executed",
    "stall_long_sb",
    "stall_wait",
]


def _lined(file: str, kernel: str, *lines: tuple[int, str, list[tuple[int, str, int]]]) -> list[list[str]]:
    rows = [
        ["File Path", file],
        ["Function Name", kernel],
        ["Line No", "Source", "Address", "Source", *COLUMNS],
    ]
    for number, source, instructions in lines:
        total = str(sum(n for _, _, n in instructions))
        rows.append([str(number), source, "-", "-", total, total, "0", total, "-"])
        for i, (address, sass, n) in enumerate(instructions):
            if i:
                rows.append(["", "", "...", "...", *["-"] * len(COLUMNS)])
            rows.append(["", "", hex(address), f"      {sass}", str(n), str(n), "1,024", str(n), "0"])
    return rows


def test_lines_of_numba_kernels() -> None:
    text = _csv(
        *_lined(
            "/home/me/kernels/softmax.py",
            "cudapy::softmax::kernel[abi:v1](Array<float, (int)2, C, mutable, aligned>)",
            (57, "    m = max(m, x[row, i])", [(0x100, "LDG.E R2, [R4.64]", 3), (0x120, "FMNMX R5", 41)]),
            (60, "    s += exp(x[row, i] - m)", [(0x110, "MUFU.EX2 R6, R6", 6)]),
        )
    )
    (page,) = pages.parse_source("==PROF== log\n" + text)
    (launch,) = report.with_instructions([Launch(page.kernel, {})], [page])
    counters = report.counters(launch)
    assert counters.kernel == "kernel"
    spots = [(h.file, h.line, h.address, h.samples, h.executed, h.source) for h in counters.hotspots]
    assert spots[0] == ("/home/me/kernels/softmax.py", 57, 0x20, 41, 1024, "m = max(m, x[row, i])")
    assert [line for _, line, *_ in spots] == [57, 60, 57]


def test_the_same_kernel_launched_twice() -> None:
    def launch(samples: int) -> list[list[str]]:
        return [
            *_lined("a.cu", "k()", (1, "x", [(0x10, "MOV", samples)])),
            *_lined("b.h", "k()", (9, "y", [(0x10, "MOV", samples), (0x20, "BRA", 1)])),
        ]

    found = pages.parse_source(_csv(*launch(5), *launch(7)))
    assert [[i.samples for i in page.instructions] for page in found] == [[5, 1], [7, 1]]
    assert [i.file for i in found[0].instructions] == ["a.cu", "b.h"]
    sass = _csv(
        *(
            row
            for n in (5, 7)
            for row in (
                ["Kernel Name", "k()", ""],
                ["Address", "Source", *COLUMNS],
                ["16", "MOV", *["-"] * 5],
            )
        )
    )
    assert [page.kernel for page in pages.parse_source(sass)] == ["k()", "k()"]


def test_older_pages_number_their_instructions() -> None:
    text = _csv(
        ["Kernel Name", "k", ""],
        ["#", "Source", "# Samples", "stall_long_sb", "stall_long_sb (Not Issued)"],
        ["1", "MOV R1, c[0x0][0x28]", "2", "0", "9"],
        ["2", "LDG.E R2, [R4]", "1,001", "1,000", "9"],
    )
    (page,) = pages.parse_source(text)
    assert page.instructions[1] == Instruction(
        address=16, sass="LDG.E R2, [R4]", samples=1001, stalls={"long_scoreboard": 1000}
    )


def test_pages_go_to_their_launches_or_to_none() -> None:
    launches = [Launch("a", {}), Launch("b", {}), Launch("a", {})]
    one = Instruction(address=0x40, sass="NOP", samples=1)
    page_a, page_b = pages.Page("a", (one,)), pages.Page("b", (one, replace(one, address=0x50)))
    inorder = report.with_instructions(launches, [page_a, page_b, page_a])
    assert [len(launch.instructions) for launch in inorder] == [1, 2, 1] and inorder[0].base == 0x40
    # Which launch of `a` this is of can't be told.
    assert not any(launch.instructions for launch in report.with_instructions(launches, [page_a, page_b]))
    swapped = report.with_instructions(launches[:2], [page_b, page_a])
    assert [len(launch.instructions) for launch in swapped] == [1, 2]


def test_instructions_without_a_line_are_kept() -> None:
    """The view with lines leaves them out."""
    plain = pages.Page("k", tuple(Instruction(address=a, sass="NOP", samples=a) for a in (16, 32, 48)))
    lined = pages.Page("k", (Instruction(32, "NOP", "k.cu", 7, "x = y;", samples=32),))
    (launch,) = report.with_instructions(report.with_instructions([Launch("k", {})], [plain]), [lined])
    assert [(i.address, i.file, i.line, i.samples) for i in launch.instructions] == [
        (16, "", 0, 16),
        (32, "k.cu", 7, 32),
        (48, "", 0, 48),
    ]
    assert launch.base == 16 and launch.instructions[1].source == "x = y;"


@pytest.mark.parametrize("text", ["", "no table", '"a","b"\n"c","d"', SASS[:30], "\0\0", '"ID"\n"0"'])
def test_what_is_no_raw_page_is_one_error(text: str) -> None:
    with pytest.raises(NcuError) as caught:
        pages.parse_raw(text)
    assert caught.value.kind == "report" and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "no table", RAW, '"Address","Source"\n"0x0","NOP"'])
def test_what_is_no_source_page_is_one_error(text: str) -> None:
    with pytest.raises(NcuError) as caught:
        pages.parse_source(text)
    assert caught.value.kind == "report"


TITLES = ["ID", "Kernel Name", "File Path", "Function Name", "Line No", "Source", "Address", "# Samples", "#"]
ODD = [
    "stall_long_sb",
    "0x10",
    "-",
    "...",
    "7",
    "1,024",
    "",
    "(!) n/a",
    "nan",
    "a__b.sum",
    'say "x"',
    "\ud7ff",
]
cells = st.sampled_from([*TITLES, *ODD])


@settings(deadline=None, max_examples=200)
@given(st.one_of(st.text(), st.lists(st.lists(cells, max_size=6), max_size=12).map(lambda rows: _csv(*rows))))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (pages.parse_raw, pages.parse_source):
        try:
            parsed = parse(text)
        except NcuError as error:
            assert error.kind == "report"
        else:
            assert isinstance(parsed, list)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from([SEED_PAGE, SASS[:60_000], CUDA[:60_000]]), st.data())
def test_damaged_pages_are_read_or_refused(page: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(page)))
    stop = data.draw(st.integers(start, min(len(page), start + 2000)))
    text = page[:start] + data.draw(st.text(max_size=5)) + page[stop:]
    for parse in (pages.parse_raw, pages.parse_source):
        try:
            for found in parse(text):
                if isinstance(found, Launch):
                    report.counters(found, metric_set="seed")
        except NcuError as error:
            assert error.kind == "report"
