"""Kernel Tuner's cache files: one line a configuration, left unclosed while the tuner runs.

A failure is `"time": "RuntimeFailedConfig"` (until 1.3), `"__error__": …` without a time (since 1.4), or the
time 1e20 (very old). Times are milliseconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..errors import UsageError
from ..model import Status
from .rows import FAILURES, Foreign, judged, kind, knob_value, mapping, seconds

_OPENING = re.compile(r'"cache"\s*:\s*\{')


def reopened(text: str) -> tuple[dict[str, Any], bool] | None:
    """An unclosed cache as a document, and whether its last row is unfinished and left out.

    None if it isn't one: what follows the last complete row must be the end of the file, or one row that
    breaks off there.
    """
    opening = _OPENING.search(text)
    if opening is None:
        return None
    try:
        head = json.loads(text[: opening.end()] + "}}")
    except ValueError:
        return None
    decoder = json.JSONDecoder()
    rows: dict[str, Any] = {}
    at, end = opening.end(), len(text.rstrip())
    while True:
        start = _skip(text, at, ",")
        if start >= end:
            break
        try:
            key, colon = decoder.raw_decode(text, start)
            row, at = decoder.raw_decode(text, _skip(text, colon, ":"))
        except ValueError:
            if "\n" in text[start:end] or not isinstance(head, dict):
                return None  # damaged in the middle, not broken off at the end
            return {**head, "cache": rows}, True
        rows[str(key)] = row
    return ({**head, "cache": rows}, False) if isinstance(head, dict) else None


def _skip(text: str, at: int, mark: str) -> int:
    while at < len(text) and (text[at].isspace() or text[at] == mark):
        at += 1
    return at


def read_cache(data: Mapping[str, Any]) -> Foreign:
    """Read a cache document. Raises UsageError: what is wrong in which row."""
    foreign = Foreign("kernel-tuner")
    cache = mapping(data.get("cache"), "cache")
    listed = mapping(data.get("tune_params") or {}, "tune_params")
    keys = data.get("tune_params_keys") or list(listed)
    if not isinstance(keys, list) or not keys or any(not isinstance(k, str) for k in keys):
        raise UsageError("neither tune_params_keys nor tune_params names the knobs")
    if len(set(keys)) != len(keys):
        raise UsageError("tune_params_keys names a knob twice")
    foreign.knobs = {k: _values(listed.get(k), k) for k in keys}
    for name, attribute in (("device_name", "device"), ("kernel_name", "kernel")):
        found = data.get(name)
        if isinstance(found, str) and found.strip():
            setattr(foreign, attribute, " ".join(found.split()))
    foreign.problem_size = data.get("problem_size")
    for key, value in cache.items():
        where = f"cache entry {key!r}"
        row = mapping(value, where)
        absent = next((k for k in keys if k not in row), None)
        if absent is not None:
            raise UsageError(f"{where} has no value for {absent}")
        config = {k: knob_value(row[k], f"{where}: {k}") for k in keys}
        said, error = _error(row)
        timestamp = row.get("timestamp")
        foreign.rows.append(
            judged(
                foreign,
                config,
                said=said,
                error=error,
                value=row.get("time"),
                runtimes=row.get("times"),
                compile_s=seconds(row.get("compile_time")),
                timestamp=timestamp if isinstance(timestamp, str) else None,
            )
        )
    return foreign


def _values(values: Any, knob: str) -> list[Any]:
    if values is None:
        return []
    if not isinstance(values, list):
        raise UsageError(f"tune_params: {knob} is {kind(values)}; a list is needed")
    return [knob_value(v, f"tune_params: {knob}") for v in values]


def _error(row: Mapping[str, Any]) -> tuple[Status, str]:
    """The failure that a row names, wherever it does: the objective needn't be the time."""
    named = row.get("__error__")
    if named is not None:
        return FAILURES.get(str(named), Status.RUNTIME_ERROR), str(named)[:200]
    for value in row.values():
        if isinstance(value, str) and value in FAILURES:
            return FAILURES[value], value
    return Status.OK, ""
