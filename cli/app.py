"""The Typer application."""

from __future__ import annotations

import typer

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True)


@app.callback()
def root() -> None:
    """Tune CUDA kernels from the terminal."""


def main() -> None:
    """Entry point of the `warpdeck` script."""
    app()
