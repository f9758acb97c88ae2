"""The application: holds the theme, the palette and the first screen; everything else is in the screens."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.theme import Theme

from .commands import commands

DARK = Theme(
    name="warpdeck",
    primary="#6cb6ff",
    secondary="#2f6f9f",
    accent="#8ddb3c",
    success="#8ddb3c",
    warning="#f2c14e",
    error="#ff7b72",
    foreground="#e4e7eb",
    background="#0f1317",
    surface="#171c22",
    panel="#232a32",
    dark=True,
    variables={"border-blurred": "#4a5663", "footer-key-foreground": "#8ddb3c"},
)


class WarpdeckApp(App[int]):
    """Shows `first`, and ends when that screen is dismissed. The return value is the exit code."""

    CSS_PATH = "warpdeck.tcss"
    TITLE = "warpdeck"
    PAUSE_GC_ON_SCROLL = True
    # Textual annotates these two as if they belonged to instances.
    HORIZONTAL_BREAKPOINTS: ClassVar[list[tuple[int, str]] | None] = [  # pyright: ignore[reportIncompatibleVariableOverride]
        (0, "-tiny"),
        (60, "-slim"),
        (80, "-narrow"),
        (100, "-wide"),
        (160, "-xwide"),
    ]
    VERTICAL_BREAKPOINTS: ClassVar[list[tuple[int, str]] | None] = [  # pyright: ignore[reportIncompatibleVariableOverride]
        (0, "-flat"),
        (16, "-short"),
        (30, "-tall"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q,ctrl+c", "leave", "Quit", show=False, priority=True, id="app.quit"),
        Binding("ctrl+p", "command_palette", "Commands", key_display="^p", priority=True, id="app.palette"),
    ]

    def __init__(self, first: Screen[None]) -> None:
        super().__init__()
        self._first = first
        self.register_theme(DARK)
        # Never an ansi-* theme: under NO_COLOR Textual 8.2.8 renders those black on black.
        self.theme = DARK.name

    def on_mount(self) -> None:
        with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; not the main thread
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):  # closing the terminal must leave it clean
                loop.add_signal_handler(number, self.exit, 0)
        self.push_screen(self._first, lambda _: self.exit(0))
        # What exists now lives as long as the app: keep the collector from walking it in every pause.
        self.call_after_refresh(_freeze)

    def action_leave(self) -> None:
        """Quit through the first screen, which may ask."""
        screen = self.screen
        leave = getattr(screen, "action_leave", None) or getattr(screen, "action_answer", None)
        if leave is None:
            screen.dismiss()
        elif leave.__name__ == "action_answer":
            leave(True)
        else:
            leave()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: what a key does now, then what has no key."""
        for command in commands(screen):
            if command.action != "command_palette":
                act = partial(self.run_action, command.action, command.node)
                yield SystemCommand(command.words, f"key: {command.keys}", act)
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)
        # Once the palette is gone from the screen.
        save = partial(self.set_timer, 0.1, self.deliver_screenshot)
        yield SystemCommand("Screenshot", "Save this screen as SVG", save)


def _freeze() -> None:
    gc.collect()
    gc.freeze()
