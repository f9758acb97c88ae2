"""The Run screen's panes: zoom and values of plots, sorting and filters, effects, histories, saving."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from warpdeck.tui.widgets.leaderboard import Leaderboard
from warpdeck.tui.widgets.log import LogPane
from warpdeck.tui.widgets.plot import Plot

SIZES = [(80, 24), (120, 40)]


@pytest.fixture(autouse=True)
def dark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")


async def settled(console: Any) -> None:
    for _ in range(5):  # plots and tables are drawn less often than polled
        await console.poll()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("run", ""),
        ("run-plot", "3z+ff.,"),
        ("run-gauges", "1z"),
        ("run-effects", "6v"),
        ("run-board", "4ooooo"),
    ],
)
async def test_snapshots(kit: Any, name: str, keys: str, size: tuple[int, int], snapshot_text: Any) -> None:
    source = kit.source(kit.events(120, kit.live, planned=200))
    async with kit.open(source, size) as console:
        await settled(console)
        await console.press(*(NAMES.get(key, key) for key in keys))
        await settled(console)
        assert len(console.lines) == size[1]
        snapshot_text(f"{name}-{size[0]}x{size[1]}", "\n".join(console.lines[:-1]))  # the footer comes later


NAMES = {"+": "plus", "-": "minus", ".": "full_stop", ",": "comma", "/": "slash", "=": "equals_sign"}
NAMES |= {" ": "space", ">": "greater_than_sign", "!": "exclamation_mark"}


async def type_in(console: Any, text: str) -> None:
    for character in text:
        await console.tap(NAMES.get(character, character))
    await console.settle()


async def test_a_plot_zooms_pans_and_follows(kit: Any) -> None:
    source = kit.source(kit.events(100))
    source.arrived = next(i for i, e in enumerate(source.events) if e.data.get("step") == 81)
    async with kit.open(source) as console:
        await settled(console)
        plot = console.screen.query_one("#speedup", Plot)
        await console.press("3", "plus")
        assert plot.window == (20.75, 60.25)
        assert "steps 21 to 60" in console.text
        await console.press("l")
        assert plot.window == (30.625, 70.125)
        await console.press("G")
        assert plot.window == (40.5, 80.0)
        assert "newest 40 steps" in console.text
        source.arrived = len(source.events)
        await settled(console)
        assert plot.window == (60.5, 100.0)
        await console.press("h")
        assert "newest" not in console.text
        await console.press("minus", "minus")
        assert plot.window is None
        await console.press("plus", "g", "a")
        assert plot.window is None


async def test_arrows_pan_a_plot_of_a_live_run(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(80))) as console:
        await settled(console)
        await console.press("3", "plus", "right")
        plot = console.screen.query_one("#speedup", Plot)
        assert plot.window == (30.625, 70.125)
        await console.press("left")
        assert plot.window == (20.75, 60.25)


async def test_scales(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(60))) as console:
        await settled(console)
        plot = console.screen.query_one("#speedup", Plot)
        await console.press("3", "w")
        assert plot.logarithmic and "Speedup over the baseline · log" in console.text
        await console.press("w")
        assert not plot.logarithmic
        await console.press("2", "w")
        assert not console.screen.query_one("#reward", Plot).logarithmic
        assert "a logarithmic scale needs values above 0" in console.text


async def test_far_lines_are_named_and_fitted_in_when_asked(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(60, kit.live))) as console:
        await settled(console)
        assert "floor 2.50× ↑" in console.text
        assert re.search(r"vendor 1\.11× +│", console.text)
        await console.press("3", "f")
        assert "floor 2.50× ↑" not in console.text and "floor 2.50×" in console.text
        assert console.screen.query_one("#speedup", Plot).exported().fit
        assert re.search(r"2(\.0)?×┤", console.text), console.text


async def test_values_are_read_with_keys_and_the_mouse(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(60))) as console:
        await settled(console)
        steps = console.screen.state.steps
        await console.press("3", "z", "full_stop")
        assert f"step 60: best {steps.best[-1]:.4g}×" in console.text
        await console.press("comma")
        assert f"step 59: best {steps.best[-2]:.4g}×, step {steps.speedup[-2]:.4g}×" in console.text
        for _ in range(5):
            await console.press("comma")
        assert "step 54" in console.text and "failed" in console.text
        plot = console.screen.query_one("#speedup", Plot)
        await console.pilot.click(plot, offset=(plot.size.width // 2, 4))
        await console.settle()
        assert re.search(r"step (2|3)\d: best", console.text)
        await console.press("a")
        assert "Speedup over the baseline ──" in console.text


async def test_the_wheel_zooms(kit: Any) -> None:
    from textual.events import MouseScrollDown, MouseScrollUp

    async with kit.open(kit.source(kit.events(60))) as console:
        await settled(console)
        plot = console.screen.query_one("#speedup", Plot)
        for kind, spans in ((MouseScrollUp, (20, 40)), (MouseScrollDown, (59, 61))):
            x, y = plot.region.x + plot.region.width // 2, plot.region.y + 3
            console.screen._forward_event(
                kind(plot, x, y, 0, 0, 0, False, False, False, screen_x=x, screen_y=y)
            )
            await console.settle()
            low, high = plot.window or (0.0, 60.0)
            assert spans[0] <= high - low <= spans[1]


async def test_the_board_sorts_with_keys_and_a_click_on_a_heading(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(60))) as console:
        await settled(console)
        board = console.screen.query_one(Leaderboard)
        best = board.rows[0].key
        await console.press("4", "O", "O", "O")
        assert board.sorted_by == "regs"
        assert "by regs" in console.text and "reg▲" in console.text
        registers = [int(row.cells[7]) for row in board.rows]
        assert registers == sorted(registers)
        await console.press("i")
        assert [int(row.cells[7]) for row in board.rows] == sorted(registers, reverse=True)
        assert "by regs, inverted" in console.text
        heading = next(line for line in console.lines if "95% interval" in line)
        y = console.lines.index(heading) - board.region.y
        await console.pilot.click(board, offset=(heading.index("#") - board.region.x, y))
        await console.settle()
        assert board.sorted_by == "#" and board.rows[0].key == best
        await console.pilot.click(board, offset=(heading.index("speedup") - board.region.x, y))
        await console.settle()
        assert board.sorted_by == "speedup"


async def test_the_board_filters_and_finds_what_failed(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(60))) as console:
        await settled(console)
        board = console.screen.query_one(Leaderboard)
        every = len(board.rows)
        await console.press("4", "slash")
        await type_in(console, "items=8 reg_cap=0")
        assert 0 < len(board.rows) < every
        assert {row.cells[1].split()[1] for row in board.rows} == {"8"}
        await console.press("enter")
        assert console.app.focused is board
        assert "/items=8 reg_cap=0" in console.text
        await console.press("escape")
        assert len(board.rows) == every
        await console.press("slash")
        await type_in(console, "incorrect")
        assert board.rows and {row.cells[0] for row in board.rows} == {"I"}
        assert "incorrect: case odd: element 3 is 1.0, expected 2.0" in console.text
        await console.press("escape")
        assert len(board.rows) == every and board.filter == ""


async def test_the_log_filters(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(60))) as console:
        await settled(console)
        await console.press("5", "slash")
        await type_in(console, "warning !54")
        log = console.screen.query_one(LogPane)
        assert "Log · /warning !54: 5 of" in console.text
        assert all(line.level == "warning" for line in log._lines)
        await console.press("escape")
        assert log.filter == "" and len(log._lines) > 6


async def test_effects_follow_the_run_and_change_their_measure(kit: Any) -> None:
    source = kit.source(kit.events(60))
    source.arrived = 3
    async with kit.open(source) as console:
        await settled(console)
        assert "no configurations yet" in console.text
        source.arrived = len(source.events)
        await settled(console)
        assert "Knob effects · effect" in console.text
        assert re.search(r"items +\d+%", console.text)
        assert "▲8" in console.text  # the synthetic kernel is faster with more items
        await console.press("6", "v")
        assert "Knob effects · median" in console.text and "µs" in console.text
        await console.press("v", "v")
        assert "Knob effects · effect" in console.text


async def test_gauges_have_a_history_and_say_what_held_the_clock(kit: Any) -> None:
    source = kit.source(kit.events(60, kit.live))
    for i, event in enumerate(source.events):
        if event.kind == "sample":
            util = 100 if event.data["t"] - kit.start > 30 else 0
            source.events[i] = event._replace(data={**event.data, "gpu_util": util})
    async with kit.open(source) as console:
        await settled(console)
        assert "⣀⣀⣀⣿⣿⣿ 100%" in console.text
        assert "none · 50% software" in console.text
        assert "last 0:59" in console.text
        await console.press("1", "z")
        assert "0 to 100%, mean 50%" in console.text
        assert re.search("throttle +50% software power cap", console.text)
        assert re.search(r"!·!·!", console.text)


async def test_the_machines_other_gpus_have_gauges_too(kit: Any, tmp_path: Path) -> None:
    source = kit.source(kit.events(30, kit.live))
    source.folder = tmp_path
    other = {"index": 3, "name": "NVIDIA H200", "gpu_util": 50, "temp_c": 61, "power_w": 300.0}
    for i, event in enumerate(source.events):
        if event.kind == "sample" and event.data["t"] % 5 == 0:
            readings = [{**other, "throttle": ["thermal slowdown"]}]
            source.events[i] = event._replace(data={**event.data, "others": readings})
    async with kit.open(source) as console:
        await settled(console)
        assert re.search(r"GPU 3 +\S+ ! 50%, 300 W", console.text)
        await console.press("1", "z")
        assert "50%, 300 W, 61 °C, thermal slowdown" in console.text
        await console.press("e")
        with (tmp_path / "artifacts" / "gauges-1.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert {row["gpu3_temp_c"] for row in rows} == {"", "61"}
        assert "gpu3_util" in (tmp_path / "artifacts" / "gauges-1.svg").read_text()


async def test_a_pause_is_a_gap_in_the_history(kit: Any) -> None:
    source = kit.source(kit.events(40, kit.live))
    moved = [
        e._replace(data={**e.data, "t": e.data["t"] + 60 * (e.data["t"] - kit.start > 20)})
        if e.kind == "sample"
        else e
        for e in source.events
    ]
    source.events = moved
    async with kit.open(source) as console:
        await settled(console)
        assert re.search("GPU util +\u2800*⣿+\u2800+⣿+ 87%", console.text), console.text


@pytest.mark.parametrize("pane", ["1", "2", "3", "4", "5", "6"])
async def test_every_pane_is_saved_in_the_sessions_artifacts(kit: Any, tmp_path: Path, pane: str) -> None:
    source = kit.source(kit.events(60, kit.live))
    source.folder = tmp_path
    async with kit.open(source) as console:
        await settled(console)
        await console.press(pane, "e")
        name = console.screen.panes[int(pane) - 1]
        saved = sorted(file.name for file in (tmp_path / "artifacts").iterdir())
        assert saved == [f"{name}-1.csv", f"{name}-1.png", f"{name}-1.svg"]
        assert "saved" in console.text and f"{name}-1.svg" in console.text.replace("\n", "")
        assert "NVIDIA H200 (cuda:0)" in (tmp_path / "artifacts" / f"{name}-1.svg").read_text()


async def test_a_saved_plot_has_the_steps_exactly(kit: Any, tmp_path: Path) -> None:
    source = kit.source(kit.events(60))
    source.folder = tmp_path
    async with kit.open(source) as console:
        await settled(console)
        await console.press("3", "plus", "e")  # the picture is of a part, the data are not
        with (tmp_path / "artifacts" / "speedup-1.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["curve"] == "step"]
        logged = [e.data for e in source.events if e.kind == "step" and e.data["speedup"] is not None]
        assert [(float(row["step"]), float(row["value"])) for row in rows] == [
            (float(data["step"]), data["speedup"]) for data in logged
        ]


async def test_a_read_only_console_saves_nothing(kit: Any, tmp_path: Path) -> None:
    source = kit.source(kit.events(10))
    source.folder = tmp_path
    async with kit.open(source) as console:
        console.app.settings = replace(console.app.settings, readonly=True)
        await console.press("3", "e")
        assert not (tmp_path / "artifacts").exists()
        assert "read only" in console.text


async def test_nothing_to_save_is_said(kit: Any) -> None:
    source = kit.source(kit.events(5))
    source.arrived = 0
    async with kit.open(source) as console:
        await console.press("4", "e")
        assert "there is nothing to save yet" in console.text


async def test_another_theme_repaints_what_is_shown(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(60, kit.live))) as console:
        await settled(console)
        console.app.theme = "light"
        await console.settle()
        await console.settle()
        background = console.app.screen.background_colors[1].rgb
        for pane in ("#gauges", "#effects", "#speedup"):
            region = console.screen.query_one(pane).content_region
            strip = console.app.screen._compositor.render_strips()[region.y].crop(region.x, region.x + 4)
            for segment in strip:
                assert segment.style is not None and segment.style.bgcolor is not None
                assert tuple(segment.style.bgcolor.triplet or ()) == background, pane
