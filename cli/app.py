"""The command line: the root command, and where each command's module is plugged in.

Command modules declare options and print; they import what they need inside the functions, so that `--help`
stays fast.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from .._version import __version__
from . import (
    bench,
    check,
    config,
    doctor,
    occupancy,
    options,
    profile,
    quick,
    sass,
    sessions,
    sweep,
    trace,
    train,
    tune,
    web,
    workloads,
)
from .output import ended_by_signals, guarded, line, set_quiet, stdout_is_terminal

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _version(asked: bool) -> None:
    if asked:
        line(f"warpdeck {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No messages but warnings and errors.")
    ] = False,
    theme: options.Theme = None,
    readonly: options.ReadOnly = False,
    mouse: Annotated[
        bool,
        typer.Option("--mouse/--no-mouse", help="Dashboard: use the mouse, or leave it to the terminal."),
    ] = True,
) -> None:
    """Tune CUDA kernels: measured, checked, recorded, replayable.

    Without a command, on a terminal: the dashboard's start screen.

    stdout is data, stderr is messages. Exit codes: 0 ok, 1 run failed, 2 usage, 3 no GPU or driver,
    4 limit of time, tokens or money, 5 verification failed, 130 interrupted, 143 and 129 ended by a signal.
    """
    set_quiet(quiet)
    options.dashboard(theme, readonly=readonly, mouse=mouse)
    if context.invoked_subcommand is None:
        if not stdout_is_terminal():
            line(context.get_help())
            raise typer.Exit
        raise typer.Exit(quick.start())


# The order of `--help`.
COMMANDS = (
    *(tune, web, bench, sweep, check, profile, trace, sass, occupancy, train),
    *(sessions, workloads, config, doctor),
)
for module in COMMANDS:
    module.register(app)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with ended_by_signals():
        return guarded(lambda: app(args=given, prog_name="warpdeck", standalone_mode=False))
