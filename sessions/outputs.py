"""The files that a run leaves for people and other tools: attempts, replay requests, the heatmap."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.model import Candidate, Case, Role
from ..core.workload import Workload
from . import attempts as tried
from . import heatmap, paths, requests
from .best import subject
from .choices import best_of
from .events import Kind
from .standalone_cuda import baked
from .state import RunState
from .store import SessionStore


def write_outputs(
    store: SessionStore, state: RunState, rows: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    """Write them into the session; yield (name, path below the session).

    Args:
        store: the session.
        state: of it.
        rows: its attempts, from `attempts.attempts`.

    Raises:
        UsageError: the workload or a source is gone, as far as they are needed; what was written stays.
        OSError: the disk can't be written.
    """
    artifacts = store.folder / paths.ARTIFACTS
    yield from _exchanges(store, artifacts / tried.FOLDER)
    yield from _heatmap(store, state, rows, artifacts)
    if state.info is None or (state.best is None and not state.result):
        return
    workload, _, _ = subject(store, state)
    yield from _sources(store, workload, rows, artifacts / tried.FOLDER)
    yield from _requests(store, state, workload, rows, artifacts / requests.FOLDER)


def _exchanges(store: SessionStore, folder: Path) -> Iterator[tuple[str, str]]:
    """What was sent to the model and what came back, a file for each attempt and direction."""
    sent: dict[str, str] = {}  # id: whose
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for event in store.events(kinds=[Kind.REQUEST, Kind.RESPONSE, Kind.TOOL]):
        data = dict(event.data)
        if event.kind == Kind.REQUEST:
            number = data.get("attempt")
            purpose = re.sub(r"\W+", "-", str(data.get("purpose") or "other")).strip("-")
            sent[str(data["id"])] = f"attempt-{int(number):03d}" if isinstance(number, int) else purpose
        kind = "request" if event.kind == Kind.REQUEST else "response"
        owner = sent.get(str(data.get("id")), "other")
        groups.setdefault((owner, kind), []).append({"t": event.t, "kind": event.kind, **data})
    if groups:
        folder.mkdir(parents=True, exist_ok=True)
    for (owner, kind), found in groups.items():
        file = folder / f"{owner}.{kind}.json"
        file.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        yield f"{owner} {kind}", _below(store, file)


def _sources(
    store: SessionStore, workload: Workload, rows: Sequence[Mapping[str, Any]], folder: Path
) -> Iterator[tuple[str, str]]:
    """Sources that were the workload's own, as one file each, knobs fixed; the others lie there already."""
    for row in rows:
        variant = workload.variants.get(str(row["variant"]))
        if row["source"] or variant is None or variant.language != "cuda" or row["config"] is None:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"attempt-{int(row['attempt']):03d}.cu"
        file.write_text(baked(variant, row["config"])[0], encoding="utf-8")
        yield f"attempt {row['attempt']} source", _below(store, file)


def _heatmap(
    store: SessionStore, state: RunState, rows: Sequence[Mapping[str, Any]], folder: Path
) -> Iterator[tuple[str, str]]:
    cases, found = heatmap.columns(store, rows)
    info = state.info
    if not found or info is None:
        return
    title = f"{info.workload}, agent {info.agent}, {state.device_label}"
    if str((info.data.get("origins") or {}).get("reference", "")).startswith("generated"):
        title += ", generated reference"
    drawing = heatmap.draw(cases, found, title)
    (folder / "heatmap.svg").write_text(drawing.svg(), encoding="utf-8")
    (folder / "heatmap.png").write_bytes(drawing.png())
    for suffix in ("svg", "png"):
        yield f"heatmap.{suffix}", f"{paths.ARTIFACTS}/heatmap.{suffix}"


def _requests(
    store: SessionStore,
    state: RunState,
    workload: Workload,
    rows: Sequence[Mapping[str, Any]],
    folder: Path,
) -> Iterator[tuple[str, str]]:
    """Of the best, and of every attempt that was launched."""
    info = state.info
    assert info is not None
    best = best_of(state)
    wanted = {str(best["candidate"]): best}
    wanted |= {str(row["candidate"]): row for row in rows if row["candidate"] and row["config"] is not None}
    cases = [Case(case.name, Role.PERFORMANCE, dict(case.params)) for case in info.cases]
    run = {
        "session": store.id,
        "device": info.device.spec if info.device else "auto",
        "seed": info.seed or 0,
        "cache": info.protocol.get("cache") or "cold",
    }
    for row in wanted.values():
        variant = workload.variants.get(str(row["variant"]))
        if variant is None or variant.language != "cuda":
            continue
        candidate = Candidate(variant.name, dict(row["config"]), variant.source_hash)
        try:
            for file in requests.write_requests(folder, workload, variant, candidate, cases, **run):
                if row["candidate"] == best["candidate"]:
                    yield f"request {file.stem}", _below(store, file)
        except UsageError:
            if row["candidate"] == best["candidate"]:
                raise  # others failed for this reason


def _below(store: SessionStore, file: Path) -> str:
    return file.relative_to(store.folder).as_posix()
