"""The reference of `repeat`: the identity."""

from __future__ import annotations

from typing import Any


def reference(x: Any) -> Any:
    """y = x."""
    return x
