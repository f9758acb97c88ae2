"""Saved panes: pictures that readers of their formats accept, and data as exact as they are known."""

from __future__ import annotations

import csv
import io
import struct
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpdeck.core.errors import WarpdeckError
from warpdeck.sessions.drawing import PIXELS, Drawing
from warpdeck.tui.braille import Series, Shape
from warpdeck.tui.charts import Cell, Chart, Grid, Saved, Sheet
from warpdeck.tui.export import save

HOSTILE = "</text><script>x</script> & \"'"


def pixels(png: bytes) -> np.ndarray:
    """A PNG of this writer's kind, decoded from its chunks: (height, width, 3)."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + data)
        chunks[kind], at = data, at + 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, 1 + 3 * width)
    return rows[:, 1:].reshape(height, width, 3)


def rows(saved: Saved) -> list[list[str]]:
    return list(csv.reader(io.StringIO(saved.csv())))


def curve(shape: Shape, y: list[float], label: str = "curve") -> Series:
    x = np.arange(len(y))
    high = np.asarray(y) + 1.0 if shape is Shape.BAND else None
    return Series.of(x, y, shape, label, "best", high)


finite = st.floats(-1e6, 1e6, allow_nan=False)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(finite, min_size=1, max_size=40),
    st.sampled_from(list(Shape)),
    st.booleans(),
    st.one_of(st.none(), st.tuples(st.floats(0, 10), st.floats(11, 50))),
)
def test_any_curve_can_be_saved(
    y: list[float], shape: Shape, log: bool, window: tuple[float, float] | None
) -> None:
    series = [curve(shape, y, HOSTILE), curve(Shape.DOTS, [0.5, 2.0])]
    chart = Chart(HOSTILE, "step", "×", series, window, log)
    drawing = chart.drawing()
    ElementTree.fromstring(drawing.svg())
    image = pixels(drawing.png())
    assert image.shape == (PIXELS * drawing.height, PIXELS * drawing.width, 3)
    assert image.min() < 255
    heading, *lines = rows(chart)
    assert heading == ["curve", "step", "value", "upper"]
    assert len(lines) == len(y) + 2
    if shape is not Shape.RUG:
        assert [float(line[2]) for line in lines[: len(y)]] == y  # every digit


def test_a_long_run_is_drawn_small_and_saved_whole() -> None:
    rng = np.random.default_rng(0)
    y = rng.gamma(4, 0.3, 100_000)
    x = np.arange(len(y))
    series = [
        Series.of(x, y, Shape.DOTS, "step", "each"),
        Series.of(x, np.maximum.accumulate(y), Shape.STAIRS, "best", "best"),
    ]
    chart = Chart("Speedup", "step", "×", series)
    assert len(chart.drawing().svg()) < 3e6
    assert len(chart.csv().splitlines()) == 200_001


def test_a_line_is_where_its_points_are() -> None:
    drawing = Drawing(100, 60, "line")
    drawing.line([(10, 20), (90, 20)], "#ff0000", width=2, dash=(20, 20))
    drawing.specks([(50, 40)], 4, "#0000ff")
    image = pixels(drawing.png())
    assert image[20 * PIXELS, 15 * PIXELS].tolist() == [255, 0, 0]
    assert image[20 * PIXELS, 40 * PIXELS].tolist() == [255, 255, 255]  # a gap
    assert image[40 * PIXELS, 50 * PIXELS].tolist() == [0, 0, 255]
    assert image[50 * PIXELS, 50 * PIXELS].tolist() == [255, 255, 255]


def test_a_table_is_saved_as_it_reads_and_as_it_is() -> None:
    values = [{"rank": "1", "time_ms": 1 / 3}, {"rank": "2", "time_ms": None, "message": HOSTILE}]
    sheet = Sheet(HOSTILE, ("#", "time"), [("1", "333.3 µs"), ("2", "–")], (False, True), values)
    ElementTree.fromstring(sheet.drawing().svg())
    assert "333.3 µs" in sheet.drawing().svg()
    assert rows(sheet) == [
        ["rank", "time_ms", "message"],
        ["1", repr(1 / 3), ""],
        ["2", "", HOSTILE],
    ]


def test_a_heatmap_has_its_numbers_and_its_colours() -> None:
    cells = [Cell("64", "1.05×", "#0e4a82", "#ffffff"), Cell("▲128", "0.9×", "#8c420f", "#ffffff")]
    drawing = Grid(
        "Effects", "note", [("block_size", cells)], [{"knob": "block_size", "value": 64}]
    ).drawing()
    ElementTree.fromstring(drawing.svg())
    shades = {tuple(c) for c in pixels(drawing.png()).reshape(-1, 3).tolist()}
    assert {(0x0E, 0x4A, 0x82), (0x8C, 0x42, 0x0F)} <= shades


def test_nothing_is_overwritten_and_the_next_folder_is_tried(tmp_path: Path) -> None:
    sheet = Sheet("t", ("a",), [("1",)])
    first = save(sheet, [tmp_path / "made"], "my pane/../x", "softmax on a GPU")
    assert [file.name for file in first] == [f"my-pane-..-x-1{kind}" for kind in (".svg", ".png", ".csv")]
    assert "softmax on a GPU" in first[0].read_text()
    second = save(sheet, [tmp_path / "made"], "my pane/../x")
    assert second[0].name == "my-pane-..-x-2.svg"
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert save(sheet, [blocked, tmp_path], "y")[0] == tmp_path / "y-1.svg"
    with pytest.raises(WarpdeckError, match="start the console in a folder that can be written to") as caught:
        save(sheet, [blocked], "y")
    assert "\n" not in str(caught.value)
