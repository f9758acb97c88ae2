"""The syntax of each of a source's lines: what its parts are, not their colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from pygments.lexer import Lexer
from pygments.lexers.c_like import CudaLexer
from pygments.lexers.python import PythonLexer
from pygments.lexers.special import TextLexer
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    String,
    Token,
    _TokenType,  # pyright: ignore[reportPrivateUsage] # the type that lexers yield has no public name
)

PARTS = ("keyword", "type", "builtin", "function", "string", "number", "comment", "directive")
Run = tuple[int, str]  # a part's end in its line, and which of PARTS it is ("": none)

_PARTS: dict[_TokenType, str] = {
    Comment: "comment",
    Comment.Preproc: "directive",
    Comment.PreprocFile: "string",
    Keyword: "keyword",
    Keyword.Type: "type",
    Name.Builtin: "builtin",
    Name.Class: "type",
    Name.Decorator: "directive",
    Name.Function: "function",
    Number: "number",
    Operator.Word: "keyword",
    String: "string",
    String.Doc: "comment",
}
_LEXERS: dict[str, Callable[..., Lexer]] = {
    ".cu": CudaLexer,
    ".cuh": CudaLexer,
    ".h": CudaLexer,
    ".cpp": CudaLexer,
    ".py": PythonLexer,
}


def highlight(lines: Sequence[str], file: str) -> tuple[tuple[Run, ...], ...]:
    """Each line's runs of one part, by the language that the file's name tells."""
    lexer = _LEXERS.get(PurePath(file).suffix, TextLexer)(stripnl=False, ensurenl=False)
    found: list[list[Run]] = [[]]
    column = 0
    for token, text in lexer.get_tokens("".join(f"{line}\n" for line in lines)):
        part = _part(token)
        for number, piece in enumerate(text.split("\n")):
            if number:
                found.append([])
                column = 0
            if piece:
                column += len(piece)
                runs = found[-1]
                if runs and runs[-1][1] == part:
                    runs.pop()
                runs.append((column, part))
    return tuple(tuple(runs) for runs in found[: len(lines)])


def _part(token: _TokenType) -> str:
    while token is not Token and token.parent is not None:
        part = _PARTS.get(token)
        if part is not None:
            return part
        token = token.parent
    return ""
