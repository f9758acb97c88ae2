"""What an agent of sources tried, read from a session's log: its attempts, their sources, what they cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.model import Trust
from ..core.workload import LaunchSpec, Variant, Workload
from ..kernels.imported import open_workload
from ..kernels.loader import is_foreign, lone_hash, may_name
from . import paths
from .events import Kind
from .spec import RunSpec
from .store import SessionStore

FOLDER = "attempts"  # among the artifacts
_SOURCE_KEYS = ("parent", "idea", "summary", "variant", "candidate", "precision", "source", "repairs", "turn")


def attempts(store: SessionStore) -> list[dict[str, Any]]:
    """Every attempt in order, with its evaluation: what history.json lists as `attempts`.

    An attempt's keys: `attempt` (its number), `parent`, `repairs` (numbers or null), `turn` (the number under
    which its requests are, if not its own), `draft` (evaluated within a turn, before its answer), `idea`,
    `summary`, `variant`, `candidate`, `source` (a path below the session), `kept`, `verdict`, `reason` (why
    it was kept or not), `status`, `message`, `times_ms` (by case), `score_ms`, `speedup` (over the baseline),
    `usage` (tokens), `cost` (USD or null), `requests` (ids).
    """
    latest: dict[int, dict[str, Any]] = {}
    evaluations: dict[str, Mapping[str, Any]] = {}
    spent: dict[str, Any] = {}  # request id: attempt
    usage: dict[int, dict[str, Any]] = {}
    baseline: float | None = None
    kinds = (Kind.ATTEMPT, Kind.EVALUATION, Kind.BASELINE, Kind.REQUEST, Kind.RESPONSE)
    for event in store.events(kinds=kinds):
        data = event.data
        match event.kind:
            case Kind.ATTEMPT:
                latest.setdefault(int(data["attempt"]), {}).update(data)
            case Kind.EVALUATION:
                evaluations[str(data["candidate"])] = data
            case Kind.BASELINE:
                baseline = data.get("score_ms") or baseline
            case Kind.REQUEST:
                spent[str(data["id"])] = data.get("attempt")
            case _:
                _add(usage, spent.get(str(data["id"])), data)
    return [_attempt(row, evaluations, usage, baseline) for _, row in sorted(latest.items())]


def _add(usage: dict[int, dict[str, Any]], attempt: Any, response: Mapping[str, Any]) -> None:
    if not isinstance(attempt, int) or response.get("from_log"):  # given back, not paid again
        return
    found = usage.setdefault(attempt, {"usage": {}, "cost": None, "requests": []})
    for name, count in (response.get("usage") or {}).items():
        before = found["usage"].get(name, 0)
        found["usage"][name] = bool(before or count) if isinstance(count, bool) else before + (count or 0)
    if response.get("cost") is not None:
        found["cost"] = (found["cost"] or 0.0) + response["cost"]
    found["requests"].append(response["id"])


def _attempt(
    row: Mapping[str, Any],
    evaluations: Mapping[str, Mapping[str, Any]],
    usage: Mapping[int, Mapping[str, Any]],
    baseline: float | None,
) -> dict[str, Any]:
    evaluation = evaluations.get(str(row.get("candidate"))) or {}
    score = evaluation.get("score_ms")
    return {
        "attempt": row["attempt"],
        **{key: row.get(key) for key in _SOURCE_KEYS},
        "draft": bool(row.get("draft")),
        "kept": row.get("kept"),
        "verdict": row.get("verdict"),
        "status": evaluation.get("status"),
        "message": evaluation.get("message") or "",
        "reason": row.get("reason") or "",
        "config": evaluation.get("config"),
        "launches": evaluation.get("launches") or row.get("launches"),
        "times_ms": {m["case"]: m["median_ms"] for m in evaluation.get("measurements") or ()},
        "score_ms": score,
        "speedup": baseline / score if baseline and score else None,
        **usage.get(row["attempt"], {"usage": None, "cost": None, "requests": []}),
    }


def workload_of(store: SessionStore, name: str | None = None) -> Workload:
    """The workload of a session with the sources that it tried.

    Args:
        name: what it is called where the session's header doesn't say.

    Raises UsageError: it is gone, or an imported session names one that didn't come with it.
    """
    workload = open_workload(workload_named(store, name))
    return replace(workload, variants={**workload.variants, **_variants(store, workload)})


def workload_named(store: SessionStore, name: str | None = None) -> str:
    """The name or folder of a session's workload, to be opened; otherwise as `workload_of`."""
    stored = store.header().get("spec")
    asked = RunSpec.from_json(stored).workload if stored else str(name)
    moved = store.folder / paths.ARTIFACTS / Path(asked).name
    elsewhere = "/" in asked and (is_foreign(store.folder) or not Path(asked).exists())
    if elsewhere and (moved / "workload.toml").is_file():
        return str(moved)
    return may_name(store.folder, asked)


def _variants(store: SessionStore, workload: Workload) -> dict[str, Variant]:
    """The sources that came during the run, by the names they had on the bench."""
    found: dict[str, Variant] = {}
    for event in store.events(kinds=[Kind.ATTEMPT]):
        data = event.data
        source, name = data.get("source"), str(data.get("variant") or "")
        if not source or not name or name in workload.variants:
            continue
        file = (store.folder / str(source)).resolve()
        if not file.is_relative_to(store.folder.resolve()) or not file.is_file():
            continue
        try:
            launches = _launches(data.get("launch_specs"))
            special = {
                str(case): _launches(rows) for case, rows in (data.get("case_launch_specs") or {}).items()
            }
        except (AttributeError, KeyError, TypeError):
            raise UsageError(f"session {store.id} is damaged: event {event.seq} (attempt)") from None
        if launches:
            found[name] = Variant(
                name,
                file,
                "cuda",
                launches[0].entry,
                launches,
                lone_hash(file),
                trust=Trust.GENERATED,
                case_launches=special,
                precision=data.get("precision"),
            )
    return found


def _launches(rows: Any) -> tuple[LaunchSpec, ...]:
    return tuple(
        LaunchSpec(
            str(row["entry"]),
            tuple(str(text) for text in row["grid"]),
            tuple(str(text) for text in row["block"]),
            str(row.get("shared", 0)),
        )
        for row in rows or ()
    )
