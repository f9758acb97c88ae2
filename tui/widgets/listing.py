"""A listing: numbered lines of code with their heat, a cursor, and marks for what another pane is on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ..braille import bar
from ..code import Spot
from ..export import Exported, Sheet
from ..syntax import PARTS, Run

BAR = 4  # characters of a line's heat
HOT, WARM = 0.10, 0.02  # of all samples
AROUND = 3  # rows kept visible above and below the cursor


@dataclass(frozen=True)
class Line:
    """A line. `label`: its number or address; `runs`: the syntax of `text`; `heading`: it names what
    follows."""

    label: str
    text: str
    spot: Spot | None = None
    runs: Sequence[Run] = ()
    heading: bool = False


class Listing(ScrollView, Exported, can_focus=True):
    """Lines. `linked` are marked; the screen hears `Moved` and `Chosen`."""

    ALLOW_MAXIMIZE = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "listing--number",
        "listing--hot",
        "listing--warm",
        "listing--mild",
        "listing--cursor",
        "listing--linked",
        "listing--heading",
        *(f"code--{part}" for part in PARTS),
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Exported.BINDING,
        Binding("down,j", "move(1)", "Down", show=False, id="listing.down"),
        Binding("up,k", "move(-1)", "Up", show=False, id="listing.up"),
        Binding("right,l", "sideways(8)", "Scroll right", show=False, id="listing.right"),
        Binding("left,h", "sideways(-8)", "Scroll left", show=False, id="listing.left"),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False, id="listing.page_down"),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False, id="listing.page_up"),
        Binding("g,home", "edge(0)", "First line", show=False, id="listing.first"),
        Binding("G,end", "edge(1)", "Last line", show=False, id="listing.last"),
    ]
    cursor: reactive[int] = reactive(0)

    class Moved(Message):
        """The cursor is on another line of `pane`."""

        def __init__(self, pane: Listing) -> None:
            super().__init__()
            self.pane = pane

    class Chosen(Message):
        """A click on the line under the cursor of `pane`."""

        def __init__(self, pane: Listing) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, title: str, help: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.border_title = title
        self.help_text = help
        self.lines: tuple[Line, ...] = ()
        self.linked: frozenset[int] = frozenset()
        self.empty = ""  # said where there are no lines
        self._number = 0
        self._heated = False
        self._most = 0.0
        self._styles: dict[str, Style] = {}

    @property
    def HELP(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] # Textual's is a class's
        """Shown by `?`."""
        return self.help_text

    def show(self, lines: Sequence[Line], *, empty: str = "") -> None:
        """Replace the lines; the cursor stays where it is, if there is such a line."""
        self.lines, self.empty = tuple(lines), empty
        self._number = max((len(line.label) for line in lines), default=0)
        self._most = max((line.spot.share for line in lines if line.spot), default=0.0)
        self._heated = self._most > 0
        width = self._gutter() + max((cell_len(line.text) for line in lines), default=0) + 1
        self.virtual_size = Size(width, max(1, len(self.lines)))
        self.cursor = min(self.cursor, max(0, len(self.lines) - 1))
        self.refresh()

    def link(self, lines: Collection[int], *, reveal: bool = True) -> None:
        """Mark lines that belong to what the other pane's cursor is on, and show the first of them."""
        self.linked = frozenset(lines)
        if lines and reveal:
            first = min(lines)
            top, height = self.scroll_offset.y, max(1, self.scrollable_content_region.height)
            if not top <= first < top + height - 1:
                self._scroll(first - AROUND)
        self.refresh()

    def go(self, index: int) -> None:
        """The cursor to a line, which is shown."""
        self.cursor = min(max(index, 0), max(0, len(self.lines) - 1))

    def hottest(self) -> list[int]:
        """Lines with samples, most first."""
        found = [
            (line.spot.samples, -i) for i, line in enumerate(self.lines) if line.spot and line.spot.samples
        ]
        return [-i for _, i in sorted(found, reverse=True)]

    def exported(self) -> Sheet | None:
        """All lines with their samples."""
        if not self.lines:
            return None
        rows, values = [], []
        for line in self.lines:
            spot = line.spot
            share = f"{100 * spot.share:.1f}%" if spot else ""
            rows.append((line.label, share, spot.reason if spot else "", line.text))
            values.append(
                {
                    "line": line.label,
                    "samples": spot.samples if spot else None,
                    "share": spot.share if spot else None,
                    "most_wait_for": spot.reason if spot else None,
                    "text": line.text,
                }
            )
        return Sheet(
            str(self.border_title or "code"), ("line", "share", "most wait for", "text"), rows, (), values
        )

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles.clear()

    def watch_cursor(self) -> None:
        """Keep it visible, with some lines around it."""
        top, height = self.scroll_offset.y, max(1, self.scrollable_content_region.height)
        around = min(AROUND, (height - 1) // 2)
        if self.cursor < top + around:
            self._scroll(self.cursor - around)
        elif self.cursor > top + height - 1 - around:
            self._scroll(self.cursor - height + 1 + around)
        self.post_message(self.Moved(self))
        self.refresh()

    def _scroll(self, y: int) -> None:
        # By force: a scrollbar that this layout brings isn't there yet, and without one nothing scrolls.
        self.scroll_to(y=max(0, y), animate=False, force=True, immediate=True)

    def _gutter(self) -> int:
        return 1 + self._number + 1 + ((BAR + 7) if self._heated else 0)

    def render_line(self, y: int) -> Strip:
        """One visible line."""
        left, top = self.scroll_offset
        room = self.scrollable_content_region.width
        index = top + y
        if index >= len(self.lines):
            words = self.empty if not self.lines and y == 0 else ""
            return Strip([Segment(words, self._style("mild"))]).adjust_cell_length(room, self.rich_style)
        line, here, linked = self.lines[index], index == self.cursor, index in self.linked
        ground = (
            self._style("cursor")
            if here and self.has_focus
            else self._style("linked")
            if linked or here
            else None
        )
        head = "▸" if here else "┃" if linked else " "
        base = self.rich_style + ground if ground else self.rich_style
        segments = [
            Segment(head, base + Style(bold=True)),
            Segment(f"{line.label:>{self._number}} ", base + self._ink("number")),
            *self._heat(line.spot, base),
        ]
        code = Strip(list(self._code(line, base)))
        width = max(0, room - self._gutter())
        return Strip([*segments, *code.crop_extend(left, left + width, base)]).adjust_cell_length(room, base)

    def _heat(self, spot: Spot | None, base: Style) -> list[Segment]:
        """A bar against the hottest line, and the share in numbers."""
        if not self._heated:
            return []
        if spot is None or not spot.samples:
            return [Segment(" " * (BAR + 7), base)]
        name = "hot" if spot.share >= HOT else "warm" if spot.share >= WARM else "mild"
        filled = bar(spot.share / self._most, BAR).replace("·", " ")
        return [Segment(f"{filled}{100 * spot.share:5.1f}% ", base + self._ink(name))]

    def _code(self, line: Line, base: Style) -> list[Segment]:
        if line.heading:
            return [Segment(line.text, base + self._ink("heading"))]
        segments, start = [], 0
        for end, part in line.runs:
            style = base + self._part(part) if part else base
            segments.append(Segment(line.text[start:end], style))
            start = end
        return [*segments, Segment(line.text[start:], base)] if start < len(line.text) else segments

    def _style(self, name: str) -> Style:
        if name not in self._styles:
            self._styles[name] = self.get_component_rich_style(f"listing--{name}")
        return self._styles[name]

    def _ink(self, name: str) -> Style:
        own = self._style(name)
        return Style(color=own.color, bold=own.bold)

    def _part(self, part: str) -> Style:
        key = f"code {part}"
        if key not in self._styles:
            own = self.get_component_rich_style(f"code--{part}")
            self._styles[key] = Style(color=own.color, bold=own.bold, italic=own.italic)
        return self._styles[key]

    # Keys

    def action_move(self, lines: int) -> None:
        """The cursor."""
        self.go(self.cursor + lines)

    def action_page(self, direction: int) -> None:
        """By what is visible."""
        self.go(self.cursor + direction * max(1, self.scrollable_content_region.height - 2))

    def action_edge(self, end: int) -> None:
        """To the first (0) or the last (1) line."""
        self.go(len(self.lines) - 1 if end else 0)

    def action_sideways(self, columns: int) -> None:
        """Scroll sideways."""
        self.scroll_relative(x=columns, animate=False)

    def on_click(self, event: Click) -> None:
        """A click moves the cursor; a click on its line jumps."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        index = self.scroll_offset.y + offset.y
        if index == self.cursor and self.lines:
            self.post_message(self.Chosen(self))
        elif index < len(self.lines):
            self.go(index)
