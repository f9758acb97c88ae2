"""Sessions beside each other: what each found, on what, and whether that can be compared at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from . import listing
from .database import odd_content
from .report import tune_document
from .state import RunState
from .store import SessionStore
from .words import NONE, config_text, interval_text, ratio_text, time_text

LEAST = 2
TIMES = "times can't be compared"
UNPAIRED = "between sessions nothing is paired: intervals hold within each session, against its own baseline"


@dataclass(frozen=True)
class Compared:
    """One session. `document` is what `tune --json` prints; times in ms, `seconds` of running."""

    id: str
    document: Mapping[str, Any]
    sizes: tuple[str, ...]
    step: int
    steps: int | None
    seconds: float
    time_limit_s: float | None
    tokens: int | None
    cost: float | None


@dataclass(frozen=True)
class Row:
    """A line of the comparison: a cell a session. `group`: what it belongs to; `differs`: not all are the
    same; `best`: index of the best one, None where none is, or it can't be told."""

    group: str
    name: str
    cells: tuple[str, ...]
    differs: bool
    best: int | None = None


@dataclass(frozen=True)
class Comparison:
    """`sessions`: ids as asked for; `notes`: why numbers beside each other mean less than they seem."""

    sessions: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As `sessions compare --json` prints it."""
        return asdict(self)


def compare(folders: Sequence[Path]) -> Comparison:
    """Compare two or more sessions. UsageError for fewer, the same twice, or a damaged one."""
    if len({folder.name for folder in folders}) < max(LEAST, len(folders)):
        raise UsageError("a comparison needs two or more different sessions")
    found = [_read(folder) for folder in folders]
    return Comparison(tuple(each.id for each in found), tuple(_rows(found)), tuple(_notes(found)))


def _read(folder: Path) -> Compared:
    info = listing.describe(folder)
    if info.error:
        raise UsageError(info.error)
    with SessionStore.open(folder) as store, odd_content(store.id):
        state = store.state()
        document = {**tune_document(store, state), "state": info.state}
    run = state.info
    used = state.llm.usage if state.llm is not None and state.llm.asks else None
    priced = used is not None and (used.answers > used.unpriced)
    return Compared(
        id=folder.name,
        document=document,
        sizes=tuple(case.name for case in run.cases) if run else (),
        step=_done(state),
        steps=run.steps if run else None,
        seconds=state.active_s,
        time_limit_s=run.time_limit_s if run else None,
        tokens=None if used is None else used.input + used.output,
        cost=used.cost if used is not None and priced else None,
    )


def _done(state: RunState) -> int:
    return max(state.step, state.evaluations)


def _rows(found: Sequence[Compared]) -> list[Row]:
    documents = [each.document for each in found]
    devices = [document["device"] or {} for document in documents]
    bests = [document["best"] or {} for document in documents]
    rows = [
        _row("run", "state", [document["state"] for document in documents]),
        _row("run", "workload", [document["workload"] for document in documents]),
        _row("run", "device", [device.get("label") for device in devices]),
        _row("run", "agent", [document["agent"] for document in documents]),
        _row("run", "space", [document["space"] for document in documents]),
        _row("run", "seed", [document["seed"] for document in documents]),
        _row("run", "sizes", [" ".join(each.sizes) for each in found]),
        _row("run", "cache", [document["cache"] for document in documents]),
        _row("run", "clock", [document["clock"] for document in documents]),
        _row("budget", "steps", [_of(each.step, each.steps) for each in found]),
        _row("budget", "seconds", [_seconds(each) for each in found]),
        _row("budget", "tokens", [None if each.tokens is None else f"{each.tokens:,}" for each in found]),
        _row("budget", "cost", [None if each.cost is None else f"${each.cost:.4g}" for each in found]),
    ]
    statuses = list(dict.fromkeys(status for document in documents for status in document["counts"]))
    rows += [
        _row("evaluations", status.replace("_", " "), [d["counts"].get(status, 0) for d in documents])
        for status in statuses
    ]
    comparable = not any(TIMES in note for note in _notes(found))
    timed = [best.get("score_ms") for best in bests]
    rows += [
        _row("best", "time", [time_text(time) for time in timed], _first(timed) if comparable else None),
        _row(
            "best",
            "speedup",
            [ratio_text(b.get("speedup")) for b in bests],
            _clear(bests) if comparable else None,
        ),
        _row("best", "95% interval", [interval_text(best.get("speedup_ci")) for best in bests]),
        _row("best", "re-measured", [_paired(document) for document in documents]),
        _row("best", "vendor/best", [ratio_text(document.get("vendor_ratio")) for document in documents]),
        _row("best", "floor/best", [ratio_text(document.get("floor_ratio")) for document in documents]),
        _row("best", "ties", [_ties(document) for document in documents]),
        _row("best", "baseline", [time_text((d["baseline"] or {}).get("score_ms")) for d in documents]),
    ]
    for size in dict.fromkeys(size for each in found for size in each.sizes):
        times = [_case(document, size) for document in documents]
        best = _first(times) if comparable else None
        rows.append(_row("size", size, [time_text(time) for time in times], best))
    rows.append(_row("configuration", "variant", [best.get("variant") for best in bests]))
    configs = [best.get("config") or {} for best in bests]
    for knob in dict.fromkeys(name for config in configs for name in config):
        rows.append(_row("configuration", str(knob), [config.get(knob) for config in configs]))
    return [row for row in rows if any(cell != NONE for cell in row.cells)]


def _row(group: str, name: str, cells: Sequence[Any], best: int | None = None) -> Row:
    texts = tuple(NONE if cell is None or cell == "" else str(cell) for cell in cells)
    return Row(group, name, texts, len(set(texts)) > 1, best)


def _of(done: int, asked: int | None) -> str:
    return f"{done:,}" if asked is None or asked >= 10**6 else f"{done:,} of {asked:,}"


def _seconds(each: Compared) -> str:
    limit = "" if each.time_limit_s is None else f" of {each.time_limit_s:g}"
    return f"{each.seconds:,.1f}{limit}"


def _paired(document: Mapping[str, Any]) -> str | None:
    if not document["best"] or (document["device"] or {}).get("emulated"):
        return None
    return "no: provisional" if document["provisional"] else str(document.get("comparison") or "paired")


def _ties(document: Mapping[str, Any]) -> str | None:
    best = (document["best"] or {}).get("config")
    others = [config for config in document["tied"] or () if config != best]
    return str(len(others)) if document["best"] else None


def _case(document: Mapping[str, Any], size: str) -> Any:
    return next((case.get("median_ms") for case in document["cases"] or () if case.get("name") == size), None)


def _first(times: Sequence[Any]) -> int | None:
    """Index of the least time; None unless all are known and it is the only one."""
    known = [float(time) for time in times if time is not None]
    if len(known) < len(times):
        return None
    low = min(known)
    return known.index(low) if known.count(low) == 1 else None


def _clear(bests: Sequence[Mapping[str, Any]]) -> int | None:
    """Index of the speedup whose interval lies above all the others'; None where there is none."""
    ends = [
        (float(low), float(high))
        for low, high in (best.get("speedup_ci") or (None, None) for best in bests)
        if low is not None and high is not None
    ]
    if len(ends) < len(bests):
        return None
    top = max(range(len(ends)), key=lambda i: ends[i][0])
    return top if all(ends[top][0] > high for i, (_, high) in enumerate(ends) if i != top) else None


def _notes(found: Sequence[Compared]) -> list[str]:
    documents = [each.document for each in found]
    devices = [document["device"] or {} for document in documents]
    differ = []
    for what, values in (
        ("workloads", [document["workload"] for document in documents]),
        ("devices", [device.get("label") for device in devices]),
        ("sizes", [each.sizes for each in found]),
        ("cache modes", [document["cache"] for document in documents]),
        ("clocks", [document["clock"] for document in documents if document["clock"]]),
    ):
        if len(set(values)) > 1:
            differ.append(what)
    notes = [f"the {_and(differ)} differ: {TIMES}"] if differ else []
    baselines = [config_text((document["baseline"] or {}).get("config") or {}) for document in documents]
    if len(set(baselines)) > 1:
        notes.append("the baselines differ: speedups are over different configurations")
    if any(device.get("emulated") for device in devices):
        notes.append("emulated sessions have no times")
    return [*notes, UNPAIRED]


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
