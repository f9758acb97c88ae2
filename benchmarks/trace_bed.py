"""What the benchmarks of tracing share: kernels of their own, launched and traced in this process."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import warpdeck
from warpdeck.core.devices.probe import read_rows
from warpdeck.core.errors import WarpdeckError
from warpdeck.core.lock import gpu_lock
from warpdeck.core.toolchain import Compiled, compile_cuda
from warpdeck.core.toolchain.abi import pack_arguments
from warpdeck.core.worker import gpu as gpu_module
from warpdeck.core.worker.buffers import Buffer, Parameter
from warpdeck.core.worker.clocks import CuptiClock
from warpdeck.core.worker.cupti import CuptiError, KernelRecords
from warpdeck.core.worker.gpu import Gpu, Operation, check
from warpdeck.core.worker.lane import HELPER_ENTRIES, Batch, Lane
from warpdeck.core.worker.measure import split_blocks
from warpdeck.core.worker.trace import Tracer, Watch, anchor_blocks, anchors_bytes, copy_out, read_clocks
from warpdeck.telemetry.trace import layout
from warpdeck.telemetry.trace.readings import begun_beside
from warpdeck.telemetry.trace.timeline import RawTrace

MARKS = Path(__file__).parent / "workloads" / "marks"
_HELPERS = Path(warpdeck.__file__).parent / "core" / "worker" / "helpers.cu"
ALL_WARPS = 0xFFFFFFFF
Array = NDArray[Any]


class Bed:
    """A context of this process on the first GPU, with our kernels loaded. Close every device before."""

    def __init__(self) -> None:
        os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = (
            "1"  # as a worker's: what reads clocks starts after the launch
        )
        self._resources = contextlib.ExitStack()
        self._folder = Path(self._resources.enter_context(tempfile.TemporaryDirectory()))
        cupti = None
        with contextlib.suppress(CuptiError):  # then event pairs do
            cupti = CuptiClock(KernelRecords())  # before CUDA starts
        self.gpu = Gpu(0)
        self._resources.enter_context(gpu_lock(self.gpu.uuid, 10.0))
        self.gpu.open()
        self.info = self.gpu.info()
        major, minor = self.info["compute_capability"]
        self.cc = (int(major), int(minor))
        helpers = compile_cuda(_HELPERS.read_text(encoding="utf-8"), _HELPERS.name, self.cc)
        self.gpu.load("helpers", helpers.cubin, HELPER_ENTRIES)
        self.lane = Lane(self.gpu, cupti, self.info["l2_bytes"])
        self._blocks = anchor_blocks(self.info)
        self._anchors = [Buffer(self.gpu, anchors_bytes(self._blocks) // 2) for _ in range(2)]
        self._watch = Watch(self.lane)

    def __enter__(self) -> Bed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def load(self, key: str, compiled: Compiled) -> None:
        """Load a module under a name."""
        self.gpu.load(key, compiled.cubin, list(compiled.entries.values()))

    def upload(self, array: Array) -> int:
        """Device memory with an array's contents."""
        pointer = int(check(gpu_module.driver.cuMemAlloc(max(array.nbytes, 16)), "memory"))
        check(gpu_module.driver.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes), "upload")
        return pointer

    def download(self, pointer: int, shape: Sequence[int], dtype: str) -> Array:
        """An array of what lies at a device address."""
        array = np.empty(tuple(shape), dtype)
        check(gpu_module.driver.cuMemcpyDtoH(array.ctypes.data, pointer, array.nbytes), "download")
        return array

    def fill(self, pointer: int, nbytes: int, byte: int = 0) -> Operation:
        """An operation that fills memory."""
        return Operation(gpu_module.driver.cuMemsetD8Async, (pointer, byte, nbytes, self.gpu.stream))

    def free(self, pointer: int) -> None:
        """Give memory back."""
        gpu_module.driver.cuMemFree(pointer)

    def launch(
        self,
        key: str,
        symbol: str,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Parameter],
        pointers: dict[str, int],
        *,
        language: str = "cuda",
        shared: int = 0,
        trace: Sequence[int] = (),
    ) -> Operation:
        """A packed launch; `trace` is the descriptor that a traced kernel takes last."""
        packed = pack_arguments(
            language,
            arguments,
            pointers,
            {a.name: a.shape for a in arguments},
            {a.name: a.value for a in arguments if a.kind == "scalar"},
            trace,
        )
        return self.gpu.launch(key, symbol, grid, block, shared, packed)

    def tracer(self, ctas: int, warps: int, capacity: int) -> Tracer:
        """Rows for all warps of all CTAs."""
        spec = {"rows": ctas * warps, "capacity": capacity, "cta_first": 0, "cta_stride": 1}
        return Tracer(self.gpu, {**spec, "cta_count": ctas, "warp_mask": (1 << warps) - 1})

    def trace(
        self,
        launch: Callable[[Sequence[int]], Operation],
        ctas: int,
        warps: int,
        capacity: int,
        stages: Sequence[str],
        *,
        before: Sequence[Operation] = (),
        warmups: int = 3,
    ) -> RawTrace:
        """Trace one launch of all warps, and read the clocks around it. Raises if a guard was damaged."""
        tracer = self.tracer(ctas, warps, capacity)
        try:
            operation = launch(tracer.descriptor)
            for _ in range(warmups):
                self.lane.untimed([*before, operation])
            clocks = [read_clocks(self.lane, anchors.pointer, self._blocks) for anchors in self._anchors]
            watch = self._watch
            ready = [tracer.clear(), *before, *watch.clear()]
            first = watch.fits([operation])
            while True:
                watched = watch.beside([operation], first=first)
                self.lane.untimed([*ready, clocks[0], *watched, clocks[1]])
                damage = tracer.damage()
                if damage:
                    raise WarpdeckError(damage)
                raw, beside = self._read(tracer, ctas * warps, capacity, stages)
                if not first or begun_beside(beside, raw.headers):
                    return raw
                first = False
        finally:
            tracer.free()

    def _read(
        self, tracer: Tracer, rows: int, capacity: int, stages: Sequence[str]
    ) -> tuple[RawTrace, Array]:
        before, after = self._anchors
        buffers = {"rows": tracer.rows, "before": before, "after": after, "watch": self._watch.readings}
        for name, buffer in buffers.items():
            path = self._folder / name
            path.write_bytes(bytes(buffer.nbytes))
            copy_out(self.gpu, buffer, str(path))
        headers, records = read_rows(self._folder / "rows", rows, capacity)
        parts = [np.fromfile(self._folder / name, layout.ANCHOR) for name in ("before", "after", "watch")]
        anchors = np.concatenate(parts)
        return RawTrace(headers, records, anchors[anchors["time"] > 0], tuple(stages)), parts[2]

    def pair(
        self, a: Sequence[Operation], b: Sequence[Operation], blocks: int, *, cold: bool = True
    ) -> tuple[Array, Array]:
        """A B B A and B A A B by turns: milliseconds of each, [blocks, 2], of the last operation alone."""
        around = [self.lane.sweep] if cold else []
        for _ in range(3):
            self.lane.untimed([*a, *b])
        samples: list[float] = []
        while len(samples) < 4 * blocks:
            done = len(samples) // 4

            def build(done: int = done) -> Batch:
                batch = Batch(self.lane)
                cost = 2 * (len(a) + len(b)) + 4 * (len(around) + 2)
                for block in range(done, min(blocks, done + max(1, batch.room // cost))):
                    for side in (a, b, b, a) if block % 2 == 0 else (b, a, a, b):
                        batch.add([*side[:-1], *around])
                        batch.sample(side[-1:])
                return batch

            samples += self.lane.run(build)[0].tolist()
        return split_blocks(np.array(samples))


def markdown(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table."""
    print("| " + " | ".join(headers) + " |")
    print("|" + "---|" * len(headers))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print(flush=True)


def percent(ratio: float) -> str:
    """A ratio as its distance from 1."""
    return f"{(ratio - 1) * 100:+.2f}%"
