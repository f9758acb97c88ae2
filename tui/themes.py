"""The console's colours. Four themes, and none of them is the only cue for anything."""

from __future__ import annotations

from typing import Any

from textual.theme import Theme

from .settings import THEMES as SETTABLE

# The palette of Okabe and Ito (2008), told apart with any of the common colour-vision deficiencies:
# good is bluish green, bad vermillion, and nothing is told by red against green.
_ORANGE, _SKY, _GREEN, _YELLOW = "#e69f00", "#56b4e9", "#009e73", "#f0e442"
_BLUE, _VERMILLION, _PURPLE = "#0072b2", "#d55e00", "#cc79a7"

_NAMES = tuple(SETTABLE)
# fmt: off
_ROLES = {
    "primary":    ("#6cb6ff", "#0a5ca8", "#8cd0ff", _SKY),
    "secondary":  ("#2f6f9f", "#7fb3e0", "#0057b8", _BLUE),
    "accent":     ("#8ddb3c", "#2b6a00", "#ffff00", _YELLOW),
    "success":    ("#8ddb3c", "#2b6a00", "#5cff5c", _GREEN),
    "warning":    ("#f2c14e", "#7a4d00", "#ffd800", _ORANGE),
    "error":      ("#ff7b72", "#a8201a", "#ff8f8f", _VERMILLION),
    "foreground": ("#e4e7eb", "#1a1f24", "#ffffff", "#f2f2f2"),
    "background": ("#0f1317", "#fcfcfa", "#000000", "#0b0d10"),
    "surface":    ("#171c22", "#f2f3f1", "#000000", "#14171b"),
    "panel":      ("#232a32", "#e6e9eb", "#1c1c1c", "#20242a"),
}
# Variables of our style sheet that Textual's themes don't have, and two of Textual's that need a change.
_VARIABLES = {
    "text-muted":            (None, None, "#d0d0d0", None),
    "border-blurred":        ("#4a5663", "#8d979f", "#d0d0d0", "#4a5663"),
    "footer-key-foreground": ("#8ddb3c", "#2b6a00", "#ffff00", _YELLOW),
    "diff-removed":          ("#3a1d20", "#ffe4e1", "#4a0008", "#40200a"),
    "diff-added":            ("#16301f", "#dff3e0", "#003a10", "#0a2a40"),
    "diff-removed-word":     ("#7a2f36", "#f6b5af", "#8c0012", "#8a3d00"),
    "diff-added-word":       ("#1f6b3a", "#a5dcac", "#00661c", "#00568a"),
    "code-keyword":          ("#c792ea", "#7a2ca0", "#c792ea", _PURPLE),
    "code-type":             ("#7fdbca", "#00626b", "#7fdbca", _SKY),
    "code-builtin":          ("#82aaff", "#1d4fb8", "#82aaff", _SKY),
    "code-function":         ("#ffd580", "#7a4d00", "#ffd580", _YELLOW),
    "code-string":           ("#c3e88d", "#2b6a00", "#c3e88d", _GREEN),
    "code-number":           ("#f78c6c", "#9c3a00", "#f78c6c", _ORANGE),
    "code-comment":          ("#9aa7b4", "#5a6570", "#d0d0d0", "#9aa7b4"),
    "code-directive":        ("#e0935a", "#8f4310", "#e0935a", _ORANGE),
}
# fmt: on


def _theme(number: int) -> Theme:
    roles: dict[str, Any] = {role: colours[number] for role, colours in _ROLES.items()}
    variables = {name: colours[number] for name, colours in _VARIABLES.items()}
    return Theme(
        name=_NAMES[number],
        dark=_NAMES[number] != "light",
        variables={name: colour for name, colour in variables.items() if colour is not None},
        **roles,
    )


DARK, LIGHT, CONTRAST, COLOUR_BLIND = map(_theme, range(len(_NAMES)))
THEMES = {theme.name: theme for theme in (DARK, LIGHT, CONTRAST, COLOUR_BLIND)}
