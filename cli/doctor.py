"""`doctor` and `config`: what works here, and where things are."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from . import options
from .output import json_document, line, table

config_app = typer.Typer(help="Where files are kept, and what is set.", no_args_is_help=True)

VARIABLES = {
    "WARPDECK_HOME": "sessions, recordings and the cache; else the platform's data and cache folders",
    "WARPDECK_LOCK_DIR": "locks of GPUs, shared between users; else /run/lock",
    "NO_COLOR": "no colours",
    "CUDA_VISIBLE_DEVICES": "which GPUs cuda:N counts",
}


def doctor(as_json: options.Json = False) -> None:
    """Check what works on this machine, and say how to mend what does not."""
    from ..core.doctor import examine
    from ..sessions import paths

    home = paths.home()
    kind = paths.filesystem(home.path)
    checks = examine(home.path, filesystem=kind, network=paths.is_network(kind))
    if as_json:
        json_document({"checks": [check.to_json() for check in checks]})
        return
    width = max(len(check.name) for check in checks)
    for check in checks:
        line(f"{'ok' if check.ok else '--'}  {check.name:<{width}}  {check.detail}")
        if not check.ok and check.remedy:
            line(f"    {'':<{width}}  -> {check.remedy}")
    missing = sum(not check.ok for check in checks)
    line()
    line(
        "All checks passed."
        if not missing
        else f"{missing} of {len(checks)} need attention only if you want what they are for; recordings and"
        " replay work regardless."
    )


@config_app.command("path")
def config_path(
    what: Annotated[
        str, typer.Argument(metavar="[home|sessions|recordings|cache]", help="Which one.")
    ] = "home",
) -> None:
    """Print a folder."""
    found = _folders()
    line(found[options.choice("path", what, list(found))])


@config_app.command("show")
def config_show(as_json: options.Json = False) -> None:
    """Show the folders and the environment variables that warpdeck reads."""
    from ..sessions import paths

    notice = paths.home().notice
    folders = _folders()
    settings = {name: os.environ.get(name) for name in VARIABLES}
    if as_json:
        json_document({"folders": folders, "environment": settings, "notice": notice})
        return
    table(["folder", "path"], folders.items())
    line()
    table(["variable", "value", "meaning"], [(n, settings[n], VARIABLES[n]) for n in VARIABLES])
    if notice:
        line()
        line(notice)


def _folders() -> dict[str, str]:
    from ..sessions import paths

    home = paths.home()
    return {
        "home": str(home.path),
        "sessions": str(home.sessions),
        "recordings": str(home.path / "recordings"),
        "cache": str(paths.cache_dir()),
    }


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(doctor)
    app.add_typer(config_app, name="config")
