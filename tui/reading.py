"""What a terminal sends, to Textual's events: pastes are taken out first, and nothing ends it.

Textual's own parser works character by character, 2 s for a megabyte of keys, and some sequences end it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.message import Message

from .pasting import MOST_PASTED, plain

BURST = 64  # characters in one read that no hand types: a paste by a terminal that doesn't mark pastes
BURST_S = 0.1  # what follows a burst within this time belongs to it
FLOOD = 512  # the same, of one key that is held
HELD_S = 0.1  # what may be the beginning of a mark is kept for so long
PASTE_S = 5.0  # a paste whose end was lost ends when nothing has come for so long
_KINDS = 3  # different characters at most in what a key that is held sends
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;:<=>?]{0,40}[ -/]{0,4}[@-~]|O[ -~]|[ -~]?)")


class Reader:
    """Text from a terminal to events. `now`: monotonic seconds, for tests."""

    def __init__(self, *, debug: bool = False) -> None:
        self._debug = debug
        self._parser = XTermParser(debug)
        self._held = ""  # may be the beginning of a mark
        self._came = 0.0
        self._paste: list[str] | None = None
        self._pasted = 0
        self._burst = -BURST_S

    def feed(self, text: str, now: float | None = None) -> Iterable[Message]:
        """The events that this text completes."""
        self._came = time.monotonic() if now is None else now
        text, self._held = self._held + text, ""
        while text:
            mark = BRACKETED_PASTE_START if self._paste is None else BRACKETED_PASTE_END
            before, found, text = text.partition(mark)
            if not found:
                before, self._held = _split_beginning(before, mark)
            if self._paste is not None:
                self._keep(before)
                if found:
                    yield self._end_paste()
                continue
            if before:  # an empty text would end the parser
                yield from self._typed(before)
            if found:
                self._paste, self._pasted = [], 0

    def tick(self, now: float | None = None) -> Iterable[Message]:
        """The events that come of nothing having come: an escape alone, a paste without an end."""
        quiet = (time.monotonic() if now is None else now) - self._came
        if self._paste is not None:
            if quiet >= PASTE_S:
                self._held = ""
                yield self._end_paste()
        elif self._held and quiet >= HELD_S:
            text, self._held = self._held, ""
            if text == "\x1b":
                yield events.Key("escape", text)
            else:
                yield from self._parsed(text)
        yield from self._ticked()

    @property
    def waiting(self) -> bool:
        """Whether something is held that soon means something by itself."""
        return bool(self._held)

    def _keep(self, text: str) -> None:
        room = MOST_PASTED - self._pasted
        if self._paste is not None and room > 0:
            self._paste.append(text[:room])
            self._pasted += min(len(text), room)

    def _end_paste(self) -> events.Paste:
        text, self._paste = "".join(self._paste or ()), None
        return events.Paste(plain(text))

    def _typed(self, text: str) -> Iterable[Message]:
        """Keys and mouse events; text that came too fast to be typed is a paste."""
        if len(text) > _KINDS:
            typed = _SEQUENCE.sub("", text)
            going_on = self._came - self._burst < BURST_S
            varied = len(set(typed)) > _KINDS and (going_on or len(typed) >= BURST)
            if varied or len(typed) >= FLOOD:
                self._burst = self._came
                yield events.Paste(plain(typed))
                return
        yield from self._parsed(text)

    def _parsed(self, text: str) -> Iterable[Message]:
        try:
            yield from self._parser.feed(text)
        except Exception:  # noqa: BLE001 - whatever a sequence does to it, the next key must work
            self._anew()

    def _ticked(self) -> Iterable[Message]:
        try:
            yield from self._parser.tick()
        except Exception:  # noqa: BLE001
            self._anew()

    def _anew(self) -> None:
        old, self._parser = self._parser, XTermParser(self._debug)
        for name in ("mouse_pixels", "terminal_size", "terminal_pixel_size"):
            setattr(self._parser, name, getattr(old, name))


def _split_beginning(text: str, mark: str) -> tuple[str, str]:
    """(what is certainly no part of the mark, what may be its beginning)."""
    for size in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:size]):
            return text[:-size], text[-size:]
    return text, ""
