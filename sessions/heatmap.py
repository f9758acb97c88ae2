"""The picture of a run: cases × attempts, coloured by time on a logarithmic scale, failures as letters.

A row's colours are relative to its fastest time, which stands behind it: cases of different sizes would else
hide what an attempt changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.model import Status
from .drawing import Drawing, text_width
from .glyphs import HEIGHT
from .store import SessionStore

MOST = 200  # columns; of a longer run the last ones
CELL = 16
GAP = 1
MARGIN = 12
CIVIDIS = ("#fee838", "#c8b866", "#948e77", "#666970", "#35456c", "#00224e")  # fast to slow, for all eyes
OK_COLOUR, FAILED_COLOUR, EMPTY_COLOUR = "#9db7d5", "#e4e4e4", "#f6f6f6"
DARK, GREY = "#202020", "#606060"
LETTERS = {
    Status.OK: "✓",
    Status.RESTRICTED: "r",
    Status.COMPILE_ERROR: "C",
    Status.LAUNCH_ERROR: "L",
    Status.RUNTIME_ERROR: "R",
    Status.OUT_OF_MEMORY: "M",
    Status.TIMEOUT: "T",
    Status.INCORRECT: "X",
    Status.IMPLAUSIBLE: "!",
    Status.THROTTLED: "t",
    Status.SANDBOX_ERROR: "S",
    Status.UNSUPPORTED: "U",
    Status.CANCELLED: "–",
}


@dataclass(frozen=True)
class Column:
    """One attempt. `times_ms` and `statuses` are by case; a case in neither wasn't reached."""

    label: str
    times_ms: Mapping[str, float] = field(default_factory=dict)
    statuses: Mapping[str, Status] = field(default_factory=dict)
    kept: bool = False


def columns(store: SessionStore, attempts: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[Column]]:
    """Rows (case names) and columns of a session: its attempts, or its evaluations where it has none."""
    found: list[Column] = []
    numbered = {row["candidate"]: row for row in attempts if row["candidate"]}
    timed: dict[str, None] = {}
    checked: dict[str, None] = {}
    count = 0
    for event in store.events(kinds=["evaluation"]):
        count += 1
        data = event.data
        row = numbered.pop(data["candidate"], None) if attempts else None
        if attempts and row is None:
            continue
        times = {m["case"]: m["median_ms"] for m in data.get("measurements") or ()}
        checks = {c["name"]: Status(c["status"]) for c in data.get("checks") or ()}
        timed.update(dict.fromkeys(times))
        checked.update(dict.fromkeys(checks))
        label, kept = (row["attempt"], bool(row["kept"])) if row else (count, False)
        found.append(Column(str(label), times, {**checks, "": Status(data["status"])}, kept))
    known = {column.label for column in found}
    found += [  # what brought nothing to evaluate
        Column(str(row["attempt"])) for row in attempts if str(row["attempt"]) not in known
    ]
    found.sort(key=lambda column: int(column.label))
    info = store.state().info
    cases = [case.name for case in info.cases] if info else list(timed)
    emulated = bool(info and info.device and info.device.emulated)
    rows = list(dict.fromkeys([*cases, *checked])) if emulated else cases
    return rows, found[-MOST:]


def draw(rows: Sequence[str], found: Sequence[Column], title: str) -> Drawing:
    """The picture. `title`: what was run, where."""
    left = MARGIN + max((text_width(row) for row in rows), default=0) + 6
    top = MARGIN + 2 * HEIGHT + 14
    right = left + len(found) * (CELL + GAP) + 5
    timed = {row: [c.times_ms[row] for c in found if row in c.times_ms] for row in rows}
    fastest = {row: min(times) for row, times in timed.items() if times}
    slowest = max((max(timed[row]) / low for row, low in fastest.items()), default=1.0)
    longest = max((text_width(_time(t)) for t in fastest.values()), default=0)
    scale = left + _scale_width(slowest) if fastest else 0
    width = max(right + longest, scale, left + 350, MARGIN + text_width(title)) + MARGIN
    bottom = top + len(rows) * (CELL + GAP)
    used = [s for s in LETTERS if any(_status(c, row) is s for c in found for row in rows)]
    drawing = Drawing(width, bottom + 46 + 11 * -(-len(used) // 3), title)
    drawing.text(MARGIN, MARGIN, title)
    drawing.text(left, MARGIN + HEIGHT + 6, f"cases × attempts, {len(found)} of them; below: * kept", GREY)
    for i, row in enumerate(rows):
        y = top + i * (CELL + GAP)
        drawing.text(left - 6, y + (CELL - HEIGHT) // 2, row, at="end")
        for j, column in enumerate(found):
            _cell(drawing, left + j * (CELL + GAP), y, column, row, fastest.get(row, 1.0), slowest)
        if row in fastest:
            drawing.text(right, y + (CELL - HEIGHT) // 2, _time(fastest[row]))
    for j, column in enumerate(found):
        x = left + j * (CELL + GAP) + CELL // 2
        if len(column.label) < 3 or int(column.label) % 2 == 0:
            drawing.text(x, bottom + 3, column.label, GREY, at="middle")
        if column.kept:
            drawing.text(x, bottom + 12, "*", at="middle")
    y = bottom + 26
    if fastest:
        _scale(drawing, left, y, slowest)
        y += 16
    for i, status in enumerate(used):
        x = left + (i % 3) * 120
        drawing.text(x, y + 11 * (i // 3), f"{LETTERS[status]} {str(status).replace('_', ' ')}", GREY)
    return drawing


def _status(column: Column, row: str) -> Status | None:
    """What a cell shows instead of a time; None for a time, and where there is nothing to show."""
    if row in column.times_ms:
        return None
    overall = column.statuses.get("")
    own = column.statuses.get(row)
    return overall if own in (None, Status.OK) and overall is not Status.OK else own or overall


def _cell(drawing: Drawing, x: int, y: int, column: Column, row: str, low: float, span: float) -> None:
    """`low`: the row's fastest time; `span`: the slowest of all over its row's fastest."""
    time, status = column.times_ms.get(row), _status(column, row)
    if time:
        colour = CIVIDIS[0] if span <= 1 else _colour(math.log(time / low) / math.log(span))
        drawing.rectangle(x, y, CELL, CELL, colour)
        return
    if status is None:
        drawing.rectangle(x, y, CELL, CELL, EMPTY_COLOUR)
        return
    drawing.rectangle(x, y, CELL, CELL, OK_COLOUR if status is Status.OK else FAILED_COLOUR)
    drawing.text(x + CELL // 2, y + (CELL - HEIGHT) // 2, LETTERS[status], DARK, at="middle")


def _colour(share: float) -> str:
    """Between the anchors of the scale; 0 is fast."""
    place = min(max(share, 0.0), 1.0) * (len(CIVIDIS) - 1)
    i = min(int(place), len(CIVIDIS) - 2)
    a, b = (bytes.fromhex(CIVIDIS[k][1:]) for k in (i, i + 1))
    return "#" + bytes(round(p + (q - p) * (place - i)) for p, q in zip(a, b, strict=True)).hex()


_SCALE = ("its row's fastest", 40, 3)  # the text before it, steps, units a step


def _scale_words(span: float) -> str:
    return f"{span:.3g}× (medians, log scale)"


def _scale_width(span: float) -> int:
    first, steps, width = _SCALE
    return text_width(first) + 5 + steps * width + 5 + text_width(_scale_words(span))


def _scale(drawing: Drawing, x: int, y: int, span: float) -> None:
    first, steps, width = _SCALE
    drawing.text(x, y, first)
    x += text_width(first) + 5
    for i in range(steps):
        drawing.rectangle(x + i * width, y, width, HEIGHT, _colour(i / (steps - 1)))
    drawing.text(x + steps * width + 5, y, _scale_words(span))


def _time(ms: float) -> str:
    return f"{ms * 1e3:.4g} µs" if ms < 1 else f"{ms:.4g} ms"
