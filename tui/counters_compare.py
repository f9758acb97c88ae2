"""Two launches' counters beside each other: what changed most, and what that says. No Textual."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..telemetry.ncu import hotspots, metrics
from ..telemetry.ncu.counters import Counters, Metric
from . import counters_view as view
from .format import NONE
from .trace_view import time_words

POINT = 10.0  # percentage points that weigh as much as a doubling
MOST = 6.0  # doublings: from nothing to something weighs as much
LITTLE = 0.01  # of DRAM's traffic: fewer bytes tell nothing
LEAST = 0.02  # doublings: less is no change
TOLD = 6  # sentences


@dataclass(frozen=True)
class Change:
    """One quantity in both. `weight`: how much it changed, in doublings, for order; 0 where it is missing on
    a side. `better`: whether the change is for the better; None where that isn't known."""

    name: str
    label: str
    before: float | None
    after: float | None
    cells: tuple[str, str, str, str]
    weight: float
    better: bool | None = None


# Quantities of which less (more) is better whatever the kernel.
_LESS = frozenset(
    {
        *("duration_ns", "dram_bytes", "dram_read_bytes", "dram_write_bytes", "shared_bank_conflicts"),
        *("bank_conflict_pct", "local_load_sectors", "local_store_sectors", "local_sector_pct"),
        *("global_load_sectors_per_request", "global_store_sectors_per_request"),
    }
)
_MORE = frozenset(
    {"global_load_efficiency", "global_store_efficiency", "active_threads_per_inst", "sm_active_pct"}
)


def changes(before: Counters, after: Counters, *, every: bool = False) -> list[Change]:
    """What changed most first; what is missing on a side last. `every`: Nsight Compute's own names too."""
    names = [n for n in metrics.QUANTITIES if n in before.metrics or n in after.metrics]
    if every:
        names += sorted((set(before.metrics) | set(after.metrics)) - set(names))
    moved = max((c.value("dram_bytes") or 0.0 for c in (before, after)), default=0.0)
    waits = [_waits(before), _waits(after)]
    found = []
    for name in names:
        change = _change(name, before, after)
        if name.startswith("stall_") and change.weight:  # a wait matters by its part of all waits
            shares = [100 * of.get(name, 0.0) for of in waits]
            change = replace(change, weight=min(MOST, abs(shares[1] - shares[0]) / POINT))
        elif metrics.unit(name) == "byte" and max(change.before or 0, change.after or 0) < LITTLE * moved:
            change = replace(change, weight=min(change.weight, LEAST))
        found.append(change)
    return sorted(found, key=lambda change: -change.weight)  # stable: equal ones as in the table of one


def _waits(counters: Counters) -> dict[str, float]:
    """The stall quantities' parts of their sum."""
    found = {
        n: m.value for n, m in counters.metrics.items() if n.startswith("stall_") and n != "stall_selected"
    }
    whole = sum(found.values())
    return {name: value / whole for name, value in found.items()} if whole > 0 else {}


def _change(name: str, before: Counters, after: Counters) -> Change:
    a, b = before.metrics.get(name), after.metrics.get(name)
    shown = [NONE if metric is None else view.value_words(metric) for metric in (a, b)]
    if a is None or b is None:
        return Change(
            name,
            metrics.label(name),
            a.value if a else None,
            b.value if b else None,
            (metrics.label(name), shown[0], shown[1], "only on one side"),
            0.0,
        )
    weight, words = _weigh(a.value, b.value, a.unit)
    better = None
    if weight >= LEAST and name in _LESS | _MORE:
        better = (b.value > a.value) == (name in _MORE)
    label = metrics.label(name)
    return Change(name, label, a.value, b.value, (label, shown[0], shown[1], words), weight, better)


def _weigh(a: float, b: float, unit: str) -> tuple[float, str]:
    """How much of a change it is, in doublings, and in words."""
    if a == b:
        return 0.0, "="
    if unit == "%":
        return min(MOST, abs(b - a) / POINT), f"{b - a:+.1f} points"
    if not a or not b or (a < 0) != (b < 0):
        return MOST, "from nothing" if not a else "to nothing" if not b else "another sign"
    doublings = _doublings(a, b)
    ratio = b / a
    words = f"{100 * (ratio - 1):+.1f}%" if 0.5 < ratio < 2 else f"{ratio:.3g}×"
    return min(MOST, abs(doublings)), words


def _doublings(a: float, b: float) -> float:
    """How often `a` must be doubled to be `b`; both positive. Their quotient may be too small for a float."""
    return math.log2(b) - math.log2(a)


def said(before: Counters, after: Counters, names: tuple[str, str]) -> list[tuple[str, str]]:
    """(sentence, evidence) pairs: what became of the time, then the changes that explain it, at most TOLD."""
    return [*_time(before, after, names), *_reasons(before, after)][:TOLD]


def _time(before: Counters, after: Counters, names: tuple[str, str]) -> Iterator[tuple[str, str]]:
    a, b = before.value("duration_ns"), after.value("duration_ns")
    if not a or not b:
        yield "how long they took was not read: only the counters can be compared", ""
        return
    ratio = a / b
    if abs(_doublings(a, b)) < LEAST:
        words = f"{names[1]} takes as long as {names[0]} under the profiler"
    elif ratio > 1:
        words = f"{names[1]} is {ratio:.2f}× as fast as {names[0]} under the profiler"
    else:
        words = f"{names[1]} is {b / a:.2f}× slower than {names[0]} under the profiler"
    yield words, f"duration_ns {time_words(a)} → {time_words(b)}"


def _reasons(before: Counters, after: Counters) -> Iterator[tuple[str, str]]:
    found: list[tuple[float, str, str]] = []

    def pair(name: str) -> tuple[float, float] | None:
        a, b = before.value(name), after.value(name)
        return None if a is None or b is None else (a, b)

    for name, what in (("dram_bytes", "DRAM"), ("shared_wavefronts", "shared memory (passes)")):
        if (values := pair(name)) and all(values):
            ratio = values[1] / values[0]
            doublings = abs(_doublings(*values))
            if doublings >= 0.1:
                words = (
                    f"{ratio:.3g}× as much traffic"
                    if ratio > 1
                    else f"{values[0] / values[1]:.3g}× less traffic"
                )
                found.append((doublings, f"{words} with {what}", _evidence(name, values)))
    for name, what in (
        ("dram_bw_pct", "DRAM runs at {b:.0f}% of its peak instead of {a:.0f}%"),
        ("sm_throughput_pct", "the arithmetic pipes run at {b:.0f}% of their peak instead of {a:.0f}%"),
        ("l1_hit_rate", "the L1 answers {b:.0f}% of its requests instead of {a:.0f}%"),
        ("l2_hit_rate", "the L2 answers {b:.0f}% of its requests instead of {a:.0f}%"),
        ("achieved_occupancy", "{b:.0f}% of an SM's warps are resident instead of {a:.0f}%"),
        ("issue_active_pct", "schedulers issue in {b:.0f}% of cycles instead of {a:.0f}%"),
        ("bank_conflict_pct", "bank conflicts are {b:.0f}% of shared memory's passes instead of {a:.0f}%"),
        ("global_load_efficiency", "loads use {b:.0f}% of the bytes of their sectors instead of {a:.0f}%"),
        ("local_sector_pct", "spills are {b:.1f}% of the L1's traffic instead of {a:.1f}%"),
    ):
        if (values := pair(name)) and abs(values[1] - values[0]) >= 5:
            text = what.format(a=values[0], b=values[1])
            found.append((abs(values[1] - values[0]) / POINT, text, _evidence(name, values)))
    if (values := pair("registers")) and values[0] != values[1]:
        text = f"{values[1]:.0f} registers a thread instead of {values[0]:.0f}"
        weight = abs(_doublings(*values)) if all(values) else 1.0
        found.append((weight, text, _evidence("registers", values)))
    shares = [{s.reason: s for s in hotspots.stalls(counters)} for counters in (before, after)]
    for reason in shares[0].keys() | shares[1].keys():
        a, b = (100 * s[reason].share if reason in s else 0.0 for s in shares)
        if all(shares) and abs(b - a) >= 8:
            name = reason.replace("_", " ")
            wait = (shares[0].get(reason) or shares[1][reason]).words
            text = f"warps that don't issue wait for {wait or name} {'more' if b > a else 'less'} often"
            found.append((abs(b - a) / POINT, text, f"{name} {a:.0f}% → {b:.0f}% of the stalls"))
    found.sort(key=lambda item: (-item[0], item[1]))
    for _, text, evidence in found:
        yield text, evidence


def _evidence(name: str, values: tuple[float, float]) -> str:
    unit = metrics.unit(name)
    a, b = (view.value_words(Metric(v, unit)) for v in values)
    return f"{name} {a} → {b}"
