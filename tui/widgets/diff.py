"""The diff pane: two sources below or beside each other; only the visible lines are painted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import ClassVar

import numpy as np
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ..diff import CONTEXT, Diff, Row, View, emphasis
from ..syntax import PARTS, Run

OLD, NEW = "removed", "added"
SIGNS = {OLD: "−", NEW: "+", "": " "}
ABOVE = 3  # rows shown above a change that was jumped to
SEAM = " │ "  # between two sources beside each other


@dataclass(frozen=True)
class Pair:
    """What the pane shows: a diff and the syntax of both versions' lines."""

    diff: Diff
    old: Sequence[Sequence[Run]]
    new: Sequence[Sequence[Run]]


class DiffPane(ScrollView, can_focus=True):
    """A diff. Keys of the screen change `split`, `wrap` and `fold`, and jump to changes and matches."""

    ALLOW_MAXIMIZE = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "diff--number",
        "diff--fold",
        "diff--seam",
        "diff--removed",
        "diff--added",
        "diff--removed-word",
        "diff--added-word",
        "diff--removed-sign",
        "diff--added-sign",
        "diff--absent",
        "diff--match",
        "diff--here",
        *(f"code--{part}" for part in PARTS),
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", "Down", show=False, id="diff.down"),
        Binding("k", "scroll_up", "Up", show=False, id="diff.up"),
        Binding("h", "scroll_left", "Left", show=False, id="diff.left"),
        Binding("l", "scroll_right", "Right", show=False, id="diff.right"),
        Binding("g", "scroll_home", "Start", show=False, id="diff.start"),
        Binding("G", "scroll_end", "End", show=False, id="diff.end"),
    ]
    HELP = """\
### Source

What changed from one source to the other. **−** lines are only in the first, **+** lines only in the
second; in a line that was changed, the words that differ stand out. Long unchanged parts are folded (**f**
shows them). Below each other or, with **v**, beside each other; **w** wraps long lines. **n** and **N** go
from change to change, **/** searches and **m**, **M** go from match to match. **]** and **[** take the next
and the previous version, **}** and **{** that which it is compared with, **x** exchanges the two.
"""

    split: reactive[bool] = reactive(False, init=False)
    wrap: reactive[bool] = reactive(False, init=False)
    fold: reactive[bool] = reactive(True, init=False)

    class Moved(Message):
        """Another change or match was jumped to, or another part is visible."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.border_title = "Source"
        self._pair: Pair | None = None
        self._view = View((), ())
        self._starts = np.zeros(1, dtype=np.int64)  # first visual line of each row, then how many there are
        self._digits = 1
        self._columns = 0
        self._hunk: int | None = None
        self._query = ""
        self._matches: list[int] = []
        self._match: int | None = None
        self._styles: dict[tuple[str, ...], Style] = {}

    # What is shown

    def show(self, pair: Pair | None) -> None:
        """Show another diff, from its first change on; None shows nothing."""
        self._pair = pair
        self._hunk = self._match = None
        self._lay_out()
        self._search()
        if self._view.hunks:
            self.jump_hunk(1)
        else:
            self._scroll(0)
            self.post_message(self.Moved())

    @property
    def pair(self) -> Pair | None:
        """What is shown."""
        return self._pair

    @property
    def hunk_words(self) -> str:
        """ "change 2 of 7", and the match where one was jumped to."""
        count = len(self._view.hunks)
        if self._pair is None:
            return ""
        words = "no change" if not count else f"{count} changes" if count > 1 else "1 change"
        if self._hunk is not None and count:
            words = f"change {self._hunk + 1} of {count}"
        if self._query:
            found = len(self._matches)
            at = f"{self._match + 1} of {found}" if self._match is not None and found else f"{found}"
            words += f" · /{self._query}: {at if found else 'no'} match{'' if found == 1 else 'es'}"
        return words

    def watch_split(self) -> None:
        self._again()

    def watch_wrap(self) -> None:
        self._again()

    def watch_fold(self) -> None:
        self._again()

    def on_resize(self) -> None:
        self._again()

    def _again(self) -> None:
        """Lay out anew with the same line at the top."""
        row = self._row_at(self.scroll_offset.y)
        kept = self._view.rows[row] if row < len(self._view.rows) else None
        self._lay_out()
        self._search()
        if kept is not None:
            self._scroll(int(self._starts[self._nearest(kept)]))
        self.post_message(self.Moved())

    def _nearest(self, row: Row) -> int:
        """The row that shows a row's line, or hides it."""
        wanted = row.new if row.old is None else row.old
        at = 0
        for index, other in enumerate(self._view.rows):
            line = other.new if row.old is None else other.old
            if line is not None and wanted is not None and line <= wanted:
                at = index
        return at

    def _lay_out(self) -> None:
        pair = self._pair
        diff = pair.diff if pair else None
        context = CONTEXT if self.fold else None
        self._view = diff.view(split=self.split, context=context) if diff else View((), ())
        if diff and self.fold:  # what has room is not folded
            whole = diff.view(split=self.split, context=None)
            if len(whole.rows) <= self.scrollable_content_region.height:
                self._view = whole
        rows = self._view.rows
        self._digits = len(str(max(len(diff.old), len(diff.new), 1))) if diff else 1
        room = self.scrollable_content_region.width
        self._columns = max(1, self._text_room(room))
        heights = [self._height(row) for row in rows] if self.wrap and diff else [1] * len(rows)
        self._starts = np.array([0, *accumulate(heights)], dtype=np.int64)
        longest = 0
        if diff and not self.wrap:
            longest = max((cell_len(line) for line in (*diff.old, *diff.new)), default=0)
        width = room if self.wrap or self.split else room - self._columns + longest
        if self.split and not self.wrap:
            width = room + max(0, longest - self._columns)
        self.virtual_size = Size(width, int(self._starts[-1]))
        self.refresh()

    def _text_room(self, room: int) -> int:
        """Columns of a source's text: of the whole pane or of one half."""
        if self.split:
            return (room - 1 - len(SEAM)) // 2 - self._digits - 3
        return room - 1 - 2 * (self._digits + 1) - 2

    def _height(self, row: Row) -> int:
        if self._pair is None or row.kind == "…":
            return 1
        diff = self._pair.diff
        sides = [diff.old[row.old]] if row.old is not None and row.kind != "+" else []
        if row.new is not None and (self.split or row.kind == "+"):
            sides.append(diff.new[row.new])
        return max(1, *(-(-cell_len(line) // self._columns) for line in sides)) if sides else 1

    def _row_at(self, y: int) -> int:
        return int(np.searchsorted(self._starts, y, side="right")) - 1

    # Jumps

    def jump_hunk(self, direction: int) -> None:
        """To the next (1) or previous (-1) change, around the end."""
        hunks = self._view.hunks
        if not hunks:
            return
        at = -1 if self._hunk is None and direction > 0 else (self._hunk or 0)
        self._hunk = (at + direction) % len(hunks)
        self._reach(hunks[self._hunk])

    def search(self, query: str) -> None:
        """Look for text, and go to the first match from here on. Lower case finds both. Where only folded
        lines match, they are unfolded."""
        self._query, self._match = query, None
        self._search()
        if query and not self._matches and self.fold and self._hidden_match():
            self.fold = False
        if self._matches:
            here = self._row_at(self.scroll_offset.y)
            self._match = next((i for i, row in enumerate(self._matches) if row >= here), 0) - 1
            self.jump_match(1)
        self.refresh()
        self.post_message(self.Moved())

    def _hidden_match(self) -> bool:
        return self._pair is not None and any(self._finds(line) for line in self._pair.diff.new)

    def jump_match(self, direction: int) -> None:
        """To the next or previous match, around the end."""
        if self._matches:
            self._match = ((self._match if self._match is not None else -1) + direction) % len(self._matches)
            self._reach(self._matches[self._match])

    def _search(self) -> None:
        diff = self._pair.diff if self._pair else None
        self._matches = []
        if diff is None or not self._query:
            return
        for index, row in enumerate(self._view.rows):
            sides = [] if row.kind == "…" else [(diff.old, row.old), (diff.new, row.new)]
            if row.kind in "+-":
                sides = sides[row.kind == "+" :][:1]
            if any(at is not None and self._finds(lines[at]) for lines, at in sides):
                self._matches.append(index)
        if self._match is not None and self._match >= len(self._matches):
            self._match = None

    def _finds(self, line: str) -> bool:
        return self._query in (line if self._query != self._query.lower() else line.lower())

    def _reach(self, row: int) -> None:
        """Scroll a row into the upper part of the pane, unless it is visible with what follows."""
        y, top = int(self._starts[row]), self.scroll_offset.y
        height = max(1, self.scrollable_content_region.height)
        if not top + 1 <= y < top + max(2, height * 2 // 3):
            self._scroll(max(0, y - ABOVE))
        self.refresh()
        self.post_message(self.Moved())

    def _scroll(self, y: int) -> None:
        # By force: a scrollbar that this layout brings isn't there yet, and without one nothing scrolls.
        self.scroll_to(y=y, animate=False, force=True, immediate=True)

    # Painting

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles.clear()

    def render_line(self, y: int) -> Strip:
        """One visible line."""
        left, top = self.scroll_offset
        room = self.scrollable_content_region.width
        index = self._row_at(top + y)
        pair = self._pair
        if pair is None or index >= len(self._view.rows):
            return Strip.blank(room, self.rich_style)
        row, part = self._view.rows[index], top + y - int(self._starts[index])
        here = self._style("here") if self._is_here(index) else None
        mark = Segment("▸" if here and not part else " ", here or self.rich_style)
        if row.kind == "…":
            words = f"  ⋯ {row.hidden} unchanged lines"
            return Strip([mark, Segment(words.ljust(room - 1), self._style("fold"))]).crop(0, room)
        offset = part * self._columns if self.wrap else left
        if not self.split:
            segments = list(self._unified(pair, row, part, offset))
        else:
            olds = self._half(pair, row, OLD, part, offset)
            news = self._half(pair, row, NEW, part, offset)
            segments = [*olds, Segment(SEAM, self._style("seam")), *news]
        return Strip([mark, *segments]).crop_extend(0, room, self.rich_style)

    def _is_here(self, index: int) -> bool:
        """Whether the change or the match that was jumped to last is in this row."""
        at = (
            None
            if self._hunk is None or self._hunk >= len(self._view.hunks)
            else self._view.hunks[self._hunk]
        )
        found = None if self._match is None else self._matches[self._match]
        return index in (at, found)

    def _unified(self, pair: Pair, row: Row, part: int, offset: int) -> Iterator[Segment]:
        side = {"-": OLD, "+": NEW}.get(row.kind, "")
        old = row.old if row.kind != "+" else None
        new = row.new if row.kind != "-" else None
        numbers = "".join(self._number(at, part) + " " for at in (old, new))
        yield Segment(numbers, self._style("number", side))
        sign = SIGNS[side] if not part else " "
        yield Segment(f"{sign} ", self._style(f"{side}-sign", side) if side else self.rich_style)
        yield from self._code(pair, row, NEW if row.kind == "+" else OLD, side, offset)

    def _half(self, pair: Pair, row: Row, of: str, part: int, offset: int) -> Iterator[Segment]:
        at = row.old if of == OLD else row.new
        if at is None:
            yield Segment(" " * (self._digits + 3 + self._columns), self._style("absent"))
            return
        side = "" if row.kind == "=" else of
        yield Segment(self._number(at, part) + " ", self._style("number", side))
        sign = SIGNS[side] if not part else " "
        yield Segment(f"{sign} ", self._style(f"{side}-sign", side) if side else self.rich_style)
        yield from self._code(pair, row, of, side, offset)

    def _number(self, at: int | None, part: int) -> str:
        return (str(at + 1) if at is not None and not part else "").rjust(self._digits)

    def _code(self, pair: Pair, row: Row, of: str, side: str, offset: int) -> Iterator[Segment]:
        """A line's text from a column on, in the room there is, on its side's background."""
        at, lines, syntax = (
            (row.old, pair.diff.old, pair.old) if of == OLD else (row.new, pair.diff.new, pair.new)
        )
        if at is None:
            return
        line = lines[at]
        changed: Sequence[tuple[int, int]] = ()
        other = self._partner(pair, row, at, of) if side else None
        if other is not None:
            changed = emphasis(line, other)[0] if of == OLD else emphasis(other, line)[1]
        runs = syntax[at] if at < len(syntax) else ()
        strip = Strip(self._segments(line, runs, changed, side))
        yield from strip.crop_extend(offset, offset + self._columns, self._style("", side))

    def _partner(self, pair: Pair, row: Row, at: int, of: str) -> str | None:
        """The line that this one was changed from or to."""
        other = row.new if of == OLD else row.old
        return None if other is None else (pair.diff.new if of == OLD else pair.diff.old)[other]

    def _segments(
        self, line: str, runs: Sequence[Run], changed: Sequence[tuple[int, int]], side: str
    ) -> Iterator[Segment]:
        found = self._found(line)
        edges = {0, len(line), *(end for end, _ in runs)}
        edges.update(edge for span in (*changed, *found) for edge in span)
        ordered = sorted(edge for edge in edges if edge <= len(line))
        run = 0
        for start, end in pairwise(ordered):
            while run < len(runs) and runs[run][0] <= start:
                run += 1
            part = runs[run][1] if run < len(runs) else ""
            word = "word" if any(x <= start < y for x, y in changed) else ""
            match = "match" if any(x <= start < y for x, y in found) else ""
            yield Segment(line[start:end], self._style("", side, part, word, match))

    def _found(self, line: str) -> list[tuple[int, int]]:
        query = self._query
        if not query or not self._finds(line):
            return []
        text = line if query != query.lower() else line.lower()
        spans, at = [], text.find(query)
        while at >= 0:
            spans.append((at, at + len(query)))
            at = text.find(query, at + len(query))
        return spans

    def _style(self, name: str, side: str = "", part: str = "", word: str = "", match: str = "") -> Style:
        """A component's style, on the background of its side, with the colour of its syntax."""
        key = (name, side, part, word, match)
        style = self._styles.get(key)
        if style is None:
            style = self._styles[key] = self._mixed(*key)
        return style

    def _mixed(self, name: str, side: str, part: str, word: str, match: str) -> Style:
        style = self.rich_style
        if side:
            style += Style(bgcolor=self.get_component_rich_style(f"diff--{side}").bgcolor)
        if name:
            own = self.get_component_rich_style(f"diff--{name}")
            style += own if not side else Style(color=own.color, bold=own.bold)
        if part:
            own = self.get_component_rich_style(f"code--{part}")
            style += Style(color=own.color, bold=own.bold, italic=own.italic)
        if word and side:
            own = self.get_component_rich_style(f"diff--{side}-word")
            style += Style(color=own.color, bgcolor=own.bgcolor, bold=own.bold, underline=own.underline)
        return style + self.get_component_rich_style("diff--match") if match else style
