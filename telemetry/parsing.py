"""Python's parser, where several threads may need it at once."""

from __future__ import annotations

import ast
import threading

# Until Python 3.11.5 threads that parse at the same time disturb each other (SystemError, gh-106905).
_PARSING = threading.Lock()


def parse_module(text: str | bytes, file: str = "<unknown>") -> ast.Module:
    """A module's tree. Raises SyntaxError, also for what is nested too deeply; ValueError for null bytes."""
    try:
        with _PARSING:
            return ast.parse(text, file)
    except (RecursionError, MemoryError):
        raise SyntaxError("nested too deeply") from None


def parse_expression(text: str) -> ast.expr:
    """An expression's tree. Raises as `parse_module`."""
    try:
        with _PARSING:
            return ast.parse(text, mode="eval").body
    except (RecursionError, MemoryError):
        raise SyntaxError("nested too deeply") from None
