"""The start screen: recent sessions, the machine, the ways on; and the form of a new run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.widgets import Input

from warpdeck._version import __version__
from warpdeck.core.doctor import Check
from warpdeck.core.errors import UsageError
from warpdeck.sessions.launch import stop_run
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore
from warpdeck.telemetry import nvml
from warpdeck.tui import machine, run_form
from warpdeck.tui.app import WarpdeckApp
from warpdeck.tui.screens.help import HelpScreen
from warpdeck.tui.screens.new_run import NewRunScreen
from warpdeck.tui.screens.run import RunScreen
from warpdeck.tui.screens.sessions import SessionsScreen
from warpdeck.tui.screens.start import StartScreen
from warpdeck.tui.widgets.choice import Choice

SIZES = [(80, 24), (120, 40)]
CHECKS = [
    Check("python", True, "Python 3.11.7 on Linux x86_64"),
    Check("driver", False, "no NVIDIA driver", "to measure here, install an NVIDIA driver"),
    Check("gpu", False, "no CUDA GPU", "use --device recorded:h200, or a machine with a GPU"),
    Check("sandbox", True, "code of others runs under bubblewrap"),
    Check("disk space", True, "60.0 GiB free"),
]
Opener = Callable[..., AbstractAsyncContextManager[Any]]


@pytest.fixture
def opened(kit: Any) -> Opener:
    @asynccontextmanager
    async def start(screen: Any, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Any]:
        app = WarpdeckApp(screen)
        async with app.run_test(size=size, notifications=True) as pilot:
            console = kit.console(app, pilot, screen)
            await settled(console)
            yield console

    return start


async def settled(console: Any) -> None:
    for _ in range(4):  # the footer, and what a worker brings
        await console.settle()


def home_of(kit: Any, folder: Path) -> Path:
    kit.write(folder, kit.events(60, end=True), "softmax-random-1")
    kit.write(folder, kit.events(30, kit.live, end=True), "softmax-random-2")
    return folder


@pytest.mark.parametrize("size", SIZES)
async def test_the_start_screen(
    tmp_path: Path, kit: Any, opened: Opener, size: tuple[int, int], snapshot_text: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(home_of(kit, tmp_path / "sessions"))
    async with opened(StartScreen(Path(), interval=None, checks=lambda: CHECKS), size) as console:
        assert len(console.lines) == size[1] and __version__ in console.lines[0]
        text = console.text.replace(__version__, "VERSION")
        snapshot_text(f"start-{size[0]}x{size[1]}", text)


async def test_without_sessions_it_says_how_to_begin(tmp_path: Path, opened: Opener) -> None:
    async with opened(StartScreen(tmp_path / "none", interval=None, checks=None)) as console:
        assert "no sessions yet" in console.text and "warpdeck tune softmax" in console.text
        assert "looking at this machine" in console.text
        await console.press("enter", "r", "y", "question_mark")
        assert isinstance(console.app.screen, HelpScreen)


async def test_the_ways_on(tmp_path: Path, kit: Any, opened: Opener) -> None:
    home = home_of(kit, tmp_path)
    async with opened(StartScreen(home, interval=None, checks=None)) as console:
        await console.press("s")
        assert isinstance(console.app.screen, SessionsScreen)
        await console.press("q")
        assert console.app.screen is console.screen
        await console.press("n")
        assert isinstance(console.app.screen, NewRunScreen)
        await console.press("escape", "enter")
        assert isinstance(console.app.screen, RunScreen)


async def test_a_slow_check_keeps_nobody_waiting(tmp_path: Path, opened: Opener) -> None:
    """A probe that hangs is left behind when the dashboard ends."""
    hung = threading.Event()

    def checks() -> Sequence[Check]:
        hung.wait(60)
        return CHECKS

    screen = StartScreen(tmp_path, interval=None, checks=checks)
    app = WarpdeckApp(screen)
    try:
        async with asyncio.timeout(30), app.run_test(size=(120, 40)) as pilot:
            await pilot.pause(0)
            app.exit(0)
    finally:
        hung.set()
    assert app.return_code == 0


def test_abilities_name_what_is_in_the_way() -> None:
    found = {ability.words: ability.lacks for ability in machine.abilities(CHECKS)}
    lacks = found["measure on this GPU"]
    assert lacks is not None and lacks.name == "driver"
    assert found["tune on recordings"] is None and found["keep sessions"] is None
    known = {check.name for check in machine.examine()}
    assert all(set(needed) <= known for _, needed in machine.ABILITIES)


# The form


@pytest.mark.parametrize("size", SIZES)
async def test_the_form(
    tmp_path: Path, opened: Opener, size: tuple[int, int], snapshot_text: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    async with opened(NewRunScreen(tmp_path, delay=0), size) as console:
        assert "✔ ready" in console.lines[1]
        snapshot_text(f"new-run-{size[0]}x{size[1]}", console.text)
        await console.press("down", *["right"] * 3, "down", "down", *"1024 x")
        await settled(console)
        assert "✘ to mend: sizes" in console.lines[1] and "model" in console.text
        snapshot_text(f"new-run-llm-{size[0]}x{size[1]}", console.text)


async def test_a_fault_stands_beside_its_field_as_it_is_typed(tmp_path: Path, opened: Opener) -> None:
    async with opened(NewRunScreen(tmp_path, delay=0)) as console:
        await console.press("end", "x")
        assert "did you mean 'softmax'?" in next(line for line in console.lines if "softmaxx" in line)
        await console.press("ctrl+s")
        assert console.app.screen is console.screen and not list(tmp_path.iterdir())
        await console.press("backspace")
        await settled(console)
        assert "✔ ready" in console.lines[1]


async def test_what_is_typed_replaces_what_stood_there(tmp_path: Path, opened: Opener) -> None:
    async with opened(NewRunScreen(tmp_path, delay=0)) as console:
        await console.press(*"gemm", "down", "down", *"cpu")
        command = " ".join(console.text.split())
        assert "$ warpdeck tune gemm --device cpu" in command


async def test_what_only_the_whole_shows_is_said_above(tmp_path: Path, opened: Opener) -> None:
    async with opened(NewRunScreen(tmp_path, delay=0)) as console:
        console.screen.query_one("#field-device", Input).value = "cuda:99"
        await settled(console)
        said = "✔ ready" if nvml.device_count() else "✘ cuda:99: no CUDA GPU here"
        assert said in console.lines[1]
        console.screen.query_one("#field-device", Input).value = "cpu"
        console.screen.query_one("#field-agent", Choice).value = "llm"
        await settled(console)
        assert "OPENAI_API_KEY" in console.text or "extra" in console.text


async def test_it_starts_the_run_that_it_describes(tmp_path: Path, opened: Opener) -> None:
    async with opened(StartScreen(tmp_path, interval=None, checks=None)) as console:
        await console.press("n")
        form = console.app.screen
        assert isinstance(form, NewRunScreen)
        form._delay = 0.0
        for name, text in (
            ("device", "recorded:h200"),
            ("sizes", "1024, 4096"),
            ("steps", "7"),
            ("seed", "5"),
            ("time_limit", "90"),
        ):
            form.query_one(f"#field-{name}", Input).value = text
        form.query_one("#field-agent", Choice).value = "random"
        await settled(console)
        command = "warpdeck tune softmax --agent random --device recorded:h200 --size 1024 --size 4096"
        assert f"$ {command} --steps 7 --time-limit 90 --seed 5" in " ".join(console.text.split())
        await console.press("ctrl+y")
        assert console.app.clipboard.startswith(command)
        await console.press("ctrl+s")
        await settled(console)
        run = console.app.screen
        assert isinstance(run, RunScreen)
        folder = next(tmp_path.iterdir())
        try:
            with SessionStore.open(folder) as store:
                spec = RunSpec.from_json(store.header()["spec"])
        finally:
            stop_run(folder)
    assert spec == RunSpec(
        "softmax", "random", "recorded:h200", sizes=(1024, 4096), steps=7, seed=5, time_limit_s=90
    )


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("workload", "", "which one"),
        ("workload", "sofmax", "did you mean 'softmax'"),
        ("workload", "/nowhere/at/all", "no workload.toml"),
        ("device", "cuda", ""),
        ("device", "cuda:x", "use auto"),
        ("device", "recorded:h20", "did you mean 'h200'"),
        ("device", "recorded:/nowhere.json", "no such file"),
        ("sizes", "1024, 4096 512", ""),
        ("sizes", "0", "whole numbers"),
        ("sizes", "-1", "whole numbers"),
        ("sizes", "64 64", "twice"),
        ("steps", "", ""),
        ("steps", "0", "at least 1"),
        ("steps", "1.5", "a whole number"),
        ("steps", "9999999999", "at most"),
        ("time_limit", "1e3", ""),
        ("time_limit", "nan", "more than 0"),
        ("time_limit", "-1", "more than 0"),
        ("time_limit", "soon", "seconds"),
        ("seed", "-1", "a whole number"),
        ("cache", "tepid", "use cold, hot"),
    ],
)
def test_each_field_says_what_is_wrong(name: str, text: str, words: str) -> None:
    said = run_form.fault(name, {**run_form.defaults(), name: text})
    assert (words in said) if words else not said


def test_an_agent_of_sources_takes_no_recording() -> None:
    values = {**run_form.defaults(), "agent": "ladder", "device": "recorded:h200"}
    assert "a recording can't" in run_form.fault("device", values)
    assert [field.name for field in run_form.shown({**values, "agent": "llm"})][-4:] == [
        *("model", "strategy", "effort", "max_tokens"),
    ]


def test_settings_of_the_model_reach_the_run() -> None:
    values = {**run_form.defaults(), "agent": "llm", "device": "cpu", "model": "o9", "max_tokens": "5000"}
    spec = run_form.spec_of({**values, "strategy": "beam"})
    assert spec.options == {"model": "o9", "strategy": "beam", "max_tokens": 5000}
    assert spec.steps == 10 and spec.space == "ladder"


@given(st.sampled_from([field.name for field in run_form.FIELDS]), st.text(max_size=40))
def test_no_text_is_too_odd_for_a_field(name: str, text: str) -> None:
    """Whatever is typed, there is a verdict; and what no field speaks against is a run or told why not."""
    values = {**run_form.defaults(), name: text}
    if name != "agent":
        assert isinstance(run_form.fault(name, values), str)
        assert run_form.command(values).startswith("warpdeck tune")
        if not run_form.faults(values):
            try:
                assert isinstance(run_form.spec_of(values), RunSpec)
            except UsageError as error:
                assert "\n" not in str(error)
