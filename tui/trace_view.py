"""A timeline in words: title, costs, details, stages. Pure functions, as `view` is for runs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.model import DeviceInfo
from ..telemetry.trace.timeline import Timeline
from .braille import ticks
from .format import NONE, clip, short_config
from .lanes import ASYNC, NESTED, TOKEN

KIND_WORDS = {NESTED: "range", TOKEN: "token range", ASYNC: "async stage"}
UNITS = ((1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def time_words(ns: float | None, digits: int = 4) -> str:
    """A time or duration with `digits` significant digits: "320.5 ns", "12.35 µs"."""
    if ns is None or not math.isfinite(ns):
        return NONE
    scale, unit = next(((s, u) for s, u in UNITS if abs(ns) >= s), UNITS[-1])
    value = ns / scale
    whole = len(str(int(abs(value))))
    return f"{value:.{max(0, digits - whole)}f} {unit}" if value else "0 ns"


def instant_words(ns: float, resolution: float) -> str:
    """A point in time with decimals down to `resolution`, ns: "12.3456 µs"."""
    scale, unit = next(((s, u) for s, u in UNITS if abs(ns) >= s), UNITS[-1])
    decimals = math.ceil(-math.log10(max(resolution, 1e-3) / scale) - 1e-9)
    return f"{ns / scale:.{min(6, max(0, decimals))}f} {unit}"


def shown_words(span: float, whole: float) -> str:
    """ "7.47 of 76.0 µs shown"; "all of 76.0 µs shown"."""
    if span >= 0.9999 * whole:
        return f"all of {time_words(whole, 3)} shown"
    part, entire = time_words(span, 3), time_words(whole, 3)
    if part.split()[1] == entire.split()[1]:
        part = part.split()[0]
    return f"{part} of {entire} shown"


def count_words(count: int) -> str:
    """ "812", "41 k", "1.2 M": events."""
    for scale, unit in ((1e6, "M"), (1e3, "k")):
        if count >= 10 * scale:
            return f"{count / scale:.0f} {unit}"
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return str(count)


def axis(low: float, high: float, columns: int) -> list[tuple[int, str]]:
    """(column, label) of round times within [low, high]; the last has the unit, and all share it."""
    span = high - low
    most = max(abs(low), abs(high))
    scale, unit = next(((s, u) for s, u in UNITS if most >= s), UNITS[-1])
    for count in range(max(1, columns // 11), 0, -1):
        values = ticks(low / scale, high / scale, count)
        if not values:
            continue
        step = values[1] - values[0] if len(values) > 1 else span / scale
        decimals = max(0, math.ceil(-math.log10(step) - 1e-9)) if step > 0 else 0
        labels = [f"{v:.{decimals}f} {unit}" for v in values]
        gap = step * scale / span * columns
        if len(values) == 1 or gap >= max(map(len, labels)) + 2:
            places = [math.floor((v * scale - low) / span * columns + 1e-6) for v in values]
            return [(p, text) for p, text in zip(places, labels, strict=True) if 0 <= p < columns]
    return []


def device_words(data: Any) -> str:
    """Of a device's JSON: "recorded on NVIDIA H200, 2026-11-29", or its name; "" if there is none."""
    if not isinstance(data, dict):
        return ""
    try:
        device = DeviceInfo.from_json(data)
    except (KeyError, TypeError, ValueError):  # a report knows no more than the name
        return str(data.get("name") or "")
    return f"emulated, {device.label}" if device.emulated else device.label


def title_line(timeline: Timeline, width: int) -> str:
    """Workload, variant, case, device, configuration. What a recording was made on is never cut off."""
    meta = timeline.meta
    names = [str(meta[k]) for k in ("workload", "variant") if meta.get(k)] or ["trace"]
    case = [f"size {meta['case']}"] if meta.get("case") else []
    device = device_words(meta.get("device"))
    head = " · ".join([*names, *case, *([device] if device else [])])
    if len(head) > width:
        head = " · ".join([names[0], *([device] if device else [])])
    config = meta.get("config")
    room = width - len(head) - 3
    if isinstance(config, dict) and config and room >= 12:
        head += f" · {short_config(config, room)}"
    return clip(head, width)


def cost_line(timeline: Timeline, width: int) -> str:
    """What tracing cost and how far to trust it: "tracing +0.8% vs untraced · 0 dropped · clock ±3.2 ns…"."""
    clock = timeline.clock
    parts = [
        cost_words(timeline.meta.get("overhead")),
        f"{count_words(timeline.dropped)} dropped",
        f"{timeline.mispaired_count} mispaired" if timeline.mispaired_count else "",
        f"clock ±{clock.uncertainty_ns:.3g} ns",
        f"{count_words(timeline.events)} events",
        coverage_words(timeline),
        f"half within ±{clock.median_ns:.3g} ns" if 0 < clock.median_ns < clock.uncertainty_ns / 2 else "",
        clock.reason,
    ]
    return joined([part for part in parts if part], width)


def cost_words(overhead: Mapping[str, Any] | None) -> str:
    """ "tracing +0.1%, +4.0% where it records": of the kernel, and of a CTA that records."""
    if not overhead:
        return "tracing's own cost was not measured"
    recording = overhead.get("recording")
    versus = f", {100 * (recording['ratio'] - 1):+.1f}% where it records" if recording else " vs untraced"
    return f"tracing {100 * (overhead['ratio'] - 1):+.1f}%{versus}"


def joined(parts: Sequence[str], width: int) -> str:
    """The parts for which there is room, the earlier ones first."""
    text = ""
    for part in parts:
        longer = f"{text} · {part}" if text else part
        text = longer if len(longer) <= width or not text else text
    return clip(text, width)


def coverage_words(timeline: Timeline) -> str:
    """ "16 of 128 CTAs, 64 warps"."""
    warps = len(timeline.warps.cta)
    ctas = timeline.meta.get("ctas") or {}
    traced = ctas.get("traced", len(np.unique(timeline.warps.cta)))
    of = f" of {ctas['of']}" if ctas.get("of") else ""
    return f"{traced}{of} CTAs, {warps} warps"


def alert_line(timeline: Timeline, width: int) -> str:
    """What is wrong with the trace and what to do, in at most two lines; empty where nothing is."""
    warps = timeline.warps
    if timeline.dropped:
        where = int((warps.dropped > 0).sum())
        words = f"✘ {timeline.dropped} events dropped in {where} of {len(warps.cta)} warps"
        again = f"all of them: {rerun_command(timeline)}"
        gap = "; " if len(words) + 2 + len(again) <= width else "\n"
        return f"{words}{gap}{clip(again, width)}"
    if timeline.mispaired_count:
        first = timeline.mispaired[0] if timeline.mispaired else None
        at = f", the first in cta {first.cta} warp {first.warp}: {first.problem}" if first else ""
        return clip(f"! {timeline.mispaired_count} mispaired ranges{at} (P shows them)", width)
    if len(warps.closed) and not warps.closed.all():
        return clip(f"! {int((~warps.closed).sum())} warps never reached their end marker", width)
    notes = list(timeline.notes)
    if timeline.clock.method == "per warp" and timeline.clock.reason:
        notes.append(f"{timeline.clock.reason}: compare within a warp")
    return clip("! " + "; ".join(notes), width) if notes else ""


def rerun_command(timeline: Timeline) -> str:
    """The command that traces the same again with room for every event."""
    command = str(timeline.meta.get("command") or "")
    if command:
        words = shlex.split(command)
        while "--capacity" in words:
            at = words.index("--capacity")
            del words[at : at + 2]
        return shlex.join([w for w in words if not w.startswith("--capacity=")])
    workload = timeline.meta.get("workload") or "WORKLOAD"
    config = timeline.meta.get("config") or {}
    return shlex.join(["warpdeck", "trace", str(workload), *(f"--knob={k}={v}" for k, v in config.items())])


def place_words(timeline: Timeline, row: int) -> str:
    """ "cta 3 warp 1 on SM 17"."""
    warps = timeline.warps
    words = f"cta {warps.cta[row]} warp {warps.warp[row]} on SM {warps.sm[row]}"
    if warps.dropped[row]:
        words += f", {int(warps.dropped[row])} events dropped"
    return words if warps.closed[row] else f"{words}, never ended"


def slice_words(timeline: Timeline, index: int) -> list[str]:
    """A slice in two lines: what and how long; where and what is special."""
    s = timeline.slices
    start, end = float(s.start_ns[index]), float(s.end_ns[index])
    resolution = max(timeline.clock.tick_ns, 0.1)
    kind, row = int(s.kind[index]), int(s.row[index])
    number = "token" if kind == TOKEN else "flow" if kind == ASYNC else "payload"
    first = (
        f"{timeline.stages[s.stage[index]]} {s.payload[index]} · {time_words(end - start)} · "
        f"{instant_words(start, resolution)} to {instant_words(end, resolution)}"
    )
    what = f"{KIND_WORDS[kind]} at depth {s.depth[index]}" if kind == NESTED else KIND_WORDS[kind]
    second = f"{place_words(timeline, row)} · {number} {s.payload[index]} · {what}"
    if kind == ASYNC and s.end_row[index] != row and 0 <= s.end_row[index] < len(timeline.warps.cta):
        done = int(s.end_row[index])
        second += f" · completed by cta {timeline.warps.cta[done]} warp {timeline.warps.warp[done]}"
    if s.flags[index] & 1:
        second += " · its end is missing, its length not known"
    return [first, second]


def marks_words(timeline: Timeline, indices: Sequence[int]) -> str:
    """Marks and values at the cursor: "◆ tile 3 at 12.30 µs · ◆ error = 0.25 at …"."""
    marks, resolution = timeline.marks, max(timeline.clock.tick_ns, 0.1)
    words = []
    for i in indices:
        name, value = timeline.stages[marks.stage[i]], float(marks.value[i])
        what = f"{name} {marks.payload[i]}" if math.isnan(value) else f"{name} = {value:.7g}"
        words.append(f"◆ {what} at {instant_words(float(marks.time_ns[i]), resolution)}")
    return " · ".join(words)
