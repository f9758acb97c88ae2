"""`z`: the focused pane alone, and back."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.screen import Screen


class Zooming(Screen[None]):
    """A screen whose focused pane can be maximised; what is typed into and what tells of the pane stays."""

    ALLOW_IN_MAXIMIZED_VIEW = "Footer, #find, #prompt, #replay, #details"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "z", "zoom", "Zoom", show=False, id="screen.zoom", tooltip="Maximise the focused pane, or back"
        )
    ]

    def action_zoom(self) -> None:
        """Maximise the focused pane, or restore it."""
        if self.maximized is not None:
            self.minimize()
        elif self.focused is not None and self.focused.allow_maximize:
            self.maximize(self.focused, container=False)
