"""Device memory of one case: master copies of the inputs, and the buffer sets that kernels see.

Every buffer is its own allocation with a guard band on each side. What a kernel must not change (guards,
inputs, the masters) is checked by digests, so that nothing large comes back to the host for it. Runs in a
worker only.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model import Status
from ..toolchain.abi import pack_arguments
from . import gpu as gpu_module
from .faults import WorkerFault
from .gpu import Gpu, Operation, Parameters, check
from .parameters import Parameter

GUARD_BYTES = 4096
GUARD_BYTE = 0xA5  # of memory that only tracing code writes to
# NaN in every floating-point type and no common integer: a kernel that reads beyond a buffer and uses what it
# finds there gets nothing that looks like a zero.
_GUARD = np.frombuffer(b"\xfb\xff\xfd\xff" * (GUARD_BYTES // 4), dtype=np.uint8)
_POISON_BYTE = 0xFF  # four of them are a NaN
_MAX_SETS = 8
_REGISTER_BYTES = 1 << 20  # smaller copies aren't worth pinning their pages


class Buffer:
    """`nbytes` of device memory at `pointer`, between two guard bands."""

    def __init__(self, gpu: Gpu, nbytes: int) -> None:
        d = gpu_module.driver
        self.nbytes = nbytes
        self._base = check(d.cuMemAlloc(nbytes + 2 * GUARD_BYTES), f"allocating {nbytes / 1e6:.1f} MB")
        self.pointer = int(self._base) + GUARD_BYTES
        for guard in self.guards:
            copy = d.cuMemcpyHtoDAsync(guard[0], _GUARD.ctypes.data, guard[1], gpu.stream)
            check(copy, "filling a guard band")

    @property
    def guards(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Address and size of both guard bands; the second starts at the byte after the last."""
        return (self.pointer - GUARD_BYTES, GUARD_BYTES), (self.pointer + self.nbytes, GUARD_BYTES)

    def free(self) -> None:
        """Give the memory back."""
        gpu_module.driver.cuMemFree(self._base)


class Digests:
    """Digests of memory ranges, computed on the device in one launch."""

    def __init__(self, gpu: Gpu, ranges: list[tuple[str, int, int]]) -> None:
        d = gpu_module.driver
        self.names = [name for name, _, _ in ranges]
        table = np.array([(address, size) for _, address, size in ranges], dtype=np.uint64)
        self._gpu = gpu
        self._table = check(d.cuMemAlloc(table.nbytes), "digest table")
        self._out = check(d.cuMemAlloc(8 * len(ranges)), "digest table")
        check(d.cuMemcpyHtoDAsync(self._table, table.ctypes.data, table.nbytes, gpu.stream), "digest table")
        largest = int(table[:, 1].max())
        blocks = max(1, min(512, largest // (8 * 256 * 4)))
        values = gpu_module.pack(ctypes.c_uint64(int(self._table)), ctypes.c_uint64(int(self._out)))
        self._launch = gpu.launch("helpers", "wd_digest", (blocks, len(ranges), 1), (256, 1, 1), 0, values)

    def compute(self) -> NDArray[np.uint64]:
        """One digest a range, in order. Waits for the stream."""
        d = gpu_module.driver
        out = np.empty(len(self.names), dtype=np.uint64)
        check(d.cuMemsetD8Async(self._out, 0, out.nbytes, self._gpu.stream), "digest")
        self._launch.queue()
        check(d.cuMemcpyDtoHAsync(out.ctypes.data, self._out, out.nbytes, self._gpu.stream), "digest")
        self._gpu.synchronize()
        return out

    def free(self) -> None:
        """Give the memory back."""
        gpu_module.driver.cuMemFree(self._table)
        gpu_module.driver.cuMemFree(self._out)


class Master:
    """The inputs of one seed, never shown to a kernel."""

    def __init__(self, gpu: Gpu, spec: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, int]) -> None:
        self.buffers = {name: Buffer(gpu, sizes[name]) for name in spec}
        for name, source in spec.items():
            host = np.memmap(
                source["path"], dtype=np.uint8, mode="r", offset=source["offset"], shape=(sizes[name],)
            )
            pointer = self.buffers[name].pointer
            check(
                gpu_module.driver.cuMemcpyHtoDAsync(pointer, host.ctypes.data, sizes[name], gpu.stream),
                "uploading inputs",
            )
            gpu.synchronize()  # before `host` goes
        ranges = [(name, b.pointer, b.nbytes) for name, b in self.buffers.items()]
        self.digests = Digests(gpu, ranges) if ranges else None
        self.expected = self.digests.compute() if self.digests else np.empty(0, np.uint64)

    def intact(self) -> str | None:
        """None, or the input whose master copy a kernel overwrote."""
        if self.digests is None:
            return None
        changed = np.flatnonzero(self.digests.compute() != self.expected)
        return self.digests.names[int(changed[0])] if changed.size else None

    def free(self) -> None:
        """Give the memory back."""
        for buffer in self.buffers.values():
            buffer.free()
        if self.digests:
            self.digests.free()


class BufferSet:
    """One allocation of every buffer that a kernel gets, holding the inputs of `seed`."""

    def __init__(self, gpu: Gpu, arguments: Sequence[Parameter]) -> None:
        self._gpu = gpu
        self.seed = -1
        self.buffers = {a.name: Buffer(gpu, a.nbytes) for a in arguments if a.kind != "scalar"}
        self.inputs = [a.name for a in arguments if a.kind == "buffer" and a.direction == "in"]
        self.outputs = [a.name for a in arguments if a.kind == "buffer" and a.direction == "out"]
        self.inout = [a.name for a in arguments if a.kind == "buffer" and a.direction == "inout"]
        self.workspaces = [a.name for a in arguments if a.kind == "workspace"]
        self.pointers = {name: buffer.pointer for name, buffer in self.buffers.items()}
        ranges = [
            (f"{where} {name}", *guard)
            for name, buffer in self.buffers.items()
            for where, guard in zip(("before", "after"), buffer.guards, strict=True)
        ]
        ranges += [(name, self.buffers[name].pointer, self.buffers[name].nbytes) for name in self.inputs]
        self._digests = Digests(gpu, ranges)
        self._guards = self._digests.compute()[: 2 * len(self.buffers)]

    def contents(self, master: Master) -> list[Operation]:
        """Copies that fill the inputs with a master's."""
        return [self._copy(name, master) for name in (*self.inputs, *self.inout)]

    def prepare(self, master: Master) -> list[Operation]:
        """What precedes every launch: `inout` restored, workspaces zeroed. Usually nothing."""
        return [self._copy(name, master) for name in self.inout] + [
            self._fill(name, 0) for name in self.workspaces
        ]

    def poison(self) -> list[Operation]:
        """Fills that make every output element wrong until it is written (NaN for floating point)."""
        return [self._fill(name, _POISON_BYTE) for name in self.outputs]

    def intact(self, master: Master) -> str | None:
        """None, or what a kernel overwrote that it must not: a guard band or an input."""
        found = self._digests.compute()
        guards = len(self._guards)
        overrun = np.flatnonzero(found[:guards] != self._guards)
        if overrun.size:
            where, name = self._digests.names[int(overrun[0])].split(" ", 1)
            return f"the kernel wrote outside its buffers ({where} {name})"
        expected = dict(zip(master.buffers, master.expected, strict=True))
        for name, value in zip(self.inputs, found[guards:], strict=True):
            if value != expected[name]:
                return f"the kernel changed its input {name}"
        return None

    def free(self) -> None:
        """Give the memory back."""
        for buffer in self.buffers.values():
            buffer.free()
        self._digests.free()

    def _copy(self, name: str, master: Master) -> Operation:
        target, source = self.buffers[name], master.buffers[name]
        arguments = (target.pointer, source.pointer, target.nbytes, self._gpu.stream)
        return Operation(gpu_module.driver.cuMemcpyDtoDAsync, arguments)

    def _fill(self, name: str, byte: int) -> Operation:
        buffer = self.buffers[name]
        return Operation(
            gpu_module.driver.cuMemsetD8Async, (buffer.pointer, byte, buffer.nbytes, self._gpu.stream)
        )


class Binding:
    """Everything one case needs on the device. Masters and sets are made when first used."""

    def __init__(self, gpu: Gpu, spec: Mapping[str, Any]) -> None:
        self._gpu = gpu
        self.arguments = [Parameter(**{**a, "shape": tuple(a.get("shape", ()))}) for a in spec["arguments"]]
        self._parameters: dict[tuple[str, int, tuple[int, ...]], Parameters] = {}
        self._seeds: dict[int, Mapping[str, Mapping[str, Any]]] = {}
        for seed, inputs in spec["seeds"].items():
            self.add_seed(int(seed), inputs)
        self._outputs: dict[str, dict[str, Any]] = dict(spec["outputs"])
        self._sizes = {a.name: a.nbytes for a in self.arguments if a.kind != "scalar"}
        self._masters: dict[int, Master] = {}
        self._mapped: dict[str, tuple[Any, NDArray[np.uint8]]] = {}
        self.sets: list[BufferSet] = []

    def parameters(self, language: str, index: int, trace: Sequence[int] = ()) -> Parameters:
        """Packed kernel parameters for one set, a traced kernel's with its descriptor."""
        key = (language, index, tuple(trace))
        if key not in self._parameters:
            self._parameters[key] = pack_arguments(
                language,
                self.arguments,
                self.sets[index].pointers,
                {a.name: a.shape for a in self.arguments},
                {a.name: a.value for a in self.arguments if a.kind == "scalar"},
                trace,
            )
        return self._parameters[key]

    def add_seed(self, seed: int, inputs: Mapping[str, Mapping[str, Any]]) -> None:
        """Offer one more draw of the inputs: {argument: {path, offset}}."""
        self._seeds[seed] = inputs

    @property
    def seeds(self) -> list[int]:
        """Draws there are to choose from."""
        return list(self._seeds)

    @property
    def set_bytes(self) -> int:
        """Size of one set without its guards."""
        return sum(self._sizes.values())

    def master(self, seed: int) -> Master:
        """The inputs of a seed, uploaded on first use."""
        if seed not in self._masters:
            if seed not in self._seeds:
                raise WorkerFault(Status.UNSUPPORTED, f"draw {seed} of the inputs isn't bound")
            self._masters[seed] = Master(self._gpu, self._seeds[seed], self._sizes)
        return self._masters[seed]

    def ensure_sets(self, wanted: int) -> list[BufferSet]:
        """At least one and at most `wanted` sets, as half of the free memory allows."""
        while len(self.sets) < min(wanted, _MAX_SETS):
            free, _ = check(gpu_module.driver.cuMemGetInfo(), "memory")
            if self.sets and self.set_bytes > free / 2:
                break
            made = BufferSet(self._gpu, self.arguments)
            self.sets.append(made)
            self.fill(made, self.seeds[(len(self.sets) - 1) % len(self._seeds)])
        return self.sets[: max(1, wanted)]

    def fill(self, target: BufferSet, seed: int) -> None:
        """Make a set hold a seed's inputs (queued on the stream)."""
        for operation in target.contents(self.master(seed)):
            operation.queue()
        target.seed = seed

    def rotation(self, l2_bytes: int) -> int:
        """Sets that cold timing rotates over, so that no launch finds its data in the L2."""
        return max(2, min(_MAX_SETS, -(-2 * l2_bytes // max(self.set_bytes, 1)) + 1))

    def intact(self, target: BufferSet) -> str | None:
        """None, or what was overwritten in this set, another one or the master copies."""
        others = [other for other in self.sets if other is not target]
        found = next((f for s in (target, *others) if (f := s.intact(self.master(s.seed)))), None)
        if found is None:
            for master in self._masters.values():
                name = master.intact()
                if name is not None:
                    return f"the kernel wrote outside its buffers (over another copy of {name})"
        return found

    def download(self, target: BufferSet) -> None:
        """Copy a set's outputs to the shared files. Raises WorkerFault."""
        for name, place in self._outputs.items():
            host = self._map(place["path"])[place["offset"] :]
            buffer = target.buffers[name]
            if len(host) < buffer.nbytes:
                raise WorkerFault(Status.RUNTIME_ERROR, f"the file for output {name} is too small")
            check(
                gpu_module.driver.cuMemcpyDtoHAsync(
                    host.ctypes.data, buffer.pointer, buffer.nbytes, self._gpu.stream
                ),
                "copying outputs back",
            )
        self._gpu.synchronize()

    def _map(self, path: str) -> NDArray[np.uint8]:
        if path not in self._mapped:
            with open(path, "r+b") as file:
                mapped = mmap.mmap(file.fileno(), 0)
            array = np.frombuffer(mapped, dtype=np.uint8)
            if array.nbytes >= _REGISTER_BYTES:
                # Pinned pages copy several times faster; where the kernel refuses, the copy still works.
                with contextlib.suppress(WorkerFault):
                    check(
                        gpu_module.driver.cuMemHostRegister(array.ctypes.data, array.nbytes, 0),
                        "pinning pages",
                    )
            self._mapped[path] = (mapped, array)
        return self._mapped[path][1]

    def free(self) -> None:
        """Give all device memory back."""
        for item in (*self.sets, *self._masters.values()):
            item.free()
        self.sets.clear()
        self._masters.clear()
        for _, array in self._mapped.values():
            if array.nbytes >= _REGISTER_BYTES:
                gpu_module.driver.cuMemHostUnregister(array.ctypes.data)
        self._mapped.clear()
