"""The application: holds the theme, the palette and the first screen; everything else is in the screens."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.filter import LineFilter
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from ..sessions.words import tame
from . import palette
from .access import changes
from .commands import commands
from .paint import TAMED
from .pasting import plain
from .settings import Settings, save_theme
from .stylesheet import stylesheet
from .themes import COLOUR_BLIND, DARK, THEMES

LEAST = (60, 16)  # columns and rows; with fewer a screen shows one line
SETTLED_S = 1.0  # after that the first screen is there, with its data
TOLD_S = 20  # seconds that a mistake in the settings stays on the screen


class WarpdeckApp(App[int]):
    """Shows `first`, and ends when that screen is dismissed. The return value is the exit code.

    `crash` is the error that ended it, if one did; whoever ran the app says where its traceback is.
    """

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

    def __init__(self, first: Screen[None], settings: Settings | None = None) -> None:
        super().__init__()
        self.settings = Settings() if settings is None else settings
        self.crash: Exception | None = None
        self._first = first
        self._focused_last: Widget | None = None
        for theme in THEMES.values():
            self.register_theme(theme)
        self.theme = self.settings.theme
        self.stylesheet = stylesheet(self)
        # Textual's lack colours of ours, and under NO_COLOR an ansi-* one is black on black (8.2.8).
        for name in self.available_themes.keys() - THEMES.keys():
            self.unregister_theme(name)

    @property
    def readonly(self) -> bool:
        """Whether everything that changes a run, a session or a file is refused (see `access`)."""
        return self.settings.readonly

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Variables of the style sheet that a theme may leave out."""
        return dict(DARK.variables)

    def get_driver_class(self) -> type[Driver]:
        """A terminal's driver that no input ends; Textual's in a browser, or if its parser went elsewhere."""
        usual = super().get_driver_class()
        if usual.__module__ != "textual.drivers.linux_driver":
            return usual
        try:
            from .driver import SteadyDriver
        except ImportError:
            return usual
        return SteadyDriver

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What each line goes through on its way to the terminal."""
        return [TAMED, *super().get_line_filters()]

    def copy_to_clipboard(self, text: str) -> None:
        """A text, which may be pasted into a terminal, on the clipboard."""
        super().copy_to_clipboard(tame(text))

    def on_mount(self) -> None:
        with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; not the main thread
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):  # closing the terminal must leave it clean
                loop.add_signal_handler(number, self.exit, 0)
        self._remap()
        if self.readonly:
            self.screen_change_signal.subscribe(self, self._say_readonly)
        self._fit(self._first)
        self.push_screen(self._first, lambda _: self.exit(0))
        self.set_timer(SETTLED_S, _freeze)

    def _fit(self, screen: Screen[Any]) -> None:
        """Give a screen its size's classes before it has widgets, whose styles would all change with them."""
        for breakpoints, least in (
            (self.HORIZONTAL_BREAKPOINTS, self.size.width),
            (self.VERTICAL_BREAKPOINTS, self.size.height),
        ):
            name = max((at, name) for at, name in breakpoints or () if at <= least)[1]
            screen.add_class(name, update=False)

    def _remap(self) -> None:
        """The user's keys, and what is wrong with them or with other settings."""
        wrong = list(self.settings.problems)
        if self.settings.keys:
            from .keys import keymap  # imports every screen

            keys, problems = keymap(self.settings.keys)
            self.set_keymap(keys)
            wrong += problems
        for problem in wrong:
            self.notify(problem, title="settings", severity="warning", timeout=TOLD_S, markup=False)

    def watch_theme(self) -> None:
        """Stages have colours of their own."""
        palette.use_safe(self.theme == COLOUR_BLIND.name)

    def _say_readonly(self, screen: Screen[Any]) -> None:
        """In the title of every screen, once it has one."""
        screen.call_after_refresh(_badge, screen)

    async def on_event(self, event: events.Event) -> None:
        """Nothing pasted may command the terminal or be endless, whatever driver it came through."""
        if isinstance(event, events.Paste):
            event.text = plain(event.text)
        elif isinstance(event, events.MouseEvent) and not self._on_screen(event):
            return  # from before a resize; Textual would take the focus away
        elif isinstance(event, events.Resize):
            small = event.size.width < LEAST[0] or event.size.height < LEAST[1]
            if small:
                self._focused_last = self._focused_last or self.focused
            elif self._focused_last is not None:
                pane, self._focused_last = self._focused_last, None
                self.call_after_refresh(self._refocus, pane)
        await super().on_event(event)

    def _on_screen(self, event: events.MouseEvent) -> bool:
        return 0 <= event.screen_x < self.size.width and 0 <= event.screen_y < self.size.height

    def _refocus(self, pane: Widget) -> None:
        """What had the focus before a terminal became too small to show it has it again."""
        if pane.is_attached and pane.screen is self.screen:
            pane.focus()

    def _handle_exception(self, error: Exception) -> None:
        self.crash = self.crash or error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """End without Textual's page of traceback: whoever ran the app says where it is."""
        self._close_messages_no_wait()

    def action_leave(self) -> None:
        """Quit through the first screen, which may ask."""
        screen = self.screen
        if len(self.screen_stack) == 1:  # the first one has gone: this key came after the one that quit
            self.exit(0)
            return
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
        save = partial(self.set_timer, 0.1, self.action_screenshot)
        yield SystemCommand("Screenshot", "Save this screen as SVG", save)

    def action_change_theme(self) -> None:
        """Choose a theme, each shown as it is marked."""
        from .screens.themes import ThemeScreen

        self.push_screen(ThemeScreen(), lambda name: None if name is None else self._keep_theme(name))

    @changes("write settings")
    def _keep_theme(self, name: str) -> None:
        try:
            path = save_theme(name)
        except (OSError, ValueError) as error:
            self.notify(f"theme {name}; not saved: {error}", severity="warning", markup=False)
        else:
            self.notify(f"theme {name}, saved in {path}", markup=False)

    @changes("write files")
    def action_screenshot(self, filename: str | None = None, path: str | None = None) -> None:
        """Save this screen as SVG."""
        self.deliver_screenshot(filename, path)


def _badge(screen: Screen[Any]) -> None:
    if screen.is_attached and screen.query("#title") and not screen.query("#readonly"):
        screen.add_class("-readonly")
        screen.mount(Static("READ ONLY", id="readonly", markup=False))


def _freeze() -> None:
    """What exists now lives as long as the app: keep the collector from walking it in every pause."""
    gc.enable()
    gc.collect()
    gc.freeze()
