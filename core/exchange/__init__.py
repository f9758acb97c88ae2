"""Recordings from and for other tuners: T4 files and Kernel Tuner's caches.

What such a file holds was measured elsewhere, in one pass, in a cache state that it doesn't tell. It becomes
a recording of the space `imported`, variant `recorded`, cache mode "as recorded", whose samples have no
rounds; everything odd about it is said in `origin["notes"]`.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from .. import recording as recordings
from ..errors import UsageError
from ..model import CacheMode, DeviceInfo, Status, Value
from ..recording import Entry, Recording, Series, config_key
from .kernel_tuner import read_cache, reopened
from .rows import DISAGREE, Foreign, Row
from .t1 import Problem, read_t1
from .t4 import read_t4

__all__ = ["SPACE", "UNKNOWN_DEVICE", "VARIANT", "read"]

SPACE = "imported"
VARIANT = "recorded"
UNKNOWN_DEVICE = "unknown device"
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def read(
    path: Path,
    *,
    name: str | None = None,
    workload: str | None = None,
    device_name: str | None = None,
    t1: Path | None = None,
) -> Recording:
    """Read a recording of ours, a T4 file or a Kernel Tuner cache, compressed or not.

    Args:
        path: the file.
        name: what the device is to be called; the file's name if None.
        workload: what was tuned; else the kernel's name, else the device's.
        device_name: the GPU, where the file doesn't say (or says it wrongly).
        t1: the T1 file of the tuning problem.

    Raises:
        UsageError: not readable, neither of these, damaged, without any time; or `workload`, `device_name`
            or `t1` for a recording of ours, which has its own.
    """
    if (name, workload, device_name, t1) == (None, None, None, None):
        with suppress(OSError):
            known = path.stat()
            return _read_again(path.absolute(), known.st_mtime_ns, known.st_size)
    return _read(path, name, workload, device_name, t1)


@lru_cache(maxsize=2)
def _read_again(path: Path, mtime_ns: int, size: int) -> Recording:
    """A run's parts each open its recording; a large one takes half a second."""
    return _read(path, None, None, None, None)


def _read(
    path: Path, name: str | None, workload: str | None, device_name: str | None, t1: Path | None
) -> Recording:
    raw = recordings.read_bytes(path)
    data, notes = _document(path, raw)
    metadata = data.get("metadata")
    if isinstance(metadata, dict) and "warpdeck" in metadata:
        if workload or device_name or t1:
            raise UsageError(f"{path}: a warpdeck recording names its workload and device itself")
        loaded = recordings.parse(path, data)
        return replace(loaded, name=_word(name)) if name else loaded
    problem = read_t1(t1) if t1 is not None else None
    try:
        foreign = _foreign(data, problem)
        foreign.notes[:0] = notes
        stem = path.name.split(".", 1)[0]
        labels = (_word(name or stem), workload, device_name)
        return _recording(foreign, problem, path.name, hashlib.sha256(raw).hexdigest()[:16], *labels)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise UsageError(f"{path}: damaged: {type(error).__name__}: {error}") from None


def _document(path: Path, raw: bytes) -> tuple[dict[str, Any], list[str]]:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        found = reopened(raw.decode("utf-8", errors="replace"))
        if found is None:
            raise UsageError(f"{path}: not a JSON or gzip-compressed JSON file ({error})") from None
        data, cut = found
        note = "the cache is not closed: its tuner was running still, or ended early"
        return data, [note + ("; its last row is unfinished and left out" if cut else "")]
    if not isinstance(data, dict):
        raise UsageError(f"{path}: not a recording (its top level is not an object)")
    if _SURROGATE.search(raw):
        try:
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise UsageError(f"{path}: damaged: half of a surrogate pair is no text") from None
    return data, []


def _foreign(data: Mapping[str, Any], problem: Problem | None) -> Foreign:
    if isinstance(data.get("cache"), dict) and ("tune_params_keys" in data or "tune_params" in data):
        return read_cache(data)
    if "results" in data:
        return read_t4(data, problem.timeunit if problem else None)
    if "ConfigurationSpace" in data:
        raise UsageError("a T1 file describes a space without results; give it as --t1, beside a T4 file")
    raise UsageError("neither a warpdeck recording nor a T4 file nor a Kernel Tuner cache")


def _recording(
    foreign: Foreign,
    problem: Problem | None,
    file: str,
    digest: str,
    name: str,
    workload: str | None,
    device_name: str | None,
) -> Recording:
    knobs = _knobs(foreign, problem)
    entries, timestamps = _entries(foreign, knobs)
    timed = sorted((e for e in entries.values() if e.status is Status.OK), key=_median)
    if not timed:
        raise UsageError("no configuration in it has a time")
    _note_oddities(foreign, timed)
    kernel = foreign.kernel or (problem.kernel if problem else None)
    size = _size(
        foreign.problem_size if foreign.problem_size is not None else problem and problem.problem_size
    )
    device = device_name or foreign.device or (problem.device if problem else None)
    if not device:
        foreign.notes.append("the device is unknown: nothing in the file names it (--device-name does)")
    if not timestamps:
        foreign.notes.append("the date is unknown")
    counts = sorted(len(e.series[CacheMode.AS_RECORDED].ms) for e in timed)
    return Recording(
        name=name,
        workload=_word(workload or kernel or name),
        space=SPACE,
        variant=VARIANT,
        source_hash=digest,
        case=_case(size),
        params={},
        device=DeviceInfo(device or UNKNOWN_DEVICE, f"recorded:{name}"),
        date=timestamps[0] if timestamps else None,
        protocol={"clock": "unknown", "samples": counts[-1], "fewest_samples": counts[0]},
        knobs=knobs,
        entries=entries,
        baseline_variant=VARIANT,
        baseline_hash=digest,
        baseline=timed[(len(timed) - 1) // 2],
        origin={
            "format": foreign.format,
            "file": file,
            "kernel": kernel,
            "problem_size": size,
            "last_date": timestamps[-1] if timestamps else None,
            "conditions": list(foreign.conditions or (problem.conditions if problem else ())),
            "notes": foreign.notes,
        },
    )


def _median(entry: Entry) -> tuple[float, str]:
    return entry.series[CacheMode.AS_RECORDED].median_ms, config_key(entry.config)


def _knobs(foreign: Foreign, problem: Problem | None) -> dict[str, tuple[Value, ...]]:
    """The knobs with their values in order: as listed, else as they occur, numbers sorted."""
    if not foreign.rows:
        raise UsageError("it holds no configuration")
    names = list(foreign.rows[0].config)
    if not names:
        raise UsageError("its configurations have no knobs")
    listed: Mapping[str, Sequence[Value]] = foreign.knobs or {}
    if problem is not None:
        if set(problem.knobs) != set(names):
            odd = ", ".join(sorted(set(problem.knobs) ^ set(names)))
            raise UsageError(f"the T1 file is of another space: they differ in {odd}")
        listed = problem.knobs
        names = list(problem.knobs)
    knobs: dict[str, tuple[Value, ...]] = {}
    for knob in names:
        known = dict.fromkeys(listed.get(knob) or ())
        occurring = dict.fromkeys(row.config[knob] for row in foreign.rows)
        extra = [v for v in occurring if v not in known]
        if known and extra:
            foreign.notes.append(f"{len(extra)} values of {knob} occur that its list of values lacks")
        elif not known and not any(isinstance(v, str) for v in extra):
            extra.sort()
        knobs[knob] = (*known, *extra)
    return knobs


def _entries(foreign: Foreign, knobs: Mapping[str, tuple[Value, ...]]) -> tuple[dict[str, Entry], list[str]]:
    """Entries by key in the file's order (of a repeated configuration the last), and the days, sorted."""
    same = {knob: {v: v for v in values} for knob, values in knobs.items()}  # 1, 1.0 and True are one value
    entries: dict[str, Entry] = {}
    days: set[str] = set()
    for row in foreign.rows:
        config = {knob: same[knob][row.config[knob]] for knob in knobs}
        key = config_key(config)
        foreign.oddities["repeated"] += key in entries
        entries[key] = _entry(config, row)
        day = _DAY.match(row.timestamp or "")
        if day:
            days.add(day[0])
    return entries, sorted(days)


def _entry(config: Mapping[str, Value], row: Row) -> Entry:
    series = {}
    if row.status is Status.OK:
        ms = np.asarray(row.ms, dtype=np.float64)
        series = {CacheMode.AS_RECORDED: Series(ms, np.zeros(len(ms), dtype=np.int32))}
    return Entry(
        dict(config),
        row.status,
        row.message,
        series,
        compile_s=row.compile_s,
        reported_ms=row.reported_ms,
    )


def _note_oddities(foreign: Foreign, timed: Sequence[Entry]) -> None:
    odd, say = foreign.oddities, foreign.notes.append
    if odd["repeated"]:
        say(f"{odd['repeated']} rows repeat a configuration; the last one of each counts")
    if odd["bad samples"]:
        say(f"{odd['bad samples']} samples are no possible times and left out")
    if odd["correct but incorrect"]:
        say(f"{odd['correct but incorrect']} valid rows have a correctness of 0; they are failures")
    if odd["valid without a time"]:
        say(f"{odd['valid without a time']} rows are called valid but hold no time; they are failures")
    if odd["failed with times"]:
        say(f"{odd['failed with times']} failed rows hold times; they stay failures")
    if odd["one time"]:
        say(f"{odd['one time']} of {len(timed)} configurations have a single time: nothing tells its spread")
    if odd["disagreeing"]:
        say(_disagreement(odd["disagreeing"], timed))


def _disagreement(count: int, timed: Sequence[Entry]) -> str:
    text = (
        f"the time of {count} of {len(timed)} configurations differs by over {DISAGREE:.1%} from the mean of"
        " their own samples; both are kept, the samples' median ranks"
    )
    other = min(timed, key=lambda e: e.reported_ms if e.reported_ms is not None else math.inf)
    if other.config != timed[0].config:
        text += f" (by the other the fastest would be {config_key(other.config)}, {other.reported_ms:.6g} ms)"
    return text


def _word(text: str) -> str:
    """`text` as a part of a recording's file name, whose parts are joined by dashes. UsageError if empty."""
    word = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")[:60]
    if not word:
        raise UsageError(f"{text!r} has no letter or digit to make a name of; give --name")
    return word


def _size(size: Any) -> Any:
    """A problem size as a whole number, a text or a list of these."""
    if isinstance(size, list):
        return [_size(part) for part in size[:8] if not isinstance(part, list)]
    return size if size is None or isinstance(size, int | str) else str(size)[:80]


def _case(size: Any) -> str:
    """`4096x4096` for a problem size; `as_recorded` where it is unknown."""
    parts = size if isinstance(size, list) else [size]
    texts = [re.sub(r"[^A-Za-z0-9_.]+", "_", str(p)).strip("_.") for p in parts if p is not None]
    return "x".join(t for t in texts if t)[:40] or "as_recorded"
