"""What can be done now: one list, from the bindings, for the help and the command palette."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from textual.dom import DOMNode
from textual.screen import Screen

from .access import changed_by_class


@dataclass(frozen=True)
class Command:
    """An action that a key of ours is bound to and that applies now."""

    words: str
    keys: str
    action: str
    node: DOMNode
    changes: str | None = None  # what it changes outside of the dashboard


def commands(screen: Screen[Any]) -> list[Command]:
    """The screen's commands, then the app's, then the focused pane's. Textual's own keys are left out."""
    found: dict[str, Command] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if not (binding.id and binding.description and active.enabled):
            continue
        key = screen.app.get_key_display(replace(binding, key_display=None))
        describe = getattr(active.node, "describe", None)
        words = (describe and describe(binding.action)) or binding.tooltip or binding.description
        known = found.get(binding.action) or next(
            (c for c in found.values() if (c.node, c.words) == (active.node, words)), None
        )
        if known is None:
            what = changed_by_class(type(active.node), binding.action)
            if what is not None and getattr(screen.app, "readonly", False):
                words += " (refused: read only)"
            found[binding.action] = Command(words, key, binding.action, active.node, what)
        elif key not in known.keys.split():
            found[known.action] = replace(known, keys=f"{known.keys} {key}")
    app = screen.app
    return sorted(found.values(), key=lambda c: 0 if c.node is screen else 1 if c.node is app else 2)
