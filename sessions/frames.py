"""A session as pandas frames, for notebooks. Pandas is imported when a frame is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import UsageError
from . import examples
from .events import Event, Kind
from .store import SessionStore

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Frames:
    """A session's log as tables.

    Attributes:
        evaluations: A row an evaluation: `step`, `t`, `candidate`, `variant`, `status`, `message`,
            `score_ms`, a column `knob_NAME` a knob, and the compiler's `registers`, `spill_bytes`,
            `shared_bytes`, `occupancy`.
        measurements: A row an evaluation and case: `step`, `candidate`, `case`, `n`, `median_ms`,
            `mean_ms`, `std_ms`, `min_ms`, `max_ms`, `ci_lo_ms`, `ci_hi_ms`, `cache`, `clock`.
        samples: A row a timing sample: `step`, `candidate`, `case`, `round`, `ms`.
        steps: A row an agent step: `step`, `t`, `reward`, `speedup`, `best_speedup`.
        telemetry: A row an NVML sample: `t` and the fields of the `sample` event.
        messages: `t`, `level`, `text`.
    """

    evaluations: pandas.DataFrame
    measurements: pandas.DataFrame
    samples: pandas.DataFrame
    steps: pandas.DataFrame
    telemetry: pandas.DataFrame
    messages: pandas.DataFrame


def read_session(session: str | Path) -> Frames:
    """Read a session, given its id, a unique beginning of it, `last`, or a path.

    Raises UsageError for an unknown or damaged session, or without pandas.
    """
    try:
        import pandas
    except ImportError:
        raise UsageError("frames need pandas: pip install pandas") from None
    folder = session if isinstance(session, Path) else examples.resolve(session)
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in Frames.__dataclass_fields__}
    with SessionStore.open(folder) as store:
        for event in store.events():
            add = _ADD.get(event.kind)
            if add is not None:
                add(tables, event)
    columns = {
        "evaluations": ["step", "t", "candidate", "variant", "status", "message", "score_ms"],
        "measurements": ["step", "candidate", "case", *_SUMMARY],
        "samples": ["step", "candidate", "case", "round", "ms"],
        "steps": ["step", "t", "reward", "speedup", "best_speedup"],
        "telemetry": ["t"],
        "messages": ["t", "level", "text"],
    }
    frames = {
        name: pandas.DataFrame.from_records(rows) if rows else pandas.DataFrame(columns=columns[name])
        for name, rows in tables.items()
    }
    return Frames(**frames)


_SUMMARY = (
    "n",
    "median_ms",
    "mean_ms",
    "std_ms",
    "min_ms",
    "max_ms",
    "ci_lo_ms",
    "ci_hi_ms",
    "cache",
    "clock",
)
_RESOURCES = ("registers", "spill_bytes", "shared_bytes", "occupancy")

Tables = dict[str, list[dict[str, Any]]]


def _evaluation(tables: Tables, event: Event) -> None:
    data = event.data
    resources: Mapping[str, Any] = data.get("resources") or {}
    head = {"step": data.get("step"), "candidate": data["candidate"]}
    tables["evaluations"].append(
        {
            "step": head["step"],
            "t": event.t,
            "candidate": head["candidate"],
            "variant": data["variant"],
            "status": data["status"],
            "message": data.get("message", ""),
            "score_ms": data.get("score_ms"),
            **{f"knob_{name}": value for name, value in data["config"].items()},
            **{name: resources.get(name) for name in _RESOURCES},
        }
    )
    for measured in data.get("measurements") or ():
        low, high = measured.get("ci95_ms") or (None, None)
        summary = {**measured, "ci_lo_ms": low, "ci_hi_ms": high}
        where = {**head, "case": measured["case"]}
        tables["measurements"].append({**where, **{name: summary.get(name) for name in _SUMMARY}})
        samples = measured.get("samples_ms") or ()
        rounds = measured.get("rounds") or [0] * len(samples)
        tables["samples"] += [
            {**where, "round": index, "ms": ms} for index, ms in zip(rounds, samples, strict=True)
        ]


def _step(tables: Tables, event: Event) -> None:
    names = ("step", "reward", "speedup", "best_speedup")
    tables["steps"].append({"t": event.t, **{name: event.data.get(name) for name in names}})


def _steps(tables: Tables, event: Event) -> None:
    names = ("step", "reward", "speedup", "best_speedup")
    for values in zip(*(event.data[name] for name in names), strict=True):
        tables["steps"].append({"t": event.t, **dict(zip(names, values, strict=True))})


def _telemetry(tables: Tables, event: Event) -> None:
    tables["telemetry"].append({"t": event.t, **event.data})


def _message(tables: Tables, event: Event) -> None:
    tables["messages"].append(
        {"t": event.t, "level": event.data.get("level"), "text": event.data.get("text")}
    )


_ADD = {
    Kind.EVALUATION.value: _evaluation,
    Kind.STEP.value: _step,
    Kind.STEPS.value: _steps,
    Kind.SAMPLE.value: _telemetry,
    Kind.MESSAGE.value: _message,
}
