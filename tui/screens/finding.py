"""What is asked for in a line at the bottom of the Run screen: which rows or lines a pane shows."""

from __future__ import annotations

from pathlib import Path

from textual import on
from textual.events import Key
from textual.widgets import Input

from ...sessions.paths import ARTIFACTS
from .. import view
from ..sources import RunSource
from ..widgets.leaderboard import Leaderboard
from ..widgets.log import LogPane
from .looks import Looks


class Finding(Looks):
    """A screen with an Input `#find`, whose leaderboard and log are filtered by what is typed there."""

    def __init__(self, source: RunSource) -> None:
        super().__init__(source)
        self._found: Leaderboard | LogPane | None = None  # what is filtered by what is typed

    def _filtered(self) -> Leaderboard | LogPane | None:
        """What `/` filters: the focused pane if it can be, else the leaderboard, where there is one."""
        focused = self.focused
        if isinstance(focused, Leaderboard | LogPane):
            return focused
        return self.query_one(Leaderboard) if self.state.llm is None and self.is_mounted else None

    def action_filter(self) -> None:
        """Ask what the focused pane is to show."""
        pane = self._found = self._filtered()
        if pane is not None:
            prompt = self.query_one("#find", Input)
            prompt.value, prompt.placeholder = pane.filter, f"/ {pane.FILTER_HINT}"
            prompt.display = True
            prompt.focus()

    @on(Input.Changed, "#find")
    def _typed(self, event: Input.Changed) -> None:
        if self._found is not None:
            self._found.set_filter(event.value)

    @on(Input.Submitted, "#find")
    def _answered(self) -> None:
        self._close_prompt()

    def on_key(self, event: Key) -> None:
        """escape ends a filter: what is being typed, or that of the focused pane."""
        pane = self._found or self.focused
        if event.key == "escape" and isinstance(pane, Leaderboard | LogPane) and (self._found or pane.filter):
            event.stop()
            pane.set_filter("")
            self._close_prompt()

    def _close_prompt(self) -> None:
        pane, self._found = self._found, None
        self.query_one("#find").display = False
        if pane is not None:
            pane.focus()

    @property
    def export_folder(self) -> Path | None:
        """Where `e` saves what a pane shows."""
        return None if self.source.folder is None else self.source.folder / ARTIFACTS

    @property
    def export_caption(self) -> str:
        """What it is of, with "recorded on" or "emulated" where that is the truth."""
        return f"{view.title_line(self.state, '', 110)} · {self.source.session}"
