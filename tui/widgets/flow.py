"""The pane that draws how data moved through the memory hierarchy."""

from __future__ import annotations

from rich.text import Text

from ..export import Sheet
from ..memory_flow import Flow, drawn, percent_words, rate_words
from .bars import TextPane

HELP = """\
### Memory flow

What one launch moved between its SMs, their L1, the L2 and DRAM: rates, the L1's and the L2's **hit** rates,
and how **busy** each is, of its own peak. Up, or to the left, is what is read. A thicker line carries more:
**═** most, **━**, **─** little, **┄** nothing. Global loads and stores only; shared memory is told below.
"""


class FlowPane(TextPane):
    """A drawing in characters, beside each other where there is room."""

    def __init__(self, title: str = "Memory flow", *, id: str | None = None) -> None:
        super().__init__(title, HELP, id=id)
        self.border_subtitle = "▲ read  ▼ written"
        self._flow: Flow | None = None

    def show(self, flow: Flow) -> None:
        """Replace it."""
        self._flow = flow
        self.draw()

    def exported(self) -> Sheet | None:
        """A row a link between two levels."""
        found = self._flow
        if found is None or found.missing:
            return None
        levels = {level.name: level for level in found.levels}
        rows, values = [], []
        for link in found.links:
            hit = levels[link.lower].hit
            words = (rate_words(link, link.read), rate_words(link, link.written), percent_words(hit))
            rows.append((f"{link.upper} – {link.lower}", *words))
            values.append(
                {
                    "from": link.lower,
                    "to": link.upper,
                    "read_bytes": link.read,
                    "written_bytes": link.written,
                    "read_bytes_per_s": link.rate(link.read),
                    "written_bytes_per_s": link.rate(link.written),
                    "hit_rate": hit,
                }
            )
        heading = ("", "read", "written", "hit rate below")
        return Sheet("Memory flow", heading, rows, (False, True, True, True), values)

    def text(self, width: int) -> Text:
        """The lines, in the middle where there is room."""
        lines = drawn(self._flow, width) if self._flow is not None else []
        text = Text()
        bar, small = self.style_of("bar"), self.style_of("small")
        for number, line in enumerate(lines):
            shown = Text(line)
            shown.highlight_regex(r"[═━─┄▶◀▲▼║┃┆█▉▊▋▌▍▎▏·]+", bar)
            if line.startswith("shared memory"):
                shown.stylize(small)
            text.append_text(shown)
            if number < len(lines) - 1:
                text.append("\n")
        return text
