"""The style sheet that skips what it has done styles everything as Textual's own does; first paint imports
only what it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_tui.every_screen import SCREENS, shown
from textual.app import App
from textual.css.stylesheet import Stylesheet
from textual.geometry import Spacing
from textual.screen import Screen
from textual.widget import Widget

from warpdeck.tui.app import WarpdeckApp
from warpdeck.tui.stylesheet import LazyStylesheet, stylesheet

LESS = ("start", "new-run", "sessions-export", "run-board", "replay-bookmarks", "llm", "timeline", "code")


def styles(app: WarpdeckApp) -> dict[Widget, Any]:
    """Each widget's rules, and its components'."""
    return {
        node: (
            dict(node.styles.base.get_rules()),
            {name: dict(own.base.get_rules()) for name, own in node._component_styles.items()},
        )
        for screen in app.screen_stack
        for node in screen.walk_children(with_self=True)
        if isinstance(node, Widget)
    }


def assert_as_textual(app: WarpdeckApp) -> None:
    """What is styled now is what Textual's own style sheet makes of everything as it stands now."""
    assert isinstance(app.stylesheet, LazyStylesheet)
    found = styles(app)
    plain = Stylesheet(variables=app.get_css_variables())
    plain.source = dict(app.stylesheet.source)
    plain.parse()
    for screen in app.screen_stack:
        plain.update(screen)
    wanted = styles(app)
    assert len(wanted) > 5
    assert {node: rules for node, rules in found.items() if rules != wanted[node]} == {}


@pytest.mark.parametrize("name", LESS)
async def test_what_is_skipped_was_done(name: str, tmp_path: Path) -> None:
    assert name in SCREENS
    async with shown(name, tmp_path, (120, 40)) as console:
        assert_as_textual(console.app)
        await console.press("tab", "tab")
        assert_as_textual(console.app)
        for size in ((80, 24), (60, 16), (200, 50)):
            await console.pilot.resize_terminal(*size)
            await console.settle()
            assert_as_textual(console.app)
        console.app.theme = "light"
        await console.settle()
        assert_as_textual(console.app)
        if len(console.app.screen_stack) > 2:
            await console.press("escape")
            assert_as_textual(console.app)


async def test_nothing_is_applied_twice(tmp_path: Path) -> None:
    async with shown("run", tmp_path) as console:
        sheet = console.app.stylesheet
        node = console.screen.query_one("#leaderboard")
        mark = Spacing(9, 9, 9, 9)  # applying the rules takes it away
        node.styles.base.set_rule("margin", mark)
        sheet.update(console.screen)
        assert node.styles.base.get_rule("margin") == mark
        console.screen.add_class("-another")
        await console.settle()
        assert node.styles.base.get_rule("margin") is None


async def test_a_textual_whose_rules_ask_for_more_gets_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shown("run", tmp_path) as console:
        text = console.text
    monkeypatch.setitem(Widget._PSEUDO_CLASSES, "another", lambda widget: False)
    async with shown("run", tmp_path) as console:
        assert type(console.app.stylesheet) is Stylesheet
        assert console.text == text
        console.app.theme = "light"
        await console.settle()
        assert console.text == text


def test_a_textual_without_an_inner_part_gets_its_own() -> None:
    for name in ("_has_order_style", "_has_odd_or_even", "_has_focus_within"):
        app = WarpdeckApp(Screen())
        assert type(stylesheet(app)) is LazyStylesheet
        delattr(app, name)
        assert type(stylesheet(app)) is Stylesheet


def test_a_textual_without_its_parser_gets_its_own_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    app = WarpdeckApp(Screen())
    if App.get_driver_class(app).__module__ != "textual.drivers.linux_driver":
        pytest.skip("not on Linux")
    assert app.get_driver_class().__name__ == "SteadyDriver"
    for name in ("warpdeck.tui.driver", "warpdeck.tui.reading"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual._xterm_parser", None)
    assert app.get_driver_class().__name__ == "LinuxDriver"


def test_first_paint_waits_for_no_parser_and_no_lexer(tmp_path: Path) -> None:
    code = (
        "import json, sys\n"
        "from warpdeck.cli import quick\n"
        "import warpdeck.tui.screens.run, warpdeck.tui.app\n"
        "code = quick.run(['attach', 'none-such'])\n"
        "print(json.dumps([code, sorted(sys.modules)]))\n"
    )
    environment = {**os.environ, "WARPDECK_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )
    status, modules = json.loads(done.stdout)
    assert status == 2 and "none-such" in done.stderr
    needless = {"typer", "pydantic", "pygments", "warpdeck.telemetry.trace.timeline", "warpdeck.kernels"}
    assert needless & set(modules) == set()
