"""One traced launch: guarded rows, readings of both clocks around it, results to shared files.

Runs in a worker only, but for the sizes, which the run process needs to make the files.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...telemetry.occupancy import LIMITS, fits_beside
from ...telemetry.trace import layout
from ...telemetry.trace.readings import begun_beside
from ..model import CacheMode
from . import gpu as gpu_module
from .buffers import GUARD_BYTE, Buffer, Digests
from .gpu import Gpu, Operation, check, pack
from .lane import Lane
from .measure import Meter, Subject

EDGES = 32  # steps of globaltimer that each SM reads before the launch, and again after it
_SPACING_CYCLES = 2000  # between two of them: every SM's block must start before the first one ends
WATCHED = 512  # steps that are read on an SM at most while the launch runs
_PERIOD_NS = 1024  # from one of them to the next at first, a power of two
_WATCH_NS = 2_000_000  # at most
_AHEAD_NS = 1500  # by which they begin before the launch, at least, where they can
_HALF_PERCENT = 57  # of an SM's memory as shared memory, so that about half is left for the L1
_WARMUP = 10
_ROW_GUARD = 16
NOT_TRACED = (0, 0, 0, 0)  # a descriptor


def row_bytes(capacity: int) -> int:
    """Bytes from one row to the next: header, records, and guard bytes up to the next row's alignment."""
    return -(-(layout.HEADER_BYTES + layout.RECORD_BYTES * capacity) // 16) * 16 + _ROW_GUARD


def anchors_bytes(blocks: int) -> int:
    """Bytes of all readings of the clocks, those before the launch and then those after it."""
    return 2 * 2 * EDGES * blocks * layout.ANCHOR.itemsize


def watch_bytes(sms: int) -> int:
    """Bytes of the readings beside the launch; of those that weren't made, all are 0."""
    return 2 * WATCHED * sms * layout.ANCHOR.itemsize


def anchor_blocks(facts: Mapping[str, Any]) -> int:
    """Blocks that fill every SM once, as each takes the most shared memory that a block may."""
    per_sm = int(facts["shared_per_sm_bytes"]) // max(int(facts["max_shared_bytes"]), 1)
    return int(facts["sm_count"]) * max(1, per_sm)


class Tracer:
    """What a traced kernel writes to.

    `spec`: `capacity`, `rows`, and the selection as in `layout.DESCRIPTOR`, with an odd `cta_stride`.
    """

    def __init__(self, gpu: Gpu, spec: Mapping[str, Any]) -> None:
        self._gpu = gpu
        self._row_bytes = size = row_bytes(int(spec["capacity"]))
        self.rows = Buffer(gpu, int(spec["rows"]) * size)
        descriptor = np.zeros(1, layout.DESCRIPTOR)
        for name in ("capacity", "cta_first", "cta_count", "warp_mask"):
            descriptor[name] = int(spec[name])
        descriptor["cta_inverse"] = layout.stride_inverse(int(spec["cta_stride"]))
        descriptor["rows"], descriptor["row_bytes"] = self.rows.pointer, size
        # What a traced kernel takes last: 32 bytes as four integers.
        self.descriptor: list[int] = descriptor.view("<u8").tolist()
        ranges = [
            (f"{where} the trace's rows", *guard)
            for where, guard in zip(("before", "after"), self.rows.guards, strict=True)
        ]
        self._digests = Digests(gpu, ranges)
        self._expected = self._digests.compute()

    def clear(self) -> Operation:
        """Fill the rows with the guard byte: whatever a launch doesn't write must still hold it."""
        arguments = (self.rows.pointer, GUARD_BYTE, self.rows.nbytes, self._gpu.stream)
        return Operation(gpu_module.driver.cuMemsetD8Async, arguments)

    def damage(self) -> str | None:
        """None, or where a launch wrote that it must not. Rows are looked at where they arrive."""
        changed = np.flatnonzero(self._digests.compute() != self._expected)
        return f"the trace wrote {self._digests.names[int(changed[0])]}" if changed.size else None

    def headers(self, path: str) -> NDArray[Any]:
        """Of the warps that began, in a file with the rows."""
        rows = np.memmap(path, np.uint8, "r", shape=(self.rows.nbytes // self._row_bytes, self._row_bytes))
        found = np.ascontiguousarray(rows[:, : layout.HEADER_BYTES]).view(layout.HEADER)[:, 0]
        return found[np.isin(found["magic"], (layout.MAGIC_OPEN, layout.MAGIC_CLOSED))]

    def free(self) -> None:
        """Give the memory back."""
        self.rows.free()
        self._digests.free()


def trace_once(meter: Meter, subject: Subject, tracer: Tracer, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Warm up, then launch once between two readings of the clocks on every SM, and beside further ones.

    The launch is like any checked one: outputs are poisoned, `inout` restored, workspaces zeroed. Rows and
    readings end in the payload's `files`. Returns `trace_damage` and `sm_count`.
    """
    lane, binding = meter.lane, subject.binding
    target = binding.ensure_sets(1)[0]
    binding.fill(target, int(payload["seed"]))
    cold = [lane.sweep] if payload["cache"] == CacheMode.COLD else []
    blocks, files = int(payload["anchor_blocks"]), payload["files"]
    memory, watch = Buffer(lane.gpu, anchors_bytes(blocks)), Watch(lane)
    try:
        readings = [read_clocks(lane, memory.pointer + i * memory.nbytes // 2, blocks) for i in (0, 1)]
        meter.warm_up(subject, 1, _WARMUP)
        launches = subject.launches(0)
        prepared = [tracer.clear(), *target.poison(), *subject.prepare(0), *cold]
        first = watch.fits(launches)
        while True:
            # Reading the clocks takes longer than queueing the rest: the launch doesn't wait for the host.
            watched = watch.beside(launches, first=first)
            lane.untimed([*prepared, *watch.clear(), readings[0], *watched, readings[1]])
            copy_out(lane.gpu, tracer.rows, files["rows"])
            copy_out(lane.gpu, watch.readings, files["watch"])
            beside = np.fromfile(files["watch"], layout.ANCHOR)
            if not first or begun_beside(beside, tracer.headers(files["rows"])):
                break
            first = False
        copy_out(lane.gpu, memory, files["anchors"])
    finally:
        watch.free()
        memory.free()
    return {"trace_damage": tracer.damage(), "sm_count": lane.sm_count}


class Watch:
    """Reads both clocks while a launch runs, by one more block of a warp on every SM, on a stream of its own.

    Where it surely has room beside the launch's blocks (`fits`) it may begin first. Else it is queued behind
    the launch, so that it takes no block's place, and starts on SMs that have room left. The order holds
    where all streams share one hardware queue (`CUDA_DEVICE_MAX_CONNECTIONS`), as a worker's do.
    """

    def __init__(self, lane: Lane) -> None:
        d = gpu_module.driver
        self._gpu = gpu = lane.gpu
        self._sms = lane.sm_count
        self.readings = Buffer(gpu, watch_bytes(lane.sm_count))
        # What a pause writes, 16 bytes; whether to stop; each SM's claim.
        self._words = Buffer(gpu, 16 + 4 * (1 + lane.sm_count))
        self._stop = self._words.pointer + 16
        self._stream = check(d.cuStreamCreate(d.CUstream_flags.CU_STREAM_NON_BLOCKING), "a stream")
        self._event = check(d.cuEventCreate(d.CUevent_flags.CU_EVENT_DISABLE_TIMING), "an event")
        u32, u64 = ctypes.c_uint32, ctypes.c_uint64
        values = pack(
            *(u64(self.readings.pointer), u32(WATCHED), u32(lane.sm_count), u32(_PERIOD_NS), u32(_WATCH_NS)),
            *(u64(self._stop + 4), u64(self._stop)),
        )
        grid = (4 * lane.sm_count, 1, 1)  # several may come to one SM
        self._watch = gpu.launch("helpers", "wd_watch", grid, (32, 1, 1), 0, values, self._stream)
        self._pause = lane.helper("wd_clock", 1, 1, u64(self._words.pointer), u64(_AHEAD_NS))

    def fits(self, launches: Sequence[Operation]) -> bool:
        """Whether an SM surely has room for it beside all the blocks of the launch that it would hold.

        Not if SMs may get unequally many blocks: with another kernel on them they do, without one they don't.
        Then it gets such a split of the SMs' memory in L1 and shared memory as the launch needs: SMs change
        that only when idle, and the launch would wait for it.
        """
        d, gpu = gpu_module.driver, self._gpu
        major, minor = (gpu.attribute(f"COMPUTE_CAPABILITY_{part}") for part in ("MAJOR", "MINOR"))
        limits = LIMITS.get((major, minor))
        if len(launches) != 1 or limits is None:
            return False
        function, registers, static = _needs(launches[0])
        x, y, z, *block, dynamic = (int(n.value) for n in launches[0].arguments[1:8])
        threads, shared = math.prod(block), static + dynamic
        most = d.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, dynamic)
        most = int(check(most, "a kernel's occupancy"))
        held = min(most, -(-x * y * z // self._sms))
        if 1 < held < most:
            return False
        own, own_registers, _ = _needs(self._watch)
        if not fits_beside((major, minor), registers, threads, shared, held, own_registers):
            return False
        # The driver gives a kernel twice the shared memory that its blocks need, or half of all if they don't
        # need more than that. More than the launch needs is no obstacle to it, less is.
        need = 100 * (most * (shared + limits.reserved) + limits.reserved) / limits.shared
        split = min(max(math.ceil(need), min(int(2 * need), _HALF_PERCENT)), 100)
        kind = d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        check(d.cuFuncSetAttribute(own, kind, split), "the split of the SMs' memory")
        return True

    def clear(self) -> list[Operation]:
        """What goes before."""
        clear = gpu_module.driver.cuMemsetD8Async
        buffers = (self.readings, self._words)
        return [Operation(clear, (b.pointer, 0, b.nbytes, self._gpu.stream)) for b in buffers]

    def beside(self, launches: Sequence[Operation], *, first: bool = False) -> list[Operation]:
        """The launches, watched if it is one: a second might have to wait until the watch leaves an SM.

        `first`: the watch begins before the launch, which must have room beside it.
        """
        if len(launches) != 1:
            return list(launches)
        d, main = gpu_module.driver, self._gpu.stream
        return [
            Operation(d.cuEventRecord, (self._event, main)),
            Operation(d.cuStreamWaitEvent, (self._stream, self._event, 0)),
            *([self._watch, self._pause, *launches] if first else [*launches, self._watch]),
            Operation(d.cuMemsetD8Async, (self._stop, 1, 1, main)),
            Operation(d.cuEventRecord, (self._event, self._stream)),
            Operation(d.cuStreamWaitEvent, (main, self._event, 0)),
        ]

    def free(self) -> None:
        """Give everything back."""
        gpu_module.driver.cuEventDestroy(self._event)
        gpu_module.driver.cuStreamDestroy(self._stream)
        self._words.free()
        self.readings.free()


def _needs(launch: Operation) -> tuple[Any, int, int]:
    """A launch's kernel, its registers a thread, and its bytes of static shared memory."""
    d = gpu_module.driver
    kinds, function = d.CUfunction_attribute, d.CUfunction(launch.arguments[0].value)
    registers, shared = (
        int(check(d.cuFuncGetAttribute(kind, function), "what a kernel needs"))
        for kind in (kinds.CU_FUNC_ATTRIBUTE_NUM_REGS, kinds.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)
    )
    return function, registers, shared


def read_clocks(lane: Lane, pointer: int, blocks: int) -> Operation:
    """The launch that reads both clocks on every SM, to `anchors_bytes` / 2 of memory."""
    values = (ctypes.c_uint64(pointer), ctypes.c_uint32(EDGES), ctypes.c_uint32(_SPACING_CYCLES))
    shared = lane.gpu.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    return lane.gpu.launch("helpers", "wd_anchors", (blocks, 1, 1), (32, 1, 1), shared, pack(*values))


def copy_out(gpu: Gpu, buffer: Buffer, path: str) -> None:
    """A buffer's bytes to a shared file. Raises WorkerFault; OSError or ValueError for the file."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), buffer.nbytes) as mapped:
        host = np.frombuffer(mapped, dtype=np.uint8)
        copy = gpu_module.driver.cuMemcpyDtoHAsync
        try:
            check(copy(host.ctypes.data, buffer.pointer, buffer.nbytes, gpu.stream), "copying the trace back")
            gpu.synchronize()
        finally:
            del host  # the mapping can't be closed while an array looks into it
