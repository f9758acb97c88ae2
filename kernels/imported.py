"""What stands for an imported recording: a workload of one space and one case, without any source."""

from __future__ import annotations

from pathlib import Path

from ..core import exchange
from ..core.errors import UsageError
from ..core.model import Case, Role, Status, Trust
from ..core.recording import Recording
from ..core.space import SearchSpace
from ..core.workload import Variant, Workload
from .loader import load_workload


def imported_workload(recording: Recording, file: Path) -> Workload:
    """The workload of an imported recording; its `folder` is the recording's file."""
    space = SearchSpace(
        recording.space,
        recording.variant,
        dict(recording.knobs),
        baseline=dict(recording.baseline.config),
        listed=tuple(e.config for e in recording.entries.values() if e.status is not Status.RESTRICTED),
    )
    variant = Variant(recording.variant, file, "recorded", recording.workload, (), recording.source_hash)
    return Workload(
        name=recording.workload,
        description=f"imported from {recording.origin.get('file', file.name)}",
        folder=file,
        trust=Trust.OWN,
        arguments=(),
        variants={variant.name: variant},
        spaces={space.name: space},
        cases=(Case(recording.case, Role.PERFORMANCE, dict(recording.params)),),
        sizes={},
        recorded=True,
    )


def open_workload(name_or_path: str) -> Workload:
    """As `load_workload`, and an imported recording's by its file.

    Raises:
        UsageError: as `load_workload` and `exchange.read`, or the recording is of a workload that is here.
    """
    path = Path(name_or_path).expanduser()
    if path.suffix not in (".json", ".gz") or not path.is_file():
        return load_workload(name_or_path)
    recording = exchange.read(path)
    if not recording.imported:
        raise UsageError(
            f"{path} is a recording of '{recording.workload}': name that, with --device recorded:{path}"
        )
    return imported_workload(recording, path)
