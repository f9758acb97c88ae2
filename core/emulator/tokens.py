"""The tokens of C++ text: enough to tell code from comments, strings and preprocessor directives."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?(?:\*/|\Z))
    |(?P<string>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"
        |(?:u8|[uUL])?"(?:\\.|[^"\\\n])*"
        |(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')
    |(?P<word>[A-Za-z_$\x80-\U0010ffff][\w$]*)
    |(?P<number>\.?\d(?:[eEpP][+-]|'(?=\w)|[\w.])*)
    |(?P<space>(?:\s|\\\r?\n)+)
    |(?P<scope>::)
    |(?P<other>.)
    """,
    re.DOTALL | re.VERBOSE,
)
_DIRECTIVE = re.compile(r"(?:#|%:)(?:/\*.*?\*/|//[^\n]*|\\\r?\n|[^\n])*", re.DOTALL)


@dataclass(frozen=True)
class Token:
    """A piece of the text. `line` counts from 1; joined in order, the tokens' texts are the whole text.

    `glued`: code comes right before it, as in the second half of `<<`.
    """

    kind: str  # comment | directive | string | word | number | space | scope | other
    text: str
    line: int
    glued: bool = False

    @property
    def is_code(self) -> bool:
        """Whether the compiler proper sees it."""
        return self.kind not in ("comment", "space", "directive")


def tokens(text: str) -> list[Token]:
    """All tokens of a text. Never fails: what isn't C++ becomes single characters."""
    found: list[Token] = []
    line, at = 1, 0
    fresh = True  # nothing but spaces and comments in this line so far: a # begins a directive
    while at < len(text):
        directive = _DIRECTIVE.match(text, at) if fresh else None
        match = directive or _TOKEN.match(text, at)
        assert match is not None  # any character is a token
        kind = "directive" if directive else match.lastgroup or "other"
        if kind == "delimiter":
            kind = "string"
        found.append(Token(kind, match[0], line, bool(found) and found[-1].is_code))
        line += match[0].count("\n")
        at = match.end()
        if kind == "space":
            fresh = fresh or "\n" in match[0].replace("\\\n", "").replace("\\\r\n", "")
        elif kind != "comment":
            fresh = False
    return found
