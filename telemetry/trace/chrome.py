"""Timelines as Chrome's JSON trace events (chrome://tracing, and what reads that), and our own ones back.

A process is an SM, a thread a warp. Nested ranges are complete events (X); token ranges and async stages may
overlap, which only async events (b, e) can show. Times are microseconds with three exact decimals.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import document, files
from .errors import TraceError
from .timeline import Marks, Slices, Timeline, Warps

_SPECIAL = {"inf": math.inf, "-inf": -math.inf}  # what JSON has no number for


def write(timeline: Timeline, path: str | Path) -> None:
    """Write a file. TraceError if it can't be written."""
    path = Path(path)
    with files.named(path):
        head = document.text(document.dump(timeline))
    files.write(path, _lines(timeline, head))


def read(path: str | Path) -> Timeline:
    """Read a file that `write` wrote. TraceError for any other."""
    path = Path(path)
    data = files.read(path)
    with files.named(path):
        return parse(data)


def recognises(data: bytes) -> bool:
    """Whether a file looks like JSON."""
    return data[:64].lstrip()[:1] in (b"{", b"[")


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def _lines(timeline: Timeline, head: str) -> Iterator[bytes]:
    yield b'{"displayTimeUnit":"ns","otherData":{"warpdeck":' + head.encode() + b'},"traceEvents":[\n'
    separator = ""
    for line in (*_names(timeline.warps), *_slices(timeline), *_marks(timeline)):
        yield (separator + line).encode()
        separator = ",\n"
    yield b"\n]}\n"


def _names(warps: Warps) -> Iterator[str]:
    for sm in np.unique(warps.sm).tolist():
        yield f'{{"ph":"M","name":"process_name","pid":{sm},"args":{{"name":"SM {sm}"}}}}'
    columns = (c.tolist() for c in (warps.sm, warps.cta, warps.warp))
    for row, (sm, cta, warp) in enumerate(zip(*columns, strict=True)):
        name = f"CTA {cta} warp {warp}"
        yield f'{{"ph":"M","name":"thread_name","pid":{sm},"tid":{row},"args":{{"name":"{name}"}}}}'


def _slices(timeline: Timeline) -> Iterator[str]:
    s = timeline.slices
    names = [json.dumps(name, ensure_ascii=False) for name in timeline.stages]
    times = (np.rint(t).astype(np.int64).tolist() for t in (s.start_ns, s.end_ns))
    columns = (
        c.tolist() for c in (s.row, timeline.warps.sm[s.row], s.stage, s.depth, s.payload, s.kind, s.flags)
    )
    ends = s.end_row.tolist()
    for i, (start, end, row, sm, stage, depth, payload, kind, flags) in enumerate(
        zip(*times, *columns, strict=True)
    ):
        place = f'"name":{names[stage]},"pid":{sm},"tid":{row},"ts":{_us(start)}'
        unended = ',"unended":true' if flags else ""
        if kind == 0:
            about = f'"payload":{payload},"depth":{depth}{unended}'
            yield f'{{"ph":"X",{place},"dur":{_us(end - start)},"args":{{{about}}}}}'
            continue
        word = document.KINDS[kind]
        about = f'"payload":{payload}{unended},"end":{ends[i]}'
        yield f'{{"ph":"b","cat":"{word}","id":{i},{place},"args":{{{about}}}}}'
        place = f'"name":{names[stage]},"pid":{sm},"tid":{row},"ts":{_us(end)}'
        yield f'{{"ph":"e","cat":"{word}","id":{i},{place}}}'


def _marks(timeline: Timeline) -> Iterator[str]:
    m = timeline.marks
    names = [json.dumps(name, ensure_ascii=False) for name in timeline.stages]
    time = np.rint(m.time_ns).astype(np.int64).tolist()
    columns = (c.tolist() for c in (m.row, timeline.warps.sm[m.row], m.stage, m.payload, m.value))
    for ns, row, sm, stage, payload, value in zip(time, *columns, strict=True):
        about = f'"payload":{payload}'
        if not math.isnan(value):
            about = f'"value":{value!r}' if math.isfinite(value) else f'"value":"{value}"'
        place = f'"name":{names[stage]},"pid":{sm},"tid":{row},"ts":{_us(ns)}'
        yield f'{{"ph":"i","s":"t",{place},"args":{{{about}}}}}'


def parse(data: bytes) -> Timeline:
    """A timeline from a file's bytes. TraceError if `write` didn't write them."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise TraceError("damaged or cut off: not a JSON document") from None
    other = found.get("otherData") if isinstance(found, dict) else None
    if not isinstance(other, dict) or "warpdeck" not in other:
        raise TraceError("JSON, but not a trace written by warpdeck; open it at ui.perfetto.dev")
    events = found.get("traceEvents")

    def make(warps: Warps, stages: tuple[str, ...]) -> tuple[Slices, Marks]:
        try:
            return _tables(events, stages)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise TraceError("corrupt: an event lacks what it needs") from None

    return document.load(document.check(other["warpdeck"]), make)


def _ns(us: Any) -> int:
    return round(us * 1000)


def _tables(events: Any, stages: tuple[str, ...]) -> tuple[Slices, Marks]:
    ids = {name: i for i, name in enumerate(stages)}
    slices: list[list[int]] = []  # row, stage, start, end, depth, payload, kind, flags, end_row
    marks: list[tuple[int, int, int, int, float]] = []
    begun: dict[tuple[str, int], list[int]] = {}
    for e in events:
        kind = e["ph"]
        if kind == "M":
            continue
        row, stage, at = e["tid"], ids[e["name"]], _ns(e["ts"])
        if kind == "X":
            a = e["args"]
            end = at + _ns(e["dur"])
            slices.append([row, stage, at, end, a["depth"], a["payload"], 0, int(a.get("unended", 0)), row])
        elif kind == "b":
            a = e["args"]
            code = document.KINDS.index(e["cat"])
            slices.append([row, stage, at, -1, 0, a["payload"], code, int(a.get("unended", 0)), a["end"]])
            begun[e["cat"], e["id"]] = slices[-1]
        elif kind == "e":
            begun.pop((e["cat"], e["id"]))[3] = at
        elif kind == "i":
            value = e["args"].get("value", math.nan)
            value = _SPECIAL[value] if isinstance(value, str) else float(value)
            marks.append((row, stage, at, e["args"].get("payload", 0), value))
        else:
            raise ValueError
    if begun:
        raise ValueError
    names = ("row", "stage", "start_ns", "end_ns", "depth", "payload", "kind", "flags", "end_row")
    columns = np.array(slices, np.int64).reshape(-1, len(names)).T
    table = np.array(marks, np.float64).reshape(-1, 5).T
    return (
        document.make_slices(**dict(zip(names, columns, strict=True))),
        document.make_marks(**dict(zip(("row", "stage", "time_ns", "payload", "value"), table, strict=True))),
    )
