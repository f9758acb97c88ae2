"""The two clocks that a sample can be read from. Runs in a worker only."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import gpu as gpu_module
from .gpu import Gpu, Operation, check
from .records import RecordMismatch, match, spans

_BUFFER_BYTES = 512 << 10  # holds some 2,400 kernel records; a batch has 256
_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: buffers that aren't full are handed over too


class CuptiClock:
    """Start and end of each kernel's activity record: the kernel's own time, without a launch gap.

    Make it before CUDA is initialised. Raises ImportError or RuntimeError where CUPTI can't be used.
    """

    name = "cupti"

    def __init__(self) -> None:
        from cupti import cupti

        self._cupti = cupti
        self._rows: list[tuple[str, int, int]] = []
        dtype: Any = cupti.activity_kernel10_dtype
        self._size = int(dtype.itemsize)
        self._dtype = np.dtype(
            {
                "names": ["start", "end", "name"],
                "formats": ["<u8", "<u8", "<u8"],
                "offsets": [dtype.fields[field][1] for field in ("start", "end", "name")],
                "itemsize": self._size,
            }
        )
        cupti.activity_register_callbacks(lambda: (_BUFFER_BYTES, 0), self._completed)
        cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)

    def _completed(self, activities: list[Any]) -> None:
        kernels = [a for a in activities if isinstance(a, self._cupti.ActivityKernel10)]
        if not kernels:
            return
        # Reading a field through its attribute takes 2.5 us; records lie side by side, so copy them.
        first, size = kernels[0].ptr, self._size
        if kernels[-1].ptr - first == (len(kernels) - 1) * size:
            raw = ctypes.string_at(first, len(kernels) * size)
        else:
            raw = b"".join(ctypes.string_at(a.ptr, size) for a in kernels)
        names: dict[int, str] = {}
        for start, end, pointer in np.frombuffer(raw, dtype=self._dtype).tolist():
            if pointer not in names:
                names[pointer] = ctypes.string_at(pointer).decode() if pointer else ""
            self._rows.append((names[pointer], start, end))

    def drain(self, count: int | None = None) -> list[tuple[str, int, int]]:
        """Take the records so far (name, start, end in ns); waits a little until there are `count`."""
        self._cupti.activity_flush_all(_FORCED)
        for _ in range(20):
            if count is None or len(self._rows) >= count:
                break
            time.sleep(0.001)
            self._cupti.activity_flush_all(_FORCED)
        rows, self._rows = self._rows, []
        return rows

    def read(self, expected: Sequence[str], marks: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
        """Milliseconds of each marked group of launches. Raises RecordMismatch."""
        rows = self.drain(len(expected))
        starts = np.array([row[1] for row in rows], dtype=np.uint64)
        ends = np.array([row[2] for row in rows], dtype=np.uint64)
        return spans(match([row[0] for row in rows], starts, ends, expected), marks)


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
