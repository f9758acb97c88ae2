"""The two clocks that a sample can be read from. Runs in a worker only."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import gpu as gpu_module
from .cupti import KernelRecords
from .gpu import Gpu, Operation, check
from .records import Record, RecordMismatch, by_start, latest, match, spans

_PATIENCE = 20  # flushes, a millisecond apart, until a batch's records are all there


class CuptiClock:
    """Start and end of each kernel's activity record: the kernel's own time, without a launch gap."""

    name = "cupti"

    def __init__(self, records: KernelRecords) -> None:
        self._records = records

    def use(self, wanted: bool) -> None:
        """Record kernels from now on, or don't."""
        (self._records.enable if wanted else self._records.disable)()

    def drain(self, *, forced: bool = True) -> list[Record]:
        """Take the records so far, by start: name, start, end (ns). `forced`: see `KernelRecords.drain`."""
        return by_start(self._records.drain(forced=forced))

    def read(
        self, expected: Sequence[str], marks: Sequence[tuple[int, int]], *, forced: bool = True
    ) -> NDArray[np.float64]:
        """Milliseconds of each marked group of launches of the latest batch. Raises RecordMismatch.

        A batch starts with its hold, so older records (warm-ups, checks) are told apart and dropped.
        """
        rows = self.drain(forced=forced)
        for _ in range(_PATIENCE):
            if len(latest(rows, expected[0])) >= len(expected):
                break
            time.sleep(0.001)
            rows = by_start(rows + self.drain())
        found = latest(rows, expected[0])
        match(found, expected)
        return spans(found, marks)


class EventClock:
    """Event pairs around each group of launches: they add some 3 us, which is measured and shown."""

    name = "event"

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._used = 0

    def mark(self, gpu: Gpu) -> Operation:
        """The operation that records the next event."""
        d = gpu_module.driver
        if self._used == len(self._events):
            self._events.append(check(d.cuEventCreate(0), "event"))
        event = self._events[self._used]
        self._used += 1
        return Operation(d.cuEventRecord, (event, gpu.stream))

    def reset(self) -> None:
        """Begin a new batch: events are used again from the first."""
        self._used = 0

    def read(self, samples: int) -> NDArray[np.float64]:
        """Milliseconds between each pair of events so far. Raises RecordMismatch."""
        if self._used < 2 * samples:
            raise RecordMismatch("fewer events than samples")
        elapsed = gpu_module.driver.cuEventElapsedTime
        pairs = zip(self._events[0 : 2 * samples : 2], self._events[1 : 2 * samples : 2], strict=True)
        return np.array([check(elapsed(a, b), "event times") for a, b in pairs], dtype=np.float64)
