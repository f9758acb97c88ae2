"""What holds on every screen: how it looks; that each key is explained, found and remappable; its footer."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_tui.conftest import Console
from test_tui.every_screen import DIALOGS, SCREENS, painted, shown
from test_tui.test_readonly import content, do_everything
from textual.containers import VerticalScroll
from textual.widgets import Button, Input, OptionList

from warpdeck._version import __version__
from warpdeck.core.toolchain import ToolchainError
from warpdeck.core.toolchain.disassembly import find
from warpdeck.tui.commands import commands
from warpdeck.tui.export import Exported
from warpdeck.tui.keys import registry
from warpdeck.tui.screens.help import HelpScreen
from warpdeck.tui.settings import Settings
from warpdeck.tui.widgets.choice import Choice
from warpdeck.tui.widgets.diff import DiffPane
from warpdeck.tui.widgets.footer import Footer
from warpdeck.tui.widgets.model import ModelPane

SIZES = [(80, 24), (120, 40)]
NO_FIGURES = (Input, Choice, Button, OptionList, VerticalScroll, DiffPane, ModelPane)
# Those whose dark pictures are with their own tests.
ELSEWHERE = {
    *("start", "new-run", "sessions", "sessions-compare", "run", "run-gauges", "run-plot", "run-board"),
    *("run-effects", "llm", "ladder", "source", "source-split", "timeline", "timeline-compare", "counters"),
    *("counters-flow", "counters-compare", "code"),
}


@pytest.fixture(autouse=True)
def same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times are UTC, and sessions are in the current folder."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    yield
    monkeypatch.undo()
    time.tzset()


def compiles() -> bool:
    try:
        find()
        import cuda.bindings.nvrtc  # noqa: F401
        import numba  # noqa: F401
    except (ToolchainError, ImportError):
        return False
    return True


def as_stored(name: str, text: str) -> str:
    if name == "code" and not compiles():
        pytest.skip("needs NVRTC, Numba and nvdisasm")
    return text.replace(f"warpdeck {__version__}", "warpdeck VERSION")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", sorted(SCREENS.keys() - ELSEWHERE))
async def test_dark(
    name: str, size: tuple[int, int], snapshot_text: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR")
    async with shown(name, Path(), size) as console:
        assert len(console.lines) == size[1]
        snapshot_text(f"{name}-{size[0]}x{size[1]}", as_stored(name, console.text))


@pytest.mark.parametrize("name", SCREENS)
async def test_light(name: str, snapshot_text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its colours."""
    monkeypatch.delenv("NO_COLOR")
    async with shown(name, Path(), (120, 40), Settings(theme="light")) as console:
        snapshot_text(f"light/{name}", as_stored(name, painted(console)))


@pytest.mark.parametrize("name", SCREENS)
async def test_no_color(name: str, snapshot_text: Any) -> None:
    """With its greys, and nothing but greys."""
    assert os.environ["NO_COLOR"]
    async with shown(name, Path(), (80, 24)) as console:
        text = painted(console)
        for red, green, blue in re.findall(r"#(..)(..)(..)", text[text.rindex("\n\n") :]):
            assert (
                max(int(c, 16) for c in (red, green, blue)) - min(int(c, 16) for c in (red, green, blue)) < 2
            )
        snapshot_text(f"no-color/{name}", as_stored(name, text))


def own_bindings(console: Console) -> dict[str, Any]:
    """Active bindings of our own classes, by key; what a Textual class binds is no key of ours."""
    return {
        key: active
        for key, active in console.app.screen.active_bindings.items()
        if active.binding.id in registry()
    }


async def test_every_key_is_explained_found_and_remappable(tmp_path: Path) -> None:
    """On every screen, whatever pane has the focus: `?`, the palette and the settings know each key; and all
    keys that the code binds were met on the way."""
    met = set[str]()
    for name in SCREENS:
        async with shown(name, tmp_path / name) as console:
            screen = console.app.screen
            panes = [None, *(w for w in screen.query("*") if w.focusable)]
            for size, pane in [
                *((SIZES[1], pane) for pane in panes),
                *((SIZES[0], pane) for pane in panes[:2]),
            ]:
                if screen.size != size:
                    await console.pilot.resize_terminal(*size)
                screen.set_focus(pane)
                await console.settle()
                listed = commands(screen)
                known = {key for command in listed for key in command.keys.split()}
                titles = {command.title for command in console.app.get_system_commands(screen)}
                for command in listed:
                    assert command.action == "command_palette" or command.words in titles, command
                for active in own_bindings(console).values():
                    met.add(active.binding.id)
                    key = console.app.get_key_display(replace(active.binding, key_display=None))
                    assert not active.enabled or key in known, (name, pane, active.binding)
    assert registry().keys() == met


@pytest.mark.parametrize("name", SCREENS)
async def test_every_plot_and_table_can_be_saved(name: str, tmp_path: Path) -> None:
    """As SVG, PNG and CSV, with a key; what has none is for typing, choosing or reading prose and code."""
    async with shown(name, tmp_path) as console:
        screen = console.app.screen
        for pane in [w for w in screen.query("*") if w.focusable and w.display]:
            if not isinstance(pane, Exported):
                assert isinstance(pane, NO_FIGURES), pane
                continue
            saved = pane.exported()
            if saved is None:  # nothing in it yet
                continue
            screen.set_focus(pane)
            await console.settle()
            keys = {a.binding.action for a in screen.active_bindings.values() if a.node in (pane, screen)}
            assert {"export", "save_list"} & keys, pane
            drawing = saved.drawing()
            assert drawing.svg().startswith("<svg") and drawing.png().startswith(b"\x89PNG"), pane
            assert len(saved.csv().splitlines()) > 1, pane


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", sorted(SCREENS.keys() - DIALOGS))
async def test_every_pane_is_maximised_and_comes_back(
    name: str, size: tuple[int, int], tmp_path: Path
) -> None:
    async with shown(name, tmp_path, size) as console:
        screen = console.app.screen
        if screen.maximized is not None:
            await console.press("z")
            assert await console.until(lambda: screen.maximized is None)
        for pane in [w for w in screen.query("*") if w.focusable and w.display and w.region]:
            screen.set_focus(pane)
            await console.settle()
            if isinstance(pane, Input):
                continue
            before = pane.region
            await console.press("z")
            assert await console.until(lambda it=pane: screen.maximized is it and it.region.width == size[0])
            told = sum(w.region.height for w in screen.query("Footer, #replay, #details") if w.display)
            assert pane.region.height == size[1] - told
            await console.press("z")
            assert await console.until(lambda it=pane, at=before: not screen.maximized and it.region == at)


@pytest.mark.parametrize("name", ["timeline", "code", "source", "run"])
async def test_a_prompt_stands_beside_a_maximised_pane(name: str, tmp_path: Path) -> None:
    async with shown(name, tmp_path, (80, 24)) as console:
        await console.press("z", "slash", "w", "a")
        prompt = console.app.focused
        assert isinstance(prompt, Input) and prompt.value == "wa"
        assert prompt.region.height == 1 and prompt.region.y >= 20
        assert "wa" in console.lines[prompt.region.y]


@pytest.mark.parametrize("name", ["start", "run", "timeline", "counters", "source", "code"])
async def test_the_help_lists_each_key(name: str, tmp_path: Path) -> None:
    async with shown(name, tmp_path) as console:
        listed = commands(console.app.screen)
        await console.press("question_mark")
        assert isinstance(console.app.screen, HelpScreen)
        text, page = "", ""
        while console.text != page:  # read it to its end
            page = console.text
            text += page
            for _ in range(8):
                await console.tap("j")
            await console.settle()
        for command in listed:
            assert command.words in text and all(key in text for key in command.keys.split()), command


async def test_another_key_is_what_the_footer_says(tmp_path: Path) -> None:
    """Every id takes another key, and nothing shows the old one."""
    for name in ("run", "timeline", "counters"):
        async with shown(name, tmp_path / name) as console:
            for number, id in enumerate(sorted({a.binding.id for a in own_bindings(console).values()})):
                key = f"f{number % 20 + 1}"
                console.app.set_keymap({id: key})
                active = console.app.screen.active_bindings.get(key)
                assert active is not None and active.binding.id == id


@pytest.mark.parametrize("name", ["start", "sessions-compare", "timeline", "counters", "source", "code"])
async def test_read_only_no_command_writes_a_file(name: str, tmp_path: Path) -> None:
    async with shown(name, tmp_path, settings=Settings(readonly=True)) as console:
        before = content(tmp_path)
        assert "READ ONLY" in console.lines[0]
        assert len(await do_everything(console)) > 5
        assert content(tmp_path) == before


@pytest.mark.parametrize("size", [(60, 16), *SIZES, (200, 60)])
@pytest.mark.parametrize("name", ["start", "sessions", "replay", "timeline", "counters", "source", "code"])
async def test_no_key_in_the_footer_is_cut(name: str, size: tuple[int, int], tmp_path: Path) -> None:
    async with shown(name, tmp_path, size) as console:
        footer = console.app.screen.query_one(Footer)
        line = console.lines[-1]
        assert "? Help" in line and re.search(r" q (Quit|Back) \^p Commands *$", line), line
        entries = footer._entries
        assert entries and " ".join(f"{e.shown} {e.words}" for e in entries) == line.rstrip()


async def test_a_click_on_the_footer_presses_the_key(tmp_path: Path) -> None:
    async with shown("run", tmp_path) as console:
        place = console.lines[-1].index("? Help")
        await console.pilot.hover(Footer, offset=(place, 0))
        assert console.app.screen.query_one(Footer).tooltip == "Help"
        await console.pilot.click(Footer, offset=(place + 1, 0))
        assert isinstance(console.app.screen, HelpScreen)
        await console.press("escape")
        await console.pilot.click(Footer, offset=(115, 0))  # beside all keys
        assert console.app.screen is console.screen
