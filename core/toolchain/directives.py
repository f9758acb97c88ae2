"""Preprocessor directives that bring in files or name them, found in time that grows as the text does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# Whatever may be a directive, also where a comment or a raw string makes it none: telling these apart
# needs a whole lexer, and a mistake would open any file of this machine.
BRINGING = ("include_next", "include", "import", "embed")  # names of those that bring in a file
_HASH = re.compile(r"(?:^\ufeff?|\r|\*/)[ \t\f\v\r]*+(?:#|%:)", re.MULTILINE)  # NVRTC ends a line at \r, too
_SPACE = re.compile(r"[ \t\f\v\r]*+")
_WORD = re.compile(rf"{'|'.join(BRINGING)}|line|\d+|")  # or what begins so, which no compiler knows
_REST = re.compile(r"[^\n\r]*+")


class Directive(NamedTuple):
    """`name`: of `BRINGING`, "line" or a number; `operand`: the rest of the line, which begins at `start`."""

    name: str
    operand: str
    start: int


def directives(text: str) -> Iterator[Directive]:
    """Those of a text without splices, in order."""
    ends: dict[int, int] = {}  # of the gaps that were passed, by where they begin
    begun, closed = 0, 0  # the last search for the end of a comment: from where, and what it found

    def close_of(comment: int) -> int:
        """Where the comment that begins there is closed; -1 if it isn't."""
        nonlocal begun, closed
        if comment < begun or 0 <= closed < comment:
            begun, closed = comment, text.find("*/", comment)
        return closed

    def gap(at: int) -> int:
        """Where spaces and comments end."""
        passed = []
        while at not in ends:
            passed.append(at)
            after = _space(text, at)
            close = close_of(after + 2) if text.startswith("/*", after) else -1
            if close < 0:
                ends[at] = after
                break
            at = close + 2
        end = ends[at]
        ends.update(dict.fromkeys(passed, end))
        return end

    for found in _HASH.finditer(text):
        word = _WORD.match(text, gap(found.end()))
        assert word is not None  # it may be empty
        if not word[0]:
            continue
        start = gap(word.end())
        rest = _REST.match(text, start)
        assert rest is not None
        yield Directive(word[0], rest[0], start)


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()
