"""The program that Nsight Compute or compute-sanitizer runs:
`python -m warpdeck.core.worker.profiled DEVICE OWNER SPEC`.

It opens a context on CUDA's device DEVICE and waits until the file SPEC is there, or the process OWNER is
not: starting takes longer than the work, so that it starts while its candidates are still being checked. One
context, no CUPTI, no hold on the stream. Each item of the specification (JSON) loads a cubin, fills its
case's buffers, launches as often as comes before the wanted launch, and makes that one between
cuProfilerStart and cuProfilerStop, which are what a tool started with profiling off reacts to. An item may
fail alone; a lost context ends the run. The last act is the completion marker: without it, whatever the tool
printed is no result.

Buffers are allocations of exactly their size and nothing is poisoned: a guard band would hide the first byte
outside from memcheck, and a fill would make outputs look written to initcheck.
"""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..model import Status
from ..toolchain.abi import pack_arguments
from . import gpu as gpu_module
from .faults import WorkerFault
from .gpu import Gpu, Operation, check
from .parameters import Parameter

_LOST = 3
_OPEN_S = 120  # to open a context
_POLL_S = 0.005


class Plain:
    """One case's buffers, holding one draw of its inputs.

    Args:
        gpu: with an open context.
        case: `arguments` and `seeds`, as `worker.session.Session.describe` gives them.
    """

    def __init__(self, gpu: Gpu, case: Mapping[str, Any]) -> None:
        self._gpu = gpu
        self._seeds: Mapping[str, Any] = case["seeds"]
        self.arguments = [Parameter(**{**a, "shape": tuple(a.get("shape", ()))}) for a in case["arguments"]]
        self.pointers: dict[str, int] = {}
        try:
            for a in self.arguments:
                if a.kind != "scalar":
                    what = f"allocating {a.nbytes / 1e6:.1f} MB"
                    self.pointers[a.name] = int(check(gpu_module.driver.cuMemAlloc(a.nbytes), what))
        except WorkerFault:
            self.free()
            raise

    def fill(self, draw: int, *, everything: bool = True) -> None:
        """Upload a draw's inputs and zero the workspaces; without `everything`, only what a launch may have
        changed."""
        inputs = self._seeds[str(draw)]
        for a in self.arguments:
            if a.kind == "workspace":
                check(
                    gpu_module.driver.cuMemsetD8Async(self.pointers[a.name], 0, a.nbytes, self._gpu.stream),
                    "zeroing a workspace",
                )
            elif a.kind == "buffer" and (a.direction == "inout" or (everything and a.direction == "in")):
                self._upload(a.name, a.nbytes, **inputs[a.name])

    def _upload(self, name: str, nbytes: int, path: str, offset: int) -> None:
        with (
            Path(path).open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped,
        ):
            host = (ctypes.c_char * nbytes).from_buffer(mapped, offset)
            try:
                copy = gpu_module.driver.cuMemcpyHtoDAsync(
                    self.pointers[name], ctypes.addressof(host), nbytes, self._gpu.stream
                )
                check(copy, "uploading inputs")
                self._gpu.synchronize()
            finally:
                del host  # else the file could not be unmapped

    def operations(self, code: str, language: str, launches: Sequence[Sequence[Any]]) -> list[Operation]:
        """A candidate's launches on these buffers."""
        parameters = pack_arguments(
            language,
            self.arguments,
            self.pointers,
            {a.name: a.shape for a in self.arguments},
            {a.name: a.value for a in self.arguments if a.kind == "scalar"},
        )
        return [
            self._gpu.launch(code, entry, grid, block, shared, parameters)
            for entry, grid, block, shared in launches
        ]

    def free(self) -> None:
        """Give the memory back."""
        for pointer in self.pointers.values():
            gpu_module.driver.cuMemFree(pointer)
        self.pointers.clear()


class Program:
    """One run over the items of a specification.

    Args:
        gpu: with an open context.
        spec: `invocation` (launches of each candidate before the wanted one),
            `cases` {key: {arguments, seeds}}, `items` [{code, cubin (a file), entries (symbols), language,
            key, draw, launches}], `progress` (a file for the number of the item at work).
    """

    def __init__(self, gpu: Gpu, spec: Mapping[str, Any]) -> None:
        self._spec = spec
        self._gpu = gpu
        self._bound: tuple[str, Plain] | None = None

    def run(self) -> tuple[list[dict[str, Any]], bool]:
        """What became of each item ({status, message, launched: symbols}), and whether the context lives."""
        outcomes: list[dict[str, Any]] = []
        for number, item in enumerate(self._spec["items"]):
            # Should the item hang or crash, this tells which one it was.
            Path(self._spec["progress"]).write_text(str(number), encoding="utf-8")
            launched: list[str] = []
            try:
                self._item(item, launched)
            except WorkerFault as fault:
                outcome = {"status": str(fault.status), "message": fault.message, "launched": launched}
                outcomes.append(outcome)
                if fault.fatal:
                    return outcomes, False
            else:
                outcomes.append({"status": str(Status.OK), "message": "", "launched": launched})
        return outcomes, True

    def _item(self, item: Mapping[str, Any], launched: list[str]) -> None:
        self._gpu.load(item["code"], Path(item["cubin"]).read_bytes(), item["entries"])
        buffers = self._buffers(item["key"])
        operations = buffers.operations(item["code"], item["language"], item["launches"])
        buffers.fill(item["draw"])
        for _ in range(int(self._spec["invocation"])):
            for operation in operations:
                operation.queue()
            self._gpu.synchronize()
            buffers.fill(item["draw"], everything=False)
        self._gpu.synchronize()
        check(gpu_module.driver.cuProfilerStart(), "starting the profiler")
        try:
            for operation in operations:
                operation.queue()
                launched += operation.names
            self._gpu.synchronize()
        finally:
            gpu_module.driver.cuProfilerStop()

    def close(self) -> None:
        """End the context, so that the tool reports what it has kept until then."""
        if self._bound is not None:
            self._bound[1].free()
        gpu_module.driver.cuDevicePrimaryCtxRelease(self._gpu.device)

    def _buffers(self, key: str) -> Plain:
        """A case's buffers; those of the case before go first."""
        if self._bound is None or self._bound[0] != key:
            if self._bound is not None:
                self._bound[1].free()
                self._bound = None
            self._bound = (key, Plain(self._gpu, self._spec["cases"][key]))
        return self._bound[1]


def given(path: Path, owner: int) -> dict[str, Any] | None:
    """The specification, once it is there; None if its owner ended before."""
    while not path.exists():
        try:
            os.kill(owner, 0)
        except ProcessLookupError:
            return None
        time.sleep(_POLL_S)
    return json.loads(path.read_text(encoding="utf-8"))


def main(device: int, owner: int, path: Path) -> int:
    """Run a specification; returns the process' exit code: 0 if the context lived to the end."""
    marker: dict[str, Any] = {"complete": False, "items": [], "fault": None}
    gpu: Gpu | None = None
    code = _LOST
    signal.alarm(_OPEN_S)
    try:
        opened = Gpu(device)
        opened.open()
        gpu = opened
    except WorkerFault as fault:
        marker["fault"] = {"status": str(fault.status), "message": fault.message}
    signal.alarm(0)
    spec = given(path, owner)
    if spec is None:
        return code
    # Should the tool and whoever started it be gone, a hung kernel must not hold the GPU for ever.
    signal.alarm(max(1, math.ceil(spec["limit_s"])))
    if gpu is not None:
        program = Program(gpu, spec)
        marker["items"], alive = program.run()
        if alive:
            program.close()
            code = 0
        marker["complete"] = True
    target = Path(spec["marker"])
    temporary = target.with_suffix(".part")
    temporary.write_text(json.dumps(marker), encoding="utf-8")
    temporary.replace(target)
    return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
