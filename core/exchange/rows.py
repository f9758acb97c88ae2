"""What other tuners' files come down to: rows of one configuration each, and a count of their oddities."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import UsageError
from ..model import Config, Status, Value

FAILED_MS = 1e20  # what very old files write instead of a time
RESOLUTION_MS = 1e-6  # a nanosecond; recordings keep no finer times
DISAGREE = 0.005  # relative difference between a row's own time and the mean of its samples

FAILURES = {
    "InvalidConfig": Status.RESTRICTED,
    "CompilationFailedConfig": Status.COMPILE_ERROR,
    "RuntimeFailedConfig": Status.RUNTIME_ERROR,
    "ErrorConfig": Status.RUNTIME_ERROR,
}
_SHORT = {"s": 1e3, "sec": 1e3, "ms": 1.0, "msec": 1.0, "us": 1e-3, "usec": 1e-3, "ns": 1e-6, "nsec": 1e-6}
_LONG = {"second": 1e3, "millisecond": 1.0, "microsecond": 1e-3, "nanosecond": 1e-6}


@dataclass(frozen=True)
class Row:
    """One configuration as a file has it, times in milliseconds.

    `ms`: the samples of an `ok` row in measuring order; its only time where there are none; else empty.
    `reported_ms`: the time beside its samples, which some writers take from elsewhere.
    """

    config: Config
    status: Status
    message: str = ""
    ms: tuple[float, ...] = ()
    reported_ms: float | None = None
    compile_s: float = 0.0
    timestamp: str | None = None


@dataclass
class Foreign:
    """A file of another tuner's, read. `oddities` counts what is told to the user once, in `notes`."""

    format: str  # "t4" | "kernel-tuner"
    rows: list[Row] = field(default_factory=list)
    knobs: Mapping[str, Sequence[Value]] | None = None  # None: those that occur
    device: str | None = None
    kernel: str | None = None
    problem_size: Any = None
    conditions: tuple[str, ...] = ()
    oddities: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """`value`, which must be a JSON object. UsageError."""
    if not isinstance(value, dict):
        raise UsageError(f"{where} is {kind(value)}; an object is needed")
    return value


def kind(value: Any) -> str:
    """A JSON value's type, for messages."""
    if value is None:
        return "missing or null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}
    return names.get(type(value), "an object")


def knob_value(value: Any, where: str) -> Value:
    """A knob's value: a number, string or boolean. UsageError."""
    if isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise UsageError(f"{where} is {kind(value)}; a knob's value is a finite number, a string or a boolean")


def unit_scale(unit: Any, where: str) -> float | None:
    """Milliseconds in one `unit`; None where it is left out. Doubled letters may be single: files spell
    "miliseconds". UsageError for anything that is no unit of time."""
    text = str(unit if unit is not None else "").strip().lower().replace("µ", "u").replace("μ", "u")
    if not text:
        return None
    if text in _SHORT:
        return _SHORT[text]
    for name, scale in _LONG.items():
        if _single(text.removesuffix("s")) == _single(name):
            return scale
    raise UsageError(f"{where} {unit!r} is no unit of time; known: {', '.join(_LONG)}s, s, ms, us, ns")


def _single(text: str) -> str:
    return re.sub(r"(.)\1+", r"\1", text)


def judged(
    foreign: Foreign,
    config: Config,
    *,
    said: Status,
    error: str = "",
    value: Any,
    runtimes: Any,
    scale: float = 1.0,
    value_scale: float = 1.0,
    compile_s: float = 0.0,
    timestamp: str | None = None,
) -> Row:
    """A row from what a file says of it; contradictions are decided for failure, and counted.

    Args:
        foreign: collects the oddities.
        config: the row's configuration.
        said: the status it is given.
        error: the name of the error it is given.
        value: the objective's value: a time, a failure's name, or nothing usable.
        runtimes: the samples; anything but a list is none.
        scale: milliseconds in one unit of the samples.
        value_scale: milliseconds in one unit of the value.
        compile_s: seconds of compilation.
        timestamp: when it was measured.
    """
    samples = [float(x) * scale for x in runtimes if _number(x)] if isinstance(runtimes, list) else []
    ms = tuple(round(x, 6) for x in samples if RESOLUTION_MS <= x < FAILED_MS)
    given = isinstance(runtimes, list) and bool(runtimes)
    reported: float | None = None
    status, message = said, error
    if isinstance(value, str) and said is Status.OK:
        status, message = FAILURES.get(value, Status.RUNTIME_ERROR), value
    elif not isinstance(value, str) and _number(value):
        reported = float(value) * value_scale
        if not RESOLUTION_MS <= reported < FAILED_MS or float(value) >= FAILED_MS:
            reported = None
            if said is Status.OK:
                status, message = Status.RUNTIME_ERROR, f"its time is {float(value):g}"
    if status is Status.OK and given and len(ms) < len(runtimes):
        foreign.oddities["bad samples"] += len(runtimes) - len(ms)
    if status is Status.OK and not ms:
        if reported is None:
            status, message = Status.RUNTIME_ERROR, "marked valid, but no time is recorded"
            foreign.oddities["valid without a time"] += 1
        else:
            foreign.oddities["one time"] += 1
            ms = (round(reported, 6),)
    if status is not Status.OK:
        foreign.oddities["failed with times"] += bool(
            given or (reported is not None and said is not Status.OK)
        )
        return Row(config, status, message, compile_s=compile_s, timestamp=timestamp)
    if reported is not None and given:
        mean = math.fsum(ms) / len(ms)
        foreign.oddities["disagreeing"] += abs(reported - mean) > DISAGREE * mean
    kept = reported if given else None
    return Row(config, status, message, ms, kept, compile_s, timestamp)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def seconds(milliseconds: Any) -> float:
    """A duration that a file gives in milliseconds; 0 for none."""
    if _number(milliseconds) and 0 <= milliseconds < 1e15:
        return round(float(milliseconds) / 1e3, 6)
    return 0.0
