"""Colours: readable in every theme, told apart with a colour-vision deficiency, chosen with a preview."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from test_tui.conftest import RECORDED, Console, FakeSource, opened, run_events

from warpdeck.tui import palette
from warpdeck.tui.app import WarpdeckApp
from warpdeck.tui.screens.run import RunScreen
from warpdeck.tui.settings import THEMES as NAMES
from warpdeck.tui.settings import Settings
from warpdeck.tui.themes import COLOUR_BLIND, THEMES

ROLES = ("foreground", "primary", "accent", "success", "warning", "error")
# Viénot, Brettel and Mollon 1999, in linear RGB: how dichromats see.
DEFICIENCIES = {
    "protan": [[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]],
    "deutan": [[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]],
}


def linear(colour: str) -> np.ndarray:
    share = np.array(list(bytes.fromhex(colour[1:])), float) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* (D65) of linear RGB."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def apart(a: str, b: str, seen: list[list[float]]) -> float:
    """Distance of two colours in L*a*b* as somebody sees them."""
    matrix = np.array(seen)
    return float(np.linalg.norm(lab(matrix @ linear(a)) - lab(matrix @ linear(b))))


def contrast(a: str, b: str) -> float:
    """WCAG's contrast ratio."""
    low, high = sorted((palette.luminance(a), palette.luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_the_themes_are_those_that_can_be_asked_for() -> None:
    assert list(THEMES) == list(NAMES)


@pytest.mark.parametrize("name", THEMES)
def test_everything_can_be_read(name: str) -> None:
    theme = THEMES[name]
    least = 7.0 if name == "high-contrast" else 4.5
    grounds = {"background": theme.background, "surface": theme.surface, "panel": theme.panel}
    for role, (ground, colour) in itertools.product(ROLES, grounds.items()):
        ratio = contrast(getattr(theme, role), colour or "")
        # On a panel stands bold text, for which 3 is enough.
        assert ratio >= (least if ground == "background" or role == "foreground" else 3), (
            role,
            ground,
            ratio,
        )
    code = {key: value for key, value in theme.variables.items() if key.startswith("code-")}
    assert len(code) == 8
    for key, value in code.items():
        for ground in (
            theme.background or "",
            theme.variables["diff-added"],
            theme.variables["diff-removed"],
        ):
            assert contrast(value, ground) >= 3.0, (key, ground)


@pytest.mark.parametrize("kind", DEFICIENCIES)
def test_good_bad_and_warning_are_told_apart_with_a_deficiency(kind: str) -> None:
    theme = COLOUR_BLIND
    roles = [theme.success, theme.warning, theme.error, theme.primary]
    for a, b in itertools.combinations(roles, 2):
        assert apart(a or "", b or "", DEFICIENCIES[kind]) > 15, (a, b)
    # Stages of the usual names beside each other, waiting among them.
    stages = palette.colours(["load", "compute", "store", "copy", "wait"], safe=True)
    for a, b in itertools.combinations(stages, 2):
        assert apart(a, b, DEFICIENCIES[kind]) > 12, (a, b)


def test_ink_on_every_stage_can_be_read() -> None:
    for colour in (*palette.COLOURS, palette.WAITING, *palette.SAFE, palette.SAFE_WAITING):
        assert contrast(palette.ink(colour), colour) >= 4.4, colour


def colours_of(console: Console) -> set[str]:
    """Background colours on the screen."""
    strips = console.app.screen._compositor.render_strips()
    return {
        segment.style.bgcolor.name
        for strip in strips
        for segment in strip
        if segment.style is not None and segment.style.bgcolor is not None
    }


async def test_choosing_one_shows_it_at_once_and_remembers_it(
    isolated_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR")
    async with opened(FakeSource(run_events(10, RECORDED))) as console:
        assert console.app.theme == "dark"
        console.app.action_change_theme()
        await console.settle()
        assert "colour-blind" in console.dialog and "escape: back" in console.dialog
        await console.press("j")
        assert console.app.theme == "light"
        assert str(THEMES["light"].background) in colours_of(console)
        await console.press("down", "down")
        assert console.app.theme == "colour-blind"
        assert palette.colours(["load"])[0] in palette.SAFE
        await console.press("escape")
        assert console.app.theme == "dark" and palette.colours(["load"])[0] in palette.COLOURS
        assert not (isolated_home / "config.toml").exists()
        console.app.action_change_theme()
        await console.settle()
        await console.press("j", "j", "k", "enter")
        assert console.app.theme == "light"
        assert (isolated_home / "config.toml").read_text() == 'theme = "light"\n'
        assert any("theme light, saved in" in told.message for told in console.app._notifications)


@pytest.mark.parametrize("theme", THEMES)
async def test_the_run_screen_in_each(theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same words in each, and each has its own ground."""
    monkeypatch.delenv("NO_COLOR")
    screen = RunScreen(FakeSource(run_events(30, RECORDED)), interval=None)
    app = WarpdeckApp(screen, Settings(theme=theme))
    async with app.run_test(size=(120, 40)) as pilot:
        console = Console(app, pilot, screen)
        await console.poll()
        assert "Leaderboard" in console.text and "▶ running" in console.text
        assert str(THEMES[theme].background) in colours_of(console)
