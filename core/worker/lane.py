"""The queue in front of the GPU: hold the stream, enqueue a batch, let it go, read the clock.

Everything in a batch is queued before its first operation runs, so that no sample waits for the host. Runs
in a worker only.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model import Status
from . import gpu as gpu_module
from .clocks import CuptiClock, EventClock
from .faults import WorkerFault
from .gpu import Gpu, Operation, check, pack
from .records import RecordMismatch

MAX_OPERATIONS = 256
_HOLD_NS = 1_000_000_000
_CLOCK_SPAN_NS = 40_000
_TRIES = 3
HELPER_ENTRIES = (
    *("wd_hold", "wd_clock", "wd_empty", "wd_sweep", "wd_l2", "wd_copy", "wd_fma"),
    *("wd_digest", "wd_anchors", "wd_watch"),
)


class Batch:
    """Operations in order, some of them marked as samples. May be run again."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.operations: list[Operation] = []
        self.names: list[str] = []
        self.marks: list[tuple[int, int]] = []  # samples, as ranges of `names`
        if lane.events:
            lane.events.reset()

    @property
    def room(self) -> int:
        """Operations that still fit; the hold and the two clock kernels are counted already."""
        return MAX_OPERATIONS - 3 - len(self.operations)

    def add(self, operations: Sequence[Operation]) -> None:
        """Queue without timing."""
        for operation in operations:
            self.operations.append(operation)
            self.names.extend(operation.names)

    def sample(self, operations: Sequence[Operation]) -> None:
        """Queue one timed group: its kernels, from the first start to the last end."""
        first = len(self.names)
        events, gpu = self._lane.events, self._lane.gpu
        if events:
            self.add([events.mark(gpu), *operations, events.mark(gpu)])
        else:
            self.add(operations)
        self.marks.append((first, len(self.names)))


class Lane:
    """Runs batches on one GPU, by CUPTI's clock where it works, else by event pairs."""

    def __init__(self, gpu: Gpu, cupti: CuptiClock | None, l2_bytes: int) -> None:
        d = gpu_module.driver
        self.gpu = gpu
        self._cupti = cupti
        self._events = EventClock()
        self._by_events = cupti is None
        flags = d.CU_MEMHOSTALLOC_DEVICEMAP
        self._host = check(d.cuMemHostAlloc(256, flags), "mapped memory")
        device = int(check(d.cuMemHostGetDevicePointer(self._host, 0), "mapped memory"))
        self._flag = ctypes.c_uint32.from_address(int(self._host))
        self._expired = ctypes.c_uint32.from_address(int(self._host) + 4)
        self._cycles = (ctypes.c_uint64 * 4).from_address(int(self._host) + 64)
        ctypes.memset(int(self._host), 0, 256)
        self._ticket = ctypes.c_uint32(0)
        u64 = ctypes.c_uint64
        self._hold = self.helper("wd_hold", 1, 1, u64(device), u64(device + 4), self._ticket, u64(_HOLD_NS))
        self._clocks = [
            self.helper("wd_clock", 1, 1, u64(device + 64 + 16 * i), u64(_CLOCK_SPAN_NS)) for i in (0, 1)
        ]
        self.sm_count = gpu.attribute("MULTIPROCESSOR_COUNT")
        self.l2_bytes = max(l2_bytes, 1 << 20)
        self.sink = int(check(d.cuMemAlloc(256), "sink"))
        self._sweep: Operation | None = None
        self._event_floor: float | None = None

    @property
    def cupti(self) -> CuptiClock | None:
        """The clock in use, if it is CUPTI's."""
        return None if self._by_events else self._cupti

    @property
    def events(self) -> EventClock | None:
        """The clock in use, if it is made of events."""
        return self._events if self._by_events else None

    @property
    def clock(self) -> str:
        """The name of the clock in use: cupti or event."""
        return "event" if self._by_events else "cupti"

    def use_clock(self, clock: str) -> None:
        """Read times from "cupti" or "event" from now on. Nothing is recorded while events are in use.

        Raises WorkerFault where CUPTI doesn't work.
        """
        if clock == self.clock:
            return
        if self._cupti is None:
            raise WorkerFault(Status.UNSUPPORTED, "CUPTI doesn't work here: times come from events")
        self._by_events = clock == "event"
        self._cupti.use(not self._by_events)

    def helper(self, entry: str, blocks: int, threads: int, *values: Any) -> Operation:
        """A packed launch of one of our own kernels; `values` are ctypes values."""
        return self.gpu.launch("helpers", entry, (blocks, 1, 1), (threads, 1, 1), 0, pack(*values))

    def read(self, pointer: int, nbytes: int) -> Operation:
        """A launch that reads memory once, at full bandwidth."""
        u64 = ctypes.c_uint64
        return self.helper(
            "wd_sweep", 8 * self.sm_count, 256, u64(pointer), u64(nbytes // 16), u64(self.sink)
        )

    @property
    def sweep(self) -> Operation:
        """Reads twice the L2, so that it holds neither a candidate's data nor a dirty line."""
        if self._sweep is None:
            size = 2 * self.l2_bytes
            memory = check(gpu_module.driver.cuMemAlloc(size), "memory to sweep the L2 with")
            check(gpu_module.driver.cuMemsetD8Async(memory, 0, size, self.gpu.stream), "sweep memory")
            self.gpu.synchronize()
            self._sweep = self.read(int(memory), size)
        return self._sweep

    def untimed(self, operations: Sequence[Operation]) -> None:
        """Run without a hold and wait."""
        for operation in operations:
            operation.queue()
        self.gpu.synchronize()

    def run(
        self, build: Callable[[], Batch], *, with_clock: bool = True, quick: bool = False
    ) -> tuple[NDArray[np.float64], float | None]:
        """Milliseconds of each sample of a batch, and the SM clock (MHz, the lower of before and after).

        `build` is called again if the records don't match or the hold expired: three times, then WorkerFault.
        `quick` takes the records without a forced flush.
        """
        problem = ""
        for _ in range(_TRIES):
            batch = build()
            try:
                return self._run(batch, with_clock, quick)
            except RecordMismatch as error:
                problem = str(error)
                time.sleep(0.01)
        raise WorkerFault(Status.RUNTIME_ERROR, f"timing failed {_TRIES} times: {problem}")

    def _run(self, batch: Batch, with_clock: bool, quick: bool) -> tuple[NDArray[np.float64], float | None]:
        self.hold()
        operations = batch.operations
        if with_clock:
            operations = [self._clocks[0], *operations, self._clocks[1]]
        try:
            for operation in operations:
                operation.queue()
        finally:
            self.release()
            self.gpu.synchronize()
        if self._expired.value == self._ticket.value:
            raise RecordMismatch("the host took longer than the hold lasts")
        if self.cupti:
            offset = 2 if with_clock else 1
            expected = ["wd_hold", *(name for op in operations for name in op.names)]
            marks = [(a + offset, b + offset) for a, b in batch.marks]
            samples = self.cupti.read(expected, marks, forced=not quick)
        else:
            assert self.events is not None
            samples = self.events.read(len(batch.marks))
        if not with_clock:
            return samples, None
        c = self._cycles
        return samples, min(c[0] / max(c[1], 1), c[2] / max(c[3], 1)) * 1e3

    def hold(self) -> None:
        """Queue the kernel that keeps the stream waiting."""
        self._ticket.value += 1  # wraps; the kernel compares differences
        self._hold.queue()

    def release(self) -> None:
        """Let everything behind the hold run."""
        self._flag.value = self._ticket.value

    @property
    def event_floor_ms(self) -> float | None:
        """What an empty event pair around an empty kernel reads; None on CUPTI's clock."""
        if not self._by_events:
            return None
        if self._event_floor is None:
            empty = self.helper("wd_empty", 1, 32)

            def build() -> Batch:
                batch = Batch(self)
                for _ in range(50):
                    batch.sample([empty])
                return batch

            self._event_floor = float(np.median(self.run(build, with_clock=False)[0]))
        return self._event_floor
