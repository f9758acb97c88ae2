"""The source document's phase 0 table: one row a configuration and size, as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.model import Candidate, Config, Status
from .database import odd_content
from .events import Kind
from .report import write_text
from .store import SessionStore

COLUMNS = (
    "kernel",
    "matrix_size",
    "block_size",
    "threads_per_block",
    "reg_cap",
    "est_regs",
    "actual_regs",
    "theor_occ",
    "time_ms_mean",
    "time_ms_std",
    "time_ms_min",
    "time_ms_max",
)
_KNOBS = ("block_size",)  # what the document's own table has between size and threads
_AFTER = COLUMNS.index("block_size")


@dataclass(frozen=True)
class Row:
    """A configuration's row for one case, and what it stands for. `failure`: why it has no times."""

    values: dict[str, Any]
    candidate: Candidate
    case: str
    failure: str = ""


def rows(store: SessionStore) -> tuple[list[dict[str, Any]], int]:
    """The table of one session, ordered by size and configuration, and how many failures it leaves out.

    `reg_cap` is 0 where the compiler is free, `est_regs` the registers of the same configuration without a
    cap (empty if that was not evaluated), `matrix_size` the case's name where it is no plain size. A
    configuration evaluated more than once has the row of its latest evaluation.
    """
    with odd_content(store.id):
        every = all_rows(store)
    failed = {row.candidate.id for row in every if row.failure}
    return [row.values for row in every if not row.failure], len(failed)


def all_rows(store: SessionStore) -> list[Row]:
    """Every configuration that a session evaluated, for every case, ordered as `rows` are."""
    state = store.state()
    latest: dict[str, Mapping[str, Any]] = {}
    for event in store.events(kinds=[Kind.EVALUATION]):
        latest[event.data["candidate"]] = event.data
    if state.baseline is not None and state.baseline.candidate not in latest:
        for event in store.events(kinds=[Kind.BASELINE]):
            latest[event.data["candidate"]] = event.data
    uncapped = {
        _without_cap(data): (data.get("resources") or {}).get("registers")
        for data in latest.values()
        if not data["config"].get("reg_cap", 0)
    }
    kernel = state.info.workload if state.info else store.id
    values = state.info.knobs if state.info else {}
    cases = [case.name for case in state.info.cases] if state.info else []
    order = {name: i for i, name in enumerate(cases)}
    table: list[tuple[Any, Row]] = []
    for data in latest.values():
        config, resources = data["config"], data.get("resources") or {}
        candidate = Candidate(data["variant"], dict(config), data["source_hash"])
        failed = data["status"] != Status.OK
        failure = f"{data['status']}: {data.get('message', '')}" if failed else ""
        rank = [_index(values.get(name, ()), value) for name, value in config.items()]
        for measured in [{"case": name} for name in cases] if failed else data["measurements"]:
            launch = (data.get("launches") or {}).get(measured["case"]) or []
            row = {
                "kernel": kernel,
                "matrix_size": measured["case"],
                **{name: value for name, value in config.items() if name != "reg_cap"},
                "threads_per_block": math.prod(launch[0]["block"]) if launch else None,
                "reg_cap": config.get("reg_cap", 0),
                "est_regs": uncapped.get(_without_cap(data)),
                "actual_regs": resources.get("registers"),
                "theor_occ": resources.get("occupancy"),
                **{f"time_ms_{name}": measured.get(f"{name}_ms") for name in ("mean", "std", "min", "max")},
            }
            place = (order.get(measured["case"], len(order)), rank)
            table.append((place, Row(row, candidate, measured["case"], failure)))
    table.sort(key=lambda item: item[0])
    return [row for _, row in table]


def csv_text(table: Sequence[Mapping[str, Any]], more: Sequence[str] = ()) -> str:
    """The rows of one or more sessions as CSV; `more`: columns after the document's own.

    The columns are the document's, exactly, where `block_size` and `reg_cap` are the only knobs. Another
    space has its own knobs in the place of `block_size`; of several spaces, all their knobs.
    """
    knobs = list(
        dict.fromkeys(
            name for row in table for name in row if name not in (*COLUMNS, *more) or name in _KNOBS
        )
    )
    if not table:
        knobs = list(_KNOBS)
    columns = [*COLUMNS[:_AFTER], *knobs, *COLUMNS[_AFTER + 1 :], *more]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for row in table:
        writer.writerow({name: "" if value is None else value for name, value in row.items()})
    return out.getvalue()


def export(stores: Iterable[SessionStore], target: Path) -> tuple[int, int]:
    """Write the table of several sessions; returns (rows written, failures left out).

    Raises WarpdeckError if the file can't be written.
    """
    table: list[dict[str, Any]] = []
    failures = 0
    for store in stores:
        more, failed = rows(store)
        table += more
        failures += failed
    write_text(target, csv_text(table))
    return len(table), failures


def _without_cap(data: Mapping[str, Any]) -> tuple[Any, ...]:
    config: Config = data["config"]
    return (data["variant"], *((k, v) for k, v in sorted(config.items()) if k != "reg_cap"))


def _index(values: Sequence[Any], value: Any) -> int:
    return values.index(value) if value in values else len(values)
