"""A run's result for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .output import clock_words, line, table

MOST_TIED = 8


def show_result(document: Mapping[str, Any]) -> None:
    """A run's document for people."""
    device, best, baseline = document["device"] or {}, document["best"], document["baseline"]
    protocol = document.get("protocol") or {}
    line(f"{document['workload']}, {device.get('label', 'an unknown device')}")
    how = "" if device.get("emulated") else f"; {_protocol(document, protocol)}"
    line(f"  agent {document['agent']}, seed {document['seed']}, space {document['space']}{how}")
    if document.get("model"):
        line(f"  {_model(document['model'])}")
    for note in document.get("notes") or ():
        if str(note).startswith("generated reference"):
            line(f"  {note}")
    counts = ", ".join(f"{n} {status}" for status, n in document["counts"].items())
    line(f"  evaluations: {counts}")
    line()
    if device.get("emulated"):
        line(f"correct   {best['variant']}  {_config(best['config'])}")
        line("          emulated on the CPU: right or wrong, no times and no ranking")
        return
    line(f"baseline  {_us(baseline['score_ms']):>12}  {_config(baseline['config'])}")
    line(f"best      {_us(best['score_ms']):>12}  {_config(best['config'])}")
    line(f"speedup   {_ratio(best['speedup']):>12}  {_interval(best['speedup_ci'])}")
    if document["provisional"]:
        line("          from the search alone: the finalists were not re-measured")
    line()
    table(
        ["case", "best", "baseline", "speedup", "95% interval", "vendor/best", "floor/best"],
        [
            (
                case["name"],
                _us(case["median_ms"]),
                _us(case["baseline_ms"]),
                _ratio(case["speedup"]),
                _interval(case["speedup_ci"]),
                _ratio(case["vendor_ratio"]),
                _ratio(case["floor_ratio"]),
            )
            for case in document["cases"]
        ],
        right=(1, 2, 3, 5, 6),
    )
    tied = [c for c in document["tied"] if c != best["config"]]
    if tied:
        line()
        line(f"{len(tied)} more can't be told from the best:")
        for config in tied[:MOST_TIED]:
            line(f"  {_config(config)}")
        if len(tied) > MOST_TIED:
            line(f"  … and {len(tied) - MOST_TIED} more (--json lists them)")


def _model(model: Mapping[str, Any]) -> str:
    """What was asked of a language model, and what it took."""
    tokens, cost = model["tokens"], model["cost"]
    said = "cost unknown: no price" if cost is None else f"{cost:.4f} USD"
    if cost is not None and model["unpriced"]:
        said += f", and {model['unpriced']} answers without a price"
    return (
        f"model {model['name']}: {model['requests']} requests, {tokens['input']:,} tokens in"
        f" ({tokens['cached']:,} cached), {tokens['output']:,} out; {said}"
    )


def _protocol(document: Mapping[str, Any], protocol: Mapping[str, Any]) -> str:
    cache, clock = document["cache"], clock_words(document["clock"], document.get("event_floor_ms"))
    if cache == "as recorded":
        return f"cache and clock as recorded, up to {protocol.get('samples')} samples, unpaired"
    if (document["device"] or {}).get("recorded"):
        drawn = f"{protocol.get('samples')} samples in {protocol.get('rounds')} rounds"
        return f"{cache} cache, {clock}, {drawn}, as recorded"
    return (
        f"{cache} cache, {clock}, {protocol.get('warmup')} warm-ups, up to {protocol.get('samples')} samples"
    )


def _us(ms: float | None) -> str:
    return "–" if ms is None else f"{ms * 1e3:.2f} µs"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}×"


def _interval(ends: Any) -> str:
    return f"{ends[0]:.3f} to {ends[1]:.3f}" if ends and None not in ends else "–"


def _config(config: Mapping[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in config.items())
