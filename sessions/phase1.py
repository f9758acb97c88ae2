"""The source document's phase 1 table: phase 0's rows with what hardware counters say of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.bench import performance_cases
from ..core.devices.base import Backend
from ..core.errors import WarpdeckError
from ..core.model import CacheMode, Candidate
from ..core.profiling import TIMEOUT_S, NcuFailure
from ..kernels.imported import open_workload
from ..kernels.recordings import open_device
from ..telemetry.ncu.counters import Counters
from ..telemetry.ncu.metrics import SEED
from . import phase0
from .spec import RunSpec
from .store import SessionStore

FILE = "phase1_result.csv"
COLUMNS = ("ok", "reason", *(f"{name}_{form}" for name in SEED for form in ("raw", "norm")))
_ALL_FINE = "ok"

Progress = Callable[[str, int, int], None]  # (what, done, total)
Read = Mapping[tuple[str, str], Counters | NcuFailure]  # by candidate's id and case


def rows(
    runs: Sequence[tuple[RunSpec, Path]],
    *,
    timeout_s: float = TIMEOUT_S,
    progress: Progress = lambda what, done, total: None,
) -> list[dict[str, Any]]:
    """Phase 0's columns of finished sweeps, and `COLUMNS`; also of configurations that failed.

    `{metric}_raw` is in percent, `{metric}_norm` 0..1; both are empty where `ok` is false, and `reason` says
    why. A failure of counters, even of all of them, is told in the rows.

    Args:
        runs: what was run, and its session's folder.
        timeout_s: time limit of one start of Nsight Compute.
        progress: told what is being done.
    """
    table: list[dict[str, Any]] = []
    for spec, folder in runs:
        with SessionStore.open(folder) as store:
            found = phase0.all_rows(store)
        wanted: dict[str, list[Candidate]] = {}
        for row in found:
            if not row.failure:
                wanted.setdefault(row.case, []).append(row.candidate)
        try:
            read, problem = _read(spec, wanted, timeout_s, progress), ""
        except WarpdeckError as error:
            read, problem = {}, str(error)
        table += [{**row.values, **_columns(row, read, problem)} for row in found]
    return table


def csv_text(table: Sequence[Mapping[str, Any]]) -> str:
    """The rows as CSV, in the document's schema."""
    return phase0.csv_text(table, COLUMNS)


def _read(spec: RunSpec, wanted: Mapping[str, list[Candidate]], timeout_s: float, progress: Progress) -> Read:
    """Counters of every candidate on its cases, one start of Nsight Compute a case."""
    workload = open_workload(spec.workload)
    cases = [case for case in performance_cases(workload, spec.sizes) if case.name in wanted]
    device = open_device(spec.device, allow_shared=spec.allow_shared)
    try:
        backend: Backend = device.prepare(
            workload, space=spec.space, cases=cases, seed=spec.seed, allow_shared=spec.allow_shared
        )
        read: dict[tuple[str, str], Counters | NcuFailure] = {}
        try:
            for number, case in enumerate(cases):
                progress(f"{workload.name} {spec.space} {case.name}: counters", number, len(cases))
                candidates = wanted[case.name]
                found = backend.counters(candidates, case, cache=CacheMode(spec.cache), timeout_s=timeout_s)
                read |= {(c.id, case.name): f for c, f in zip(candidates, found, strict=True)}
        finally:
            backend.close()
        return read
    finally:
        device.close()


def _columns(row: phase0.Row, read: Read, problem: str) -> dict[str, Any]:
    empty = dict.fromkeys(COLUMNS)
    found = read.get((row.candidate.id, row.case))
    if not isinstance(found, Counters):
        told = row.failure or problem or (found.text if found is not None else "no counters were read")
        return {**empty, "ok": False, "reason": " ".join(told.split())}
    missing = [f"{name}: {found.missing.get(name, 'missing')}" for name in SEED if name not in found.metrics]
    values: dict[str, Any] = {}
    for name in SEED:
        metric = found.metrics.get(name)
        if metric is not None:
            values |= {f"{name}_raw": metric.value, f"{name}_norm": metric.norm}
    return {**empty, "ok": not missing, "reason": "; ".join(missing) or _ALL_FINE, **values}
