"""Typed access to a TOML file's tables, with errors that name file and key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.expr import compile_expr, near


class Table:
    """One TOML table with its place in the file. Getters raise UsageError: file, key, fault, remedy."""

    def __init__(self, data: Mapping[str, Any], path: Path, where: str = "") -> None:
        self.data = data
        self.path = path
        self.where = where

    def error(self, key: str, what: str) -> UsageError:
        """What is wrong with a key, to be raised; with the table itself where the key is empty."""
        place = " ".join(p for p in (self.where, key) if p)
        return UsageError(f"{self.path}: {place}: {what}" if place else f"{self.path}: {what}")

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def known(self, keys: Collection[str]) -> None:
        """Refuse keys that mean nothing here."""
        for key in self.data:
            if key not in keys:
                raise self.error(key, f"unknown key; {near(key, keys)}")

    def get(self, key: str, kind: type | tuple[type, ...], what: str, default: Any = None) -> Any:
        """A value of a TOML type. `default=...` (Ellipsis) means required."""
        if key not in self.data:
            if default is ...:
                raise self.error(key, f"missing; give {what}")
            return default
        value = self.data[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(key, f"must be {what}, got {value!r}")
        return value

    def text(self, key: str, default: Any = ...) -> Any:
        """A text that isn't empty, or the default."""
        value = self.get(key, str, "a text", default)
        if default is ... and not value.strip():
            raise self.error(key, "is empty; give a text")
        return value

    def choice(self, key: str, allowed: Collection[str], default: Any = ...) -> str:
        """One of a few words."""
        value = self.text(key, default)
        if value not in allowed:
            raise self.error(key, f"{value!r} isn't one of {', '.join(allowed)}")
        return value

    def table(self, key: str) -> Table:
        """A table below this one; empty where it is left out."""
        return Table(self.get(key, dict, "a table", {}), self.path, f"{self.where}[{key}]".replace("][", "."))

    def tables(self, key: str, label: str | None = None) -> list[Table]:
        """An array of tables, each named in errors by its `name` or its number, from 1."""
        rows = self.get(key, list, f"an array of tables ([[{key}]])", [])
        if not all(isinstance(r, dict) for r in rows):
            raise self.error(key, f"must be an array of tables ([[{key}]])")
        return [
            Table(r, self.path, f"{self.where} [[{label or key}]] {r.get('name', i + 1)}".strip())
            for i, r in enumerate(rows)
        ]

    def expression(self, key: str, value: Any, names: Collection[str]) -> str:
        """A number or an expression over `names`, as text."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise self.error(key, f"must be a number or an expression, got {value!r}")
        text = str(value)
        try:
            compile_expr(text, names)
        except UsageError as e:
            raise self.error(key, str(e)) from None
        return text

    def expressions(self, key: str, names: Collection[str], *, most: int) -> tuple[str, ...]:
        """A list of 1 to `most` numbers or expressions over `names`; one alone may stand without brackets."""
        value = self.get(key, (list, int, str), "a list of expressions", ...)
        items = value if isinstance(value, list) else [value]
        if not 1 <= len(items) <= most:
            raise self.error(key, f"needs 1 to {most} entries, got {len(items)}")
        return tuple(self.expression(key, item, names) for item in items)
