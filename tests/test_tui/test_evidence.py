"""Traces and counters from the Run screen: in the session, recorded, or the command that makes them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import synthetic
import trace_synthetic

from warpdeck.core import recording
from warpdeck.core.devices import stored_counters
from warpdeck.core.errors import WarpdeckError
from warpdeck.kernels.loader import load_workload
from warpdeck.sessions.paths import ARTIFACTS
from warpdeck.telemetry.ncu.counters import Counters, Metric
from warpdeck.telemetry.trace import store
from warpdeck.tui.evidence import Subject, find_counters, find_trace
from warpdeck.tui.screens.counters import CountersScreen
from warpdeck.tui.screens.timeline import TimelineScreen

CONFIG = {"block_size": 64, "reg_cap": 0}
OTHER = {"block_size": 256, "reg_cap": 32}


def save_trace(path: Path, config: dict[str, Any], variant: str = "classic") -> None:
    raw = trace_synthetic.loops(ctas=2, warps=2, iterations=4)
    meta = {
        **raw.meta,
        "workload": "softmax",
        "variant": variant,
        "case": "1024",
        "config": config,
        "date": "2026-11-29",
        "device": synthetic.DEVICE.to_json(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    store.save(dataclasses.replace(raw, meta=meta), path)


def save_counters(path: Path, config: dict[str, Any], variant: str = "classic") -> None:
    meta = {"workload": "softmax", "variant": variant, "case": "1024", "config": config}
    meta["device"] = {**synthetic.DEVICE.to_json(), "recorded": True, "date": "2026-11-29"}
    path.parent.mkdir(parents=True, exist_ok=True)
    stored_counters.save(Counters("softmax", {"l2_hit_rate": Metric(40.0, "%", 0.4)}, meta=meta), path)


def subject(folder: Path | None, *, device: str = "cuda:0", config: Any = None) -> Subject:
    recorded = device.startswith("recorded:")
    return Subject("softmax", "classic", config or CONFIG, 1024, device, recorded, folder)


@pytest.fixture
def recorded(isolated_home: Path) -> Path:
    """The folder of a user's recordings, with one of the softmax on a made-up device."""
    folder = isolated_home / "recordings"
    folder.mkdir()
    made = synthetic.make(load_workload("softmax"), "classic", 1024)
    recording.save(made, folder / made.file_name)
    return folder


SAVE = {find_trace: save_trace, find_counters: save_counters}
NAME = {find_trace: "x.wdtrace", find_counters: "x.counters.json.gz"}
BOTH = pytest.mark.parametrize("find", [find_trace, find_counters])


@BOTH
def test_the_sessions_own_file_of_the_configuration_wins(find: Any, tmp_path: Path) -> None:
    artifacts = tmp_path / ARTIFACTS
    SAVE[find](artifacts / f"old-{NAME[find]}", CONFIG)
    SAVE[find](artifacts / f"new-{NAME[find]}", OTHER)
    os.utime(artifacts / f"old-{NAME[find]}", (1, 1))
    found, note = find(subject(tmp_path))
    assert found.meta["config"] == CONFIG and note == ""


@BOTH
def test_another_configurations_file_is_said_to_be_one(find: Any, tmp_path: Path) -> None:
    SAVE[find](tmp_path / ARTIFACTS / NAME[find], OTHER)
    found, note = find(subject(tmp_path))
    assert found.meta["config"] == OTHER
    assert "of block_size=64 reg_cap=0" in note and "this has block_size=256 reg_cap=32" in note


@BOTH
def test_where_there_is_none_the_command_is_said(find: Any, tmp_path: Path) -> None:
    verb = "trace" if find is find_trace else "profile"
    with pytest.raises(WarpdeckError) as caught:
        find(subject(tmp_path))
    text = str(caught.value)
    assert f"warpdeck {verb} softmax --variant classic --size 1024 --knob block_size=64" in text
    assert str(tmp_path / ARTIFACTS) in text and "\n" not in text
    with pytest.raises(WarpdeckError, match=f"warpdeck {verb} softmax"):
        find(subject(None))


@BOTH
def test_a_damaged_file_is_one_plain_error(find: Any, tmp_path: Path) -> None:
    (tmp_path / ARTIFACTS).mkdir()
    (tmp_path / ARTIFACTS / NAME[find]).write_bytes(b"nonsense")
    with pytest.raises(WarpdeckError, match=NAME[find]):
        find(subject(tmp_path))


@BOTH
def test_a_recorded_device_has_what_was_recorded(find: Any, recorded: Path) -> None:
    SAVE[find](recorded / f"test-softmax-classic-1024{NAME[find][1:]}", CONFIG)
    found, note = find(subject(None, device="recorded:test"))
    assert found.meta["config"] == CONFIG and found.meta["device"]["recorded"] and note == ""
    found, note = find(subject(None, device="recorded:test", config=OTHER))
    assert "recorded of block_size=256 reg_cap=32; this has block_size=64 reg_cap=0" in note
    near = {**CONFIG, "reg_cap": 32}
    found, note = find(subject(None, device="recorded:test", config=near))
    assert found.meta["config"] == CONFIG
    assert note.endswith("recorded of reg_cap=32; this has reg_cap=0")  # only what differs


@BOTH
def test_a_recorded_device_without_any_says_what_takes_a_gpu(find: Any, recorded: Path) -> None:
    with pytest.raises(WarpdeckError, match=r"recorded.*; on a GPU: warpdeck (trace|profile) softmax"):
        find(subject(None, device="recorded:test"))


@pytest.mark.parametrize(
    ("key", "find", "screen"), [("t", find_trace, TimelineScreen), ("c", find_counters, CountersScreen)]
)
async def test_the_run_screen_opens_them(key: str, find: Any, screen: type, kit: Any, tmp_path: Path) -> None:
    source = kit.source(kit.events(20, kit.live))
    source.folder = tmp_path
    async with kit.open(source) as console:
        best = console.screen.state.leaderboard[0]
        await console.press(key)
        assert console.app.screen is console.screen
        verb = "trace" if key == "t" else "profile"
        assert f"warpdeck {verb} softmax" in " ".join(console.text.split())
        SAVE[find](tmp_path / ARTIFACTS / NAME[find], dict(best.config), best.variant)
        await console.press(key)
        assert isinstance(console.app.screen, screen)
        await console.settle()
        await console.press("q")
        assert console.app.screen is console.screen
        titles = [c.title for c in console.app.get_system_commands(console.screen)]
        assert "The configuration's trace" in titles and "The configuration's counters" in titles


async def test_a_note_tells_that_it_is_another_configuration(kit: Any, tmp_path: Path) -> None:
    source = kit.source(kit.events(20, kit.live))
    source.folder = tmp_path
    save_trace(tmp_path / ARTIFACTS / "x.wdtrace", OTHER)
    async with kit.open(source) as console:
        await console.press("4", "j", "t")
        assert isinstance(console.app.screen, TimelineScreen)
        assert "this is block_size=256 reg_cap=32" in " ".join(console.text.split())
        await console.press("q")  # and what is said of the trace goes with it
        assert "this is block_size=256" not in " ".join(console.text.split())


async def test_before_anything_was_measured_there_is_nothing_to_open(kit: Any) -> None:
    events = [e for e in kit.events(5) if e.kind not in ("evaluation", "baseline", "step")]
    async with kit.open(kit.source(events)) as console:
        await console.press("t", "c")
        assert console.app.screen is console.screen
        titles = [c.title for c in console.app.get_system_commands(console.screen)]
        assert "The configuration's trace" not in titles
