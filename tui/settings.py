"""The dashboard's settings: a TOML file, and what the command line says instead.

A mistake in the file never keeps the dashboard from opening: what is wrong is told in one line each, and
the rest is used.
"""

from __future__ import annotations

import difflib
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import platformdirs

from ..core.errors import UsageError

FILE = "config.toml"


@dataclass(frozen=True)
class Settings:
    """What the file and the command line say. `problems`: what is wrong in the file, one line each."""

    theme: str = "dark"
    """`dark`, `light`, `high-contrast` or `colour-blind` (the palette of Okabe and Ito)."""
    readonly: bool = False
    """Whether the dashboard refuses everything that changes a run, a session or a file."""
    mouse: bool = True
    """Whether the mouse works in the dashboard; without it the terminal's own selection does."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Other keys, by the binding's id: `"run.pause" = "f2"`, or `"*.help" = "f1,question_mark"` for every
    screen. Several keys are joined with commas."""
    problems: tuple[str, ...] = ()


THEMES = {
    "dark": "for dark rooms and most terminals",
    "light": "dark text on a light background",
    "high-contrast": "white on black, strong frames",
    "colour-blind": "the palette of Okabe and Ito",
}
FIELDS = tuple(f.name for f in fields(Settings) if f.name != "problems")


def config_file() -> Path:
    """Where the settings are: `WARPDECK_HOME`/config.toml, else the platform's folder for settings."""
    home = os.environ.get("WARPDECK_HOME")
    folder = Path(home).expanduser() if home else Path(platformdirs.user_config_dir("warpdeck"))
    return (folder / FILE).absolute()


def load(file: Path | None = None) -> Settings:
    """The settings of a file (default: the user's); the defaults where there is none."""
    path = config_file() if file is None else file
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Settings()
    except (OSError, ValueError) as error:  # a TOML or a Unicode error is a ValueError
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return Settings(problems=(f"{path}: {why}; nothing of it is used",))
    return _read(document, path)


def _read(document: Mapping[str, Any], path: Path) -> Settings:
    settings, problems = Settings(), []

    def wrong(what: str) -> None:
        problems.append(f"{path}: {what}")

    for name, value in document.items():
        if name not in FIELDS:
            near = difflib.get_close_matches(name, FIELDS, 1)
            wrong(f"unknown setting {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
        elif name == "keys":
            if not isinstance(value, Mapping):
                wrong('keys is a table: [keys], then "run.pause" = "f2"')
                continue
            keys = dict(_flat(value))
            for key in [key for key, text in keys.items() if not isinstance(text, str) or not text.strip()]:
                wrong(f'[keys] {key} = {keys.pop(key)!r}: give a key\'s name in quotes, as in "f2"')
            settings = replace(settings, keys=keys)
        elif name == "theme":
            if not isinstance(value, str):
                wrong(f'theme = {value!r}: give its name in quotes, as in "light"')
                continue
            try:
                settings = replace(settings, theme=theme_name(value, "theme"))
            except UsageError as error:
                wrong(str(error))
        elif isinstance(value, bool):
            settings = replace(settings, **{name: value})
        else:
            wrong(f"{name} = {value!r}: use true or false")
    return replace(settings, problems=tuple(problems))


def theme_name(text: str, where: str) -> str:
    """A theme's name as it was given. UsageError names the themes, and the one that was meant."""
    name = text.strip().lower().replace("_", "-").replace("color", "colour")
    if name in THEMES:
        return name
    near = difflib.get_close_matches(name, THEMES, 1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(f"{where}: there is no theme {text!r}{meant} (themes: {', '.join(THEMES)})")


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Without quotes, `run.pause = "f2"` is a table in a table."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


_THEME_LINE = re.compile(r"^[ \t]*theme[ \t]*=.*$", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


def save_theme(name: str, file: Path | None = None) -> Path:
    """Write a theme's name into the file and leave everything else in it as it is.

    Raises OSError if it can't be written, ValueError if the file isn't TOML.
    """
    path = config_file() if file is None else file
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    tomllib.loads(text)
    table = _TABLE.search(text)
    top, rest = (text[: table.start()], text[table.start() :]) if table else (text, "")
    line = f'theme = "{name}"'
    if _THEME_LINE.search(top):
        top = _THEME_LINE.sub(line, top, count=1)
    else:
        top = f"{line}\n{top}"
        top += "" if not rest or top.endswith("\n\n") else "\n"
    if tomllib.loads(top + rest).get("theme") != name:  # a line of a text in quotes looked like it
        raise ValueError(f"{path}: can't find where theme is set; set it by hand: {line}")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, made = tempfile.mkstemp(dir=path.parent, prefix=".config-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(top + rest)
        Path(made).replace(path)
    except OSError:
        Path(made).unlink(missing_ok=True)
        raise
    return path
