"""What else happened on the GPU around a measurement: throttling and other processes, as NVML tells.

Read by the run process strictly before and after what is timed, never in between.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...telemetry import nvml
from ...telemetry.readings import DISTURBING_REASONS, ComputeProcess

POWER_CAP = "software power cap"
_POWER = "power"  # its violation counter
_FRESH_S = 0.05  # counters take 3 ms to read: those read after the last measurement may serve for the next


@dataclass(frozen=True)
class Outcome:
    """`spoiled`: why the measurement must be discarded; `labels`: what is only said beside it."""

    spoiled: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    shared: bool = False  # another process was on the GPU


class Watch:
    """Brackets measurements on one GPU.

    Args:
        uuid: which GPU.
        allow_shared: other processes only label a result.
    """

    def __init__(self, uuid: str, *, allow_shared: bool = False) -> None:
        self._uuid = uuid
        self._allow_shared = allow_shared
        self._foreign: tuple[str, ...] = ()
        self._violations: dict[str, int] = {}
        self._read = -math.inf

    def before(self, workers: Collection[int]) -> None:
        """Note the counters; `workers` are all our processes that have a context."""
        if time.monotonic() - self._read > _FRESH_S:
            self._violations = nvml.violations(self._uuid)
        self._foreign = foreign(nvml.compute_processes(self._uuid), workers)

    def after(self, workers: Collection[int]) -> Outcome:
        """What happened since `before`."""
        now = set(nvml.clock_event_reasons(self._uuid) or ())
        counters = nvml.violations(self._uuid)
        spoiled = [f"{name} throttling" for name in disturbances(self._violations, counters)]
        spoiled += sorted(now & DISTURBING_REASONS)
        capped = counters.get(_POWER, 0) > self._violations.get(_POWER, 0) or POWER_CAP in now
        labels = [POWER_CAP] if capped else []
        listed = nvml.compute_processes(self._uuid)
        others = tuple(dict.fromkeys((*self._foreign, *foreign(listed, workers))))
        if others:
            text = f"GPU shared with {', '.join(others)}"
            (labels if self._allow_shared else spoiled).append(text)
        self._violations, self._read = counters, time.monotonic()
        return Outcome(tuple(dict.fromkeys(spoiled)), tuple(labels), bool(others))


def disturbances(before: Mapping[str, int], after: Mapping[str, int]) -> list[str]:
    """Which violation counters grew between two readings and so spoil a measurement: thermal, hardware and
    power-brake events. A software power cap is only worth a label."""
    return [name for name, value in after.items() if name != _POWER and value > before.get(name, value)]


def foreign(listed: list[ComputeProcess], workers: Collection[int]) -> tuple[str, ...]:
    """Descriptions of listed processes that aren't ours (a worker, this process, or a descendant of it).

    In a container NVML can list the host's process ids, or none. Where it lists none of our workers although
    they have contexts, ids mean nothing here and only their number is compared. A listed process that doesn't
    exist is one of ours that has just ended.
    """
    pids = {process.pid for process in listed}
    if workers and not pids & set(workers):
        extra = len(pids) - len(workers)
        return (f"{extra} other process{'es' if extra > 1 else ''}",) if extra > 0 else ()
    others = [
        p
        for p in listed
        if p.pid not in workers and Path(f"/proc/{p.pid}").exists() and not _descends(p.pid, os.getpid())
    ]
    return tuple(f"process {p.pid}" + (f" ({Path(p.name).name})" if p.name else "") for p in others)


def _descends(pid: int, ancestor: int) -> bool:
    """Whether a process is `ancestor` or was started, directly or not, by it."""
    for _ in range(64):
        if pid == ancestor:
            return True
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return False
        pid = int(stat.rpartition(")")[2].split()[1])
        if pid <= 1:
            return False
    return False
