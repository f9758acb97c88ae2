"""`web`: the dashboard in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from ..core.errors import UsageError
from . import options
from .output import line, message, warning


def web(
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address of this machine to listen at.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="0: any that is free.")
    ] = 8765,
    readonly: options.ReadOnly = False,
    theme: options.Theme = None,
    allow_remote: Annotated[
        bool,
        typer.Option(
            "--allow-remote",
            help="Listen where others reach it: unencrypted, with only the token before it.",
        ),
    ] = False,
) -> None:
    """Serve the dashboard to a browser (the extra web), until Ctrl-C.

    It listens on this machine only, and lets in who has the token of the URL that it prints: from elsewhere,
    use ssh -L 8765:127.0.0.1:8765. Each tab is a dashboard of its own; closing it leaves runs going.
    """
    from .. import tui
    from ..tui.serving import is_loopback

    options.dashboard(theme, readonly=readonly)
    if not is_loopback(host):
        if not allow_remote:
            raise UsageError(
                f"--host {host} lets others reach the dashboard, and with it this account: use the default"
                " with ssh -L, or say --allow-remote"
            )
        warning(f"{host} is reached by others, and what it sends is not encrypted")
    try:
        from ..tui.web import serve
    except ImportError as error:
        raise UsageError(f"web needs the extra web ({error.name}): pip install 'warpdeck[web]'") from None

    def ready(url: str) -> None:
        line(url)
        message("open it in a browser; Ctrl-C ends serving, and runs go on")

    serve(host, port, tui.chosen_settings(), ready)


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(web)
