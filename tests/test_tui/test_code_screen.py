"""The Code screen: a source's stalls by line, and the SASS and PTX that its lines became."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.core.devices.stored_counters import load as stored
from warpdeck.core.errors import UsageError
from warpdeck.core.model import DeviceInfo
from warpdeck.core.toolchain import ToolchainError, programs
from warpdeck.core.toolchain.disassembly import find
from warpdeck.sessions.machine_code import generated_code
from warpdeck.telemetry.ncu.counters import Counters, HotSpot
from warpdeck.tui import code
from warpdeck.tui.screens.code import CodeScreen
from warpdeck.tui.screens.counters import CountersScreen
from warpdeck.tui.source_files import Sources, Version, of_counters
from warpdeck.tui.widgets.listing import Line, Listing

KERNELS = Path(code.__file__).parents[1] / "kernels"
SIZES = [(60, 16), (80, 24), (120, 40), (200, 60)]


def _compilers() -> bool:
    try:
        find()
        import cuda.bindings.nvrtc  # noqa: F401
        import numba  # noqa: F401
    except (ToolchainError, ImportError):
        return False
    return True


compiles = pytest.mark.skipif(not _compilers(), reason="needs NVRTC, Numba and nvdisasm")


@cache
def profile(variant: str, workload: str = "gemm") -> Counters:
    found = stored(KERNELS / workload / "recordings" / f"h200-{workload}-{variant}-1024.counters.json.gz")
    device = {**found.meta["device"], "spec": "recorded:h200", "recorded": True, "date": "2026-11-29"}
    return dataclasses.replace(found, meta={**found.meta, "device": device})


def screen(variant: str, workload: str = "gemm", **changes: Any) -> CodeScreen:
    sources, version = of_counters(profile(variant, workload), None)
    return CodeScreen(sources, dataclasses.replace(version, **changes))


# What is known of a version


def test_heat_is_the_profiles_own() -> None:
    counters = profile("tiled")
    heat = code.heat_of(counters)
    spot = heat[("kernel.py", 130)]
    assert (spot.samples, spot.reason) == (1096, "short scoreboard 34%")
    assert sum(s.samples for s in heat.values()) <= 7139
    assert sum(s.share for s in heat.values()) <= 1.0001


def test_a_profile_alone_gives_its_instructions() -> None:
    shown = code.of_profile(profile("tiled"))
    addresses = [int(one.label, 16) for one in shown]
    assert addresses == sorted(addresses)
    hot = max((one for one in shown if one.spot), key=lambda one: one.spot.samples if one.spot else 0)
    assert hot.place is not None and hot.place[0] == "kernel.py"


@compiles
@pytest.mark.parametrize(("variant", "file"), [("tiled", "kernel.py"), ("pipelined", "pipelined.cu")])
def test_numba_and_cuda_have_sass_and_ptx_by_line(variant: str, file: str) -> None:
    found = code.load(*of_counters(profile(variant), None))
    assert found.why_code == "" and found.why_heat == "" and "registers" in found.title
    for shown in (found.sass, found.ptx):
        places = code.by_place(shown)
        assert {name for name, _ in places} >= {file}
        hottest = max((p for p in found.heat if p[0] == file), key=lambda p: found.heat[p].samples)
        assert hottest in places  # the hottest line can be jumped from
        assert all(shown[i].place == p for p, mine in places.items() for i in mine)
    sampled = sum(one.spot.samples for one in found.sass if one.spot)
    assert sampled > 0.9 * found.sampled  # the recorded profile is of the very same machine code


def test_ptx_lines_follow_their_loc() -> None:
    text = """.version 8.0
.file 1 "/a/b/kernel.cu"
.visible .entry k()
{
\t.loc 1 7 5
\tadd.s32 \t%r1, %r2, %r3;
$L__BB0_1:
\t.loc\t1 9 1, function_name $L, inlined_at 1 3 2
\tmul.lo.s32 %r4, %r1, %r1;
}
.section .debug_str
\tadd.s32 %r9, %r9, %r9;
"""
    shown = list(code.of_ptx(text))
    assert [one.place for one in shown if "r1," in one.text] == [("kernel.cu", 7), ("kernel.cu", 9)]
    assert [one.label for one in shown if one.label] == ["$L__BB0_1"]
    assert not any("r9" in one.text for one in shown)


@given(st.text())
def test_any_text_is_some_ptx(text: str) -> None:
    for one in code.of_ptx(text):
        assert (one.text + one.label).isprintable()


def test_another_builds_samples_stay_away() -> None:
    counters = Counters("k", {}, {}, (HotSpot("k.cu", 3, "FADD R1, R2, R3", 16, 5, {"wait": 5}),))

    @dataclasses.dataclass
    class One:
        kernel: str
        address: int
        text: str
        file: str = "/x/k.cu"
        line: int = 3
        label: str = ""

    same, other = One("k", 16, "FADD R9, R2, R3"), One("k", 16, "IMAD R1, R2, R3")
    assert [i.spot is not None for i in code.of_machine([same], counters)] == [False, True]
    assert [i.spot is not None for i in code.of_machine([other], counters)] == [False, False]
    assert list(code.of_machine([same], counters))[1].place == ("k.cu", 3)


def test_what_is_missing_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, version = of_counters(profile("tiled"), None)
    lost = code.load(dataclasses.replace(sources, workload="nothing"), version)
    assert "nothing" in lost.why_code and "no heat" in lost.why_heat and not lost.sass
    unknown = code.load(dataclasses.replace(sources, device=None), version)
    assert unknown.why_heat == "no heat: the run has no device yet"
    other = dataclasses.replace(version, config={**version.config, "unroll": 4})
    found = code.load(sources, other)
    assert found.why_heat.startswith("heat of another configuration: ") and found.heat


def test_an_attempt_outside_of_its_session_is_not_compiled(tmp_path: Path) -> None:
    sources, version = of_counters(profile("tiled"), None)
    (tmp_path / "x.cu").write_text("")
    outside = dataclasses.replace(version, path="../x.cu")
    found = code.load(dataclasses.replace(sources, folder=tmp_path / "s", workload="gemm"), outside)
    assert found.why_code and not found.ptx


@pytest.mark.parametrize("launches", [[], [{}], [{"entry": "k", "grid": "x", "block": [1]}], [3]])
def test_launches_that_make_no_sense(tmp_path: Path, launches: Any) -> None:
    file = tmp_path / "k.cu"
    file.write_text('extern "C" __global__ void k() {}')
    with pytest.raises(UsageError, match=r"k\.cu: how it is launched is not known"):
        generated_code("softmax", file, launches)


# The screen


@compiles
@pytest.mark.parametrize("size", SIZES)
async def test_it_opens_at_the_hottest_line(size: tuple[int, int], kit: Any) -> None:
    async with kit.show(screen("tiled"), size) as console:
        await console.settle()
        assert len(console.lines) == size[1]
        assert "Code · gemm · as profiled · tiled" in console.lines[0]
        assert "recorded on NVIDIA H200" in console.lines[0] or size[0] < 80
        assert "7139 samples" in console.lines[1]
        assert "▸130" in console.text and "15.4%" in console.text and "┃" in console.text
        assert "1096 samples, 15.4% · short scoreboard 34%" in console.text
        left, right = console.screen.left, console.screen.right
        assert (left.region.y == right.region.y) == (size[0] >= 100)


@compiles
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_snapshots(size: tuple[int, int], kit: Any, snapshot_text: Any) -> None:
    async with kit.show(screen("cached", "softmax"), size) as console:
        await console.settle()
        snapshot_text(f"code-{size[0]}x{size[1]}", "\n".join(console.lines[:-1]))


@compiles
async def test_lines_and_instructions_lead_to_each_other(kit: Any) -> None:
    async with kit.show(screen("pipelined")) as console:
        await console.settle()
        left, right = console.screen.left, console.screen.right
        assert left.lines[left.cursor].label == "202" and right.linked
        await console.press("enter")
        assert console.screen.focused is right and right.cursor == min(right.linked)
        first = right.cursor
        await console.press("n")
        assert right.cursor > first and right.cursor in right.linked
        await console.press("N", "p")
        assert right.border_title == "PTX" and right.linked
        await console.press("p", "enter")
        assert right.border_title == "SASS"
        await console.press("tab", "g", "enter")
        assert "no instruction comes from this line" in console.text
        await console.press("x")
        assert left.lines[left.cursor].label != "202" and left.lines[left.cursor].spot is not None


@compiles
async def test_search_copy_zoom_help_and_quit(kit: Any) -> None:
    async with kit.show(screen("tiled")) as console:
        await console.settle()
        await console.press("slash")
        await console.pilot.press(*"syncthreads")
        await console.press("enter")
        left = console.screen.left
        assert "syncthreads" in left.lines[left.cursor].text
        first = left.cursor
        await console.press("n")
        assert left.cursor != first and "syncthreads" in left.lines[left.cursor].text
        await console.press("escape", "slash")
        await console.pilot.press(*"nowhere at all")
        await console.press("enter")
        assert "'nowhere at all' is not in this pane" in console.text
        await console.press("y")
        assert "syncthreads" in console.app.clipboard and "BAR" in console.app.clipboard
        await console.press("z")
        assert console.app.screen.maximized is left
        await console.press("z", "question_mark")
        assert "share of the profiler's samples" in console.dialog
        await console.press("escape", "q")
        assert console.app._exit


async def test_without_a_compiler_the_profile_has_the_instructions(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str, wheel: str) -> Path:
        raise ToolchainError(f"no {name} here: pip install {wheel}")

    monkeypatch.setattr(programs, "find", absent)
    async with kit.show(screen("tiled")) as console:
        await console.settle()
        assert "these are the profile's instructions" in console.text
        assert "▸130" in console.text and console.screen.right.lines


@compiles
async def test_the_hot_line_opens_from_the_counters(kit: Any) -> None:
    async with kit.show(CountersScreen(profile("tiled"))) as console:
        await console.press("5", "j", "s")
        for _ in range(3):
            await console.settle()
        shown = console.app.screen
        assert isinstance(shown, CodeScreen)
        assert shown.left.lines[shown.left.cursor].label == "132"  # the second hottest


def test_sources_of_a_profile() -> None:
    sources, version = of_counters(profile("tiled"), None)
    assert sources == Sources(
        (version,), None, "gemm", "1024", {}, DeviceInfo.from_json(profile("tiled").meta["device"])
    )
    assert isinstance(version, Version) and version.variant == "tiled"


# The listing


async def test_a_listing_without_heat_has_no_room_for_it(kit: Any) -> None:
    pane = Listing("x", "### x")
    pane.show([Line("1", "a"), Line("2", "b", code.Spot(0, 0.0))])
    assert pane._gutter() == 3
    pane.show([Line("1", "a", code.Spot(5, 0.5, "wait"))])
    assert pane._gutter() == 14 and pane.hottest() == [0]
    saved = pane.exported()
    assert saved is not None and saved.csv().splitlines()[1].startswith("1,5,0.5,wait,a")
