"""One traced launch: guarded rows, readings of both clocks around it, results to shared files.

Runs in a worker only, but for the sizes, which the run process needs to make the files.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...telemetry.trace import layout
from ..model import CacheMode
from . import gpu as gpu_module
from .buffers import GUARD_BYTE, Buffer, Digests
from .gpu import Gpu, Operation, check, pack
from .lane import Lane
from .measure import Meter, Subject

EDGES = 32  # steps of globaltimer that each SM reads before the launch, and again after it
_SPACING_CYCLES = 2000  # between two of them: every SM's block must start before the first one ends
_WARMUP = 10
_ROW_GUARD = 16
NOT_TRACED = (0, 0, 0, 0)  # a descriptor


def row_bytes(capacity: int) -> int:
    """Bytes from one row to the next: header, records, and guard bytes up to the next row's alignment."""
    return -(-(layout.HEADER_BYTES + layout.RECORD_BYTES * capacity) // 16) * 16 + _ROW_GUARD


def anchors_bytes(blocks: int) -> int:
    """Bytes of all readings of the clocks, those before the launch and then those after it."""
    return 2 * 2 * EDGES * blocks * layout.ANCHOR.itemsize


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
        size = row_bytes(int(spec["capacity"]))
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

    def free(self) -> None:
        """Give the memory back."""
        self.rows.free()
        self._digests.free()


def trace_once(meter: Meter, subject: Subject, tracer: Tracer, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Warm up, then launch once between two readings of the clocks on every SM.

    The launch is like any checked one: outputs are poisoned, `inout` restored, workspaces zeroed. Rows and
    readings end in the payload's `files`. Returns `trace_damage` and `sm_count`.
    """
    lane, binding = meter.lane, subject.binding
    target = binding.ensure_sets(1)[0]
    binding.fill(target, int(payload["seed"]))
    cold = [lane.sweep] if payload["cache"] == CacheMode.COLD else []
    blocks = int(payload["anchor_blocks"])
    memory = Buffer(lane.gpu, anchors_bytes(blocks))
    try:
        readings = [read_clocks(lane, memory.pointer + i * memory.nbytes // 2, blocks) for i in (0, 1)]
        meter.warm_up(subject, 1, _WARMUP)
        prepared = [tracer.clear(), *target.poison(), *subject.prepare(0), *cold]
        # Reading the clocks takes longer than queueing what follows: the launch doesn't wait for the host.
        lane.untimed([*prepared, readings[0], *subject.launches(0), readings[1]])
        copy_out(lane.gpu, tracer.rows, payload["files"]["rows"])
        copy_out(lane.gpu, memory, payload["files"]["anchors"])
    finally:
        memory.free()
    return {"trace_damage": tracer.damage(), "sm_count": lane.sm_count}


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
