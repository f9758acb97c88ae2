"""The Counters screen over a real report, over the seed set alone, and over nothing."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.telemetry.ncu import report, roofline
from warpdeck.telemetry.ncu.counters import Counters, HotSpot, Metric
from warpdeck.tui import counters_view as view
from warpdeck.tui.braille import Series, Shape, draw, power_labels
from warpdeck.tui.screens.counters import LEAST_LAST, MOST_NAME, CountersScreen, laid_out
from warpdeck.tui.screens.help import HelpScreen
from warpdeck.tui.widgets.table import Table

REPORT = Path(__file__).parent.parent / "data" / "ncu" / "three_full.ncu-rep"
SIZES = [(60, 16), (80, 24), (120, 40), (200, 60)]
RECORDED = {
    "name": "NVIDIA H200",
    "spec": "recorded:h200",
    "recorded": True,
    "date": "2026-11-29",
    "compute_capability": [9, 0],
}
META = {
    "workload": "softmax",
    "variant": "full",
    "case": "1024",
    "config": {"block_size": 256},
    "set": "full",
    "cache": "cold",
    "device": RECORDED,
}


@cache
def full() -> Counters:
    first = report.read(REPORT)[0]
    return dataclasses.replace(first, meta={**first.meta, **META})


def seed() -> Counters:
    values = {"achieved_occupancy": 71.2, "l2_hit_rate": 33.0, "dram_bw_pct": 80.4}
    metrics = {name: Metric(v, "%", v / 100) for name, v in values.items()}
    return Counters("softmax", metrics, {"sm_active_pct": "this chip does not have it"}, (), META)


@pytest.fixture(params=["dark", "no colour"])
def colours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "dark":
        monkeypatch.delenv("NO_COLOR")
    return request.param


@pytest.mark.parametrize("size", SIZES)
async def test_it_shows_what_was_counted(size: tuple[int, int], colours: str, kit: Any) -> None:
    async with kit.show(CountersScreen(full()), size) as console:
        text = console.text
        assert len(console.lines) == size[1]
        assert "recorded on NVIDIA H200, 2026-11-29" in console.lines[0]
        assert "57.57 µs under the profiler" in console.lines[1]
        assert "memory bound: DRAM at 66% and L2 at 79% of peak" in text
        assert "kernels.cu:6" in text and "91.4%" in text
        assert "Speed of light" in text and "35%" in text
        if size[0] >= 100:
            assert "l2_hit_rate 33.78" in text  # the evidence
            assert "66% of the memory roof" in text and "◆" in text and "flop/byte" in text
            assert "long scoreboard" in text and "86%" in text
            assert "limited by warps: 8 blocks an SM" in text
            assert "if (i < n) y[i] = 2.f * x[i] + y[i];" in text
        assert ("quantity" in text) == (size[0] >= 160)


@pytest.mark.parametrize("size", SIZES)
async def test_what_was_not_collected_is_said_never_zero(size: tuple[int, int], kit: Any) -> None:
    async with kit.show(CountersScreen(seed()), size) as console:
        assert "memory bound: DRAM at 80%" in console.text
        if size[1] >= 24:
            assert "not collected" in console.text
            assert "Achieved occupancy" in console.text and "71.2%" in console.text
        assert " 0%" not in console.text
        await console.press("6", "G")
        assert "missing: this chip does not have it" in console.text or size[0] < 80


async def test_no_counters_at_all(kit: Any) -> None:
    async with kit.show(CountersScreen(Counters("k", {})), (80, 24)) as console:
        await console.press("1", "2", "3", "4", "5", "6", "a", "p", "t", "z", "z", "y", "j", "G")
        assert "0 counters" in console.lines[1]


async def test_below_the_least_size_it_says_so(kit: Any) -> None:
    async with kit.show(CountersScreen(seed()), (59, 24)) as console:
        assert "needs 60×16" in console.text


async def test_digits_bring_panes_and_p_and_t_turn_them(kit: Any) -> None:
    async with kit.show(CountersScreen(full()), (80, 24)) as console:
        names = ("diagnosis", "speed", "roofline", "stalls", "lines", "metrics", "flow")
        for number, name in enumerate(names, start=1):
            await console.press(str(number))
            focused = console.app.screen.focused
            assert focused is not None and focused.id == name and focused.display
        await console.press("2", "p")
        assert "◆" in console.text
        await console.press("p")
        assert "SM" in console.text and "busy" in console.text
        await console.press("p", "p")
        assert "Compute" in console.text
        await console.press("t")
        assert "Hot lines" in console.text
        await console.press("t")
        assert "quantity" in console.text


async def test_instructions_and_all_counters(kit: Any) -> None:
    async with kit.show(CountersScreen(full())) as console:
        await console.press("i")
        assert "Hot instructions" in console.text and "FFMA R7, R2, 2, R7" in console.text
        await console.press("i", "5", "g")
        assert "Hot PTX" in console.text and "ld.global" in console.text
        assert "kernels.cu:6: long scoreboard" in console.text
        await console.press("i")
        assert "Hot lines" in console.text
        await console.press("6")
        table = console.app.screen.query_one("#metrics", Table)
        ours = len(table.rows)
        await console.press("a", "G")
        assert len(table.rows) > ours + 1000
        await console.press("a")
        assert len(table.rows) == ours


async def test_the_marked_row_is_explained(kit: Any) -> None:
    async with kit.show(CountersScreen(full())) as console:
        await console.press("5", "j", "k")
        assert "kernels.cu:6: long scoreboard 93%" in console.text
        await console.press("6", "j")
        assert "Warps that were active on an SM" in console.text


async def test_zoom_copy_help_and_quit(kit: Any) -> None:
    async with kit.show(CountersScreen(full()), (80, 24)) as console:
        await console.press("1", "z")
        assert "l2_hit_rate 33.78" in console.text and "Hot lines" not in console.text
        await console.press("z", "y")
        assert console.app.clipboard.startswith("memory bound")
        for number, words in ((1, "What the counters say"), (4, "The sampler looks"), (6, "Every quantity")):
            await console.press(str(number), "question_mark")
            assert isinstance(console.app.screen, HelpScreen) and words in console.dialog
            await console.press("escape")
        titles = [c.title for c in console.app.get_system_commands(console.screen)]
        assert "Copy the diagnosis" in titles
        await console.press("q")
        assert not console.app.is_running or console.app._exit


async def test_resizing(kit: Any) -> None:
    async with kit.show(CountersScreen(full())) as console:
        for width, height in ((60, 16), (200, 60), (80, 24), (40, 8), (120, 40)):
            await console.pilot.resize_terminal(width, height)
            await console.settle()
            assert len(console.lines) == height
        assert "66% of the memory roof" in console.text and "if (i < n)" in console.text


async def test_hostile_source_lines_cannot_drive_the_terminal(kit: Any) -> None:
    spot = HotSpot("a.cu", 3, "LDG\x1b[2J", 16, 9, {"wait": 9}, 1, "x = \x1b[31m[red]1[/red]\x07;")
    async with kit.show(CountersScreen(dataclasses.replace(seed(), hotspots=(spot,)))) as console:
        assert "[red]1[/red]" in console.text and "\x1b" not in console.text and "\x07" not in console.text


async def test_every_binding_can_be_remapped(kit: Any) -> None:
    async with kit.show(CountersScreen(seed())) as console:
        assert all(b.id for b in type(console.screen).__dict__["BINDINGS"])


def test_the_limiter() -> None:
    def limits(**values: float) -> Counters:
        return Counters("k", {f"limit_{n}": Metric(v, "block") for n, v in values.items()})

    assert view.limiter_words(limits(registers=2, shared=4)) == (
        "limited by registers: 2 blocks an SM; by shared memory 4"
    )
    assert view.limiter_words(limits(warps=1, blocks=1)) == "limited by warps and block slots: 1 block an SM"
    assert view.limiter_words(Counters("k", {})) == ""


def test_values_in_words() -> None:
    assert view.value_words(Metric(57568.0, "ns")) == "57.57 µs"
    assert view.value_words(Metric(66.13, "%")) == "66.1%"
    assert view.value_words(Metric(3.179e12, "byte/s")) == "3.18 TB/s"
    assert view.value_words(Metric(16.0, "register/thread")) == "16 register/thread"
    assert view.rate(None).strip() == "–"


def test_the_roofline_point_lies_under_the_roof() -> None:
    point = roofline.point(full())
    roof, gap, this = view.roofline_series(point)
    assert this.shape is Shape.POINT
    at = float(np.interp(this.x[0], roof.x, roof.y))
    assert this.y[0] < at and gap.y.max() == pytest.approx(at)
    assert view.roofline_series(None) == []
    assert view.roofline_words(None, 80) == view.NO_ROOFLINE


def test_points_and_powers_are_drawn() -> None:
    frame = draw([Series.of([0.0, 2.0], [9.0, 12.0], Shape.POINT, "p", "best")], 40, 12, powers=True)
    assert frame is not None
    text = "\n".join(frame.text)
    assert text.count("◆") == 2 and "1T" in text and "10G" in text and "100" in text
    assert (frame.owner == 0).sum() == 2


@given(st.lists(st.integers(-12, 20), max_size=6))
def test_power_labels_tell_their_power(exponents: list[int]) -> None:
    scale = {"k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
    for exponent, label in zip(exponents, power_labels([float(e) for e in exponents]), strict=True):
        digits, power = (label[:-1], scale[label[-1]]) if label[-1] in scale else (label, 0)
        assert float(digits) * 10.0**power == pytest.approx(10.0**exponent)


@given(st.integers(0, 200), st.lists(st.tuples(st.text(max_size=60), st.text(max_size=60)), max_size=4))
def test_the_last_column_takes_what_is_left(room: int, rows: list[tuple[str, str]]) -> None:
    first, last = laid_out(("a", "b"), (False, False), rows, room)
    assert first.width <= max(MOST_NAME, room // 3) and last.width >= LEAST_LAST
    assert last.width == LEAST_LAST or 2 + first.width + 2 + last.width == room
