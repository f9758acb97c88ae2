"""The Code screen: a source with its stalls by line, beside the SASS or the PTX that it became."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Key, Resize
from textual.widgets import Input, Static

from ...core.errors import WarpdeckError
from .. import code as codes
from .. import source_files
from ..code import Code, Instruction, Place, base, by_place
from ..format import clip
from ..source_files import Sources, Text, Version
from ..syntax import Run, highlight
from ..widgets.footer import Footer
from ..widgets.listing import Line, Listing
from .leaving import gone
from .zooming import Zooming

SOURCE_HELP = """\
### Source with its heat

The source; beside a line its share of the profiler's samples, as a bar and in numbers. An instruction that
*waits* shows the stall, and the load that was late stands above it. **x** goes from hot line to hot line.
Lines marked **┃** belong to what the other pane's cursor is on; **enter** jumps there.
"""
CODE_HELP = """\
### Machine code

What the compiler made of the source, in order: SASS for this device's architecture, or with **p** the PTX.
Samples stand beside an instruction where the profile is of the very same code. **enter** jumps to the source
line; **n** and **N** go through the instructions of the line.
"""


class CodeScreen(Zooming):
    """One version of a source. Everything is read and compiled once, in a thread."""

    HELP = SOURCE_HELP
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "jump", "Jump", id="code.jump", tooltip="To the other pane's line of this one"),
        Binding("tab", "other_pane", "Other", key_display="tab", id="code.tab", tooltip="To the other pane"),
        Binding("p", "ptx", "PTX/SASS", id="code.ptx", tooltip="Show the PTX or the SASS"),
        Binding(
            "x", "hottest(1)", "Hottest", key_display="xX", id="code.hot", tooltip="The next hottest line"
        ),
        Binding("X", "hottest(-1)", "Hotter", show=False, id="code.hotter", tooltip="The next hotter line"),
        Binding(
            "n",
            "same(1)",
            "Next",
            key_display="nN",
            id="code.next",
            tooltip="The next of this line's instructions, or match",
        ),
        Binding("N", "same(-1)", "Previous", show=False, id="code.previous", tooltip="The previous one"),
        Binding("slash", "search", "Search", key_display="/", id="code.search", tooltip="Search for text"),
        Binding("y", "copy", "Copy", show=False, id="code.copy", tooltip="Copy the line and what it became"),
        Binding("escape", "clear", "Clear", show=False, id="code.clear", tooltip="End the search"),
        Binding("question_mark", "help", "Help", key_display="?", id="code.help"),
        Binding("q", "leave", "Back", id="code.quit"),
    ]

    def __init__(self, sources: Sources, version: Version, text: Text | None = None, line: int = 0) -> None:
        super().__init__()
        self.sources, self.version = sources, version
        self._text, self._code = text, Code()
        self._line = line  # of the file, where the cursor is first
        self._ready = self._ptx = False
        self._rank = -1
        self._query = ""
        self._of: dict[Place, list[int]] = {}
        self._searched: Listing | None = None
        self.left = Listing("Source", SOURCE_HELP, id="listing")
        self.right = Listing("SASS", CODE_HELP, id="machine")

    def compose(self) -> ComposeResult:
        yield Static("", id="title", markup=False)
        yield Static("", id="progress", markup=False)
        yield Static("", id="alert", markup=False)
        with Container(id="sides"):
            yield self.left
            yield self.right
        yield Input(id="prompt", compact=True, placeholder="/ text; lower case finds both")
        yield Footer()
        yield Static("", id="tiny", markup=False)

    def on_mount(self) -> None:
        self.query_one("#prompt").display = False
        self.query_one("#alert").display = False
        self.left.focus()
        self.right.show((), empty="compiling…")
        self.run_worker(self._load(), exclusive=True)
        self._describe()

    async def _load(self) -> None:
        """The source first, since it is there at once."""
        trouble = ""
        try:
            text = self._text or await asyncio.to_thread(source_files.load, self.sources, self.version)
        except WarpdeckError as error:
            text, trouble = None, str(error)
        if gone(self):
            return
        runs: Sequence[Sequence[Run]] = ()
        if text is not None:
            self._text = text
            runs = await asyncio.to_thread(highlight, text.lines, text.file)
            self._show_source(text, runs, {})
        found = await asyncio.to_thread(codes.load, self.sources, self.version)
        if gone(self):
            return
        self._code, self._ready = found, True
        if text is not None:
            self._show_source(text, runs, found.heat)
        self._show_code()
        words = "; ".join(w for w in (trouble, found.why_code, found.why_heat) if w)
        alert = self.query_one("#alert", Static)
        alert.update(words)
        alert.display = bool(words)
        if self._line:
            self.left.go(self._line - 1 + (text.before if text else 0))
        elif found.heat:
            self.action_hottest(1)
        self._link(self.left)
        self._describe()
        self.refresh_bindings()

    def _show_source(
        self, text: Text, runs: Sequence[Sequence[Run]], heat: Mapping[Place, codes.Spot]
    ) -> None:
        file = base(text.file)
        lines = []
        for i, line in enumerate(text.lines):
            number = i + 1 - text.before
            spot = heat.get((file, number)) if number > 0 else None
            lines.append(
                Line(str(number) if number > 0 else "", line, spot, runs[i] if i < len(runs) else ())
            )
        self.left.show(lines)
        self.left.border_title = f"Source · {text.file}"

    @property
    def _instructions(self) -> tuple[Instruction, ...]:
        return self._code.ptx if self._ptx else self._code.sass

    def _show_code(self) -> None:
        shown = self._instructions
        self._of = by_place(shown)
        self.right.show(
            [Line(one.label, one.text, one.spot, (), one.heading) for one in shown],
            empty="no machine code: see above" if not self._ptx else "no PTX was kept",
        )
        self.right.border_title = "PTX" if self._ptx else "SASS"
        count = sum(not one.heading and bool(one.text) for one in shown)
        self.right.border_subtitle = f"{count} {'lines' if self._ptx else 'instructions'}"

    def _describe(self) -> None:
        width = max(0, self.size.width - 2)
        title = f"Code · {self.sources.workload} · {self.version.title} · {self.version.variant}"
        device = self.sources.device
        if device is not None:
            title += f" · {device.label}"
        self.query_one("#title", Static).update(clip(title, width), layout=False)
        words = self._code.title or ("compiling…" if not self._ready else "not compiled")
        if self._code.sampled:
            words = f"{self._code.sampled} samples · {words}"
        self.query_one("#progress", Static).update(clip(words, width), layout=False)
        line = self.left.lines[self.left.cursor] if self.left.lines else None
        if line is not None and line.spot is not None:
            spot = line.spot
            self.left.border_subtitle = f"{spot.samples} samples, {100 * spot.share:.1f}% · {spot.reason}"
        else:
            self.left.border_subtitle = ""

    def on_resize(self, event: Resize) -> None:
        width, height = event.size
        self.query_one("#tiny", Static).update(f"warpdeck needs 60×16, this terminal is {width}×{height}")
        self._describe()

    # Links

    @on(Listing.Moved)
    def _moved(self, event: Listing.Moved) -> None:
        self._link(event.pane)
        self._describe()

    def _place(self) -> Place | None:
        """Of the source line under the cursor."""
        text = self._text
        number = self.left.cursor + 1 - (text.before if text else 0)
        return None if text is None or number < 1 else (base(text.file), number)

    def _link(self, pane: Listing) -> None:
        """Mark in the other pane what belongs to a pane's cursor."""
        if pane is self.left:
            place = self._place()
            self.right.link(self._of.get(place, []) if place is not None else [])
            return
        index = self._source_line(self.right.cursor)
        self.left.link([] if index is None else [index])
        if index is not None:
            place = self._instructions[self.right.cursor].place
            self.right.link(self._of.get(place, []) if place is not None else [], reveal=False)

    def _source_line(self, instruction: int) -> int | None:
        shown, text = self._instructions, self._text
        place = shown[instruction].place if instruction < len(shown) else None
        if place is None or text is None or place[0] != base(text.file):
            return None
        index = place[1] - 1 + text.before
        return index if index < len(self.left.lines) else None

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what there is something for."""
        if action == "ptx":
            return bool(self._code.ptx)
        if action == "hottest":
            return bool(self._code.heat)
        return True

    def action_jump(self) -> None:
        """To the other pane's line of this one."""
        if self.focused is self.right:
            index = self._source_line(self.right.cursor)
            if index is None:
                self.notify("this instruction has no line in this source", severity="warning")
                return
            self.left.focus()
            self.left.go(index)
            return
        place = self._place()
        mine = self._of.get(place, []) if place is not None else []
        if not mine:
            self.notify("no instruction comes from this line", severity="warning")
            return
        self.right.focus()
        self.right.go(mine[0])

    @on(Listing.Chosen)
    def _chosen(self) -> None:
        self.action_jump()

    def action_other_pane(self) -> None:
        """The focus to the other pane."""
        (self.left if self.focused is self.right else self.right).focus()

    def action_ptx(self) -> None:
        """PTX or SASS."""
        self._ptx = not self._ptx
        self.right.cursor = 0
        self._show_code()
        self._link(self.left)

    def action_hottest(self, direction: int) -> None:
        """From hot line to less hot line."""
        pane = self.right if self.focused is self.right and self.right.hottest() else self.left
        found = pane.hottest()
        if found:
            self._rank = (self._rank + direction) % len(found)
            pane.go(found[self._rank])

    def action_same(self, direction: int) -> None:
        """To the next instruction of the source line, or to the next match of a search."""
        if self._query:
            self._match(direction)
            return
        shown = self._instructions
        if self.focused is not self.right:
            self.action_jump()
            return
        place = shown[self.right.cursor].place if self.right.cursor < len(shown) else None
        mine = self._of.get(place, []) if place is not None else []
        later = [i for i in mine if (i > self.right.cursor if direction > 0 else i < self.right.cursor)]
        if mine:
            self.right.go(
                (later[0] if direction > 0 else later[-1]) if later else mine[0 if direction > 0 else -1]
            )

    def action_search(self) -> None:
        """Ask for text; it is looked for in the focused pane."""
        prompt = self.query_one("#prompt", Input)
        prompt.value = ""
        prompt.display = True
        self._searched = self.right if self.focused is self.right else self.left
        prompt.focus()

    @on(Input.Submitted, "#prompt")
    def _answered(self, event: Input.Submitted) -> None:
        self._query = event.value
        self._close_prompt()
        if self._query:
            self._match(1)

    def _match(self, direction: int) -> None:
        pane = self.right if self.focused is self.right else self.left
        exact = self._query != self._query.lower()
        found = [
            i
            for i, line in enumerate(pane.lines)
            if self._query in (line.text if exact else line.text.lower())
        ]
        if not found:
            self.notify(f"{self._query!r} is not in this pane", severity="warning", markup=False)
            return
        later = [i for i in found if (i > pane.cursor if direction > 0 else i < pane.cursor)]
        pane.go((later[0] if direction > 0 else later[-1]) if later else found[0 if direction > 0 else -1])

    def on_key(self, event: Key) -> None:
        """escape leaves the prompt."""
        if event.key == "escape" and self.query_one("#prompt").display:
            event.stop()
            self._close_prompt()

    def _close_prompt(self) -> None:
        self.query_one("#prompt").display = False
        (self._searched or self.left).focus()

    def action_clear(self) -> None:
        """End the search."""
        self._query = ""

    def action_copy(self) -> None:
        """Copy the source line with its instructions."""
        if not self.left.lines:
            return
        place = self._place()
        shown = self._instructions
        mine = self._of.get(place, []) if place is not None else []
        lines = [
            self.left.lines[self.left.cursor].text,
            *(f"{shown[i].label}  {shown[i].text}" for i in mine),
        ]
        self.app.copy_to_clipboard("\n".join(lines))
        self.notify(f"copied the line and its {len(mine)} instructions")

    def action_help(self) -> None:
        """Help for the focused pane."""
        from .help import HelpScreen

        self.app.push_screen(HelpScreen(self))

    def action_leave(self) -> None:
        """Back."""
        self.dismiss()
