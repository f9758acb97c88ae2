"""T1 files: the description of a tuning problem that belongs to results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..expr import value_list
from ..model import Value
from ..recording import read_json
from .rows import kind, knob_value, mapping


@dataclass(frozen=True)
class Problem:
    """What results leave out: the knobs with their values, conditions, kernel, size, device, unit."""

    knobs: Mapping[str, tuple[Value, ...]]
    conditions: tuple[str, ...] = ()
    kernel: str | None = None
    problem_size: Any = None
    device: str | None = None
    timeunit: str | None = None


def read_t1(path: Path) -> Problem:
    """Read a T1 file; its `Values` are expressions for the restricted evaluator. Raises UsageError."""
    data = read_json(path)
    try:
        space = mapping(data.get("ConfigurationSpace"), "ConfigurationSpace")
        kernel = mapping(data.get("KernelSpecification") or {}, "KernelSpecification")
        general = mapping(data.get("General") or {}, "General")
        device = mapping(kernel.get("Device") or {}, "KernelSpecification: Device")
        return Problem(
            _knobs(space.get("TuningParameters")),
            _conditions(space.get("Conditions") or []),
            _text(kernel.get("KernelName")) or _text(general.get("BenchmarkName")),
            kernel.get("ProblemSize"),
            _text(device.get("Name")),
            _text(general.get("TimeUnit")),
        )
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _text(value: Any) -> str | None:
    return " ".join(value.split()) or None if isinstance(value, str) else None


def _knobs(parameters: Any) -> dict[str, tuple[Value, ...]]:
    if not isinstance(parameters, list) or not parameters:
        raise UsageError(f"TuningParameters is {kind(parameters)}; a list of knobs is needed")
    knobs: dict[str, tuple[Value, ...]] = {}
    for parameter in parameters:
        table = mapping(parameter, "a tuning parameter")
        name, values = table.get("Name"), table.get("Values")
        if not isinstance(name, str) or not name or name in knobs:
            raise UsageError(f"a tuning parameter is called {name!r}; each needs a name of its own")
        try:
            found = value_list(values) if isinstance(values, str) else values
        except UsageError as error:
            raise UsageError(f"Values of {name}: {error}") from None
        if not isinstance(found, list | tuple) or not found:
            raise UsageError(f"Values of {name} is {kind(found)}; a list is needed")
        knobs[name] = tuple(knob_value(v, f"a value of {name}") for v in found)
    return knobs


def _conditions(conditions: Any) -> tuple[str, ...]:
    if not isinstance(conditions, list):
        raise UsageError(f"Conditions is {kind(conditions)}; a list is needed")
    texts = (_text(mapping(c, "a condition").get("Expression")) for c in conditions)
    return tuple(t for t in texts if t)
