"""Replay requests: one candidate on one case as a file that stands alone; `check --request FILE` runs it.

Beside the requests lie the source and the reference that they name. Fields are those of the source's harness
where it had them (`source`, `kernel`, `grid`, `block`, `shared_memory_bytes`, `arguments`, `warmup`,
`iterations`, `device`, `mode`), and what a verdict needs besides.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import UsageError
from ..core.model import Candidate, Case, Launch
from ..core.workload import Argument, LaunchSpec, Variant, Workload
from .standalone_cuda import baked

FOLDER = "requests"  # among the artifacts
REFERENCE = "reference.py"
SCHEMA_VERSION = 1
WARMUP, ITERATIONS = 10, 100
_DIRECTIONS = {"in": "input", "out": "output", "inout": "inout"}


def write_requests(
    folder: Path,
    workload: Workload,
    variant: Variant,
    candidate: Candidate,
    cases: Sequence[Case],
    **run: Any,
) -> Iterator[Path]:
    """Write a request a case, with the source and the reference; yield the files.

    Args:
        folder: where to; created if need be.
        workload: whose reference decides; its variants have the candidate's.
        variant: the candidate's.
        candidate: what is run.
        cases: where it is launched.
        run: `session`, `device`, `seed`, `cache`.

    Raises:
        UsageError: the candidate isn't CUDA C++, or its source or the reference can't be read.
        OSError: the disk can't be written.
    """
    if variant.language != "cuda":
        raise UsageError(f"replay requests are for CUDA C++; {variant.name} is written in {variant.language}")
    folder.mkdir(parents=True, exist_ok=True)
    path = workload.folder / REFERENCE
    try:
        reference = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: can't be read: {error}") from None
    text, _ = baked(variant, candidate.config)
    source = folder / f"{candidate.id}.cu"
    source.write_text(text, encoding="utf-8")
    (folder / REFERENCE).write_text(reference, encoding="utf-8")
    for case in cases:
        launches = workload.launches(candidate, case)
        file = folder / f"{candidate.id}-{_plain(case.name)}.json"
        request = {
            **_head(workload, variant, candidate, case, run),
            "source": source.name,
            "reference": REFERENCE,
            **_launches(launches),
            "arguments": [_argument(a, workload, case) for a in workload.arguments if a.taken_by("cuda")],
        }
        file.write_text(json.dumps(request, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        yield file


def _head(
    workload: Workload, variant: Variant, candidate: Candidate, case: Case, run: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "id": f"{candidate.id}-{case.name}",
        "mode": "benchmark",
        "workload": workload.name,
        "session": run.get("session"),
        "variant": variant.name,
        "knobs": dict(candidate.config),  # baked into the source
        "precision": variant.precision,
        "case": {
            "name": case.name,
            "params": dict(case.params),
            "data": case.data,
            "exact": case.exact,
            "edge": case.edge,
        },
        "device": run.get("device", "cuda:0"),
        "cache": run.get("cache", "cold"),
        "seed": run.get("seed", 0),
        "warmup": WARMUP,
        "iterations": ITERATIONS,
        "tolerance": workload.tolerance_of(variant.name, case).to_json(),
        "floor": {"bytes": workload.min_bytes(case), "flops": workload.flops(case)},
        "origins": dict(workload.origins),
        "trust": str(workload.trust),
    }


def _launches(launches: Sequence[Launch]) -> dict[str, Any]:
    """Several launches of one candidate run in order; one also has the harness' own fields."""
    rows = [
        {
            "kernel": launch.entry,
            "grid": list(launch.grid),
            "block": list(launch.block),
            "shared_memory_bytes": launch.shared,
        }
        for launch in launches
    ]
    return {**(rows[0] if len(rows) == 1 else {}), "launches": rows}


def _argument(a: Argument, workload: Workload, case: Case) -> dict[str, Any]:
    if a.kind == "scalar":
        return {"name": a.name, "kind": "scalar", "type": a.dtype, "value": workload.scalars(case)[a.name]}
    shape = workload.shapes(case)[a.name]
    row = {
        "name": a.name,
        "kind": a.kind,
        "direction": _DIRECTIONS[a.direction],
        "type": a.dtype,
        "shape": list(shape),
        "bytes": math.prod(shape) * np.dtype(a.dtype).itemsize,
    }
    if a.kind == "buffer" and a.is_input:
        data = case.data or a.data
        if data.startswith("file:"):
            data = f"file:{(workload.folder / Path(data.removeprefix('file:')).expanduser()).resolve()}"
        row["data"] = data  # drawn by the request's seed, or read from that file
    return row


def _plain(name: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", name)


def spec_of(row: Mapping[str, Any]) -> LaunchSpec:
    """A request's launch. Raises KeyError, TypeError or ValueError for anything else."""
    grid, block = (tuple(str(int(n)) for n in row[key]) for key in ("grid", "block"))
    return LaunchSpec(str(row["kernel"]), grid, block, str(int(row.get("shared_memory_bytes", 0))))
