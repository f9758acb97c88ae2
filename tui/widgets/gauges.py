"""Gauges of one GPU: a bar and its value in words, or a plain statement of why there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.style import Style
from rich.text import Text
from textual.events import Resize
from textual.widgets import Static

from ...core.model import DeviceInfo
from ..braille import bar
from ..format import NONE, size_text

UNSUPPORTED = "not reported by this GPU"
# Clock event reasons that are as they were asked for; any other holds the clock down.
QUIET = frozenset({"idle", "applications clocks", "display clock setting"})


@dataclass(frozen=True)
class Gauge:
    """One row: `fraction` of its scale (None: words only), the value in words, and whether to warn."""

    name: str
    fraction: float | None
    words: str
    warn: bool = False


def _part(value: float | None, whole: float | None) -> float | None:
    return None if value is None or not whole else value / whole


def _of(value: float | None, whole: float | None, unit: str) -> str:
    """ "412 of 700 W, 59%", with what is known."""
    if value is None:
        return UNSUPPORTED
    if not whole:
        return f"{value:.0f} {unit}"
    return f"{value:.0f} of {whole:.0f} {unit}, {100 * value / whole:.0f}%"


def _clock(value: float | None, most: float | None) -> str:
    if value is None:
        return UNSUPPORTED
    return f"{value:.0f} MHz, {100 * value / most:.0f}% of max" if most else f"{value:.0f} MHz"


def gauges(sample: Mapping[str, Any]) -> list[Gauge]:
    """Rows for one `sample` event. A field that is None or absent is said to be unsupported, never 0."""
    util, temp = sample.get("gpu_util"), sample.get("temp_c")
    used, total = sample.get("mem_used"), sample.get("mem_total")
    power, limit = sample.get("power_w"), sample.get("power_limit_w")
    sm, sm_max = sample.get("sm_mhz"), sample.get("sm_max_mhz")
    mem, mem_max = sample.get("mem_mhz"), sample.get("mem_max_mhz")
    if used is None:
        memory = UNSUPPORTED
    else:
        memory = f"{used / 2**30:.1f} of {total / 2**30:.1f} GiB" if total else size_text(used)
    throttle: Sequence[str] | None = sample.get("throttle")
    held = [t for t in throttle or () if t not in QUIET]
    if throttle is None:
        reasons = UNSUPPORTED
    else:
        reasons = ", ".join(held or ["none", *throttle])
    return [
        Gauge("GPU util", _part(util, 100), UNSUPPORTED if util is None else f"{util:.0f}%"),
        Gauge("memory", _part(used, total), memory),
        # No threshold is sampled, so the bar is simply of 100 °C.
        Gauge("temp", _part(temp, 100), UNSUPPORTED if temp is None else f"{temp:.0f} °C"),
        Gauge("power", _part(power, limit), _of(power, limit, "W")),
        Gauge("SM clock", _part(sm, sm_max), _clock(sm, sm_max)),
        Gauge("mem clock", _part(mem, mem_max), _clock(mem, mem_max)),
        Gauge("throttle", None, reasons, warn=bool(held)),
    ]


def facts(device: DeviceInfo) -> list[Gauge]:
    """Rows of what doesn't change: the peaks that the floor is computed from, the GPU's make, the driver."""
    cc = device.compute_capability
    capability = "" if cc is None else f" of sm_{cc[0]}{cc[1]}"
    rows = [
        Gauge("DRAM peak", None, NONE if device.dram_gbs is None else f"{device.dram_gbs:.0f} GB/s"),
        Gauge("FP32 peak", None, NONE if device.fp32_tflops is None else f"{device.fp32_tflops:.1f} TFLOP/s"),
        Gauge("SMs", None, NONE if device.sm_count is None else f"{device.sm_count}{capability}"),
        Gauge("driver", None, device.driver or NONE),
        Gauge("L2 cache", None, size_text(device.l2_bytes)),
    ]
    return [g for g in rows if g.words != NONE]


def stored_values(device: DeviceInfo) -> list[Gauge]:
    """Rows for a recording without NVML values: what was stored with it of the GPU that was measured."""
    clock = NONE if not device.sm_clock_max_mhz else f"{device.sm_clock_max_mhz:.0f} MHz max"
    rows = [Gauge("memory", None, size_text(device.memory_bytes)), Gauge("SM clock", None, clock)]
    return [*(g for g in rows if g.words != NONE), *facts(device)]


NAME_WIDTH = 10


def paint(rows: Sequence[Gauge], width: int, styles: Mapping[str, Style]) -> Text:
    """All rows as one text: name, bar as wide as the room allows (at most 20), words."""
    text = Text(no_wrap=True, overflow="ellipsis")
    most_words = max((len(g.words) for g in rows if g.fraction is not None), default=0)
    room = min(20, width - NAME_WIDTH - most_words - 1)
    for gauge in rows:
        text.append(gauge.name.ljust(NAME_WIDTH), styles["name"])
        if gauge.fraction is not None and room >= 4:
            text.append(bar(gauge.fraction, room) + " ", styles["bar"])
        words = f"! {gauge.words}" if gauge.warn else gauge.words
        text.append(words + "\n", styles["warning"] if gauge.warn else "")
    text.right_crop(1)
    return text


class GaugePanel(Static, can_focus=True):
    """The pane; `show` repaints only if what it shows changed."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "gauges--name",
        "gauges--bar",
        "gauges--stored",
        "gauges--warning",
    }
    HELP = """\
### Gauges

What the GPU does while the run goes on: bars are shares of each value's own maximum, and the words
beside them say the value. **throttle** names what holds the clock down; a measurement taken meanwhile
is labelled or thrown away. The run samples NVML between timed regions, never inside them.

Without a GPU the pane says so, and what it shows (in another colour) was stored with the recording: how
the GPU was while it was measured, not how any is now.
"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: Sequence[Gauge] = ()
        self._labels = ("", "")
        self._stored = False
        self.border_title = "GPU"

    def show(self, title: str, rows: Sequence[Gauge], note: str = "", *, stored: bool = False) -> None:
        """Show these rows; the note says where they come from if not from a GPU here and now. `stored`:
        they are a recording's."""
        if (title, note) != self._labels:  # setting them repaints, and reads differ from what was set
            self._labels = (title, note)
            self.border_title, self.border_subtitle = title, note
        if (rows, stored) != (self._rows, self._stored):
            self._rows, self._stored = rows, stored
            self._repaint()

    def on_resize(self, event: Resize) -> None:
        self._repaint()

    def _repaint(self) -> None:
        if self.content_size.width:
            parts = {"name": "name", "bar": "stored" if self._stored else "bar", "warning": "warning"}
            styles = {part: self.get_component_rich_style(f"gauges--{name}") for part, name in parts.items()}
            self.update(paint(self._rows, self.content_size.width, styles), layout=False)
