"""Terminal output without the styles that the terminal has already: up to half of the bytes are saved.

Rich sets every style whole and resets it after each run of text, although its neighbours mostly share the
background, and blanks show no other colour at all.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SHORT = 256  # characters of output that aren't worth it
RESET = "\x1b[0m"
_CODE = re.compile(r"\[[1-9][\d;]*")  # of an SGR, without its ends
_MOVES = re.compile(r"(\r\n)?(?:\x1b\[\d+;\d+H)?")  # of the cursor
_STILL = _MOVES.fullmatch("")
_SEEN_ON_BLANKS = frozenset({"4", "5", "6", "7", "9", "21", "53"})  # underlined, blinking, reversed, struck…
_MOST = 1 << 12


class Look(NamedTuple):
    """A style as SGR codes: "" is the terminal's own colour."""

    attributes: frozenset[str] = frozenset()
    colour: str = ""
    background: str = ""


class State:
    """What a terminal has, and what to write for each style after it: (codes, state then), by its SGR; of
    text, and of blanks."""

    __slots__ = ("blank", "look", "text")

    def __init__(self, look: Look | None) -> None:
        self.look = look
        self.text: dict[str, tuple[str, State]] = {}
        self.blank: dict[str, tuple[str, State]] = {}


_STATES: dict[Look | None, State] = {}


def lean(output: str) -> str:
    """The same picture in fewer bytes."""
    if len(output) < SHORT:
        return output
    if len(_STATES) > _MOST:
        _STATES.clear()
    *runs, rest = output.split(RESET)
    plain = held = _state(None)  # what the terminal has now, not reset yet
    found: list[str] = []
    add = found.append
    for run in runs:
        start = run.rfind("\x1b")
        end = run.find("m", start)
        code, text = run[start + 1 : end] if start >= 0 else "", run[end + 1 :]
        lead = run[:start] if start > 0 else ""
        moves = _MOVES.fullmatch(lead) if lead else _STILL
        if held is not plain and (moves is None or moves[1]):  # a new line begins with nothing set
            add(RESET)
            held = plain
        step = (held.blank if text.isspace() else held.text).get(code) if moves else None
        if step is None:
            if moves is None or not _CODE.fullmatch(code):  # not one styled run
                if held is not plain:
                    add(RESET)
                    held = plain
                add(run)
                add(RESET)
                continue
            step = _step(held, code, text.isspace())
        change, held = step
        add(lead)
        add(change)
        add(text)
    if held is not plain:
        add(RESET)
    add(rest)
    return "".join(found)


def _state(look: Look | None) -> State:
    return _STATES.setdefault(look, State(look))


def _step(held: State, code: str, blank: bool) -> tuple[str, State]:
    """Find out what to write, and keep it."""
    wanted, before = _look(code[1:]), held.look
    if before is not None and blank and _SEEN_ON_BLANKS.isdisjoint(before.attributes | wanted.attributes):
        wanted = before._replace(background=wanted.background)
    step = _change(before, wanted), _state(wanted)
    (held.blank if blank else held.text)[code] = step
    return step


def _look(code: str) -> Look:
    """What a whole SGR sets."""
    attributes, colour, background = set[str](), "", ""
    parts = code.split(";")
    while parts:
        part = parts.pop(0)
        if part in ("38", "48"):
            taken = 4 if parts[:1] == ["2"] else 2  # an RGB triple, or a number
            whole = ";".join([part, *parts[:taken]])
            parts = parts[taken:]
            colour, background = (whole, background) if part == "38" else (colour, whole)
        elif part.isdecimal() and (30 <= int(part) <= 39 or 90 <= int(part) <= 97):
            colour = "" if part == "39" else part
        elif part.isdecimal() and (40 <= int(part) <= 49 or 100 <= int(part) <= 107):
            background = "" if part == "49" else part
        else:
            attributes.add(part)
    return Look(frozenset(attributes), colour, background)


def _change(held: Look | None, wanted: Look) -> str:
    """The shortest SGR from one style to another."""
    before = held or Look()
    codes = sorted(wanted.attributes - before.attributes)
    if wanted.colour != before.colour:
        codes.append(wanted.colour or "39")
    if wanted.background != before.background:
        codes.append(wanted.background or "49")
    afresh = ["0", *sorted(wanted.attributes), *filter(None, (wanted.colour, wanted.background))]
    # An attribute has another code that ends it: starting afresh is as short.
    if before.attributes - wanted.attributes or len(";".join(afresh)) < len(";".join(codes)):
        codes = afresh
    return f"\x1b[{';'.join(codes)}m" if codes else ""
