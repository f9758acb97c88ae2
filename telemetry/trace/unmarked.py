"""A Numba kernel's source without its stage markers, for people to read."""

from __future__ import annotations

import ast

from ..parsing import parse_module
from .markers import Stripper, strip
from .marking import MODULE


def strip_text(text: str, file: str) -> str:
    """A module's text without its markers and their import, for people to read; comments stay.

    Raises MarkerError as `strip` does, SyntaxError for what isn't Python.
    """
    if not strip(parse_module(text, file), file):
        return text
    tree = parse_module(text, file)
    edit = _TextStripper(Stripper(tree, file), tree, text)
    edit.block(tree.body, tree)
    return edit.text()


class _TextStripper:
    def __init__(self, rules: Stripper, tree: ast.Module, text: str) -> None:
        self._rules = rules
        self._lines: list[bytes | None] = [line.encode() for line in text.split("\n")]
        self._fixed = {  # lines that begin inside a string
            line
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant | ast.JoinedStr)
            for line in range(node.lineno, node.end_lineno or node.lineno)
        }

    def text(self) -> str:
        return "\n".join(line.decode() for line in self._lines if line is not None)

    def block(self, body: list[ast.stmt], function: ast.AST) -> None:
        gone = [s for s in body if self._rules.is_marker(s, function) or _imports_markers(s)]
        for statement in reversed(body):  # so that places before it stay right
            if statement in gone:
                self._remove(statement, needed=len(gone) == len(body) and statement is body[0])
                continue
            inner = statement if isinstance(statement, ast.FunctionDef) else function
            for name in ("body", "orelse", "finalbody"):
                self.block(getattr(statement, name, []), inner)
            for part in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
                self.block(part.body, inner)
            if isinstance(statement, ast.With) and self._rules.is_stage(statement):
                self._unwrap(statement)

    def _remove(self, node: ast.stmt, *, needed: bool) -> None:
        """Take a statement out; leave `pass` where there must be one."""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        before = (self._lines[first] or b"")[: node.col_offset]
        after = (self._lines[last] or b"")[node.end_col_offset :]
        alone = not before.strip() and (not after.strip() or after.lstrip().startswith(b"#"))
        for line in range(first, last + 1):
            self._lines[line] = None
        if not alone:
            self._lines[first] = before + b"pass" + after
        elif needed:
            self._lines[first] = before + b"pass"

    def _unwrap(self, node: ast.With) -> None:
        """Take the head of a `with` statement out, and its body one level to the left."""
        first, inside = node.lineno - 1, node.body[0].lineno - 1
        shift = node.body[0].col_offset - node.col_offset
        head = (node.items[-1].context_expr.end_lineno or node.lineno) - 1
        if inside == head:  # all in one line
            before, line = (self._lines[first] or b"")[: node.col_offset], self._lines[inside] or b""
            for gone in range(first, inside):
                self._lines[gone] = None
            self._lines[inside] = before + line[node.body[0].col_offset :]
            return
        for number in range(first, node.end_lineno or node.lineno):
            line = self._lines[number]
            if number <= head or (number < inside and line and line.lstrip().startswith((b")", b":"))):
                self._lines[number] = None
            elif line is not None and number not in self._fixed:
                blank = len(line) - len(line.lstrip(b" \t"))
                self._lines[number] = line[min(shift, blank) :]


def _imports_markers(node: ast.stmt) -> bool:
    """Whether a statement does nothing but import markers."""
    if isinstance(node, ast.ImportFrom):
        return node.level == 0 and (
            node.module == MODULE or all(f"{node.module}.{alias.name}" == MODULE for alias in node.names)
        )
    return isinstance(node, ast.Import) and all(alias.name == MODULE for alias in node.names)
