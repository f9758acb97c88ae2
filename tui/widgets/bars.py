"""Panes of labelled bars and of paragraphs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.widgets import Static

from ..braille import bar
from ..counters_view import BarRow, widest
from ..export import Exported, Sheet
from ..format import NONE, clip

ROOMY = 8  # rows of a pane from which on there is room for evidence


class TextPane(VerticalScroll, Exported, can_focus=True):
    """Scrollable text that is laid out anew for each width."""

    ALLOW_MAXIMIZE = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {"pane--bar", "pane--small", "pane--strong", "pane--warning"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Exported.BINDING,
        Binding("j", "scroll_down", "Down", show=False, id="pane.down"),
        Binding("k", "scroll_up", "Up", show=False, id="pane.up"),
        Binding("g", "scroll_home", "Start", show=False, id="pane.start"),
        Binding("G", "scroll_end", "End", show=False, id="pane.end"),
    ]

    def __init__(self, title: str, help: str, *, id: str | None = None) -> None:
        super().__init__(Static(markup=False), id=id)
        self.border_title = title
        self.help_text = help

    @property
    def HELP(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] # Textual's is a class's
        """Shown by `?`."""
        return self.help_text

    def on_resize(self, event: Resize) -> None:
        self.draw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_attached:
            self.call_after_refresh(self.draw)  # the text holds the colours that it was laid out with

    def draw(self) -> None:
        """Lay the text out."""
        width = self.scrollable_content_region.width
        if width > 0:
            self.query_one(Static).update(self.text(width))

    def text(self, width: int) -> Text:
        """What the pane shows, in lines of at most `width`."""
        return Text()

    def exported(self) -> Sheet | None:
        """The lines, as they read; panes with figures have those."""
        lines = self.text(100).plain.splitlines()
        return Sheet(str(self.border_title or ""), ("",), [(line,) for line in lines]) if lines else None

    def style_of(self, part: str) -> Style:
        """A component's style."""
        return self.get_component_rich_style(f"pane--{part}")


class BarPane(TextPane):
    """Groups of bars under headings."""

    def __init__(self, title: str, help: str, *, id: str | None = None) -> None:
        super().__init__(title, help, id=id)
        self._groups: Sequence[tuple[str, Sequence[BarRow], str]] = ()

    def show(self, groups: Sequence[tuple[str, Sequence[BarRow], str]]) -> None:
        """(heading, rows, words below them) of each group."""
        self._groups = groups
        self.draw()

    def text(self, width: int) -> Text:
        """A line a bar."""
        text = Text()
        name_width = max((widest(rows) for _, rows, _ in self._groups), default=0) + 1
        for heading, rows, words in self._groups:
            if heading:
                text.append(heading + "\n", self.style_of("strong"))
            for row in rows:
                self._row(text, row, name_width, width)
            if words:
                for line in textwrap.wrap(words, width):
                    text.append(line + "\n", self.style_of("small"))
        text.right_crop(1)
        return text

    def exported(self) -> Sheet | None:
        """A row a bar."""
        found = [(heading, row) for heading, rows, _ in self._groups for row in rows]
        if not found:
            return None
        rows = [(r.label, NONE if r.share is None else f"{100 * r.share:.1f}%", r.words) for _, r in found]
        values = [{"group": h, "label": r.label, "share": r.share, "words": r.words} for h, r in found]
        return Sheet(str(self.border_title), ("", "share", ""), rows, (False, True, False), values)

    def _row(self, text: Text, row: BarRow, name_width: int, width: int) -> None:
        text.append(row.label.ljust(name_width), self.style_of("strong") if row.strong else "")
        if row.share is None:
            text.append(f"– {clip(row.words, width - name_width - 2)}\n", self.style_of("small"))
            return
        share = f"{100 * row.share:3.0f}%"
        room = min(40, width - name_width - len(share) - 1)
        if room >= 4:
            text.append(bar(row.share, room) + " ", self.style_of("bar"))
        text.append(share, self.style_of("strong") if row.strong else "")
        left = width - name_width - max(room, 0) - len(share) - 3
        if row.words and left >= 12:
            text.append(f"  {clip(row.words, left)}", self.style_of("small"))
        text.append("\n")


class DiagnosisPane(TextPane):
    """Sentences, each with the values it rests on."""

    def __init__(self, title: str, help: str, *, id: str | None = None) -> None:
        super().__init__(title, help, id=id)
        self._said: Sequence[tuple[str, str]] = ()

    def show(self, said: Sequence[tuple[str, str]]) -> None:
        """(sentence, evidence) pairs, the most important first."""
        self._said = said
        self.draw()

    def text(self, width: int) -> Text:
        """Numbered sentences; where there is room, the evidence below each in small words."""
        text = Text()
        for number, (sentence, evidence) in enumerate(self._said, start=1):
            first = number == 1
            for i, line in enumerate(textwrap.wrap(sentence, width - 3)):
                text.append(f"{number if not i else '':>2} ", self.style_of("small"))
                text.append(line + "\n", self.style_of("strong") if first else "")
            for line in textwrap.wrap(evidence, width - 3) if self.size.height >= ROOMY else ():
                text.append(f"   {line}\n", self.style_of("small"))
        if not self._said:
            text.append("nothing can be said without counters\n", self.style_of("small"))
        text.right_crop(1)
        return text


class PairPane(TextPane):
    """Two launches' bars, one below the other."""

    def __init__(self, title: str, help: str, *, id: str | None = None) -> None:
        super().__init__(title, help, id=id)
        self._rows: Sequence[tuple[BarRow, BarRow]] = ()
        self._names = ("first", "second")

    def show(self, rows: Sequence[tuple[BarRow, BarRow]], names: tuple[str, str]) -> None:
        """Pairs of rows of one label; the launches' names stand in the frame."""
        self._rows, self._names = rows, names
        self.border_subtitle = f"▀ {names[0]}   ▄ {names[1]}"
        self.draw()

    def text(self, width: int) -> Text:
        """A line a pair: both bars in one, their upper and lower halves, then both numbers."""
        text = Text()
        name_width = max((len(a.label) for a, _ in self._rows), default=0) + 1
        for a, b in self._rows:
            text.append(a.label.ljust(name_width))
            numbers = "→".join("  – " if row.share is None else f"{100 * row.share:3.0f}%" for row in (a, b))
            room = width - name_width - len(numbers) - 1
            if room >= 4:
                text.append_text(self._halves(a.share or 0.0, b.share or 0.0, room))
                text.append(" ")
            text.append(f"{numbers}\n", self.style_of("strong") if b.strong or a.strong else "")
        text.right_crop(1)
        return text

    def exported(self) -> Sheet | None:
        """A row a pair."""
        if not self._rows:
            return None
        values = [{"label": a.label, "first": a.share, "second": b.share} for a, b in self._rows]
        rows = [
            (a.label, *(NONE if r.share is None else f"{100 * r.share:.1f}%" for r in (a, b)))
            for a, b in self._rows
        ]
        heading = ("", *self._names)
        return Sheet(str(self.border_title), heading, rows, (False, True, True), values)

    def _halves(self, first: float, second: float, room: int) -> Text:
        """█ where both reach, ▀ where only the first does, ▄ where only the second."""
        ends = [round(min(max(share, 0.0), 1.0) * room) for share in (first, second)]
        both, most = min(ends), max(ends)
        rest = "▀" if ends[0] > ends[1] else "▄"
        text = Text("█" * both, self.style_of("bar"))
        text.append(rest * (most - both), self.style_of("warning" if ends[0] > ends[1] else "bar"))
        return text.append("·" * (room - most), self.style_of("small"))
