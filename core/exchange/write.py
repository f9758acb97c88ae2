"""Recordings for other tuners: plain T4, and Kernel Tuner's cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import UsageError
from ..model import CacheMode, Status
from ..recording import Entry, Recording, invalidity

_ERRORS = {Status.RESTRICTED: "InvalidConfig", Status.COMPILE_ERROR: "CompilationFailedConfig"}


def t4_document(recording: Recording, cache: CacheMode | None = None) -> dict[str, Any]:
    """A T4 document (schema 1.0.0) with nothing in it that is only ours, but for what names the recording.

    `time` is the mean of the samples, as Kernel Tuner's, or what an imported file gave for it. A row that
    failed at run time has its `correctness` 0.

    Args:
        recording: what to write.
        cache: whose samples; None for cold ones, or the only ones there are.

    Raises:
        UsageError: no such samples.
    """
    mode = _mode(recording, cache)
    return {
        "schema_version": "1.0.0",
        "metadata": {
            "timeunit": "milliseconds",
            "device_name": recording.device.name,
            "benchmark": recording.workload,
            "space": recording.space,
            "case": recording.case,
            "cache": str(mode),
        },
        "results": [_result(e, mode, recording.date) for e in recording.entries.values()],
    }


def kernel_tuner_cache(recording: Recording, cache: CacheMode | None = None) -> str:
    """A closed cache file of Kernel Tuner's, a line a configuration; it replays in its simulation mode.

    `benchmark_time` is the sum of the samples; times that a recording doesn't keep are 0. Arguments and
    errors as `t4_document`'s.
    """
    mode = _mode(recording, cache)
    head = {
        "device_name": recording.device.name,
        "kernel_name": recording.origin.get("kernel") or recording.workload,
        "problem_size": _problem_size(recording),
        "tune_params_keys": list(recording.knobs),
        "tune_params": {k: list(v) for k, v in recording.knobs.items()},
        "objective": "time",
    }
    rows = ",\n".join(_cache_line(e, mode, recording.date) for e in recording.entries.values())
    return json.dumps(head, indent=1)[:-2] + f',\n "cache": {{\n{rows}}}\n}}\n'


def _mode(recording: Recording, wanted: CacheMode | None) -> CacheMode:
    have = [m for m in CacheMode if any(m in e.series for e in recording.entries.values())]
    chosen = have[0] if wanted is None and have else wanted
    if chosen is None or chosen not in have:
        raise UsageError(
            f"{recording.name}: no samples with cache '{wanted}'; recorded: {', '.join(have) or 'none'}"
        )
    return chosen


def _times(entry: Entry, mode: CacheMode) -> tuple[float, list[float]] | None:
    """The time to report and the samples, in ms; None for a failure."""
    series = entry.series.get(mode)
    if entry.status is not Status.OK or series is None:
        return None
    reported = entry.reported_ms if entry.reported_ms is not None else float(series.ms.mean())
    return reported, [round(float(x), 6) for x in series.ms]


def _result(entry: Entry, mode: CacheMode, date: str | None) -> dict[str, Any]:
    timed = _times(entry, mode)
    status = entry.status if timed or entry.status is not Status.OK else Status.RUNTIME_ERROR
    return {
        **({"timestamp": date} if date else {}),
        "configuration": dict(entry.config),
        "times": {
            "compilation": round(entry.compile_s * 1e3, 3),
            "framework": 0,
            "search_algorithm": 0,
            "validation": 0,
            "runtimes": timed[1] if timed else [],
        },
        "invalidity": invalidity(status),
        "correctness": 1 if timed else 0,
        "measurements": [{"name": "time", "value": timed[0] if timed else _error(entry), "unit": "ms"}],
        "objectives": ["time"],
    }


def _cache_line(entry: Entry, mode: CacheMode, date: str | None) -> str:
    timed = _times(entry, mode)
    key = ",".join(str(v) for v in entry.config.values())
    row: dict[str, Any] = {
        **entry.config,
        "time": timed[0] if timed else _error(entry),
        **({"times": timed[1]} if timed else {}),
        "compile_time": round(entry.compile_s * 1e3, 3),
        "verification_time": 0,
        "benchmark_time": round(sum(timed[1]), 6) if timed else 0,
        "strategy_time": 0,
        "framework_time": 0,
        "timestamp": date or "",
    }
    return f"{json.dumps(key)}: {json.dumps(row)}"


def _error(entry: Entry) -> str:
    return _ERRORS.get(entry.status, "RuntimeFailedConfig")


def _problem_size(recording: Recording) -> Any:
    size: Any = recording.origin.get("problem_size")
    params: Mapping[str, int] = recording.params
    return size if size is not None else list(params.values()) or recording.case
