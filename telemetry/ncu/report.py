"""Read Nsight Compute's reports."""

from __future__ import annotations

from pathlib import Path

from .counters import Counters
from .errors import bad_report


def read(
    path: Path | str,
    *,
    metric_set: str = "",
    ncu: str | None = None,
    timeout_s: float = 120.0,
) -> list[Counters]:
    """The launches of the report at `path` (`.ncu-rep`), in launch order.

    `metric_set`: the set that was asked for; what it names and the report lacks is in `missing`.
    `ncu`: the program that can print the report where the module `ncu_report` can't read it (None: the one
    on the PATH). `timeout_s`: for reading. Raises `NcuError`.
    """
    if not Path(path).is_file():
        raise bad_report(str(path), "there is no such file")
    raise NotImplementedError
