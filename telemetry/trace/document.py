"""What files of a timeline share: everything but slices and marks as one JSON document, and its way back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..described import strange
from .errors import TraceError
from .timeline import Clock, Marks, Mispaired, Slices, Timeline, Warps

_NAME, _VERSION = "warpdeck trace", 1
KINDS = ("range", "token", "async")  # by Slices.kind
_LIMITS = {"cta": 1 << 31, "warp": 1 << 31, "sm": 1 << 31}


def dump(timeline: Timeline, **more: Any) -> dict[str, Any]:
    """The document. `more` are a format's own keys."""
    warps = {f.name: getattr(timeline.warps, f.name).tolist() for f in fields(Warps)}
    for name in ("start_ns", "end_ns"):
        warps[name] = [round(x, 3) for x in warps[name]]
    return {
        "format": _NAME,
        "version": _VERSION,
        "stages": list(timeline.stages),
        "clock": asdict(timeline.clock),
        "mispaired_count": timeline.mispaired_count,
        "mispaired": [m.to_json() for m in timeline.mispaired],
        "notes": list(timeline.notes),
        "meta": dict(timeline.meta),
        "warps": warps,
        **more,
    }


def text(document: dict[str, Any]) -> str:
    """As JSON. TraceError if the meta holds what JSON can't."""
    try:
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TraceError(f"the trace's meta can't be written as JSON: {error}") from None


def parse(data: str | bytes) -> dict[str, Any]:
    """The document of JSON text."""
    try:
        return check(json.loads(data))
    except (ValueError, RecursionError):
        raise TraceError("corrupt: its head is not JSON") from None


def check(found: Any) -> dict[str, Any]:
    """A document of this version, or a TraceError."""
    if not isinstance(found, dict) or found.get("format") != _NAME:
        raise TraceError("its head is not a warpdeck trace's")
    if found.get("version") != _VERSION:
        raise TraceError(f"is of version {found.get('version')!r}; this warpdeck reads {_VERSION}: update it")
    return found


def load(found: dict[str, Any], make: Callable[[Warps, tuple[str, ...]], tuple[Slices, Marks]]) -> Timeline:
    """The timeline of a document; `make` gives the slices and marks, equal times in program order."""
    try:
        stages = tuple(_typed(s, str) for s in found["stages"])
        warps = _warps(found["warps"])
        clock = Clock(**{f.name: _typed(found["clock"][f.name], _TYPES[str(f.type)]) for f in fields(Clock)})
        listed = tuple(
            Mispaired(**{f.name: _typed(m[f.name], _TYPES[str(f.type)]) for f in fields(Mispaired)})
            for m in found["mispaired"]
        )
        count = _typed(found["mispaired_count"], int)
        notes = tuple(_typed(n, str) for n in found["notes"])
        meta = _typed(found["meta"], dict)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise TraceError("corrupt: its head lacks what a trace needs") from None
    require_sound(meta)
    slices, marks = make(warps, stages)
    for table in (slices, marks):
        for name, limit in (("row", warps.cta.size), ("stage", len(stages)), ("end_row", warps.cta.size)):
            column = getattr(table, name, None)
            if column is not None and column.size and not (column.min() >= 0 and column.max() < limit):
                raise TraceError(f"corrupt: it names a {name.replace('row', 'warp')} that it doesn't have")
    if slices.start_ns.size and not (slices.start_ns <= slices.end_ns).all():
        raise TraceError("corrupt: a range ends before it begins")
    slices = _sorted(slices, np.lexsort((slices.start_ns, slices.row)))  # stable: program order stays
    marks = _sorted(marks, np.lexsort((marks.time_ns, marks.row)))
    return Timeline(stages, warps, slices, marks, listed, count, clock, meta, notes)


def require_sound(meta: dict[str, Any]) -> None:
    """TraceError for a description that no launch has."""
    key = strange(meta)
    if key is not None:
        raise TraceError(f"corrupt: what it says of the launch's {key} makes no sense")


_TYPES: dict[str, Any] = {"str": str, "int": int, "float": (int, float)}


def _typed(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError
    return value


def _warps(columns: Any) -> Warps:
    dtypes = {"cta": "i4", "warp": "i4", "sm": "i4", "start_ns": "f8", "end_ns": "f8", "closed": "?"}
    made: dict[str, NDArray[Any]] = {}
    for f in fields(Warps):
        values = _typed(columns[f.name], list)
        kind = bool if f.name == "closed" else int if f.name not in ("start_ns", "end_ns") else (int, float)
        made[f.name] = np.array([_typed(v, kind) for v in values], dtypes.get(f.name, "i8"))
        if made[f.name].size != len(columns["cta"]) or (f.name in _LIMITS and (made[f.name] < 0).any()):
            raise ValueError
    if not np.isfinite(made["start_ns"]).all() or not np.isfinite(made["end_ns"]).all():
        raise ValueError
    return Warps(**made)


def _sorted(table: Any, order: NDArray[np.int64]) -> Any:
    return type(table)(*(getattr(table, f.name)[order] for f in fields(table)))


def make_slices(**columns: Any) -> Slices:
    """Slices of columns of any number type. TraceError for numbers that don't fit."""
    return _table(Slices, columns)


def make_marks(**columns: Any) -> Marks:
    """Marks likewise."""
    return _table(Marks, columns)


_DTYPES = {"stage": np.int16, "depth": np.int16, "kind": np.uint8, "flags": np.uint8}
_FLOATS = ("start_ns", "end_ns", "time_ns", "value")


def _table(kind: type[Any], columns: dict[str, Any]) -> Any:
    made: dict[str, Any] = {}
    for name, values in columns.items():
        if name in _FLOATS:
            made[name] = np.asarray(values, np.float64)
            if name != "value" and not np.isfinite(made[name]).all():
                raise TraceError("corrupt: a time is not a number")
            continue
        dtype = _DTYPES.get(name, np.int32)
        numbers = np.asarray(values)  # before any cast, which would hide what isn't finite
        if numbers.size and not (numbers.min() >= 0 and numbers.max() <= np.iinfo(dtype).max):
            raise TraceError(f"corrupt: an impossible {name}")
        made[name] = numbers.astype(dtype)
    return kind(**made)


def label(timeline: Timeline) -> str:
    """The launch, for people."""
    meta = timeline.meta
    kernel = str(meta.get("kernel") or meta.get("workload") or "kernel")
    about = ", ".join(str(meta[k]) for k in ("workload", "variant", "case") if meta.get(k))
    return f"{kernel} ({about})" if about else kernel
