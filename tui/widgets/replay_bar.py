"""The replay bar: where a log is played back, with its bookmarks; a click or a drag seeks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from ...sessions.bookmarks import Bookmark
from ..format import clip, duration
from ..sources import Playback

LEAST_TRACK = 8
DONE, HERE, REST, MARK = "━", "●", "─", "◆"


@dataclass(frozen=True)
class Moment:
    """What the bar shows. Positions are seconds since the log's start."""

    playing: bool
    speed: float
    position: float
    length: float
    step: int
    event: int
    bookmarks: tuple[Bookmark, ...] = ()

    @classmethod
    def of(cls, playback: Playback, step: int, event: int) -> Moment:
        """The present."""
        return cls(
            playback.playing,
            playback.speed,
            playback.position,
            playback.length,
            step,
            event,
            playback.bookmarks,
        )

    @property
    def share(self) -> float:
        """Of the log, 0..1."""
        return min(max(self.position / self.length, 0.0), 1.0) if self.length > 0 else 1.0

    @property
    def head(self) -> str:
        """ "▶ playing 4×  0:12 / 0:43  "."""
        ended = self.position >= self.length
        mark = "▶ playing" if self.playing else "◼ at end " if ended else "‖ paused "
        return f"{mark} {self.speed:g}×  {duration(self.position)} / {duration(self.length)}  "

    def tail(self, room: int) -> str:
        """ "  step 12 · event 340 · ◆ first win", as much as there is room for."""
        here = next((b.name for b in self.bookmarks if b.seq == self.event), "")
        words = f"  step {self.step}"
        for more in (f" · {MARK} {here}" if here else "", f" · event {self.event}"):
            if len(words) + len(more) <= room:
                words += more
        return clip(words, room)


def track(moment: Moment, width: int) -> str:
    """The line: what was played, where it is, what is left, with the bookmarks on it."""
    at = round(moment.share * (width - 1))
    line = [DONE] * at + [HERE] + [REST] * (width - at - 1)
    for mark in moment.bookmarks:
        share = min(max(mark.position / moment.length, 0.0), 1.0) if moment.length > 0 else 0.0
        place = round(share * (width - 1))
        if place != at:
            line[place] = MARK
    return "".join(line)


class ReplayBar(Widget):
    """One line. `show` takes the moment; the screen hears `Sought` and `Toggled`."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"replay--track", "replay--rest", "replay--mark"}

    class Sought(Message):
        """A place of the track was clicked or dragged to: a share of the log, 0..1."""

        def __init__(self, share: float) -> None:
            super().__init__()
            self.share = share

    class Toggled(Message):
        """The words before the track were clicked."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._moment: Moment | None = None
        self._track = (0, 0)  # first column and width
        self._dragging = False

    def show(self, moment: Moment) -> None:
        """Replace what is shown."""
        if moment != self._moment:
            self._moment = moment
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line."""
        width, moment = self.content_size.width, self._moment
        if y or moment is None:
            return Strip.blank(width, self.rich_style)
        head = clip(moment.head, width)
        tail = moment.tail(max(10, (width - len(head)) // 2))
        room = width - len(head) - len(tail)
        if room < LEAST_TRACK:
            tail, room = clip(f"step {moment.step}", width - len(head)), 0
        self._track = (len(head), room)
        line = track(moment, room) if room else ""
        return Strip(
            [Segment(head, self.rich_style), *self._painted(line), Segment(tail, self.rich_style)]
        ).adjust_cell_length(width, self.rich_style)

    def _painted(self, line: str) -> Sequence[Segment]:
        names = {DONE: "track", HERE: "track", REST: "rest", MARK: "mark"}
        styles = {
            c: self.rich_style + self.get_component_rich_style(f"replay--{n}", partial=True)
            for c, n in names.items()
        }
        return [Segment(c, styles[c]) for c in line]

    # Mouse

    def _share_at(self, event: events.MouseEvent) -> float | None:
        offset = event.get_content_offset(self)
        first, width = self._track
        if offset is None or width < 2:
            return None
        return min(max((offset.x - first) / (width - 1), 0.0), 1.0) if offset.x >= first else None

    def on_mouse_down(self, event: events.MouseDown) -> None:
        first, width = self._track
        offset = event.get_content_offset(self)
        if offset is None or event.button != 1:
            return
        share = self._share_at(event)
        if share is None:
            self.post_message(self.Toggled())
        elif offset.x < first + width:
            self._dragging = True
            self.capture_mouse()
            self.post_message(self.Sought(share))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        share = self._share_at(event) if self._dragging else None
        if share is not None:
            self.post_message(self.Sought(share))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self._dragging:
            self._dragging = False
            self.release_mouse()
