"""Which part of a plot is shown: a window that zooms, pans and follows the newest steps."""

from __future__ import annotations

from dataclasses import dataclass

ZOOM = 2.0  # a step of zooming shows so many times less
PAN = 0.25  # of the window that a step of panning moves
LEAST_SPAN = 4.0  # steps

Span = tuple[float, float]


@dataclass(frozen=True)
class View:
    """`window`: the x values shown, None for all; `following`: it moves on with the newest."""

    window: Span | None = None
    following: bool = False

    def at(self, low: float, high: float, ends: Span) -> View:
        """A window kept inside the data's ends; all, if it is as wide as they are."""
        span = high - low
        if span >= ends[1] - ends[0]:
            return View()
        low = min(max(low, ends[0]), ends[1] - span)
        return View((low, low + span), low + span >= ends[1])

    def grown(self, ends: Span) -> View:
        """The view after the data's ends changed."""
        if self.window is None:
            return self
        low, high = self.window
        if self.following:
            return View((ends[1] - (high - low), ends[1]), True)
        return self

    def zoomed(self, direction: int, ends: Span, centre: float | None) -> View:
        """A step closer (1) or further (-1). `centre` stays where it is: by default the newest step while
        following, else the middle."""
        low, high = self.window or ends
        if high <= low:
            return self
        if centre is None or not low <= centre <= high:
            centre = high if self.following else (low + high) / 2
        span = max((high - low) * (1 / ZOOM if direction > 0 else ZOOM), LEAST_SPAN)
        start = centre - (centre - low) * span / (high - low)
        return self.at(start, start + span, ends)

    def panned(self, direction: int, ends: Span) -> View:
        """A step earlier (-1) or later (1)."""
        if self.window is None:
            return self
        low, high = self.window
        move = direction * PAN * (high - low)
        return self.at(low + move, high + move, ends)

    def edge(self, direction: int, ends: Span) -> View:
        """The first (-1) or the newest (1) steps."""
        if self.window is None:
            return self
        span = self.window[1] - self.window[0]
        low = ends[0] if direction < 0 else ends[1] - span
        return self.at(low, low + span, ends)

    def showing(self, x: float, ends: Span) -> View:
        """A window that has `x` in it."""
        if self.window is None or self.window[0] <= x <= self.window[1]:
            return self
        half = (self.window[1] - self.window[0]) / 2
        return self.at(x - half, x + half, ends)
