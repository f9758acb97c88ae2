"""The reference of `repeat`."""

from __future__ import annotations

from typing import Any


def reference(x: Any) -> Any:
    """y = 2x."""
    return 2 * x
