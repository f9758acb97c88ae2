"""Textual's style sheet, quicker: what is parsed stays parsed, and what has been applied isn't again.

Textual (8.2) parses every rule twice at the start, and applies all of them to every widget again for each
class that a screen gets and each time that it is shown; half of the time to the first screen went there.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from textual.app import App
from textual.cache import LRUCache
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.widget import Widget

# Theirs returns the same in Python code, and is called for every rule each time that rules are applied.
RuleSet.__hash__ = object.__hash__

# What `_standing` and `_ordered` below see, or nothing changes but with the theme.
_KNOWN = frozenset(
    {
        *("hover", "focus", "blur", "enabled", "disabled", "can-focus", "focus-within"),
        *("first-child", "last-child", "first-of-type", "last-of-type", "odd", "even", "empty"),
        *("dark", "light", "ansi", "nocolor", "inline"),
    }
)
_OF_SHEETS = ("_require_parse", "_variables", "_parse_cache")
_OF_NODES = ("_has_order_style", "_has_odd_or_even", "_has_focus_within", "css_path_nodes")
_parsed: dict[frozenset[tuple[str, str]], LRUCache[tuple[Any, ...], list[RuleSet]]] = {}  # by variables


def stylesheet(app: App[Any]) -> Stylesheet:
    """The quick style sheet of an app, or Textual's own where Textual isn't as this module knows it: its
    rules ask for more, or inner parts are gone."""
    variables = app.get_css_variables()
    plain = Stylesheet(variables=variables)
    inner = all(hasattr(plain, name) for name in _OF_SHEETS) and all(hasattr(app, name) for name in _OF_NODES)
    asked = getattr(Widget, "_PSEUDO_CLASSES", None)
    known = inner and asked is not None and _KNOWN.issuperset(asked) and hasattr(Widget, "mouse_hover")
    return LazyStylesheet(variables=variables) if known else plain


class LazyStylesheet(Stylesheet):
    """A style sheet that skips what it has done."""

    def __init__(self, *, variables: dict[str, str] | None = None) -> None:
        super().__init__(variables=variables)
        self._parsed = 0  # times
        self._applied: WeakKeyDictionary[DOMNode, tuple[object, ...]] = WeakKeyDictionary()
        self._ordered = False  # whether a component's rules depend on more than `_standing`
        self._share()

    def set_variables(self, variables: dict[str, str]) -> None:
        """Variables of another theme: everything is parsed again that wasn't with these."""
        if variables != self._variables:
            self._parse_cache = LRUCache(1)  # which theirs clears
            super().set_variables(variables)
            self._share()

    def _share(self) -> None:
        """What a theme's rules are parsed to is kept as long as the process."""
        self._parse_cache = _parsed.setdefault(frozenset(self._variables.items()), LRUCache(512))

    def parse(self) -> None:
        """Parse what was added."""
        super().parse()
        self._parsed += 1

    def reparse(self) -> None:
        """Apply new variables; without any there is nothing to do."""
        self.parse()

    def apply(self, node: DOMNode, *, animate: bool = False, cache: dict[tuple, Any] | None = None) -> None:
        """Apply the rules to a node, unless nothing that they look at has changed since the last time."""
        if not isinstance(node, Widget):  # the app, or a component of a widget
            super().apply(node, animate=animate, cache=cache)
            self._ordered |= _ordered(node)
            return
        if self._require_parse:
            self.parse()
        standing = (self._parsed, *map(_standing, node.css_path_nodes))
        if self._applied.get(node) == standing:
            return
        self._ordered = False
        super().apply(node, animate=animate, cache=cache)
        if self._ordered or _ordered(node):
            self._applied.pop(node, None)
        else:
            self._applied[node] = standing


def _standing(node: DOMNode) -> tuple[object, ...]:
    """What rules ask of a node itself; the rest of it doesn't change."""
    if isinstance(node, Widget):
        return (
            id(node),
            node.classes,
            node.mouse_hover,
            node.has_focus,
            node.is_disabled,
            node.allow_focus(),
        )
    return (node.classes, getattr(node, "app_focus", None))


def _ordered(node: DOMNode) -> bool:
    """Whether a rule asks for its neighbours or descendants."""
    return node._has_order_style or node._has_odd_or_even or node._has_focus_within
