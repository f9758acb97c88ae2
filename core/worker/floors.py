"""What a device can do at best, on the worker's own clock: launch, memory, arithmetic. Worker only."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from . import gpu as gpu_module
from .clocks import EventClock
from .gpu import Operation, check
from .lane import Batch, Lane

_LARGE_BYTES = 2 << 30  # far more than any L2
_SHARE = 4  # of the free memory, at most a quarter
_REPEATS = 15
_L2_BYTES = 8 << 20  # fits every L2 of a data-centre GPU; never more than a quarter of it
_L2_PASSES = 64
_FMA = 256  # multiply-adds of a thread in a round of `wd_fma`
_FMA_ROUNDS = 1000  # about 1 ms
_FMA_THREADS = 512  # two blocks an SM: eight warps a scheduler
_WAKE = 200  # launches, some 20 ms: the clocks of a GPU that was idle have to rise


def limits(lane: Lane) -> dict[str, float]:
    """What every result is compared with: the shortest launch (ms) and reading from the L2 (GB/s)."""
    d = gpu_module.driver
    small = min(_L2_BYTES, lane.l2_bytes // 4) // 4096 * 4096
    source = int(check(d.cuMemAlloc(small), "memory to read"))
    try:
        check(d.cuMemsetD8Async(source, 1, small, lane.gpu.stream), "memory to read")
        lane.gpu.synchronize()
        u64, passes = ctypes.c_uint64, ctypes.c_uint32(_L2_PASSES)
        l2 = lane.helper(
            "wd_l2", 4 * lane.sm_count, 512, u64(source), u64(small // 16), passes, u64(lane.sink)
        )
        lane.untimed([l2] * _WAKE)
        return {
            "launch_ms": float(np.median(_times(lane, lane.helper("wd_empty", 1, 32), 100))),
            "l2_read_gbs": _gbs(small * _L2_PASSES, _times(lane, l2, _REPEATS)),
        }
    finally:
        d.cuMemFree(source)


def floors(lane: Lane) -> dict[str, float]:
    """Milliseconds, GB/s (1e9 bytes a second; a copy counts what it reads and what it writes) and TFLOP/s.

    Rates are those of the fastest of 15 repeats, latencies medians.
    """
    d = gpu_module.driver
    free, _ = check(d.cuMemGetInfo(), "memory")
    size = min(_LARGE_BYTES, free // _SHARE // 2) // 4096 * 4096
    source = int(check(d.cuMemAlloc(size), "memory to read"))
    target = int(check(d.cuMemAlloc(size), "memory to write"))
    try:
        check(d.cuMemsetD8Async(source, 1, size, lane.gpu.stream), "memory to read")
        check(d.cuMemsetD8Async(target, 1, size, lane.gpu.stream), "memory to write")
        lane.gpu.synchronize()
        u64 = ctypes.c_uint64
        copy = lane.helper("wd_copy", 8 * lane.sm_count, 256, u64(source), u64(target), u64(size // 16))
        memcpy = Operation(d.cuMemcpyDtoDAsync, (target, source, size, lane.gpu.stream))
        return {
            **limits(lane),
            "event_pair_ms": _event_ms(lane, None, 50),
            "event_empty_ms": _event_ms(lane, lane.helper("wd_empty", 1, 32), 50),
            "dram_read_gbs": _gbs(size, _times(lane, lane.read(source, size), _REPEATS)),
            "dram_copy_kernel_gbs": _gbs(2 * size, _times(lane, copy, _REPEATS)),
            "dram_copy_memcpy_gbs": 2 * size / _event_ms(lane, memcpy, _REPEATS, np.min) / 1e6,
            "fp32_tflops": _fp32_tflops(lane),
        }
    finally:
        d.cuMemFree(source)
        d.cuMemFree(target)


def _fp32_tflops(lane: Lane) -> float:
    """Float32 multiply-adds from registers, two operations each."""
    blocks, rounds = 2 * lane.sm_count, ctypes.c_uint32(_FMA_ROUNDS)
    fma = lane.helper("wd_fma", blocks, _FMA_THREADS, rounds, ctypes.c_float(0.5), ctypes.c_uint64(lane.sink))
    operations = 2 * _FMA * _FMA_ROUNDS * blocks * _FMA_THREADS
    return operations / float(np.min(_times(lane, fma, _REPEATS))) / 1e9


def _gbs(nbytes: int, times_ms: np.ndarray) -> float:
    return nbytes / float(np.min(times_ms)) / 1e6


def _times(lane: Lane, operation: Operation, samples: int) -> np.ndarray:
    lane.untimed([operation] * 3)

    def build() -> Batch:
        batch = Batch(lane)
        for _ in range(samples):
            batch.sample([operation])
        return batch

    return lane.run(build, with_clock=False)[0]


def _event_ms(
    lane: Lane, operation: Operation | None, samples: int, pick: Callable[[np.ndarray], float] = np.median
) -> float:
    """By event pairs, whatever the lane's clock is: for what CUPTI's kernel records don't hold."""
    events = EventClock()
    operations = [] if operation is None else [operation]
    lane.hold()
    try:
        for _ in range(samples):
            for queued in (events.mark(lane.gpu), *operations, events.mark(lane.gpu)):
                queued.queue()
    finally:
        lane.release()
        lane.gpu.synchronize()
    return float(pick(events.read(samples)))
