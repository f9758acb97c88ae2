"""Packages whose names load on first use: a small program of a package needn't import all of it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def exports(package: str, home: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """A package's `__getattr__`. `home`: its modules, and the names that each gives to the package."""
    module_of = {name: module for module, names in home.items() for name in names}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        return getattr(importlib.import_module(f".{module_of[name]}", package), name)

    return load
