"""What comes late: a worker's result, for a screen that may have been left meanwhile."""

from __future__ import annotations

from typing import Any

from textual.screen import Screen


def gone(screen: Screen[Any]) -> bool:
    """Whether a screen was left. Its widgets are taken away before it is no longer attached."""
    return not screen.is_attached or not screen.display or not screen.children
