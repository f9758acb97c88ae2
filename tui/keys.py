"""Every key of the dashboard, from the classes that bind them, and the keys that a user wants instead."""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import Keys, _character_to_key, format_key
from textual.screen import Screen
from textual.widget import Widget

from .access import changed_by_class

PACKAGE = __name__.rpartition(".")[0]
_MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "hyper", "meta"})
_SYMBOL = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Key:
    """What one id stands for. `keys`: Textual's names of its keys; `where`: the class that binds it;
    `changes`: what it changes outside of the dashboard, if anything ("stop runs")."""

    id: str
    keys: tuple[str, ...]
    words: str
    where: type[DOMNode]
    changes: str | None = None

    @property
    def shown(self) -> str:
        """Its keys for people."""
        return " ".join(dict.fromkeys(format_key(key) for key in self.keys))


@cache
def registry() -> Mapping[str, Key]:
    """Every key that has an id, by id, in the order of the code. Imports all screens."""
    found: dict[str, Key] = {}
    for owner in _owners():
        for declared in owner.__dict__.get("BINDINGS", ()):
            if isinstance(declared, Binding) and declared.id:
                keys = tuple(_normal(key) for key in declared.key.split(","))
                known = found.get(declared.id)
                words = declared.tooltip or declared.description or _documented(owner, declared.action)
                if known is not None:  # a key of its own, for the same thing
                    keys, words = (*known.keys, *keys), known.words
                what = changed_by_class(owner, declared.action)
                found[declared.id] = Key(declared.id, keys, words, known.where if known else owner, what)
    return found


def _documented(owner: type[DOMNode], action: str) -> str:
    """An action's own words: a key without a description would be in the help twice."""
    method = getattr(owner, f"action_{action.partition('(')[0]}", None)
    return (method.__doc__ or "").partition("\n")[0].rstrip(".") if method is not None else ""


def _owners() -> Iterator[type[DOMNode]]:
    """The app, the screens, the widgets of this package."""
    package = importlib.import_module(PACKAGE)
    names = sorted(module.name for module in pkgutil.walk_packages(package.__path__, f"{PACKAGE}."))
    modules = [importlib.import_module(name) for name in names if not name.endswith(".served")]
    classes = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, DOMNode) and value.__module__.startswith(PACKAGE)
    }
    order = {App: 0, Screen: 1, Widget: 2}

    def place(owner: type[DOMNode]) -> tuple[int, str, str]:
        kind = next(rank for base, rank in order.items() if issubclass(owner, base))
        return kind, owner.__module__, owner.__qualname__

    return iter(sorted(classes, key=place))


def keymap(asked: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """(ids and their keys, for `App.set_keymap`; what is wrong with the others, a line each).

    An id may be a pattern, as in `*.help`. A key that something else has in the same place is refused:
    it would take that from the user without a word.
    """
    if not asked:
        return {}, []
    known, wanted, problems = registry(), dict[str, tuple[str, ...]](), list[str]()
    for pattern, text in asked.items():
        ids = fnmatch.filter(known, pattern)
        if not ids:
            near = difflib.get_close_matches(pattern, known, 3)
            meant = f"; near: {', '.join(near)}" if near else "; `warpdeck config keys` lists them"
            problems.append(f"[keys] {pattern}: no key has that id{meant}")
            continue
        keys = tuple(_normal(key) for key in _split(text))
        wrong = next((said for key in keys if (said := _unknown(key))), None)
        if wrong is not None or not keys:
            problems.append(f"[keys] {pattern} = {text!r}: {wrong or 'name a key'}")
            continue
        wanted |= dict.fromkeys(ids, keys)
    while (clash := _clash(wanted)) is not None:
        mine, key, other = clash
        kept = " ".join(format_key(key) for key in known[mine].keys)
        problems.append(
            f"[keys] {mine} = {format_key(key)!r}: {other} ({known[other].words.lower()}) has that key there;"
            f" {mine} keeps {kept}"
        )
        del wanted[mine]
    return {name: ",".join(keys) for name, keys in wanted.items()}, problems


def _split(text: str) -> list[str]:
    """Keys joined with commas; a comma alone is the key."""
    return [","] if text.strip() == "," else [part.strip() for part in text.split(",") if part.strip()]


def _normal(key: str) -> str:
    """Textual's name of a key: "question_mark" for "?", "ctrl+x" for "Ctrl+X"."""
    key = key.strip()
    if len(key) == 1:
        return _character_to_key(key)
    *modifiers, last = key.split("+") if not key.endswith("++") else [*key[:-2].split("+"), "+"]
    if modifiers:
        last = _character_to_key(last) if len(last) == 1 else last
        return "+".join([*(m.strip().lower() for m in modifiers), last.strip().lower()])
    return key.lower()


@cache
def _names() -> frozenset[str]:
    """Names of keys without modifiers: those of a terminal, and of ASCII's characters."""
    characters = {_character_to_key(chr(code)) for code in range(33, 127)}
    return frozenset({*characters, *(str(key.value).rpartition("+")[2] for key in Keys), "space", "delete"})


def _unknown(key: str) -> str | None:
    """Why it is no key, or None."""
    *modifiers, last = key.split("+")
    for modifier in modifiers:
        if modifier not in _MODIFIERS:
            near = difflib.get_close_matches(modifier, _MODIFIERS, 1)
            return f"{modifier!r} is no modifier" + (f"; near: {near[0]}" if near else "")
    if last in _names() or (len(last) == 1 and last.isprintable()):
        return None
    near = difflib.get_close_matches(last, _names(), 2)
    return f"there is no key {last!r}" + (f"; near: {', '.join(near)}" if near else "")


def _clash(wanted: Mapping[str, tuple[str, ...]]) -> tuple[str, str, str] | None:
    """(an id of `wanted`, its key, the id that has that key in the same place), or None."""
    known = registry()
    for one, other in _meetings():
        mine, theirs = (_bound(node, wanted) for node in (one, other))
        for name, keys in mine.items():
            for key in keys:
                for rival, rivals in theirs.items():
                    if rival == name or key not in rivals:
                        continue
                    if name in wanted and key not in known[name].keys:
                        return name, key, rival
                    if rival in wanted and key not in known[rival].keys:
                        return rival, key, name
    return None


def _bound(node: type[DOMNode], wanted: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Ids that a class binds, also as a heir, and their keys."""
    known = registry()
    ids = {
        declared.id
        for base in node.__mro__
        for declared in base.__dict__.get("BINDINGS", ())
        if isinstance(declared, Binding) and declared.id in known
    }
    return {name: wanted.get(name, known[name].keys) for name in sorted(i for i in ids if i)}


@cache
def _meetings() -> tuple[tuple[type[DOMNode], type[DOMNode]], ...]:
    """Pairs of classes whose keys can be pressed at the same place: each with itself, a screen with the app
    and with its panes, a pane with the app."""
    owners = list(_owners())
    apps = [owner for owner in owners if issubclass(owner, App)]
    screens = [owner for owner in owners if issubclass(owner, Screen)]
    pairs = [(owner, owner) for owner in owners]
    for screen in screens:
        panes = _panes(screen)
        pairs += [(screen, pane) for pane in panes]
        pairs += [(app, node) for app in apps for node in (screen, *panes)]
    return tuple(dict.fromkeys(pairs))


def _panes(screen: type[DOMNode]) -> list[type[Any]]:
    """Widgets that the screen's modules name."""
    modules = [sys.modules[base.__module__] for base in screen.__mro__ if base.__module__.startswith(PACKAGE)]
    values = chain.from_iterable(vars(module).values() for module in modules)
    panes = {
        value
        for value in values
        if isinstance(value, type) and issubclass(value, Widget) and not issubclass(value, Screen)
    }
    return sorted(panes, key=lambda pane: pane.__qualname__)
