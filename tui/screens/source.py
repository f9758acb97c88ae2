"""The Source screen: what changed from one source of a run to another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Key, Resize
from textual.widgets import Input, Static

from ...core.errors import WarpdeckError
from .. import source_files
from ..diff import compare
from ..format import clip
from ..source_files import Sources, Text, Version
from ..syntax import highlight
from ..widgets.diff import DiffPane, Pair
from ..widgets.footer import Footer
from .leaving import gone
from .zooming import Zooming


class SourceScreen(Zooming):
    """Two versions of a source. `sources` is asked again whenever another version is chosen, so that a run
    that goes on brings its new attempts; `old`, `new`: keys to begin with (None: the parent, the latest)."""

    HELP = DiffPane.HELP
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "right_square_bracket",
            "version(1)",
            "Version",
            key_display="[]",
            id="source.next",
            tooltip="The next version, against its parent",
        ),
        Binding(
            "left_square_bracket",
            "version(-1)",
            "Previous",
            show=False,
            id="source.previous",
            tooltip="The previous version, against its parent",
        ),
        Binding(
            "right_curly_bracket",
            "against(1)",
            "Against",
            key_display="{}",
            id="source.against_next",
            tooltip="Compare with the next version",
        ),
        Binding(
            "left_curly_bracket",
            "against(-1)",
            "Against previous",
            show=False,
            id="source.against_previous",
            tooltip="Compare with the previous version",
        ),
        Binding("n", "hunk(1)", "Change", key_display="nN", id="source.hunk", tooltip="The next change"),
        Binding("N", "hunk(-1)", "Previous change", show=False, id="source.hunk_back"),
        Binding("slash", "search", "Search", key_display="/", id="source.search", tooltip="Search for text"),
        Binding("m", "match(1)", "Match", show=False, id="source.match", tooltip="The next match"),
        Binding("M", "match(-1)", "Previous match", show=False, id="source.match_back"),
        Binding("v", "split", "View", id="source.split", tooltip="Beside or below each other"),
        Binding(
            "w", "wrap", "Wrap", show=False, id="source.wrap", tooltip="Wrap long lines, or scroll sideways"
        ),
        Binding("f", "fold", "Fold", id="source.fold", tooltip="Fold what is unchanged, or show it"),
        Binding(
            "a", "code", "SASS", id="source.code", tooltip="SASS, PTX and stalls by line of the source +"
        ),
        Binding("x", "swap", "Swap", show=False, id="source.swap", tooltip="Exchange the two versions"),
        Binding("y", "copy", "Copy", show=False, id="source.copy", tooltip="Copy the source marked +"),
        Binding("escape", "clear", "Clear", show=False, id="source.clear", tooltip="End the search"),
        Binding("question_mark", "help", "Help", key_display="?", id="source.help"),
        Binding("q", "leave", "Back", id="source.quit"),
    ]

    def __init__(
        self, sources: Callable[[], Sources], new: str | None = None, old: str | None = None
    ) -> None:
        super().__init__()
        self._ask = sources
        self.sources = sources()
        pair = self.sources.default(new)
        self.old, self.new = pair if pair is not None else (None, None)
        self.old = self.sources.find(old) or self.old
        self._texts: dict[str, Text] = {}
        self.pane = DiffPane(id="diff")

    def compose(self) -> ComposeResult:
        yield Static("", id="title", markup=False)
        yield Static("", id="old", markup=False)
        yield Static("", id="new", markup=False)
        yield self.pane
        yield Static("", id="alert", markup=False)
        yield Input(id="prompt", compact=True, placeholder="/ text; lower case finds both")
        yield Footer()
        yield Static("", id="tiny", markup=False)

    def on_mount(self) -> None:
        self.query_one("#prompt").display = False
        self.query_one("#alert").display = False
        self.pane.focus()
        self._open()

    def on_resize(self, event: Resize) -> None:
        width, height = event.size
        self.query_one("#tiny", Static).update(f"warpdeck needs 60×16, this terminal is {width}×{height}")
        if not self.pane.pair:
            self.pane.split = width >= 160
        self._describe()

    # The two versions

    def _open(self) -> None:
        """Read and compare the two versions in a thread; another choice in the meantime wins."""
        self._describe()
        if self.old is not None and self.new is not None:
            self.run_worker(self._compare(self.old, self.new), group="compare", exclusive=True)
        else:
            self._alert("this run has no source yet")

    async def _compare(self, old: Version, new: Version) -> None:
        self.pane.border_subtitle = "reading…"
        sources = self.sources
        known = {key: self._texts[key] for key in (old.key, new.key) if key in self._texts}
        try:
            texts, pair = await asyncio.to_thread(_compared, sources, old, new, known)
        except WarpdeckError as error:
            if not gone(self):
                self.pane.show(None)
                self._alert(str(error))
                self.refresh_bindings()
            return
        if gone(self):
            return
        self._texts = texts  # of these two; others are read again
        notes = dict.fromkeys(text.note for text in texts.values() if text.note)
        if not pair.diff.added and not pair.diff.removed:
            notes["the two sources are the same"] = None
        self._alert("; ".join(notes))
        self.pane.show(pair)
        self._describe()
        self.refresh_bindings()

    def _alert(self, words: str) -> None:
        alert = self.query_one("#alert", Static)
        alert.update(words)
        alert.display = bool(words)
        if words:
            self.pane.border_subtitle = ""

    def _describe(self) -> None:
        width = self.size.width - 2
        count = len(self.sources.versions)
        title = f"Source · {self.sources.workload}"
        if self.old is not None and self.new is not None:
            title += f" · {self.old.title} → {self.new.title} of {count}"
        pair = self.pane.pair
        if pair is not None:
            title += f" · +{pair.diff.added} −{pair.diff.removed} lines"
        self.query_one("#title", Static).update(clip(title, width), layout=False)
        for sign, name, version in (("−", "old", self.old), ("+", "new", self.new)):
            words = "" if version is None else self._words(version, width - 2)
            self.query_one(f"#{name}", Static).update(f"{sign} {words}", layout=False)

    def _words(self, version: Version, width: int) -> str:
        """What became of a version; the interval gives way to the launches where there is no room."""
        text = self._texts.get(version.key)
        launch = text.launch if text else source_files.launch_words(version.launches, self.sources.case)
        parts = [version.title, *version.facts, launch or version.variant]
        line = " · ".join(part for part in parts if part)
        if len(line) > width:
            line = " · ".join(part.partition(" [")[0] for part in parts if part)
        return clip(f"{line} · {version.idea}" if version.idea else line, width)

    @on(DiffPane.Moved)
    def _say_place(self) -> None:
        pane = self.pane
        view = "beside each other" if pane.split else "below each other"
        pane.border_title = f"{view}{', wrapped' if pane.wrap else ''}{'' if pane.fold else ', unfolded'}"
        pane.border_subtitle = pane.hunk_words

    def _neighbour(self, version: Version | None, direction: int) -> Version | None:
        self.sources = self._ask()
        versions = self.sources.versions
        keys = [v.key for v in versions]
        if version is None or version.key not in keys:
            return versions[-1] if versions else None
        at = keys.index(version.key) + direction
        if not 0 <= at < len(keys):
            self.notify("no later version" if direction > 0 else "no earlier version")
            return None
        return versions[at]

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what there is something for."""
        if action in ("hunk", "match", "search", "split", "wrap", "fold", "copy"):
            return self.pane.pair is not None
        if action == "code":
            return self.new is not None
        if action in ("version", "against"):
            return len(self.sources.versions) > 1
        return True

    def action_version(self, direction: int) -> None:
        """The next or previous version, against what it is a change of."""
        found = self._neighbour(self.new, direction)
        if found is not None:
            pair = self.sources.default(found.key)
            self.old, self.new = pair if pair is not None else (self.old, found)
            self._open()

    def action_against(self, direction: int) -> None:
        """Compare with another version."""
        found = self._neighbour(self.old, direction)
        if found is not None:
            self.old = found
            self._open()

    def action_code(self) -> None:
        """The new version's machine code beside it."""
        from .code import CodeScreen

        if self.new is not None:
            text = self._texts.get(self.new.key)
            self.app.push_screen(CodeScreen(self.sources, self.new, text))

    def action_swap(self) -> None:
        """Exchange the two."""
        self.old, self.new = self.new, self.old
        self._open()

    def action_hunk(self, direction: int) -> None:
        """To the next or previous change."""
        self.pane.jump_hunk(direction)

    def action_match(self, direction: int) -> None:
        """To the next or previous match."""
        self.pane.jump_match(direction)

    def action_split(self) -> None:
        """Beside or below each other."""
        self.pane.split = not self.pane.split

    def action_wrap(self) -> None:
        """Wrap or not."""
        self.pane.wrap = not self.pane.wrap

    def action_fold(self) -> None:
        """Fold or not."""
        self.pane.fold = not self.pane.fold

    def action_search(self) -> None:
        """Ask for text."""
        prompt = self.query_one("#prompt", Input)
        prompt.value = ""
        prompt.display = True
        prompt.focus()

    @on(Input.Submitted, "#prompt")
    def _answered(self, event: Input.Submitted) -> None:
        self._close_prompt()
        self.pane.search(event.value)  # the frame says how many there are

    def on_key(self, event: Key) -> None:
        """escape leaves the prompt."""
        if event.key == "escape" and self.query_one("#prompt").display:
            event.stop()
            self._close_prompt()

    def _close_prompt(self) -> None:
        self.query_one("#prompt").display = False
        self.pane.focus()

    def action_clear(self) -> None:
        """End the search."""
        self.pane.search("")

    def action_copy(self) -> None:
        """Copy the new version's source."""
        pair = self.pane.pair
        if pair is not None and self.new is not None:
            self.app.copy_to_clipboard("\n".join(pair.diff.new) + "\n")
            self.notify(f"copied the source of {self.new.title}", markup=False)

    def action_help(self) -> None:
        """Help."""
        from .help import HelpScreen

        self.app.push_screen(HelpScreen(self))

    def action_leave(self) -> None:
        """Back."""
        self.dismiss()


def _compared(
    sources: Sources, old: Version, new: Version, known: dict[str, Text]
) -> tuple[dict[str, Text], Pair]:
    """In a thread: both texts by their versions' keys, and what the pane shows of them."""
    texts = {v.key: known.get(v.key) or source_files.load(sources, v) for v in (old, new)}
    a, b = texts[old.key], texts[new.key]
    diff = compare(a.lines, b.lines)
    return texts, Pair(diff, highlight(a.lines, a.file), highlight(b.lines, b.file))
