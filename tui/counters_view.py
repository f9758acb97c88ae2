"""Counters in words and series. Pure functions, as `view` is for runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..sessions.words import one_line
from ..telemetry.ncu import hotspots, metrics, roofline
from ..telemetry.ncu.counters import Counters, Metric
from ..telemetry.ncu.diagnosis import Diagnosis
from ..telemetry.ncu.roofline import Roof
from .braille import Series, Shape
from .format import NONE, clip, percent, short_config
from .trace_view import device_words, joined, time_words

LIMITS = ("registers", "shared", "warps", "blocks", "barriers")
LIMIT_WORDS = {"shared": "shared memory", "blocks": "block slots"}


@dataclass(frozen=True)
class BarRow:
    """A labelled bar. `share`: 0..1, None where unknown: then `words` say why. `strong`: it stands out."""

    label: str
    share: float | None
    words: str = ""
    strong: bool = False


def title_line(counters: Counters, width: int) -> str:
    """Workload, variant, case, kernel, device, configuration. The device is never cut off."""
    meta = counters.meta
    names = [str(meta[k]) for k in ("workload", "variant") if meta.get(k)]
    case = [f"size {meta['case']}"] if meta.get("case") else []
    device = device_words(meta.get("device"))
    tail = [device] if device else []
    kernel = [] if counters.kernel == "_".join(names) else [counters.kernel]
    head = " · ".join([*names, *case, *tail, *kernel])
    if len(head) > width:
        head = " · ".join([*(names[:1] or [counters.kernel]), *tail])
    config = meta.get("config")
    room = width - len(head) - 3
    if isinstance(config, dict) and config and room >= 12:
        head += f" · {short_config(config, room)}"
    return clip(head, width)


def cost_line(counters: Counters, width: int) -> str:
    """What was read and how: "57.57 µs under the profiler · set full · 38 passes · cold cache · …"."""
    meta = counters.meta
    passes = meta.get("passes") or counters.value("passes")
    duration = counters.value("duration_ns")
    parts = [
        "" if duration is None else f"{time_words(duration)} under the profiler",
        f"{len(counters.metrics)} counters",
        f"{len(counters.missing)} missing" if counters.missing else "",
        f"set {meta['set']}" if meta.get("set") else "",
        f"{passes:.0f} passes" if passes else "",
        f"{meta['cache']} cache" if meta.get("cache") else "",
        f"Nsight Compute {meta['tool']}" if meta.get("tool") else "",
    ]
    return joined([part for part in parts if part], width)


def speed_rows(counters: Counters) -> list[BarRow]:
    """Speed of light: shares of each unit's peak."""
    bars = roofline.speed_of_light(counters)
    most = max((b.share for b in bars if b.share is not None), default=None)
    return [BarRow(b.label, b.share, b.missing, strong=b.share is not None and b.share == most) for b in bars]


def occupancy_rows(counters: Counters) -> list[BarRow]:
    """Occupancy achieved and theoretical, and what limits it."""
    rows = []
    for name, label in (("achieved_occupancy", "Achieved"), ("theoretical_occupancy", "Theoretical")):
        metric = counters.metrics.get(name)
        if metric is None:
            rows.append(BarRow(label, None, counters.missing.get(name, "not collected")))
        else:
            rows.append(BarRow(label, metric.norm))
    return rows


def limiter_words(counters: Counters) -> str:
    """ "limited by warps: 8 blocks an SM; by registers 16, shared memory 32, …"; "" if it wasn't read."""
    limits = {name: value for name in LIMITS if (value := counters.value(f"limit_{name}")) is not None}
    if not limits:
        return ""
    least = min(limits.values())
    tight = [LIMIT_WORDS.get(n, n) for n, v in limits.items() if v == least]
    others = [f"{LIMIT_WORDS.get(n, n)} {v:.0f}" for n, v in limits.items() if v != least]
    words = f"limited by {' and '.join(tight)}: {least:.0f} block{'s' if least != 1 else ''} an SM"
    return f"{words}; by {', '.join(others)}" if others else words


def stall_rows(counters: Counters) -> list[BarRow]:
    """Why warps did not issue, largest first."""
    return [BarRow(s.reason.replace("_", " "), s.share, s.words) for s in hotspots.stalls(counters)]


def roof_words(roof: Roof) -> str:
    """ "DRAM 4.76 TB/s theoretical"."""
    return f"{roof.label} {rate(roof.bytes_per_s)}B/s {'measured' if roof.measured else 'theoretical'}"


def roofline_series(
    point: roofline.Roofline | None,
    above: Sequence[Roof] = (),
    other: roofline.Roofline | None = None,
    names: tuple[str, str] = ("launch", "baseline"),
) -> list[Series]:
    """The roofs, the point, the gap between them and another launch's point, as decimal logarithms; [] if
    they aren't known."""
    if point is None or not point.intensity or not point.flops_per_s:
        return []
    x, y = math.log10(point.intensity), math.log10(point.flops_per_s)
    rival = None
    if other is not None and other.intensity and other.flops_per_s:
        rival = math.log10(other.intensity), math.log10(other.flops_per_s)
    series = []
    if point.ridge and point.peak_flops_per_s and point.peak_bytes_per_s and point.ceiling:
        ridge, peak = math.log10(point.ridge), math.log10(point.peak_flops_per_s)
        xs = [x, ridge, *([rival[0]] if rival else [])]
        low, high = min(xs) - 1.0, max(xs) + 1.0
        for roof in above:
            slope = math.log10(roof.bytes_per_s)
            if roof.label != "DRAM" and slope + low < peak:
                series.append(
                    Series.of([low, peak - slope], [slope + low, peak], Shape.LINE, roof_words(roof), "mean")
                )
        slope = math.log10(point.peak_bytes_per_s)
        label = next((roof_words(roof) for roof in above if roof.label == "DRAM"), "roof, flop/s")
        series.append(Series.of([low, ridge, high], [slope + low, peak, peak], Shape.LINE, label, "best"))
        gap = np.linspace(y, math.log10(point.ceiling), 1000)
        series.append(Series.of(np.full(len(gap), x), gap, Shape.DOTS, "to gain", "level"))
    if rival:
        series.append(Series.of([rival[0]], [rival[1]], Shape.DOTS, names[1], "each"))
    return [*series, Series.of([x], [y], Shape.POINT, names[0], "vendor")]


NO_ROOFLINE = "not collected; the metric set roofline has it"


def roofline_words(point: roofline.Roofline | None, width: int) -> str:
    """ "66% of the memory roof · 0.183 flop/byte · 583 Gflop/s fp32", as much as there is room for."""
    if point is None:
        return clip(NO_ROOFLINE, width)
    parts = [
        f"{percent(point.of_roof)} of the {point.roof or 'memory'} roof" if point.of_roof else "",
        f"{point.intensity:.3g} flop/byte" if point.intensity else "",
        f"{rate(point.flops_per_s)}flop/s {point.kind or ''}".strip() if point.flops_per_s else "",
        f"{rate(point.bytes_per_s)}B/s" if point.bytes_per_s else "",
        *(f"{name}: {why}" for name, why in point.missing.items()),
    ]
    return joined([part for part in parts if part], width)


def rate(value: float | None) -> str:
    """ "583 G", "3.18 T": in front of a unit."""
    if value is None or not math.isfinite(value):
        return f"{NONE} "
    for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {prefix}"
    return f"{value:.3g} "


def value_words(metric: Metric) -> str:
    """A value with its unit, scaled: "3.18 TB/s", "57.57 µs", "66.1%"."""
    value, unit = metric.value, metric.unit
    if unit == "ns":
        return time_words(value)
    if unit == "%":
        return f"{value:.1f}%"
    short = unit.replace("byte", "B")
    return f"{rate(value)}{short}".strip() if abs(value) >= 10_000 else f"{value:.4g} {short}".strip()


def metric_cells(counters: Counters, *, every: bool) -> list[tuple[str, tuple[str, str, str]]]:
    """(name, (label, value, meaning)) of our quantities, read ones first, then those missing with the reason;
    `every`: after them all of Nsight Compute's counters by name."""
    ours = [name for name in metrics.QUANTITIES if name in counters.metrics]
    rows = [
        (name, (metrics.label(name), value_words(counters.metrics[name]), metrics.meaning(name)))
        for name in ours
    ]
    rows += [
        (name, (metrics.label(name), NONE, f"missing: {why}"))
        for name, why in sorted(counters.missing.items())
    ]
    if every:
        rest = sorted(set(counters.metrics) - set(ours))
        rows += [(name, (name, value_words(counters.metrics[name]), "")) for name in rest]
    return rows


def line_cells(line: hotspots.Line) -> tuple[str, ...]:
    """place, share, samples, dominant stall, and the PTX, or the source."""
    top = line.top(1)
    stall = f"{top[0][0].replace('_', ' ')} {percent(top[0][1])}" if top else NONE
    return (
        line.place or "unknown line",
        f"{100 * line.share:.1f}%",
        str(line.samples),
        stall,
        one_line(line.ptx or line.source),
    )


def spot_cells(spot: hotspots.HotSpot, counters: Counters) -> tuple[str, ...]:
    """place, share, samples, dominant stall, machine instruction."""
    reasons = sorted(
        ((n, r) for r, n in spot.stalls.items() if r != hotspots.ISSUED and n),
        reverse=True,
        key=lambda p: p[0],
    )
    named = reasons and spot.samples
    stall = f"{reasons[0][1].replace('_', ' ')} {percent(reasons[0][0] / spot.samples)}" if named else NONE
    return (
        hotspots.place(spot.file, spot.line) or f"+{spot.address:#x}",
        f"{100 * hotspots.share(spot, counters):.1f}%",
        str(spot.samples),
        stall,
        one_line(spot.sass),
    )


def evidence_words(said: Diagnosis) -> str:
    """ "dram_bw_pct 66.1, l2_hit_rate 33.8, 65 samples at kernel.py:73": what a sentence rests on."""
    return ", ".join(
        f"{_figure(value)} samples at {name}" if ":" in name else f"{name} {_figure(value)}"
        for name, value in said.evidence.items()
    )


def _figure(value: float | str) -> str:
    """Four significant digits, but all of a whole number."""
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e9 else f"{value:.4g}"


def widest(rows: Sequence[BarRow]) -> int:
    """Of the labels."""
    return max((len(row.label) for row in rows), default=0)
