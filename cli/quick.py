"""The two ways to a dashboard that need no parser: `warpdeck` and `warpdeck attach SESSION`.

Typer and what it reads types with take 0.15 s, which who only wants to look shouldn't wait for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..core.errors import UsageError
from .output import guarded, stdout_is_terminal


def run(given: Sequence[str]) -> int | None:
    """The exit code of one of these commands; None: the parser knows what was meant."""
    if not given and stdout_is_terminal():
        return guarded(start)
    if len(given) == 2 and given[0] == "attach" and not given[1].startswith("-"):
        return guarded(partial(attach, given[1]))
    return None


def start() -> int:
    """The dashboard's start screen."""
    from .. import tui

    return tui.run_start()


def attach(session: str) -> int:
    """A run in the dashboard. UsageError where there is no such session, or no terminal."""
    from .. import tui
    from ..sessions import paths

    folder = paths.resolve(session)
    need_terminal(f"warpdeck sessions show {folder.name}")
    return tui.run_attach(folder)


def need_terminal(instead: str) -> None:
    """Refuse a dashboard where none can be shown. UsageError names another command."""
    if not stdout_is_terminal():
        raise UsageError(f"the dashboard needs a terminal; without one: {instead}")
