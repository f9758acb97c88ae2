"""The trace, counters and code screens in every theme: words are readable, also after a change."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from rich.color import Color

from warpdeck.core.tracing import decoded
from warpdeck.sessions.profiles import profile_one
from warpdeck.sessions.traces import trace_named
from warpdeck.telemetry.trace.timeline import Timeline
from warpdeck.tui.screens.code import CodeScreen
from warpdeck.tui.screens.counters import CountersScreen
from warpdeck.tui.screens.counters_compare import CompareCountersScreen
from warpdeck.tui.screens.timeline import TimelineScreen
from warpdeck.tui.screens.timeline_compare import CompareTimelineScreen
from warpdeck.tui.source_files import of_counters

LEAST = 3.0  # contrast of words against their background, as WCAG counts it; 3 is its least for large text


def trace(variant: str) -> Timeline:
    return decoded(trace_named("gemm", device="recorded:h200", variant=variant))


def profile(variant: str) -> Any:
    return profile_one("gemm", "recorded:h200", variant=variant)


SCREENS: dict[str, Callable[[], Any]] = {
    "timeline": lambda: TimelineScreen(trace("pipelined")),
    "timelines": lambda: CompareTimelineScreen(trace("tiled"), trace("cuda")),
    "counters": lambda: CountersScreen(profile("tiled")),
    "both counters": lambda: CompareCountersScreen(profile("classic"), profile("tiled")),
    "code": lambda: CodeScreen(*of_counters(profile("tiled"), None)),
}


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


@pytest.mark.parametrize("name", SCREENS)
async def test_words_can_be_read_in_every_theme(name: str, kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    async with kit.show(SCREENS[name]()) as console:
        await console.settle()
        for theme in ("light", "dark", "high-contrast", "colour-blind", "light"):
            console.app.theme = theme
            await console.settle()
            await console.settle()
            ratio, where = worst(console.app)
            assert ratio >= LEAST, f"{theme}: {where}"


@pytest.mark.parametrize("name", SCREENS)
async def test_without_colours_all_is_still_told(name: str, kit: Any) -> None:
    """NO_COLOR is set: letters, signs and numbers carry what colours would."""
    async with kit.show(SCREENS[name]()) as console:
        for _ in range(3):
            await console.settle()
        signs = {
            "timeline": ("wWW", "cC", "▸w0", "imb."),
            "timelines": ("▲ +", "▼ −", "cw", "slower in cuda"),
            "counters": ("◆", "65%", "short scoreboard"),
            "both counters": ("▄", "→", "+ 0.12×"),
            "code": ("▸130", "┃", "15.4%"),
        }[name]
        assert [sign for sign in signs if sign not in console.text] == []
