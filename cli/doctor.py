"""`doctor`: what works here."""

from __future__ import annotations

import typer

from . import options
from .output import json_document, line


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


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(doctor)
