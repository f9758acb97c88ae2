"""Memory flow, the roofline of two launches, and two launches' counters beside each other."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.core.devices.stored_counters import load
from warpdeck.core.errors import UsageError
from warpdeck.telemetry.ncu import roofline
from warpdeck.telemetry.ncu.counters import Counters, Metric
from warpdeck.tui import counters_compare as compare
from warpdeck.tui import counters_view as view
from warpdeck.tui import memory_flow, others
from warpdeck.tui.others import Baseline
from warpdeck.tui.screens.counters import CountersScreen
from warpdeck.tui.screens.counters_compare import CompareCountersScreen
from warpdeck.tui.screens.pick import PickScreen

KERNELS = Path(view.__file__).parents[1] / "kernels"
SIZES = [(60, 16), (80, 24), (120, 40), (200, 60)]


@cache
def profile(variant: str, workload: str = "gemm") -> Counters:
    """A recorded profile, labelled as the recorded device labels it."""
    found = load(KERNELS / workload / "recordings" / f"h200-{workload}-{variant}-1024.counters.json.gz")
    device = {**found.meta["device"], "spec": "recorded:h200", "recorded": True, "date": "2026-11-29"}
    return dataclasses.replace(found, meta={**found.meta, "device": device})


def made(**values: float) -> Counters:
    units = {"duration_ns": "ns", "dram_bytes": "byte", "registers": "register/thread"}
    return Counters("k", {n: Metric(v, units.get(n, "%"), v / 100) for n, v in values.items()})


# Memory flow


def test_rates_follow_from_the_counters() -> None:
    found = memory_flow.flow(profile("cached", "softmax"))
    upper, middle, lower = found.links
    seconds = profile("cached", "softmax").value("duration_ns")
    assert seconds is not None
    assert upper.read == 131072 * 32 and upper.rate(upper.read) == pytest.approx(131072 * 32e9 / seconds)
    assert middle.read == 4194304 and lower.written == 0 and lower.read == 4214528
    assert [level.hit for level in found.levels] == [None, 0.0, pytest.approx(0.5269004), None]
    assert found.shared == "shared memory: 103 k passes, 0.0% of them bank conflicts"


@given(st.integers(1, 220))
def test_no_line_is_wider_than_its_room(width: int) -> None:
    for counters in (profile("pipelined"), made(), made(dram_bw_pct=12.0, l2_hit_rate=3.0)):
        assert all(len(line) <= width for line in memory_flow.drawn(memory_flow.flow(counters), width))


def test_thickness_and_the_unknown() -> None:
    wide = "\n".join(memory_flow.drawn(memory_flow.flow(profile("pipelined")), 100))
    assert "◀═══" in wide and "───▶" in wide and "┄┄┄▶" in wide  # most, little, nothing
    some = memory_flow.flow(made(duration_ns=1000.0, l1_hit_rate=40.0))
    assert memory_flow.drawn(some, 100) == [
        "traffic was not collected; the metric sets memory and full have it"
    ]
    half = dataclasses.replace(profile("pipelined"), metrics={**made(dram_read_bytes=7.0).metrics})
    text = "\n".join(memory_flow.drawn(memory_flow.flow(half), 100))
    assert "?" in text and "7 B" in text and "hit –" in text


# The roofline


def test_two_points_and_labelled_roofs() -> None:
    best, base = profile("tiled"), profile("classic")
    point, other = roofline.point(best), roofline.point(base)
    roofs = roofline.roofs(best, point)
    assert [view.roof_words(roof) for roof in roofs] == ["DRAM 4.45 TB/s measured", "L2 6.85 TB/s measured"]
    foreign = dataclasses.replace(best, meta={k: v for k, v in best.meta.items() if k != "peaks"})
    (dram, _) = roofline.roofs(foreign, roofline.point(foreign))
    assert view.roof_words(dram) == "DRAM 4.81 TB/s theoretical"
    series = view.roofline_series(point, roofs, other, ("tiled", "classic"))
    labels = [s.label for s in series]
    assert labels[-2:] == ["classic", "tiled"] and labels[:2] == [
        view.roof_words(roofs[1]),
        view.roof_words(roofs[0]),
    ]
    low = min(float(s.x[0]) for s in series[:2])
    assert other is not None and other.intensity is not None
    assert low < min(float(s.x[0]) for s in series[-2:])  # both points are within the roofs


# What changed


def test_the_largest_change_comes_first_and_says_whether_it_is_better() -> None:
    a = made(duration_ns=2000.0, dram_bw_pct=40.0, l2_hit_rate=50.0, registers=32.0)
    b = made(duration_ns=500.0, dram_bw_pct=55.0, l2_hit_rate=50.0, registers=40.0)
    found = compare.changes(a, b)
    assert [c.name for c in found] == ["duration_ns", "dram_bw_pct", "registers", "l2_hit_rate"]
    assert found[0].better is True and found[0].cells[1:] == ("2.000 µs", "500.0 ns", "0.25×")
    assert found[1].cells[3] == "+15.0 points" and found[1].better is None
    assert found[3].cells[3] == "=" and found[3].weight == 0
    back = {c.name: c for c in compare.changes(b, a)}
    assert back["duration_ns"].better is False
    assert {n: c.weight for n, c in back.items()} == pytest.approx({c.name: c.weight for c in found})


def test_what_is_missing_on_a_side_is_last_and_no_change() -> None:
    found = compare.changes(made(dram_bw_pct=40.0, l2_hit_rate=3.0), made(dram_bw_pct=41.0))
    assert [c.name for c in found] == ["dram_bw_pct", "l2_hit_rate"]
    assert found[1].cells[2:] == ("–", "only on one side") and found[1].weight == 0


VALUES = st.dictionaries(
    st.sampled_from(["duration_ns", "dram_bw_pct", "registers", "dram_bytes", "l2_hit_rate", "stall_wait"]),
    st.floats(0, 1e15, allow_nan=False),
)


@given(VALUES, VALUES)
def test_any_two_can_be_compared(a: dict[str, float], b: dict[str, float]) -> None:
    before, after = made(**a), made(**b)
    weights = [c.weight for c in compare.changes(before, after)]
    assert weights == sorted(weights, reverse=True) and all(0 <= w <= compare.MOST for w in weights)
    told = compare.said(before, after, ("a", "b"))
    assert 1 <= len(told) <= compare.TOLD and all("\n" not in text for text, _ in told)
    if a == b:
        assert len(told) == 1 and not any(weights)


def test_words_carry_their_evidence() -> None:
    told = compare.said(profile("classic"), profile("tiled"), ("classic", "tiled"))
    assert told[0][0] == "tiled is 8.34× as fast as classic under the profiler"
    assert told[0][1] == "duration_ns 504.4 µs → 60.48 µs"
    assert any("long scoreboard 41% → 1% of the stalls" in why for _, why in told)
    assert all(why for _, why in told)


# The screens


@pytest.mark.parametrize("size", SIZES)
async def test_both_beside_each_other(size: tuple[int, int], kit: Any) -> None:
    async with kit.show(CompareCountersScreen(profile("classic"), profile("tiled")), size) as console:
        assert len(console.lines) == size[1]
        assert "Counters · gemm · recorded on NVIDIA H200, 2026-11-29" in console.lines[0]
        assert "1  classic · size 1024" in console.lines[1] and "2  tiled · size 1024" in console.lines[2]
        assert "tiled is 8.34× as fast as classic" in console.text
        if size[1] >= 24:
            assert "Stall: long scoreboard" in console.text and "→" in console.text
        if size[0] >= 100:
            assert "duration_ns 504.4 µs → 60.48 µs" in console.text and "◆" in console.text


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_snapshots_of_both(size: tuple[int, int], kit: Any, snapshot_text: Any) -> None:
    async with kit.show(CompareCountersScreen(profile("classic"), profile("tiled")), size) as console:
        snapshot_text(f"counters-compare-{size[0]}x{size[1]}", "\n".join(console.lines[:-1]))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_snapshots_of_one(size: tuple[int, int], kit: Any, snapshot_text: Any) -> None:
    async with kit.show(CountersScreen(profile("tiled")), size) as console:
        snapshot_text(f"counters-{size[0]}x{size[1]}", "\n".join(console.lines[:-1]))
        await console.press("m")
        snapshot_text(f"counters-flow-{size[0]}x{size[1]}", "\n".join(console.lines[:-1]))


async def test_keys_of_both(kit: Any) -> None:
    async with kit.show(CompareCountersScreen(profile("classic"), profile("tiled")), (80, 24)) as console:
        await console.press("x")
        assert "classic is 8.34× slower than tiled" in console.text
        rows = len(console.screen.query_one("#changes").rows)
        await console.press("a")
        assert len(console.screen.query_one("#changes").rows) > rows + 1000
        await console.press("p")
        assert "◆" in console.text
        await console.press("p", "z")
        assert console.app.screen.maximized is not None
        await console.press("z", "y")
        assert console.app.clipboard.startswith("classic is 8.34× slower than tiled")
        await console.press("q")
        assert console.app._exit


async def test_the_other_is_picked_from_the_recording(kit: Any) -> None:
    async with kit.show(CountersScreen(profile("tiled"), baseline=Baseline("classic", {}))) as console:
        await console.press("o")
        await console.settle()
        assert isinstance(console.app.screen, PickScreen)
        assert "classic · size 1024" in console.dialog and "tiled · size 1024" not in console.dialog
        await console.press("enter")
        await console.settle()
        assert isinstance(console.app.screen, CompareCountersScreen)
        assert console.app.screen.names == ("classic", "tiled")


async def test_the_baselines_point_is_in_the_roofline(kit: Any) -> None:
    base = profile("classic")
    screen = CountersScreen(profile("tiled"), baseline=Baseline("classic", base.meta["config"]))
    async with kit.show(screen) as console:
        assert "• baseline" in console.text
        await console.press("3", "z")
        assert "L2 6.85 TB/s measured" in console.text and "DRAM 4.45 TB/s measured" in console.text
        await console.press("z", "o")
        await console.settle()
        assert "baseline: classic" in console.dialog


async def test_a_path_that_is_no_profile_is_said(kit: Any, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    async with kit.show(CountersScreen(profile("tiled"))) as console:
        await console.press("o", "tab")
        await console.pilot.press(*str(tmp_path / "x.json"))
        await console.press("enter")
        await console.settle()
        assert "✘" in console.dialog and "no profile" in console.dialog
        await console.press("escape")
        assert console.app.screen is console.screen


def test_profiles_and_traces_of_a_recording() -> None:
    meta = profile("tiled").meta
    names = [choice.meta["variant"] for choice in others.profiles(meta, None)]
    assert sorted(names) == ["classic", "cuda", "pipelined"]
    assert all(choice.where == "recorded:h200" for choice in others.profiles(meta, None))
    traced = others.traces(meta, None)
    assert {c.meta["variant"] for c in traced} >= {"classic", "cuda", "pipelined"}
    assert others.profiles({"workload": "gemm"}, None) == []
    with pytest.raises(UsageError):
        others.profile_in(Path("/nowhere.ncu-rep"))
