"""Two traces beside each other: which stages got slower, and by how much. No Textual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..telemetry.trace.summary import Stage, Summary
from .format import NONE
from .trace_view import count_words, time_words

LEAST = 0.02  # of the longer trace's time in a warp: smaller changes are not told
HEAD = ("stage", "a warp: 1", "2", "change", "count", "p50", "p95", "share", "imb.")


@dataclass(frozen=True)
class StageChange:
    """A stage in both; None where a trace has none of it. `before_ns` and `after_ns`: mean time of a traced
    warp in it, without what is nested in it."""

    name: str
    before: Stage | None
    after: Stage | None
    before_ns: float
    after_ns: float

    @property
    def delta_ns(self) -> float:
        """How much longer a warp is in it in the second trace."""
        return self.after_ns - self.before_ns

    @property
    def cells(self) -> tuple[str, ...]:
        """As under `HEAD`."""
        a, b = self.before, self.after

        def both(values: Sequence[str]) -> str:
            return values[0] if values[0] == values[1] else "→".join(values)

        return (
            self.name,
            time_words(self.before_ns, 3) if a else NONE,
            time_words(self.after_ns, 3) if b else NONE,
            change_words(self),
            both([count_words(s.count) if s else NONE for s in (a, b)]),
            both([time_words(s.p50_ns, 3) if s else NONE for s in (a, b)]),
            both([time_words(s.p95_ns, 3) if s else NONE for s in (a, b)]),
            both([f"{100 * s.share:.0f}%" if s else NONE for s in (a, b)]),
            both([f"{s.imbalance_warps:.2f}" if s else NONE for s in (a, b)]),
        )


def change_words(change: StageChange) -> str:
    """ "▲ +12.3 µs +34%", "▼ −5.1 µs −12%", "only in 2"."""
    if change.before is None or change.after is None:
        return "only in 2" if change.before is None else "only in 1"
    delta = change.delta_ns
    if abs(delta) < 0.5:
        return "="
    sign, mark = ("+", "▲") if delta > 0 else ("−", "▼")
    part = f" {sign}{100 * abs(delta) / change.before_ns:.0f}%" if change.before_ns > 0 else ""
    return f"{mark} {sign}{time_words(abs(delta), 3)}{part}"


def stage_changes(before: Summary, after: Summary) -> list[StageChange]:
    """All stages of both by name, what changed a warp's time most first."""
    of = [{stage.name: stage for stage in summary.stages} for summary in (before, after)]
    warps = [max(1, summary.warps) for summary in (before, after)]
    names = dict.fromkeys([*of[0], *of[1]])
    found = []
    for name in names:
        a, b = of[0].get(name), of[1].get(name)
        found.append(
            StageChange(
                name, a, b, (a.self_ns if a else 0.0) / warps[0], (b.self_ns if b else 0.0) / warps[1]
            )
        )
    return sorted(found, key=lambda change: -abs(change.delta_ns))


def said(before: Summary, after: Summary, names: tuple[str, str]) -> list[str]:
    """What became of the whole, which stages got slower and which faster, and why not to trust it."""
    found = stage_changes(before, after)
    a, b = before.span_ns, after.span_ns
    if not a or not b:
        return ["one of the two traces holds no time"]
    ratio = b / a
    if abs(ratio - 1) < LEAST:
        whole = f"both last about {time_words(b, 3)}"
    else:
        words = f"{ratio:.2f}× as long" if ratio > 1 else f"{1 / ratio:.2f}× shorter"
        whole = f"{names[1]} is {words}: {time_words(a, 3)} → {time_words(b, 3)}"
    least = LEAST * max(a, b)
    lines = [whole]
    for slower in (True, False):
        mine = [c for c in found if (c.delta_ns > least if slower else c.delta_ns < -least)][:3]
        told = ", ".join(f"{c.name} {change_words(c)[2:]}" for c in mine if c.before and c.after)
        one_side = [c.name for c in mine if not (c.before and c.after)]
        told += (
            f"{'; ' if told and one_side else ''}{'new: ' if slower else 'gone: '}{', '.join(one_side)}"
            * bool(one_side)
        )
        if told:
            lines.append(f"{'slower' if slower else 'faster'} in {names[1]}: {told}")
    if len(lines) == 1:
        lines.append("no stage changed by more than 2% of the whole")
    if before.warps != after.warps:
        lines.append(f"{before.warps} → {after.warps} warps were traced: a warp's mean time is compared")
    return lines
