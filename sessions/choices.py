"""Which configuration of a session is the one to keep, for each of its cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..core.errors import UsageError
from ..core.model import Config, Status
from ..core.workload import Variant
from .events import Kind
from .state import RunState
from .store import SessionStore


@dataclass(frozen=True)
class Choice:
    """The fastest configuration of one case."""

    case: str
    params: Mapping[str, int]
    config: Config
    median_ms: float | None  # None: the device times nothing
    baseline_ms: float | None


def best_of(state: RunState) -> Mapping[str, Any]:
    """`candidate`, `variant` and `config` of the best: the result's, else the screening's.

    Raises UsageError if nothing worked.
    """
    found = (state.result or {}).get("best")
    if found:
        return found
    if state.best is None:
        raise UsageError("nothing in this session worked")
    return {"candidate": state.best.candidate, "variant": state.best.variant, "config": state.best.config}


def choose(store: SessionStore, state: RunState, variant: Variant) -> list[Choice]:
    """For each case the overall best, or a configuration whose interval there lies below the best's."""
    assert state.info is not None
    best = best_of(state)
    if state.info.device is not None and state.info.device.emulated:
        config = dict(best["config"])
        return [Choice(case.name, case.params, config, None, None) for case in state.info.cases]
    cases = {case.name: case for case in state.info.cases}
    overall: dict[str, dict[str, Any]] = {}
    fastest: dict[str, tuple[dict[str, Any], Config]] = {}
    for event in store.events(kinds=[Kind.EVALUATION]):
        data = event.data
        if data["status"] != Status.OK or data["variant"] != variant.name:
            continue
        if data["source_hash"] != variant.source_hash:
            raise UsageError(
                f"the source of variant '{variant.name}' has changed since session {store.id} was measured; "
                "restore it, or tune again"
            )
        for measured in data["measurements"]:
            case = measured["case"]
            if data["candidate"] == best["candidate"]:
                overall[case] = measured
            if case not in fastest or measured["median_ms"] < fastest[case][0]["median_ms"]:
                fastest[case] = (measured, data["config"])
    choices = []
    for name, (measured, config) in fastest.items():
        usual = overall.get(name)
        if usual is not None and not _clearly_faster(measured, usual):
            measured, config = usual, best["config"]
        baseline = state.baseline.medians_ms.get(name) if state.baseline else None
        choices.append(Choice(name, cases[name].params, dict(config), measured["median_ms"], baseline))
    return choices


def _clearly_faster(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    high = (one.get("ci95_ms") or [None, one["median_ms"]])[1]
    low = (other.get("ci95_ms") or [other["median_ms"], None])[0]
    return high < low
