"""The keys that work now, in the last line. Where there is no room for all, the way to the others stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual.events import Click, Leave, MouseMove
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

KEPT = frozenset({"help", "leave", "dismiss", "cancel", "command_palette"})  # actions that are always shown


@dataclass(frozen=True)
class _Entry:
    key: str  # what a click presses
    shown: str
    words: str
    tip: str
    action: str
    enabled: bool

    @property
    def width(self) -> int:
        return cell_len(self.shown) + 1 + cell_len(self.words)


def fitting(entries: list[_Entry], width: int) -> list[_Entry]:
    """Those that fit, with a blank between two: the last that can be missed are left out first."""
    entries = list(entries)
    while sum(entry.width + 1 for entry in entries) - 1 > width:
        missed = [i for i, entry in enumerate(entries) if entry.action not in KEPT]
        if not missed:
            break
        del entries[missed[-1]]
    return entries


class Footer(Widget):
    """One line of text; a click on a key presses it."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"footer--key", "footer--off", "footer--hover"}
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[_Entry] = []
        self._hover: _Entry | None = None
        self._ready = False  # the screen has said once which keys work

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def _changed(self, screen: Screen[Any]) -> None:
        if screen is self.screen and self.is_attached:
            self._ready = True
            self._read()

    def on_resize(self) -> None:
        if self._ready:
            self._read()

    def _read(self) -> None:
        """The keys of the bindings that say that they are shown, once for each action."""
        found: dict[str, _Entry] = {}
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if binding.show and binding.action not in found:
                shown = self.app.get_key_display(binding)
                tip = active.tooltip or binding.description
                found[binding.action] = _Entry(
                    binding.key, shown, binding.description, tip, binding.action, active.enabled
                )
        entries = fitting(list(found.values()), self.size.width)
        if entries != self._entries:
            self._entries, self._hover = entries, None
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line."""
        plain, key = self.rich_style, self.get_component_rich_style("footer--key")
        off, hover = (self.get_component_rich_style(f"footer--{name}") for name in ("off", "hover"))
        segments: list[Segment] = []
        for entry in self._entries:
            words = plain if entry.enabled else off
            first, rest = (hover, hover) if entry is self._hover else (key if entry.enabled else off, words)
            segments += [
                Segment(entry.shown, first),
                Segment(f" {entry.words}", rest),
                Segment(" ", plain),
            ]
        return Strip(segments).crop_extend(0, self.size.width, plain)

    def _at(self, x: int) -> _Entry | None:
        left = 0
        for entry in self._entries:
            if left <= x < left + entry.width:
                return entry
            left += entry.width + 1
        return None

    def on_mouse_move(self, event: MouseMove) -> None:
        """What the pointer is on stands out, and says what it does."""
        self._point(self._at(event.x))

    def on_leave(self, event: Leave) -> None:
        """Nothing is pointed at."""
        self._point(None)

    def _point(self, entry: _Entry | None) -> None:
        if entry is not self._hover:
            self._hover = entry
            self.tooltip = entry.tip if entry is not None else None
            self.refresh()

    def on_click(self, event: Click) -> None:
        """Press the key."""
        entry = self._at(event.x)
        if entry is not None and entry.enabled:
            self.app.simulate_key(entry.key)
