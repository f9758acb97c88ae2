"""A session as documents: the run's result (`tune --json`, summary.json) and its history (history.json)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import UsageError, WarpdeckError
from ..core.model import Evaluation
from ..telemetry.whole import whole
from . import paths
from .attempts import attempts
from .best import standalone
from .entries import Entry
from .events import Kind
from .outputs import write_outputs
from .state import RunState
from .store import SessionStore

SCHEMA_VERSION = 1


def tune_document(store: SessionStore, state: RunState | None = None) -> dict[str, Any]:
    """What `tune --json` prints and summary.json holds.

    Before the result (or without one: a run that was stopped) `best`, `cases` and `tied` come from the
    screening, and `provisional` is true: their intervals are unpaired.
    """
    state = state or store.state()
    info = state.info
    result = state.result or {}
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "session": store.id,
        "state": str(state.lifecycle),
        "reason": state.reason,
        "workload": info.workload if info else store.header().get("workload"),
        "agent": info.agent if info else store.header().get("agent"),
        "seed": info.seed if info else store.header().get("seed"),
        "space": info.space if info else None,
        "device": _device(state),
        "protocol": dict(info.protocol) if info else None,
        "clock": result.get("clock"),
        "cache": info.protocol.get("cache") if info else None,
        "steps": state.evaluations,
        "baseline": {"config": dict(state.baseline.config), "score_ms": state.baseline.score_ms}
        if state.baseline
        else None,
        "counts": dict(state.counts),
        "notes": list(info.data.get("notes") or ()) if info else [],
        "origins": dict(info.data.get("origins") or {}) if info else {},
        "from": info.data.get("from") if info else None,
        "model": _model(state),
        "provisional": not result,
    }
    if result:
        kept = ("baseline", "best", "cases", "tied", "finalists")
        kept += ("vendor_ratio", "floor_ratio", "clock", "event_floor_ms")
        document["comparison"] = result.get("comparison", "paired")
        document.update({key: result.get(key) for key in kept})
    else:
        document.update(_screened(store, state))
    return document


def _device(state: RunState) -> dict[str, Any] | None:
    device = state.info.device if state.info else None
    if device is None:
        return None
    return {
        "name": device.name,
        "spec": device.spec,
        "label": device.label,
        "recorded": device.recorded,
        "emulated": device.emulated,
        "date": device.date,
        "uuid": device.uuid,
        "driver": device.driver,
    }


def _model(state: RunState) -> dict[str, Any] | None:
    """The language model that was asked, and what it took; None where none was. `cost`: USD, of the answers
    whose price is known; null where no price is."""
    llm = state.llm
    if llm is None or not llm.asks:
        return None
    usage = llm.usage
    return {
        "name": llm.model,
        "effort": llm.effort or None,
        "requests": llm.sent,
        "tokens": {key: getattr(usage, key) for key in ("input", "cached", "output", "reasoning")},
        "cost": usage.cost if usage.answers > usage.unpriced else None,
        "unpriced": usage.unpriced,
    }


def _screened(store: SessionStore, state: RunState) -> dict[str, Any]:
    best = state.best
    missing: dict[str, Any] = {
        "best": None,
        "cases": [],
        "tied": [],
        "vendor_ratio": None,
        "floor_ratio": None,
    }
    if best is None:
        return missing
    evaluation = last_evaluation(store, best.candidate)
    tied = [dict(e.config) for e in state.leaderboard if e.candidate in state.tied]
    return {
        "best": {
            "candidate": best.candidate,
            "variant": best.variant,
            "config": dict(best.config),
            "launch": evaluation.to_json(samples=False)["launches"] if evaluation else {},
            "score_ms": best.score_ms,
            **_screened_speedup(state.baseline, best),
            "status": best.status,
        },
        "cases": _screened_cases(state, best, evaluation),
        "tied": tied,
        "vendor_ratio": best.vendor_ratio,
        "floor_ratio": best.floor_ratio,
        "clock": evaluation.measurements[0].clock if evaluation and evaluation.measurements else None,
    }


def _screened_speedup(baseline: Entry | None, best: Entry) -> dict[str, Any]:
    """Against the latest baseline, as the document shows it (the entry's is against the one of its time)."""
    ratio, low, high = None, None, None
    if baseline is not None and baseline.score_ms and best.score_ms:
        ratio = baseline.score_ms / best.score_ms
        if baseline.score_ci_ms and best.score_ci_ms:
            low = baseline.score_ci_ms[0] / best.score_ci_ms[1]
            high = baseline.score_ci_ms[1] / best.score_ci_ms[0]
    return {"speedup": ratio, "speedup_ci": [low, high]}


def _screened_cases(state: RunState, best: Entry, evaluation: Evaluation | None) -> list[dict[str, Any]]:
    info, baseline = state.info, state.baseline
    cases = []
    for case in info.cases if info else ():
        median = best.medians_ms.get(case.name)
        verdict = evaluation.verdict(case.name) if evaluation else {}
        if median is None and not verdict.get("status"):
            continue
        base = baseline.medians_ms.get(case.name) if baseline else None
        vendor = info.vendor[case.name]["median_ms"] if info and case.name in info.vendor else None
        floor = info.floors.get(case.name) if info else None
        cases.append(
            {
                "name": case.name,
                "params": dict(case.params),
                "median_ms": median,
                "baseline_ms": base,
                "speedup": base / median if base and median else None,
                "speedup_ci": [None, None],
                "vendor_ms": vendor,
                "vendor_ratio": vendor / median if vendor and median else None,
                "floor_ms": floor,
                "floor_ratio": floor / median if floor and median else None,
                **verdict,
            }
        )
    return cases


def last_evaluation(store: SessionStore, candidate: str) -> Evaluation | None:
    """The latest logged evaluation of a candidate."""
    found = None
    for event in store.events(kinds=[Kind.EVALUATION]):
        if event.data.get("candidate") == candidate:
            found = event.data
    return Evaluation.from_json(found) if found else None


def history_document(store: SessionStore) -> dict[str, Any]:
    """What history.json holds: every attempt of an agent of sources, and every evaluation in order, with each
    case's summary but not its samples."""
    evaluations = []
    for event in store.events(kinds=[Kind.EVALUATION]):
        data = dict(event.data)
        data["measurements"] = [
            {key: value for key, value in measured.items() if key not in ("samples_ms", "rounds")}
            for measured in data.get("measurements") or ()
        ]
        evaluations.append({"t": event.t, **data})
    return {
        "schema_version": SCHEMA_VERSION,
        "session": store.id,
        "attempts": attempts(store),
        "evaluations": evaluations,
    }


def write_artifacts(
    store: SessionStore, state: RunState, message: Callable[[str, str], None]
) -> Iterator[tuple[str, str]]:
    """Write history.json, summary.json, the best kernel, and what `outputs` writes; yield (name, path).

    `message(level, text)` hears of a best kernel that can't stand alone. Raises WarpdeckError for a disk
    that can't be written.
    """
    folder = store.folder / paths.ARTIFACTS
    history = history_document(store)
    for name, document in (("history", history), ("summary", tune_document(store, state))):
        write_text(folder / f"{name}.json", json_text(document))
        yield name, f"{paths.ARTIFACTS}/{name}.json"
    if state.best is not None or (state.result or {}).get("best"):
        try:
            file, text = standalone(store, state)
        except WarpdeckError as error:
            message("warning", f"no standalone kernel: {error}")
        else:
            write_text(folder / file, text)
            yield "best", f"{paths.ARTIFACTS}/{file}"
    if (state.info and state.info.device and state.info.device.recorded) and not history["attempts"]:
        return  # a recording's kernel may not even be here
    try:
        yield from write_outputs(store, state, history["attempts"])
    except UsageError as error:
        message("warning", f"not all outputs were written: {error}")
    except OSError as error:
        raise WarpdeckError(f"can't write {error.filename or folder}: {error.strerror}") from None


def json_text(document: Mapping[str, Any]) -> str:
    """Indented JSON with a final newline."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises WarpdeckError if the disk is full or can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as partial:
            partial.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WarpdeckError(f"can't write {path}: {error.strerror}") from None
