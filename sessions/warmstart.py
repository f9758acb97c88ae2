"""`tune --from`: configurations to try first, from an earlier session or a result's file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.bench import performance_cases
from ..core.errors import UsageError
from ..core.model import Config
from ..core.recording import read_json
from ..core.space import SearchSpace
from ..kernels.imported import open_workload
from . import examples, paths
from .spec import RunSpec
from .store import SessionStore

MOST = 8


def starting_from(spec: RunSpec, source: str) -> RunSpec:
    """The spec with what did best in `source` tried first; see `first_configs`."""
    workload = open_workload(spec.workload)
    params = [case.params for case in performance_cases(workload, spec.sizes)]
    return replace(spec, first=first_configs(source, workload.space(spec.space), params))


def first_configs(source: str, space: SearchSpace, params: Iterable[Mapping[str, int]]) -> tuple[Config, ...]:
    """At most eight configurations that did best there and are valid here, best first.

    Args:
        source: a session's name, or a JSON file: what `tune --json` printed, summary.json, history.json.
        space: the space they must belong to.
        params: parameters of every case.

    Raises:
        UsageError: no such session or file, or nothing in it fits this space.
    """
    path = Path(source)
    found = _from_file(path) if path.is_file() and path.name != paths.DATABASE else _from_session(source)
    cases = list(params)
    fitting: dict[str, Config] = {}
    for config in found:
        if config.keys() == space.knobs.keys() and not any(space.why_invalid(config, p) for p in cases):
            ordered = {knob: config[knob] for knob in space.knobs}
            fitting.setdefault(space.key(ordered), ordered)
    if not fitting:
        raise UsageError(f"--from {source}: no configuration there is valid in the space '{space.name}'")
    return tuple(fitting.values())[:MOST]


def _from_session(name: str) -> Sequence[Config]:
    with SessionStore.open(examples.resolve(name)) as store:
        return [dict(entry.config) for entry in store.state().leaderboard]


def _from_file(path: Path) -> Sequence[Config]:
    document = read_json(path)
    try:
        if "evaluations" in document:  # history.json
            ranked = [e for e in document["evaluations"] if e.get("score_ms")]
            return [dict(e["config"]) for e in sorted(ranked, key=lambda e: e["score_ms"])]
        rows: list[Any] = [document["best"], *(document.get("finalists") or ())]
        return [dict(row["config"]) for row in rows] + [dict(c) for c in document.get("tied") or ()]
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{path}: not a result of `warpdeck tune --json`, nor a history.json") from None
