"""Lean output paints the same picture."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.style import Style
from test_tui.every_screen import shown

from warpdeck.tui.lean import SHORT, lean

TOKEN = re.compile(r"\x1b\[([\d;]*)([mH])|(\x1b\].*?\x1b\\)|([^\x1b])", re.S)
SEEN = {"4", "5", "6", "7", "9", "21", "53"}  # attributes that a blank shows


def painted(output: str) -> dict[tuple[int, int], tuple[Any, ...]]:
    """The cells that a terminal of endless lines shows: (character, attributes, colour, background)."""
    cells: dict[tuple[int, int], tuple[Any, ...]] = {}
    row, column = 1, 1
    attributes: set[str] = set()
    colours = {"38": "", "48": ""}
    for code, kind, _, character in TOKEN.findall(output):
        if kind == "H":
            row, column = (int(n) for n in code.split(";"))
        elif kind == "m":
            parts = code.split(";")
            while parts:
                part = parts.pop(0)
                if part in ("38", "48"):
                    taken = 4 if parts[0] == "2" else 2
                    colours[part] = ";".join(parts[:taken])
                    parts = parts[taken:]
                elif part in ("", "0"):
                    attributes, colours = set(), {"38": "", "48": ""}
                elif part in ("39", "49"):
                    colours["38" if part == "39" else "48"] = ""
                elif 30 <= int(part) <= 37 or 90 <= int(part) <= 97:
                    colours["38"] = part
                elif 40 <= int(part) <= 47 or 100 <= int(part) <= 107:
                    colours["48"] = part
                else:
                    attributes = {*attributes, part}
        elif character == "\n":
            row, column = row + 1, 1
        elif character and character != "\r":
            blank = character == " " and not attributes & SEEN
            own = ("", "") if blank else (frozenset(attributes), colours["38"])
            cells[row, column] = (character, *own, colours["48"])
            column += 1
    return cells


colours = st.none() | st.sampled_from(["red", "bright_blue", "color(99)", "#102030", "#405060", "default"])
looks = st.builds(
    Style,
    color=colours,
    bgcolor=colours,
    bold=st.booleans(),
    dim=st.booleans(),
    underline=st.booleans(),
    reverse=st.booleans(),
)
texts = st.sampled_from(["a", "  ", " ", "⣿⣀", "b c", "", "x" * 40])
between = st.sampled_from(
    ["", "", "", "\r\n", "\x1b[3;7H", "plain", "[31mx", "\x1b[31my", "\x1b[2;4Hz", "\x1b]8;;x\x1b\\"]
)


@settings(deadline=None)
@given(st.lists(st.tuples(looks, texts, between), max_size=30), st.sampled_from(list(ColorSystem)[:4]))
def test_the_same_cells(runs: list[tuple[Style, str, str]], system: ColorSystem) -> None:
    output = "".join(style.render(text, color_system=system) + more for style, text, more in runs)
    output += "\x1b[1;1H" + "." * SHORT
    assert painted(lean(output)) == painted(output)
    assert len(lean(output)) <= len(output)


@pytest.mark.parametrize("name", ["run", "timeline", "counters"])
async def test_a_screen_takes_fewer_bytes(name: str, tmp_path: Path) -> None:
    async with shown(name, tmp_path) as console:
        update: Any = console.app.screen._compositor.render_update(full=True)
    output = update.render_segments(console.app.console)
    assert painted(lean(output)) == painted(output)
    assert len(lean(output)) < 0.8 * len(output)
