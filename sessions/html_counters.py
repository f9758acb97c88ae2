"""A profile in the report: what limits the launch in words, speed of light, stalls, hot lines."""

from __future__ import annotations

import numpy as np

from ..telemetry.ncu import hotspots, metrics
from ..telemetry.ncu.counters import Counters
from ..telemetry.ncu.diagnosis import diagnose
from ..telemetry.ncu.roofline import Roofline, point, roofs, speed_of_light
from . import html_elements as html
from .html_elements import Html, tag
from .html_plots import Layer, bars, plot
from .words import NONE, clipped, percent_text

STALLS, LINES = 10, 12


def profiled(counters: Counters, file: str, subject: str) -> Html:
    """The section's content."""
    meta = counters.meta
    roof = point(counters)
    facts = html.facts(
        [
            ("counters of", subject),
            ("kernel", counters.kernel),
            ("file", file),
            ("metric set", meta.get("set")),
            ("cache", meta.get("cache")),
            ("Nsight Compute", meta.get("tool")),
            ("roofline", _roof(roof)),
        ]
    )
    said = [
        tag(
            "li",
            sentence.text,
            tag("small", f" {_evidence(sentence.evidence)}") if sentence.evidence else None,
        )
        for sentence in diagnose(counters)
    ]
    light = [
        (bar.label, bar.share, bar.missing if bar.share is None else percent_text(bar.share))
        for bar in speed_of_light(counters)
    ]
    for name in ("achieved_occupancy", "theoretical_occupancy"):
        metric = counters.metrics.get(name)
        share = metric.norm if metric else None
        words = percent_text(share) if metric else counters.missing.get(name, "not collected")
        light.append((metrics.label(name), share, words))
    stalls = [
        (stall.reason.replace("_", " "), stall.share, f"{percent_text(stall.share)} {stall.words}")
        for stall in hotspots.stalls(counters)[:STALLS]
    ]
    lines = [
        (
            line.place or "unknown line",
            percent_text(line.share),
            f"{line.samples:,}",
            _stall(line),
            line.source,
        )
        for line in hotspots.by_line(counters)[:LINES]
    ]
    return html.render(
        [
            facts,
            tag("h3", "Diagnosis") if said else None,
            tag("ol", said) if said else None,
            tag("h3", "Speed of light and occupancy"),
            bars(light),
            _roofline(counters, roof),
            [tag("h3", "Why warps did not issue"), bars(stalls)] if stalls else None,
            html.table(
                ("line", "share", "samples", "stall", "source"),
                [(*row[:4], tag("code", clipped(row[4].strip(), 160))) for row in lines],
                right=(1, 2),
                caption="Lines with the most samples",
            )
            if lines
            else None,
        ]
    )


def _roof(roof: Roofline | None) -> str | None:
    if roof is None or not roof.of_roof:
        return None
    intensity = f" at {roof.intensity:.3g} flop/byte" if roof.intensity else ""
    return f"{percent_text(roof.of_roof)} of the {roof.roof or 'memory'} roof{intensity}"


def _roofline(counters: Counters, roof: Roofline | None) -> Html | None:
    """The launch under its roofs, both scales logarithmic."""
    if roof is None or not roof.intensity or not roof.flops_per_s:
        return None
    layers = []
    if roof.ridge and roof.peak_flops_per_s and roof.ceiling:
        peak, low, high = roof.peak_flops_per_s, min(roof.intensity, roof.ridge) / 10, 10 * roof.ridge
        high = max(high, 10 * roof.intensity)
        for each in roofs(counters, roof):
            ridge = peak / each.bytes_per_s
            if low < ridge:
                where = "measured" if each.measured else "theoretical"
                name = f"{each.label} {each.bytes_per_s / 1e12:.3g} TB/s {where}"
                style = "roof" if each.label == "DRAM" else "chance"
                x = np.array([low, ridge, high])
                under = np.minimum(peak, x * each.bytes_per_s)
                layers.append(Layer.of("curve", name, style, x, under / 1e12))
        gap = np.array([roof.flops_per_s, roof.ceiling])
        layers.append(Layer.of("curve", "to gain", "base", [roof.intensity] * 2, gap / 1e12))
    layers.append(Layer.of("dots", "this launch", "each", [roof.intensity], [roof.flops_per_s / 1e12]))
    title = "Roofline: Tflop/s by flop/byte of device memory"
    return plot(title, layers, x_name="flop/byte", y_name="Tflop/s", log=True, log_x=True)


def _evidence(evidence) -> str:
    shown = (
        f"{name} {value if isinstance(value, str) else format(value, '.4g')}"
        for name, value in evidence.items()
    )
    return f"({', '.join(shown)})"


def _stall(line: hotspots.Line) -> str:
    top = line.top(1)
    return f"{top[0][0].replace('_', ' ')} {percent_text(top[0][1])}" if top else NONE
