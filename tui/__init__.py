"""The console: a Textual app over RunState.

The functions here are what the command line calls; each returns the exit code. They import Textual when
called, since it costs 0.2 s.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import ExitCode
from ..sessions.events import Lifecycle

if TYPE_CHECKING:
    from ..telemetry.ncu.counters import Counters
    from ..telemetry.trace.timeline import Timeline
    from .app import WarpdeckApp
    from .sources import RunSource

_EXIT = {
    Lifecycle.FAILED: ExitCode.RUN_FAILED,
    Lifecycle.INTERRUPTED: ExitCode.RUN_FAILED,
    Lifecycle.CANCELLED: ExitCode.INTERRUPTED,
}


def run_live(session: Path) -> int:
    """Show a run that was just started. UsageError if the session can't be opened."""
    from .sources import LiveSource

    return _show(LiveSource(session))


def run_attach(session: Path) -> int:
    """Join a run that goes on, or look at one that ended. UsageError if the session can't be opened."""
    from .sources import LiveSource

    return _show(LiveSource(session, attach=True))


def run_replay(session: Path, speed: float = 1.0, start: float = 0.0) -> int:
    """Play a session back from `start` seconds. UsageError if the session can't be opened."""
    from .sources import ReplaySource

    _show(ReplaySource(session, speed=speed, start=start))
    return ExitCode.OK


def run_start(sessions: Path | None = None) -> int:
    """The start screen over a folder of sessions (default: the user's)."""
    from .app import WarpdeckApp
    from .screens.sessions import SessionsScreen

    return _run(WarpdeckApp(SessionsScreen(sessions)))


def run_timeline(timeline: Timeline) -> int:
    """Look at a trace."""
    from .app import WarpdeckApp
    from .screens.timeline import TimelineScreen

    return _run(WarpdeckApp(TimelineScreen(timeline)))


def run_counters(counters: Counters) -> int:
    """Look at a launch's hardware counters."""
    from .app import WarpdeckApp
    from .screens.counters import CountersScreen

    return _run(WarpdeckApp(CountersScreen(counters)))


def _show(source: RunSource) -> int:
    from .app import WarpdeckApp
    from .screens.run import RunScreen

    screen = RunScreen(source)
    try:
        code = _run(WarpdeckApp(screen))
    finally:
        source.close()
        state = screen.state
        if source.capabilities.live and not state.lifecycle.final:
            print(
                f"the run goes on: `warpdeck attach {source.session}` comes back to it",
                file=sys.stderr,
            )
    return code or _EXIT.get(state.lifecycle, ExitCode.OK)


def _run(app: WarpdeckApp) -> int:
    """Run an app in this terminal; 1 if it crashed (Textual has then restored the terminal and said why)."""
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)  # a size that a shell exported would outvote the terminal's for good
    app.run()
    return app.return_code or ExitCode.OK
