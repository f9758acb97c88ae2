"""The console: a Textual app over RunState.

The functions here are what the command line calls; each returns the exit code. They import Textual when
called, since it costs 0.2 s.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.crash import save_traceback
from ..core.errors import ExitCode
from ..sessions.events import Lifecycle
from .memory import settle

if TYPE_CHECKING:
    from textual.screen import Screen

    from ..telemetry.ncu.counters import Counters
    from ..telemetry.trace.timeline import Timeline
    from .settings import Settings
    from .sources import RunSource

SWITCH_S = 0.001  # a poll in another thread mustn't hold up a key for longer
_EXIT = {
    Lifecycle.FAILED: ExitCode.RUN_FAILED,
    Lifecycle.INTERRUPTED: ExitCode.RUN_FAILED,
    Lifecycle.CANCELLED: ExitCode.INTERRUPTED,
}


def run_live(session: Path) -> int:
    """Show a run that was just started. UsageError if the session can't be opened."""
    _hasten()
    from .sources import LiveSource

    return _show(LiveSource(session))


def run_attach(session: Path) -> int:
    """Join a run that goes on, or look at one that ended. UsageError if the session can't be opened."""
    _hasten()
    from .sources import LiveSource

    return _show(LiveSource(session, attach=True))


def run_replay(session: Path, speed: float = 1.0, start: float = 0.0) -> int:
    """Play a session back from `start` seconds. UsageError if the session can't be opened."""
    _hasten()
    from .sources import ReplaySource

    _show(ReplaySource(session, speed=speed, start=start))
    return ExitCode.OK


def run_start(sessions: Path | None = None) -> int:
    """The start screen over a folder of sessions (default: the user's)."""
    _hasten()
    from .screens.start import StartScreen

    return _run(StartScreen(sessions))


def run_timeline(timeline: Timeline) -> int:
    """Look at a trace."""
    _hasten()
    from .screens.timeline import TimelineScreen

    return _run(TimelineScreen(timeline))


def run_counters(counters: Counters) -> int:
    """Look at a launch's hardware counters."""
    _hasten()
    from .screens.counters import CountersScreen

    return _run(CountersScreen(counters))


class _Asked:
    """What the command line said, before the settings are read."""

    changes: ClassVar[dict[str, Any]] = {}


def configure(*, theme: str | None = None, readonly: bool = False, mouse: bool = True) -> None:
    """Settings that outvote those of the file, for every dashboard that is opened from now on.

    Raises UsageError for an unknown theme.
    """
    from .settings import theme_name

    if theme is not None:
        _Asked.changes["theme"] = theme_name(theme, "--theme")
    if readonly:
        _Asked.changes["readonly"] = True
    if not mouse:
        _Asked.changes["mouse"] = False


def chosen_settings() -> Settings:
    """The settings of the user's file, with what the command line said."""
    from .settings import load

    return replace(load(), **_Asked.changes)


def _hasten() -> None:
    """Before everything is imported: look for no garbage until the first screen is there, hoard no memory,
    and let NumPy start no threads, which large matrices alone need (60 ms of every other core)."""
    gc.disable()
    settle()
    name = "OPENBLAS_NUM_THREADS"
    if name in os.environ or "numpy" in sys.modules:
        return
    os.environ[name] = "1"
    with suppress(ImportError):  # whoever needs it says so
        import numpy as np  # noqa: F401
    del os.environ[name]  # runs inherit the rest


def _show(source: RunSource) -> int:
    from .screens.run import RunScreen

    screen = RunScreen(source)
    try:
        code = _run(screen)
    finally:
        source.close()
        state = screen.state
        if source.capabilities.live and not state.lifecycle.final:
            print(
                f"the run goes on: `warpdeck attach {source.session}` comes back to it",
                file=sys.stderr,
            )
    return code or _EXIT.get(state.lifecycle, ExitCode.OK)


def _run(first: Screen[None]) -> int:
    """Run the app in this terminal. Where it crashes, the terminal is as before, and one line says why."""
    from .app import WarpdeckApp

    if "TEXTUAL_DRIVER" not in os.environ:  # in a browser the size is told so
        for name in ("COLUMNS", "LINES"):
            os.environ.pop(name, None)  # a size that a shell exported would outvote the terminal's for good
    sys.setswitchinterval(SWITCH_S)
    chosen = chosen_settings()
    app = WarpdeckApp(first, chosen)
    crash: Exception | None = None
    with _restored_terminal():
        try:
            app.run(mouse=chosen.mouse)
        except Exception as problem:  # noqa: BLE001 - while it was closing, say: no reason to show a page of it
            crash = problem
        finally:
            gc.enable()
    crash = app.crash or crash
    if crash is None or isinstance(crash, BrokenPipeError):  # a browser's tab whose server is gone
        return app.return_code or ExitCode.OK
    path = save_traceback(crash)
    where = f"; the traceback is in {path}" if path else ""
    words = " ".join(f"{type(crash).__name__}: {crash}".split())
    print(f"warpdeck: error: the dashboard crashed: {words}{where}", file=sys.stderr)
    return ExitCode.RUN_FAILED


@contextmanager
def _restored_terminal() -> Iterator[None]:
    """The terminal's modes as they were, whatever becomes of the app that is run in it."""
    try:
        import termios

        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
    except Exception:  # noqa: BLE001 - Windows, or no terminal: termios has an error of its own
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError, termios.error):
            if termios.tcgetattr(number) != before:
                termios.tcsetattr(number, termios.TCSANOW, before)
                os.write(sys.stdout.fileno(), _RESTORE)


# Mouse, paste marks, focus reports and other keyboards off, the cursor on, the normal screen.
_RESTORE = (
    b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l\x1b[?2004l\x1b[?1004l\x1b[?2048l"
    b"\x1b[<u\x1b[?1049l\x1b[?25h\x1b[0m"
)
