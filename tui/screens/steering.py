"""Stopping, pausing and resuming a run from its screen."""

from __future__ import annotations

import asyncio

from ...core.errors import WarpdeckError
from ..access import changes
from ..sources import RunSource
from .confirm import ConfirmScreen
from .finding import Finding


class Steering(Finding):
    """A screen of a run that can be asked to stop, pause and go on."""

    def __init__(self, source: RunSource) -> None:
        super().__init__(source)
        self._stopping = False

    @changes("stop runs")
    def action_stop(self) -> None:
        """Ask, then stop the run."""

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._stop(), group="stop", exclusive=True)

        self.app.push_screen(
            ConfirmScreen(
                "Stop the run?",
                "It ends after this step. What it measured is kept, and warpdeck tune --resume goes on.",
                yes="Stop it",
                no="Let it run",
            ),
            answered,
        )

    @changes("stop runs")
    async def _stop(self) -> None:
        self._stopping = True
        self.refresh_bindings()
        self.notify("stopping after this step")
        try:
            took = await asyncio.to_thread(self.source.stop, self._say)
        except WarpdeckError as error:
            self.notify(str(error), title="could not stop", severity="error", markup=False)
        else:
            self.notify(f"the run has ended: {took}")
        finally:
            self._stopping = False
            self.refresh_bindings()

    def _say(self, text: str) -> None:
        """From the thread that stops the run."""
        self.app.call_from_thread(self.notify, text, severity="warning")

    @changes("pause or resume runs")
    async def _ask_run(self, command: str, doing: str) -> None:
        try:
            await asyncio.to_thread(self.source.command, command)
        except WarpdeckError as error:
            self.notify(str(error), title=f"could not {command}", severity="error", markup=False)
        else:
            self.notify(doing)
