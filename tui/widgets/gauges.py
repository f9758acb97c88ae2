"""Gauges of one GPU: a bar and its value in words, or a plain statement of why there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from rich.style import Style
from rich.text import Text
from textual.binding import BindingType
from textual.events import Resize
from textual.widgets import Static

from ...core.model import DeviceInfo
from ..braille import bar
from ..export import Exported, Sheet
from ..format import NONE, duration, size_text
from ..histories import (
    GPU_UTIL,
    MEMORY,
    MEMORY_CLOCK,
    POWER,
    QUIET,
    SM_CLOCK,
    TEMPERATURE,
    History,
    Telemetry,
    area_row,
    history,
    other_key,
    others,
    spark,
    spark_levels,
    step_s,
    throttled,
)

UNSUPPORTED = "not reported by this GPU"


@dataclass(frozen=True)
class Gauge:
    """One row: `fraction` of its scale (None: words only), the value in words, and whether to warn. `key`:
    the sample's field, `whole` the one that it is a share of, or the number."""

    name: str
    fraction: float | None
    words: str
    warn: bool = False
    key: str = ""
    whole: str | float = 0.0


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


THROTTLE = "throttle"


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
        Gauge(
            "GPU util", _part(util, 100), UNSUPPORTED if util is None else f"{util:.0f}%", False, *GPU_UTIL
        ),
        Gauge("memory", _part(used, total), memory, False, *MEMORY),
        # No threshold is sampled, so the bar is simply of 100 °C.
        Gauge(
            "temp", _part(temp, 100), UNSUPPORTED if temp is None else f"{temp:.0f} °C", False, *TEMPERATURE
        ),
        Gauge("power", _part(power, limit), _of(power, limit, "W"), False, *POWER),
        Gauge("SM clock", _part(sm, sm_max), _clock(sm, sm_max), False, *SM_CLOCK),
        Gauge("mem clock", _part(mem, mem_max), _clock(mem, mem_max), False, *MEMORY_CLOCK),
        Gauge(THROTTLE, None, reasons, warn=bool(held)),
    ]


def neighbours(samples: Sequence[Mapping[str, Any]]) -> list[Gauge]:
    """A row for each other GPU of the machine: utilisation, temperature, power, what holds its clock down."""
    rows = []
    for other in others(samples):
        util, temp, power = other.get("gpu_util"), other.get("temp_c"), other.get("power_w")
        held = [reason for reason in other.get("throttle") or () if reason not in QUIET]
        parts = [
            UNSUPPORTED if util is None else f"{util:.0f}%",
            "" if power is None else f"{power:.0f} W",
            "" if temp is None else f"{temp:.0f} °C",
            *held,
        ]
        words, index = ", ".join(part for part in parts if part), other["index"]
        key = other_key(index)
        rows.append(Gauge(f"GPU {index}", _part(util, 100), words, bool(held), key, 100.0))
    return rows


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


def paint(
    rows: Sequence[Gauge], width: int, styles: Mapping[str, Style], past: History | None = None
) -> Text:
    """All rows as one text: name, bar or, where a history is known, its line (at most 20 wide), words; both
    where there is room."""
    text = Text(no_wrap=True, overflow="ellipsis")
    most_words = max((len(g.words) for g in rows if g.fraction is not None and not g.warn), default=0)
    room = min(42, width - NAME_WIDTH - most_words - 1)
    line = 0 if past is None else min(20, room) if room < 30 else room // 2
    bars = min(20, room) if past is None else room - line - 1 if room >= 30 else 0
    for gauge in rows:
        text.append(gauge.name.ljust(NAME_WIDTH), styles["name"])
        if gauge.fraction is not None and bars >= 4:
            text.append(bar(gauge.fraction, bars) + " ", styles["bar"])
        if past is not None and line >= 4 and gauge.fraction is not None and gauge.key in past.shares:
            shares = past.shares[gauge.key]
            levels = spark_levels(shares, past.seconds, 2 * line, step_s(past, 2 * line))
            text.append(spark(levels) + " ", styles["bar"])
        words = f"! {gauge.words}" if gauge.warn else gauge.words
        if gauge.name == THROTTLE and past is not None and (held := throttled(past)):
            words += f" · {held}"
        text.append(words + "\n", styles["warning"] if gauge.warn else "")
    text.right_crop(1)
    return text


def paint_large(
    rows: Sequence[Gauge], width: int, height: int, styles: Mapping[str, Style], past: History
) -> Text:
    """As `paint`, with each gauge's history over the whole width, several rows high."""
    drawn = [g for g in rows if g.key in past.shares]
    rest = [g for g in rows if g.key not in past.shares]
    tall = max(1, min(6, (height - len(rest) - 1 - len(drawn)) // max(1, len(drawn))))
    step = step_s(past, width)
    text = Text(no_wrap=True, overflow="ellipsis")
    for gauge in drawn:
        shares = past.shares[gauge.key]
        known = shares[np.isfinite(shares)]
        text.append(gauge.name.ljust(NAME_WIDTH), styles["name"])
        text.append(gauge.words)
        if len(known):
            low, mean, high = (f"{100 * v:.0f}" for v in (known.min(), known.mean(), known.max()))
            unit = " °C" if gauge.key == TEMPERATURE[0] else "%"
            text.append(f"   {low} to {high}{unit}, mean {mean}{unit}", styles["name"])
        text.append("\n")
        for row in range(tall - 1, -1, -1):
            text.append(
                area_row(spark_levels(shares, past.seconds, width, step), row, tall) + "\n", styles["bar"]
            )
    marks = np.where(past.held, 1.0, 0.0)
    line = spark_levels(marks, past.seconds, width, step)
    strip = "".join(" " if v is None else "!" if v > 0 else "·" for v in line)
    words = throttled(past) or "nothing held the clock down"
    style = styles["warning"] if past.held.any() else styles["name"]
    text.append(THROTTLE.ljust(NAME_WIDTH), styles["name"])
    text.append(words + "\n", style)
    text.append(strip + "\n", style)
    for gauge in rest:
        if gauge.name != THROTTLE:
            text.append(gauge.name.ljust(NAME_WIDTH), styles["name"])
            text.append(gauge.words + "\n")
    text.right_crop(1)
    return text


class GaugePanel(Static, Exported, can_focus=True):
    """The pane; `show` repaints only if what it shows changed."""

    BINDINGS: ClassVar[list[BindingType]] = [Exported.BINDING]
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "gauges--name",
        "gauges--bar",
        "gauges--stored",
        "gauges--warning",
    }
    HELP = """\
### Gauges

What the GPU does while the run goes on: each line is the history of the last ten minutes at most (the frame
says how much), as a share of the value's own maximum, the newest at the right; it is blank while nothing was
sampled. The words beside it say the value. **throttle** names what holds the clock down; a measurement taken
meanwhile is labelled or thrown away. `z` shows the histories large, with a **!** for each moment at which
something held the clock down, and the share of samples in which each reason did. `e` saves all samples.
The run samples NVML between timed regions, never inside them.

Without a GPU the pane says so, and what it shows (in another colour) was stored with the recording: how
the GPU was while it was measured, not how any is now.
"""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._rows: Sequence[Gauge] = ()
        self._labels = ("", "")
        self._stored = False
        self._samples: Sequence[Mapping[str, Any]] = ()
        self._past: History | None = None
        self.border_title = "GPU"

    def show(
        self,
        title: str,
        rows: Sequence[Gauge],
        note: str = "",
        *,
        stored: bool = False,
        samples: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Show these rows; the note says where they come from if not from a GPU here and now. `stored`:
        they are a recording's. `samples`: the history, oldest first."""
        new = samples is not self._samples
        if new:
            self._samples = samples
            self._past = history(samples)
        if self._past is not None and not stored:
            span = f"last {duration(self._past.span_s)}"
            note = f"{note} · {span}" if note else span
        if (title, note) != self._labels:  # setting them repaints, and reads differ from what was set
            self._labels = (title, note)
            self.border_title, self.border_subtitle = title, note
        if new or (rows, stored) != (self._rows, self._stored):
            self._rows, self._stored = rows, stored
            self._repaint()

    def exported(self) -> Sheet | Telemetry | None:
        """What `e` saves: the histories as curves; of a single sample what the pane says."""
        if self._past is None:
            rows = [(row.name, row.words) for row in self._rows]
            return Sheet(self._labels[0], ("what", "value"), rows) if rows else None
        return Telemetry(self._labels[0], self._past, self._samples)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_attached:
            self.call_after_refresh(self._repaint)  # in the new theme's colours

    def on_resize(self, event: Resize) -> None:
        self._repaint()

    def _repaint(self) -> None:
        width, height = self.content_size
        if not width:
            return
        parts = {"name": "name", "bar": "stored" if self._stored else "bar", "warning": "warning"}
        styles = {part: self.get_component_rich_style(f"gauges--{name}") for part, name in parts.items()}
        past = None if self._stored else self._past
        drawn = 0 if past is None else sum(g.key in past.shares for g in self._rows)
        if past is not None and drawn and height >= 2 * drawn + 1 + len(self._rows) - drawn:
            text = paint_large(self._rows, width, height, styles, past)
        else:
            text = paint(self._rows, width, styles, past)
        self.update(text, layout=False)
