"""What compute-sanitizer said on an H200 about small kernels with one fault each."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpdeck.telemetry.sanitizer import TOOLS, parse

DATA = Path(__file__).parent / "data" / "sanitizer"
SOURCE = (DATA / "faults.cu").read_text(encoding="utf-8").splitlines()


def said(fault: str, tool: str) -> str:
    return (DATA / f"{fault}-{tool}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("fault", "tool", "message", "times", "at", "detail"),
    [
        ("beyond", "memcheck", "Invalid __global__ write of size 4 bytes", 4, "out[threadIdx.x + by]", "116"),
        (
            "misaligned",
            "memcheck",
            "Invalid __global__ write of size 8 bytes",
            1,
            "float2 *>(out + 1)",
            "(0,0",
        ),
        ("shared_beyond", "memcheck", "Invalid __shared__ read of size 4 bytes", 4, "= tile[", "116"),
        ("race", "racecheck", "Race: write", 480, "tile[threadIdx.x] =", "with read access at faults.cu:27"),
        ("unwritten", "initcheck", "Uninitialized __global__ memory read of size 4 bytes", 60, "= a[", "(96"),
    ],
)
def test_a_fault_is_told_with_its_line(
    fault: str, tool: str, message: str, times: int, at: str, detail: str
) -> None:
    (finding,), errors = parse(tool, said(fault, tool))
    assert errors == (1 if tool == "racecheck" else times) and finding.count == times
    assert finding.message == message and detail in finding.detail
    assert finding.kernel.startswith(f"{fault}(") and finding.file == "faults.cu"
    assert at in SOURCE[finding.line - 1]


def test_both_barriers_that_part_a_block_are_told() -> None:
    found, errors = parse("synccheck", said("divergent", "synccheck"))
    assert [(f.message, f.count) for f in found] == [
        ("Barrier error detected. Divergent thread(s) in block", 56),
        ("Barrier error detected. Divergent thread(s) in warp", 16),
    ]
    assert errors == 56 + 16
    assert ["__syncthreads" in SOURCE[f.line - 1] for f in found] == [True, True]


@pytest.mark.parametrize("tool", TOOLS)
def test_a_sound_kernel_has_nothing(tool: str) -> None:
    assert parse(tool, said("fine", tool)) == ([], 0)


@pytest.mark.parametrize("file", sorted(DATA.glob("*.txt")), ids=lambda f: f.stem)
def test_without_its_last_line_there_is_no_summary(file: Path) -> None:
    _, _, tool = file.stem.rpartition("-")
    cut = "\n".join(file.read_text(encoding="utf-8").splitlines()[:-1])
    assert parse(tool, cut)[1] is None
