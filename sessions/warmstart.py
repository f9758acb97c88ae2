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
    first = first_configs(source, workload.space(spec.space), params, workload.name)
    return replace(spec, first=first)


def first_configs(
    source: str, space: SearchSpace, params: Iterable[Mapping[str, int]], workload: str
) -> tuple[Config, ...]:
    """At most eight configurations that did best there and are valid here, best first.

    Args:
        source: a session's name, or a JSON file: what `tune --json` printed, summary.json, history.json.
        space: the space they must belong to.
        params: parameters of every case.
        workload: whose space it is.

    Raises:
        UsageError: no such session or file, or nothing in it fits this space.
    """
    path = Path(source)
    from_file = path.is_file() and path.name != paths.DATABASE
    found, of = _from_file(path) if from_file else _from_session(source)
    cases = list(params)
    fitting: dict[str, Config] = {}
    for config in found:
        if config.keys() == space.knobs.keys() and not any(space.why_invalid(config, p) for p in cases):
            ordered = {knob: config[knob] for knob in space.knobs}
            fitting.setdefault(space.key(ordered), ordered)
    if not fitting:
        if of not in (None, workload):
            raise UsageError(f"--from {source} is of workload '{of}', not '{workload}'")
        raise UsageError(f"--from {source}: {_misfit(found, space, cases)}")
    return tuple(fitting.values())[:MOST]


def _misfit(found: Sequence[Config], space: SearchSpace, cases: Sequence[Mapping[str, int]]) -> str:
    """Why none of these configurations is of a space."""
    if not found:
        return "nothing was measured there"
    here = f"the space '{space.name}'"
    if all(config.keys() != space.knobs.keys() for config in found):
        return f"its knobs are {', '.join(found[0])}, those of {here} {', '.join(space.knobs)}"
    reasons = (space.why_invalid(c, p) for c in found if c.keys() == space.knobs.keys() for p in cases)
    return f"no configuration there is valid in {here}; the first: {next(filter(None, reasons))}"


def _from_session(name: str) -> tuple[Sequence[Config], str | None]:
    with SessionStore.open(examples.resolve(name)) as store:
        return [dict(entry.config) for entry in store.state().leaderboard], store.header().get("workload")


def _from_file(path: Path) -> tuple[Sequence[Config], str | None]:
    """Its configurations, best first, and its workload's name, if it says it."""
    document = read_json(path)
    try:
        if "evaluations" in document:  # history.json
            ranked = [e for e in document["evaluations"] if e.get("score_ms")]
            return [dict(e["config"]) for e in sorted(ranked, key=lambda e: e["score_ms"])], None
        rows: list[Any] = [document["best"], *(document.get("finalists") or ())]
        found = [dict(row["config"]) for row in rows] + [dict(c) for c in document.get("tied") or ()]
        return found, document.get("workload")
    except (KeyError, TypeError, ValueError):
        raise UsageError(f"{path}: not a result of `warpdeck tune --json`, nor a history.json") from None
