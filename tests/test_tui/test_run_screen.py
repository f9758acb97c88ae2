"""The Run screen on synthetic runs: what it says at each size, and what every key does."""

from __future__ import annotations

import re
from typing import Any

import pytest

from warpdeck.tui.screens.confirm import ConfirmScreen
from warpdeck.tui.screens.help import HelpScreen
from warpdeck.tui.widgets.leaderboard import Leaderboard
from warpdeck.tui.widgets.plot import Plot

SIZES = [(80, 24), (120, 40)]


@pytest.fixture(params=["dark", "no colour"])
def colours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "dark":
        monkeypatch.delenv("NO_COLOR")
    return request.param


@pytest.mark.parametrize("size", SIZES)
async def test_it_shows_the_run(
    size: tuple[int, int],
    colours: str,
    kit: Any,
) -> None:
    source = kit.source(kit.events(60, kit.live, planned=100))
    async with kit.open(source, size) as console:
        text = console.text
        assert len(console.lines) == size[1]
        assert "softmax · size 1024 · random · NVIDIA H200 (cuda:0)" in console.lines[0]
        assert "▶ running" in console.lines[1]
        assert "step 60/100" in console.lines[1]
        assert "elapsed 1:00 · ETA 0:40" in console.lines[1]
        assert re.search(
            r"best 1\.\d{3}× \[1\.\d{3}, 1\.\d{3}\] · 1\d\.\d\d µs cold · 1\.1\d× vs PyTorch · floor 5\d%",
            console.lines[2],
        )
        assert "412 of 700 W, 59%" in text
        assert "1755 MHz, 89% of max" in text
        assert "27.9 of 139.7 GiB" in text
        assert "54 °C" in text
        assert re.search(r"=1 +\d.* \[1\.\d{3}, 1\.\d{3}\]", text)
        assert re.search(r"Leaderboard, best \d+ of 60 · \d tied for the best", text)
        assert "─ best  • step" in text
        assert "warning: step 54: incorrect" in text
        assert "space" in console.lines[-1] and "Quit" in console.lines[-1]


@pytest.mark.parametrize("size", SIZES)
async def test_a_recording_says_so_wherever_numbers_are(
    size: tuple[int, int], colours: str, kit: Any
) -> None:
    async with kit.open(kit.source(kit.events(20)), size) as console:
        assert "recorded on NVIDIA H200, 2026-11-20" in console.lines[0]
        assert "No GPU here" in console.text
        assert "stored with the recording" in console.text
        assert "4813 GB/s" in console.text


async def test_gauges_say_what_holds_the_clock_and_when_they_are_old(kit: Any) -> None:
    source = kit.source(kit.events(59, kit.live))
    async with kit.open(source) as console:
        assert "! software power cap" in console.text
        assert "stale" not in console.text
        source.clock += 12
        await console.poll()
        assert "stale: sampled 0:12 ago" in console.text
        last = source.events[-1]
        sample = {"t": last.t + 12, "gpu_util": 3, "throttle": ["idle"]}
        source.events.append(last._replace(seq=last.seq + 1, t=last.t + 12, kind="sample", data=sample))
        source.arrived += 1
        await console.poll()
        assert "none, idle" in console.text
        assert "power     not reported by this GPU" in console.text
        assert "stale" not in console.text


async def test_the_device_survives_any_width(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(5)), (60, 16)) as console:
        assert "recorded on NVIDIA H200, 2026-11-20" in console.lines[0]
        assert "Speedup" in console.text and "Leaderboard" in console.text


async def test_vendor_and_floor_ratios_on_a_wide_terminal(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(30)), (120, 40)) as console:
        heading = next(line for line in console.lines if "95% interval" in line)
        assert all(name in heading for name in ("vendor", "floor", "regs", "occ."))
        assert re.search(r"1\.1\d× +5\d% +48 +75% +tied", console.text)


async def test_no_room(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(5)), (50, 12)) as console:
        assert [line.strip() for line in console.lines if line.strip()] == [
            "warpdeck needs 60×16, this terminal is 50×12"
        ]
        await console.pilot.resize_terminal(80, 24)
        await console.pilot.pause()
        assert "softmax" in console.lines[0]


async def test_no_colour_means_no_colour(monkeypatch: pytest.MonkeyPatch, kit: Any) -> None:
    def colours(console: Any) -> set[tuple[int, int, int]]:
        found = set()
        for strip in console.app.screen._compositor.render_strips():
            for segment in strip.apply_filter(
                console.app._filters[-1], console.app.screen.background_colors[1]
            ):
                for colour in (segment.style.color, segment.style.bgcolor) if segment.style else ():
                    if colour is not None and colour.triplet is not None:
                        found.add(tuple(colour.triplet))
        return found

    async with kit.open(kit.source(kit.events(5))) as console:
        assert console.app.no_color
        shades = colours(console)
        assert all(max(c) - min(c) <= 1 for c in shades)  # greys only
        assert max(max(c) for c in shades) - min(min(c) for c in shades) > 150  # and readable


async def test_before_the_start_it_waits_in_words(kit: Any) -> None:
    source = kit.source(kit.events(5))
    source.arrived = 0
    async with kit.open(source) as console:
        assert "waiting for the run to start" in console.lines[0]
        assert "no steps yet" in console.text
        source.arrived = 3
        await console.poll()
        assert "softmax" in console.lines[0]


async def test_new_events_appear_and_the_marked_row_stays_marked(kit: Any) -> None:
    source = kit.source(kit.events(60))
    source.arrived = 60
    async with kit.open(source) as console:
        table = console.app.screen.query_one(Leaderboard)
        await console.press("j", "j")
        marked = table.marked
        assert marked is not None
        rows = len(table.rows)
        source.arrived = len(source.events)
        for _ in range(5):
            await console.poll()
        assert len(table.rows) > rows
        assert table.marked is not None and table.marked.key == marked.key
        assert "step 60/60" in console.lines[1]


async def test_time_goes_on_between_events_but_not_while_paused(kit: Any) -> None:
    events = kit.events(10)
    source = kit.source(events)
    async with kit.open(source) as console:
        source.clock += 65
        await console.poll()
        assert "elapsed 1:15" in console.lines[1]
        last = events[-1]
        source.events.append(last._replace(seq=last.seq + 1, kind="state", data={"state": "paused"}))
        source.arrived += 1
        await console.poll()
        assert "‖ paused" in console.lines[1]
        assert "elapsed 0:10" in console.lines[1]


async def test_the_end_is_announced_with_its_reason(kit: Any) -> None:
    source = kit.source(kit.events(10, end=True))
    source.arrived -= 1
    async with kit.open(source) as console:
        source.arrived += 1
        await console.poll()
        assert "✔ finished" in console.lines[1]
        assert "step budget reached" in console.lines[1]
        assert "ETA" not in console.lines[1]
        assert "The run has ended" in console.text


async def test_the_result_leads_with_its_paired_interval(kit: Any) -> None:
    events = kit.events(30)
    source = kit.source(events)
    async with kit.open(source) as console:
        second = console.screen.state.leaderboard[1]
        finalist = {"candidate": second.candidate, "speedup": 1.31, "speedup_ci": [1.301, 1.319]}
        result = {"best": {}, "finalists": [finalist], "tied": [second.config]}
        source.events.append(events[-1]._replace(seq=len(events) + 1, kind="result", data=result))
        source.arrived = len(source.events)
        for _ in range(5):
            await console.poll()
        first = next(line for line in console.lines if re.search(r"▸ 1 ", line))
        assert "1.310×" in first and "[1.301, 1.319]" in first and "paired" in first
        assert "best 1.310× [1.301, 1.319]" in console.lines[2]


async def test_trouble_with_the_log_is_said_and_survived(kit: Any) -> None:
    source = kit.source(kit.events(10))
    async with kit.open(source) as console:
        source.trouble = "session x: its database was locked by another process"
        await console.poll()
        assert "was locked by another process; trying again" in console.lines[1]
        await console.press("space")
        assert "could not pause" in console.text
        source.trouble = None
        await console.poll()
        assert "▶ running" in console.lines[1]


async def test_pause_and_resume(kit: Any) -> None:
    events = kit.events(10)
    source = kit.source(events)
    async with kit.open(source) as console:
        await console.press("space")
        assert source.commands == ["pause"]
        source.events.append(events[-1]._replace(seq=len(events) + 1, kind="state", data={"state": "paused"}))
        source.arrived = len(source.events)
        await console.poll()
        await console.press("space")
        assert source.commands == ["pause", "resume"]


async def test_stop_asks_first_and_says_what_it_took(kit: Any) -> None:
    source = kit.source(kit.events(10))
    async with kit.open(source) as console:
        await console.press("x")
        assert isinstance(console.app.screen, ConfirmScreen)
        assert "Stop the run?" in console.text
        await console.press("n")
        assert source.stops == 0
        await console.press("x", "y")
        assert source.stops == 1
        assert "it did not stop within 10 s; sending SIGTERM" in console.text
        assert "the run has ended: terminated" in console.text


async def test_quit_says_that_the_run_goes_on(kit: Any) -> None:
    source = kit.source(kit.events(10))
    async with kit.open(source) as console:
        await console.press("q")
        assert "The run goes on without it." in console.text
        assert f"warpdeck attach {source.session}" in console.dialog
        await console.press("escape")
        assert console.app.screen is console.screen
        await console.press("q", "q")
        assert not console.app.is_running or console.app._exit
    assert source.commands == []
    assert source.closed
    assert console.app.return_value == 0


@pytest.mark.parametrize("keys", [("ctrl+c", "ctrl+c"), ("ctrl+q", "y")])
async def test_ctrl_c_asks_and_then_quits(keys: tuple[str, ...], kit: Any) -> None:
    async with kit.open(kit.source(kit.events(10))) as console:
        await console.press(*keys)
        assert console.app._exit


async def test_quitting_an_ended_run_does_not_ask(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(10, end=True))) as console:
        await console.press("space", "x")  # neither applies to a run that has ended
        assert console.app.screen is console.screen
        assert "Stop" not in console.lines[-1]
        await console.press("q")
        assert console.app._exit


async def test_numbers_focus_panes(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(10))) as console:
        for key, pane in zip("12345", ("gauges", "reward", "speedup", "leaderboard", "log"), strict=True):
            await console.press(key)
            assert console.app.focused is not None and console.app.focused.id == pane


async def test_a_narrow_screen_swaps_plots(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(10)), (80, 24)) as console:
        assert "Speedup over" in console.text and "Reward" not in console.text
        await console.press("2")
        assert "Reward" in console.text and "Speedup over" not in console.text
        await console.press("p")
        assert "Speedup over" in console.text


async def test_the_slimmest_screen_reaches_every_pane(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(10)), (60, 16)) as console:
        for key, sign in (("1", "No GPU here"), ("2", "Reward"), ("3", "Speedup over"), ("5", "softmax on")):
            await console.press(key)
            assert sign in console.text


async def test_maximise_and_back(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(10))) as console:
        await console.press("3", "z")
        plot = console.app.screen.query_one("#speedup", Plot)
        assert plot.size.width > 100 and plot.size.height > 30
        await console.press("z")
        assert plot.size.width < 60


async def test_the_table_moves_with_hjkl_and_arrows(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(60)), (80, 24)) as console:
        table = console.app.screen.query_one(Leaderboard)
        await console.press("j", "down", "k")
        assert table.cursor == 1
        assert sum("▸" in line for line in console.lines) == 1
        await console.press("l", "right")
        assert table.scroll_x > 0
        assert "vendor" in console.text
        await console.press("h", "left")
        assert table.scroll_x == 0
        await console.press("G")
        assert table.cursor == len(table.rows) - 1
        assert "▸" in console.text
        await console.press("pageup", "g")
        assert table.cursor == 0
        assert "▸ =1" in console.text


async def test_the_mouse_marks_a_row(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(60))) as console:
        await console.pilot.click("#leaderboard", offset=(10, 4))
        assert console.app.screen.query_one(Leaderboard).cursor == 2


async def test_copy(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(60))) as console:
        best, second = console.screen.state.leaderboard[:2]
        await console.press("5", "y")
        assert console.app.clipboard == " ".join(f"--knob {k}={v}" for k, v in best.config.items())
        await console.press("4", "j", "y")
        assert console.app.clipboard == " ".join(f"--knob {k}={v}" for k, v in second.config.items())


async def test_help_explains_the_focused_pane(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(10))) as console:
        await console.press("question_mark")
        assert isinstance(console.app.screen, HelpScreen)
        assert "can't be told apart from the best" in console.dialog
        await console.press("escape", "1", "question_mark")
        assert "NVML" in console.text
        assert "Pause or resume" in console.text
        await console.press("escape")
        assert console.app.screen is console.screen


async def test_the_palette_offers_what_makes_sense_now(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(10))) as console:
        titles = [c.title for c in console.app.get_system_commands(console.screen)]
        assert "Pause or resume" in titles and "Stop the run (asks first)" in titles and "Theme" in titles
    async with kit.open(kit.source(kit.events(10, end=True))) as console:
        titles = [c.title for c in console.app.get_system_commands(console.screen)]
        assert "Stop the run (asks first)" not in titles
        await console.press("ctrl+p")
        assert console.app.screen is not console.screen


async def test_every_binding_can_be_remapped(kit: Any) -> None:
    async with kit.open(kit.source(kit.events(10))) as console:
        for widget in [console.app, console.screen, *console.screen.query("#top > *, Leaderboard, LogPane")]:
            own = type(widget).__dict__.get("BINDINGS", [])
            assert all(binding.id for binding in own), widget


async def test_a_hostile_message_cannot_drive_the_terminal(kit: Any) -> None:
    events = kit.events(3)
    events.append(
        events[-1]._replace(
            seq=len(events) + 1, kind="message", data={"level": "error", "text": "a\x1b[2Jb\r\n[red]c[/red]"}
        )
    )
    async with kit.open(kit.source(events)) as console:
        assert "error: a [2Jb  [red]c[/red]" in console.text
        assert "\x1b" not in console.text
