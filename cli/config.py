"""`config`: where files are kept, what is set, and the dashboard's keys."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import ExitCode
from . import options
from .output import json_document, line, table, warning

if TYPE_CHECKING:
    from ..tui.settings import Settings

config_app = typer.Typer(
    help="Where files are kept, what is set, and the dashboard's keys.", no_args_is_help=True
)

VARIABLES = {
    "WARPDECK_HOME": "settings, sessions, recordings and the cache; else the platform's folders",
    "WARPDECK_LOCK_DIR": "locks of GPUs, shared between users; else /run/lock",
    "NO_COLOR": "no colours",
    "CUDA_VISIBLE_DEVICES": "which GPUs cuda:N counts",
}


@config_app.command("path")
def config_path(
    what: Annotated[
        str, typer.Argument(metavar="home|settings|sessions|recordings|cache|include", help="Which one.")
    ] = "home",
) -> None:
    """Print a folder, or where the settings' file is."""
    found = _places()
    line(found[options.choice("path", what, list(found))])


@config_app.command("show")
def config_show(as_json: options.Json = False) -> ExitCode:
    """Show the folders, the dashboard's settings and the environment variables that warpdeck reads.

    Exit code 2 if the settings' file has mistakes, each of which is told.
    """
    from ..sessions import paths
    from ..tui.settings import load

    notice = paths.home().notice
    folders = _places()
    variables = {name: os.environ.get(name) for name in VARIABLES}
    found = load()
    problems = _problems(found)
    for problem in problems:
        warning(problem)
    values = {"theme": found.theme, "readonly": found.readonly, "mouse": found.mouse}
    if as_json:
        settings = {**values, "keys": dict(found.keys), "problems": problems}
        json_document({"folders": folders, "settings": settings, "environment": variables, "notice": notice})
        return ExitCode.USAGE if problems else ExitCode.OK
    table(["folder", "path"], folders.items())
    line()
    shown = {name: str(value).lower() for name, value in values.items()}
    table(
        ["setting", "value"], [*shown.items(), *((f"keys.{name}", key) for name, key in found.keys.items())]
    )
    line()
    table(["variable", "value", "meaning"], [(n, variables[n], VARIABLES[n]) for n in VARIABLES])
    if notice:
        line()
        line(notice)
    return ExitCode.USAGE if problems else ExitCode.OK


@config_app.command("keys")
def config_keys(as_json: options.Json = False) -> None:
    """List every key of the dashboard: its id, by which the settings give it another, and what it does."""
    from ..tui.keys import registry

    known = registry().values()
    if as_json:
        rows = [{"id": k.id, "keys": list(k.keys), "does": k.words, "changes": k.changes} for k in known]
        json_document({"keys": rows})
    else:
        table(["id", "key", "does"], [(key.id, key.shown, key.words) for key in known])


def _problems(found: Settings) -> list[str]:
    from ..tui.settings import config_file

    problems = list(found.problems)
    if found.keys:
        from ..tui.keys import keymap

        problems += [f"{config_file()}: {problem}" for problem in keymap(found.keys)[1]]
    return problems


def _places() -> dict[str, str]:
    from ..core.toolchain.sources import TRACE_INCLUDE
    from ..sessions import paths
    from ..tui.settings import config_file

    home = paths.home()
    return {
        "home": str(home.path),
        "settings": str(config_file()),
        "sessions": str(home.sessions),
        "recordings": str(home.path / "recordings"),
        "cache": str(paths.cache_dir()),
        "include": str(TRACE_INCLUDE),  # for programs of one's own that trace their kernels
    }


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.add_typer(config_app, name="config")
