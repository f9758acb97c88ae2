"""Where the samples fell: by instruction, by source line and by reason.

The sampler looks at one warp after another, ready or not, so that a share of the samples is a share of the
warps' time, not of the kernel's. *Stalls* are the samples of warps that did not issue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .counters import Counters, HotSpot
from .metrics import STALLS, stall_name

ISSUED = "selected"  # the reason of a sample whose warp issued: no stall
_TOTALS = "smsp__pcsamp_warps_issue_stalled_"


@dataclass(frozen=True)
class Line:
    """Samples at one line of the source, or of the PTX, of all its machine instructions.

    `file` "" and `line` 0: instructions without a known line. `ptx`: the line of PTX, "" for one of the
    source. `share`: of all samples of the launch, 0..1. `stalls`: samples by reason, most first. `executed`:
    warp instructions. `spots`: its instructions, most samples first.
    """

    file: str
    line: int
    source: str
    samples: int
    share: float
    stalls: Mapping[str, int]
    executed: int
    spots: tuple[HotSpot, ...]
    ptx: str = ""

    @property
    def place(self) -> str:
        """`softmax.py:57`, or "" if the line is not known."""
        return place(self.file, self.line)

    def top(self, count: int = 3) -> list[tuple[str, float]]:
        """The first reasons of this line's stalls, each with its share of the line's samples, 0..1."""
        reasons = [(r, n) for r, n in self.stalls.items() if r != ISSUED]
        return [(reason, n / self.samples) for reason, n in reasons[:count]] if self.samples else []

    def to_json(self) -> dict[str, Any]:
        """JSON form, without the instructions."""
        return {
            "file": self.file,
            "line": self.line,
            "source": self.source,
            "ptx": self.ptx,
            "samples": self.samples,
            "share": self.share,
            "stalls": dict(self.stalls),
            "executed": self.executed,
        }


def place(file: str, line: int) -> str:
    """A short name of a source line, "" if it is not known."""
    return f"{file.replace(chr(92), '/').rpartition('/')[2]}:{line}" if file and line > 0 else ""


def samples(counters: Counters) -> int:
    """All samples of the launch, also those of instructions that were left out to save room."""
    told = sum(spot.samples for spot in counters.hotspots)
    return max(told, int(counters.value("smsp__pcsamp_sample_count") or 0))


def share(spot: HotSpot, counters: Counters) -> float:
    """An instruction's part of the launch's samples, 0..1; 0 without samples."""
    whole = samples(counters)
    return spot.samples / whole if whole else 0.0


def by_line(counters: Counters) -> list[Line]:
    """Source lines that were sampled or executed, most samples first; [] without samples by instruction."""
    return _lines(counters, lambda spot: "")


def by_ptx(counters: Counters) -> list[Line]:
    """Lines of PTX, most samples first, each with the source line it came from; [] if no PTX is known.

    PTX gives every result a register of its own, so that equal text at one source line is one line.
    """
    return [line for line in _lines(counters, lambda spot: spot.ptx) if line.ptx]


def _lines(counters: Counters, ptx: Callable[[HotSpot], str]) -> list[Line]:
    """The instructions grouped by source line and PTX, most samples first."""
    grouped: dict[tuple[str, int, str], list[HotSpot]] = defaultdict(list)
    for spot in counters.hotspots:
        file, line = (spot.file, spot.line) if spot.file and spot.line > 0 else ("", 0)
        grouped[(file, line, ptx(spot))].append(spot)
    whole = samples(counters)
    lines = []
    for (file, line, text), spots in grouped.items():
        reasons: dict[str, int] = defaultdict(int)
        for spot in spots:
            for reason, count in spot.stalls.items():
                reasons[reason] += count
        total = sum(spot.samples for spot in spots)
        lines.append(
            Line(
                file=file,
                line=line,
                source=next((spot.source for spot in spots if spot.source), ""),
                samples=total,
                share=total / whole if whole else 0.0,
                stalls=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
                executed=sum(spot.executed for spot in spots),
                spots=tuple(sorted(spots, key=lambda spot: (-spot.samples, spot.address))),
                ptx=text,
            )
        )
    return sorted(lines, key=lambda line: (-line.samples, line.file, line.line, line.ptx))


@dataclass(frozen=True)
class Stall:
    """One reason's part of all stalls, 0..1, and the counter that says so with its value."""

    reason: str
    share: float
    counter: str
    value: float

    @property
    def words(self) -> str:
        """What the warps wait for."""
        return STALLS.get(self.reason, "")


def stalls(counters: Counters) -> list[Stall]:
    """The reasons why warps did not issue, largest share first; [] if nothing was read about them.

    From the totals of the samples, else from those by instruction, else from the average cycles by issued
    instruction: whichever was read.
    """
    found = _totals(counters)
    if not found:
        for spot in counters.hotspots:
            for reason, count in spot.stalls.items():
                found[reason] = (f"samples: {reason}", found.get(reason, ("", 0.0))[1] + count)
    if not any(value > 0 for _, value in found.values()):
        found = {
            reason: (f"stall_{reason}", value)
            for reason in STALLS
            if (value := counters.value(f"stall_{reason}")) is not None
        }
    found.pop(ISSUED, None)
    whole = sum(value for _, value in found.values())
    if whole <= 0:
        return []
    listed = [Stall(r, value / whole, name, value) for r, (name, value) in found.items() if value > 0]
    return sorted(listed, key=lambda stall: (-stall.share, stall.reason))


def _totals(counters: Counters) -> dict[str, tuple[str, float]]:
    """Samples of the whole launch by reason, with the counter's name; {} if it was not sampled."""
    return {
        stall_name(name.removeprefix(_TOTALS)): (name, metric.value)
        for name, metric in counters.metrics.items()
        if name.startswith(_TOTALS) and not name.endswith("_not_issued")
    }


def where(counters: Counters, reason: str) -> tuple[Line, float] | None:
    """The line with the most stalls of a reason, and its part of that reason's samples, 0..1.

    None without samples by instruction, or if the lines are not known.
    """
    lines = by_line(counters)
    told = sum(line.stalls.get(reason, 0) for line in lines)
    whole = max(told, _totals(counters).get(reason, ("", 0.0))[1])
    known = [line for line in lines if line.place and line.stalls.get(reason, 0)]
    if not known:
        return None
    best = max(known, key=lambda line: line.stalls[reason])
    return best, best.stalls[reason] / whole
