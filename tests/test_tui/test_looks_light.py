"""Every screen in every theme: words are readable, also after a change; and what is told without colours."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import pytest
from rich.color import Color
from test_tui.every_screen import DIALOGS, SCREENS, shown

LEAST = 3.0  # contrast of words against their background, as WCAG counts it; 3 is its least for large text


# What lies behind a dialog is dimmed, so that it isn't read.
NAMES = sorted(SCREENS.keys() - DIALOGS | {"new-run", "run-board"})


def luminance(colour: Color) -> float:
    channels = [c / 255 for c in colour.get_truecolor()]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(ink: Color, ground: Color) -> float:
    high, low = sorted((luminance(ink), luminance(ground)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def worst(app: Any) -> tuple[float, str]:
    """The least readable run of letters and digits on the screen."""
    found = (99.0, "")
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            words = any(unicodedata.category(c)[0] in "LN" for c in segment.text)
            if words and segment.style and segment.style.color and segment.style.bgcolor:
                style = segment.style
                ratio = contrast(style.color, style.bgcolor)
                found = min(found, (ratio, f"{segment.text.strip()!r} {style}"))
    return found


@pytest.mark.parametrize("name", NAMES)
async def test_words_can_be_read_in_every_theme(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR")
    async with shown(name, tmp_path) as console:
        for theme in ("light", "dark", "high-contrast", "colour-blind", "light"):
            console.app.theme = theme
            for _ in range(3):  # what is laid out anew for it, too
                await console.settle()
            ratio, where = worst(console.app)
            assert ratio >= LEAST, f"{theme}: {where}"


SIGNS = {
    "timeline": ("wWW", "cC", "▸w0", "imb."),
    "timeline-compare": ("▲ +", "▼ −", "cw", "slower in cuda"),
    "counters": ("◆", "65%", "short scoreboard"),
    "counters-compare": ("▄", "→", "+ 0.12×"),
    "code": ("▸130", "┃", "15.4%"),
    "run": ("▶ running", "=1", "tied", "×", "▲8", "vendor", "floor"),
    "llm": ("✔ ok", "C compile error", "I incorrect", "▸ propose"),
    "source": ("− attempt 2", "+ attempt 4", "17    − ", "   17 + "),
    "start": ("✔ tune on recordings", "– measure on this GPU", "→ to measure here"),
}


@pytest.mark.parametrize("name", SIGNS)
async def test_without_colours_all_is_still_told(name: str, tmp_path: Path) -> None:
    """NO_COLOR is set: letters, signs and numbers carry what colours would."""
    async with shown(name, tmp_path) as console:
        assert [sign for sign in SIGNS[name] if sign not in console.text] == []
