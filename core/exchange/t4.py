"""T4 files (auto-tuning results, schema 1.0.0), as their writers really write them.

They hold neither device nor knobs nor restrictions. Kernel Tuner gives `correctness` 1 to rows that failed
at run time, so `invalidity` decides; units are left out or misspelt; a failure's name stands for its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import UsageError
from ..model import Config, Status
from ..recording import t4_status
from .rows import FAILURES, Foreign, Row, judged, kind, knob_value, mapping, seconds, unit_scale

INVALIDITY = ("timeout", "compile", "runtime", "correctness", "constraints", "correct")


def read_t4(data: Mapping[str, Any], default_unit: str | None = None) -> Foreign:
    """Read a T4 document.

    Args:
        data: its JSON.
        default_unit: the unit of times where it gives none (a T1 file's); milliseconds if that is None.

    Raises:
        UsageError: what is wrong in which row.
    """
    metadata = mapping(data.get("metadata") or {}, "metadata")
    kernel = metadata.get("benchmark")  # this and the case as our own exports name them
    foreign = Foreign("t4", device=device_in(metadata), kernel=kernel if isinstance(kernel, str) else None)
    foreign.problem_size = metadata.get("case")
    scale = unit_scale(metadata.get("timeunit"), "timeunit")
    if scale is None:
        scale = unit_scale(default_unit, "TimeUnit")
        if scale is None:
            foreign.notes.append("no unit of time is given; milliseconds are assumed")
            scale = 1.0
    results = data.get("results")
    if not isinstance(results, list):
        raise UsageError(f"results is {kind(results)}; a list is needed")
    knobs: list[str] | None = None
    for number, result in enumerate(results, 1):
        where = f"result {number}"
        row = mapping(result, where)
        given = mapping(row.get("configuration"), f"{where}: configuration")
        knobs = knobs or list(given)
        config = _config(given, knobs, where)
        foreign.rows.append(_row(foreign, row, config, scale, where))
    return foreign


def _config(given: Mapping[str, Any], knobs: list[str], where: str) -> Config:
    if len(given) != len(knobs) or any(k not in given for k in knobs):
        odd = sorted(set(given) ^ set(knobs))
        raise UsageError(f"{where}: its configuration and the first one differ in {', '.join(odd)}")
    return {k: knob_value(given[k], f"{where}: {k}") for k in knobs}


def _row(foreign: Foreign, row: Mapping[str, Any], config: Config, scale: float, where: str) -> Row:
    invalidity = row.get("invalidity")
    if invalidity not in INVALIDITY:
        raise UsageError(f"{where}: invalidity {invalidity!r} is none of {', '.join(INVALIDITY)}")
    said, error = t4_status(invalidity), ""
    if said is Status.OK and row.get("correctness") == 0:
        said, error = Status.INCORRECT, "correctness 0"
        foreign.oddities["correct but incorrect"] += 1
    times = mapping(row.get("times"), f"{where}: times")
    value, unit = _objective(row, where)
    if said is not Status.OK and isinstance(value, str):
        error = value if value in FAILURES else error
    value_scale = unit_scale(unit, f"{where}: unit") if unit else None
    timestamp = row.get("timestamp")
    return judged(
        foreign,
        config,
        said=said,
        error=error,
        value=value,
        runtimes=times.get("runtimes"),
        scale=scale,
        value_scale=scale if value_scale is None else value_scale,
        compile_s=seconds(times.get("compilation", times.get("compilation_time"))),
        timestamp=timestamp if isinstance(timestamp, str) else None,
    )


def _objective(row: Mapping[str, Any], where: str) -> tuple[Any, Any]:
    """Value and unit of the measurement called `time`; nothing for any other objective."""
    measurements = row.get("measurements") or []
    if not isinstance(measurements, list):
        raise UsageError(f"{where}: measurements is {kind(measurements)}; a list is needed")
    for measured in measurements:
        if isinstance(measured, dict) and measured.get("name") == "time":
            return measured.get("value"), measured.get("unit")
    return None, None


def device_in(metadata: Any) -> str | None:
    """The device's name, from the places where T4 metadata are known to hold it."""
    for path in (
        ("device_name",),
        ("device",),
        ("gpu",),
        ("environment", "device_query", "nvidia-smi", "nvidia_smi_log", "gpu", "product_name"),
    ):
        found = metadata
        for key in path:
            if isinstance(found, list) and found:
                found = found[0]  # a host with several GPUs
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, str) and found.strip():
            return " ".join(found.split())
    return None
