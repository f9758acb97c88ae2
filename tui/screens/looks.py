"""What opens from the Run screen: the trace, the counters and the source of a configuration or an attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.screen import Screen

from ...core.errors import WarpdeckError
from ...sessions.state import RunState
from .. import evidence, view
from ..evidence import Found, Subject
from ..format import config_flags
from ..others import Baseline
from ..sources import RunSource
from ..widgets.attempts import Attempts
from ..widgets.leaderboard import Leaderboard
from ..widgets.table import Table
from .playing import Playing

if TYPE_CHECKING:
    from ...telemetry.ncu.counters import Counters
    from ...telemetry.trace.timeline import Timeline
    from ..source_files import Sources, Version


class Looks(Playing):
    """A screen with a leaderboard and attempts, whose marked row can be looked at."""

    def __init__(self, source: RunSource) -> None:
        super().__init__()
        self.source = source
        self.state = RunState()

    @property
    def table(self) -> Table:
        """The table that this run fills."""
        return self.query_one(Leaderboard if self.state.llm is None else Attempts)

    def _subject(self) -> str | None:
        """Candidate of the marked row; the best's, unless the table has the focus."""
        table, llm = self.table, self.state.llm
        if self.focused is table and isinstance(table, Leaderboard) and table.marked is not None:
            return table.marked.key
        if self.focused is table and isinstance(table, Attempts) and table.marked is not None and llm:
            attempt = llm.attempt(table.marked.number)
            return attempt.candidate if attempt else None
        best = next(iter(view.leaderboard(self.state)), None)
        return None if best is None else best.key

    def action_timeline(self) -> None:
        """The Timeline of the marked or the best configuration."""
        self._look(evidence.find_trace, _timeline_screen)

    def action_counters(self) -> None:
        """The Counters of the marked or the best configuration."""
        self._look(evidence.find_counters, _counters_screen)

    def _look(
        self,
        find: Callable[[Subject], tuple[Found, str]],
        screen: Callable[[Found, Subject, Baseline | None], Screen[None]],
    ) -> None:
        candidate = self._subject()
        subject = None if candidate is None else Subject.of(self.state, candidate, self.source.folder)
        if subject is None:
            words = "nothing measured yet" if not self.state.leaderboard else "it was not measured"
            self.notify(words, severity="warning")
            return
        self.run_worker(self._open(subject, find, screen), group="look", exclusive=True)

    async def _open(
        self,
        subject: Subject,
        find: Callable[[Subject], tuple[Found, str]],
        screen: Callable[[Found, Subject, Baseline | None], Screen[None]],
    ) -> None:
        table = self.table
        table.loading = True
        try:
            found, note = await asyncio.to_thread(find, subject)
        except WarpdeckError as error:
            self.notify(str(error), severity="warning", timeout=20, markup=False)
            return
        finally:
            table.loading = False
        if self.is_current:
            self.app.push_screen(screen(found, subject, self._baseline()))
            if note:
                self.app.notify(note, severity="warning", timeout=10, markup=False)

    def _baseline(self) -> Baseline | None:
        base = self.state.baseline
        return None if base is None else Baseline(base.variant, base.config)

    # Sources

    def _sources(self) -> Sources:
        from ..source_files import sources_of  # when it is needed: first paint shouldn't pay

        return sources_of(self.state, self.source.folder)

    def action_source(self) -> None:
        """What changed in the source of the marked row: from the picked attempt, from the one it was made
        from, or from the baseline."""
        from .source import SourceScreen  # the lexers are loaded when they are needed

        new, old = self._asked()
        self.app.push_screen(SourceScreen(self._sources, new, old))

    def _asked(self) -> tuple[str | None, str | None]:
        """Keys of the marked version and of the one that was picked to compare with."""
        from ..source_files import attempt_key

        table = self.table
        if isinstance(table, Attempts):
            row = table.marked
            picked = table.picked if row is not None and table.picked != row.number else None
            return attempt_key(row.number if row else None), attempt_key(picked)
        return self._subject(), None

    def action_pick(self) -> None:
        """Pick the marked attempt to compare another with."""
        table = self.table
        if isinstance(table, Attempts):
            picked = table.pick()
            words = "no attempt is picked" if picked is None else f"attempt {picked} is picked: s on another"
            self.notify(words)

    def action_copy(self) -> None:
        """Copy the marked configuration (the best, unless the table has the focus) as flags."""
        candidate = self._subject()
        version = next((v for v in self._sources().versions if v.candidate == candidate), None)
        text = "" if version is None else _copied(version, self.source)
        if not text:
            self.notify("nothing measured yet", severity="warning")
            return
        self.app.copy_to_clipboard(text)
        self.notify(f"copied: {text}", markup=False)


def _copied(version: Version, source: RunSource) -> str:
    """An attempt's file, else the knobs as flags, else the variant."""
    if version.path is not None and source.folder is not None:
        return str(source.folder / version.path)
    return config_flags(version.config) or f"--variant {version.variant}"


def _timeline_screen(timeline: Timeline, subject: Subject, baseline: Baseline | None) -> Screen[None]:
    from .timeline import TimelineScreen

    return TimelineScreen(timeline, folder=subject.folder, baseline=baseline)


def _counters_screen(counters: Counters, subject: Subject, baseline: Baseline | None) -> Screen[None]:
    from .counters import CountersScreen

    return CountersScreen(counters, folder=subject.folder, baseline=baseline)
