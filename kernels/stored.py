"""Traces and profiles that lie beside recordings: which there are, and what each is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..core.devices import stored_counters
from ..core.errors import UsageError
from ..core.tracing import SUFFIX
from ..telemetry.trace import store
from ..telemetry.trace.errors import TraceError
from .loader import BUNDLED
from .recordings import recording_files

_SUFFIXES = {"trace": SUFFIX, "profile": stored_counters.SUFFIX}


@dataclass(frozen=True)
class Stored:
    """A trace or a profile of a recorded device. `error` says what is wrong with a damaged file."""

    kind: str  # "trace" or "profile", as the command that shows it
    path: Path
    bundled: bool
    bytes: int
    device: str  # "recorded:h200"
    workload: str | None = None
    variant: str | None = None
    case: str | None = None
    gpu: str | None = None
    date: str | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {**asdict(self), "path": str(self.path)}


def list_stored(workload: str | None = None) -> list[Stored]:
    """Those of a workload, or all: bundled ones first, each group by kind and name.

    Only beside a recording of the same device's name, where the device finds them.
    """
    places = dict.fromkeys((file.parent, file.name.split("-", 1)[0]) for file in recording_files())
    files = [
        (kind, path, name)
        for folder, name in places
        for kind, suffix in _SUFFIXES.items()
        for path in folder.glob(f"{name}-{workload or ''}*{suffix}")
    ]
    found = [_described(*file) for file in files]
    ours = [s for s in found if workload is None or s.workload in (None, workload)]
    return sorted(ours, key=lambda s: (not s.bundled, s.kind, s.path.name))


def _described(kind: str, path: Path, name: str) -> Stored:
    about = Stored(kind, path, path.is_relative_to(BUNDLED), path.stat().st_size, f"recorded:{name}")
    try:
        meta: Mapping[str, Any] = (store if kind == "trace" else stored_counters).load(path).meta
    except (TraceError, UsageError) as error:
        return replace(about, error=str(error))
    known = {key: meta.get(key) for key in ("workload", "variant", "case", "date")}
    return replace(about, **known, gpu=(meta.get("device") or {}).get("name"))
