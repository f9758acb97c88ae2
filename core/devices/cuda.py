"""A CUDA GPU of this machine: its lock, its fork server, its compile processes, what it can do at best."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from ...telemetry import nvml
from ..check import Plans
from ..errors import NoDeviceError
from ..lock import gpu_lock
from ..model import Candidate, Case, DeviceInfo, Status
from ..server_process import has_driver
from ..toolchain.pool import CompilePool
from ..worker import ForkServer, WorkerFault, WorkerHandle
from ..worker.library import VendorWorker
from ..workload import Workload
from .cuda_backend import CudaBackend

_HELPERS = Path(__file__).resolve().parent.parent / "worker" / "helpers.cu"
_LOCK_WAIT_S = 5.0
_FLOORS_S = 60.0


class CudaDevice:
    """One GPU of this machine, locked while it is open.

    Args:
        index: CUDA's ordinal.
        allow_shared: measure although other processes use the GPU; results are labelled.
        plans: where to take check plans from.
        ahead: a whole run follows: start at once to import the vendor's library, and create the second
            context that it will need beside the first.

    Raises:
        NoDeviceError: no driver, no such device, or the CUDA packages aren't installed.
        WarpdeckError: another run holds the GPU.
    """

    def __init__(
        self, index: int = 0, *, allow_shared: bool = False, plans: Plans | None = None, ahead: bool = False
    ) -> None:
        _require_driver()
        self._index = index
        self._allow_shared = allow_shared
        self._resources = contextlib.ExitStack()
        self._helpers: bytes | None = None
        self._handles: list[WorkerHandle] = []  # those that have, or had, a context
        self._spares: deque[Future[WorkerHandle]] = deque()
        try:
            self.plans = plans or self._resources.enter_context(Plans())
            self._server = self._resources.enter_context(ForkServer())
            self.pool = self._resources.enter_context(CompilePool())
            self._background = self._resources.enter_context(ThreadPoolExecutor(2, "warpdeck-device"))
            self.vendor = VendorWorker(self._server, self._open)
            self._resources.callback(self.vendor.close)
            if ahead:
                self.vendor.begin()
            first = self._start(after_lock=lambda: self.spare(1) if ahead else None)
            self.settle()
            self.info = self._describe(first)
            self._spares.appendleft(_done(first))  # it ran nothing but our own kernels
        except BaseException:
            self.close()
            raise

    @property
    def cc(self) -> tuple[int, int]:
        """Compute capability."""
        assert self.info.compute_capability is not None
        return self.info.compute_capability

    def settle(self) -> None:
        """Wait for the contexts that are being created: none is while something is timed."""
        wait(self._spares)

    def spawn(self) -> WorkerHandle:
        """A fresh worker: its own process and context, ready to measure. Nobody ran anything in it."""
        self.settle()
        while self._spares:
            spare = self._spares.popleft()
            if spare.exception() is None and spare.result().alive:
                return spare.result()
        return self._start()

    def spare(self, count: int) -> None:
        """Begin to create contexts for the next `spawn`s, while nothing is timed."""
        for _ in range(count - len(self._spares)):
            self._spares.append(self._background.submit(self._start))

    def pids(self) -> set[int]:
        """Process ids of the workers that have a context."""
        self._handles = [handle for handle in self._handles if handle.alive]
        return {handle.pid for handle in self._handles}

    def compile_ahead(self, workload: Workload, candidates: Sequence[Candidate], case: Case) -> None:
        """Compile what will be asked for later, while others measure; the results wait in the cache."""
        for candidate in candidates:
            self.pool.submit(workload, candidate, case, self.cc)

    def _start(self, after_lock: Callable[[], None] | None = None) -> WorkerHandle:
        handle = self._server.fork()
        try:
            self._open(handle, after_lock)
        except BaseException:
            handle.kill()
            raise
        return handle

    def _open(self, handle: WorkerHandle, after_lock: Callable[[], None] | None = None) -> None:
        """Create a forked worker's context. `after_lock`: take the GPU's lock, and call that then."""
        try:
            uuid = handle.start(self._index)
            if after_lock:  # before there is a context: its creation would disturb the holder's timing
                self._resources.enter_context(gpu_lock(uuid, _LOCK_WAIT_S))
                after_lock()
            self._handles.append(handle)
            handle.open()
            if self._helpers is None:
                major, minor = handle.info["compute_capability"]
                source = _HELPERS.read_text(encoding="utf-8")
                compiled = self.pool.submit_cuda(source, _HELPERS.name, (int(major), int(minor)))
                self._helpers = compiled.result().cubin
            handle.load_helpers(self._helpers)
        except WorkerFault as fault:
            handle.kill()
            if fault.status is Status.UNSUPPORTED:
                raise NoDeviceError(f"cuda:{self._index}: {fault.message}") from None
            raise

    def _describe(self, handle: WorkerHandle) -> DeviceInfo:
        facts = handle.info
        self.floors: dict[str, float] = handle.call("floors", {}, _FLOORS_S)
        self.clock: str = facts["clock"]
        self.limits: dict[str, Any] = facts
        return DeviceInfo(
            name=facts["name"],
            spec=f"cuda:{self._index}",
            uuid=facts["uuid"],
            compute_capability=(int(facts["compute_capability"][0]), int(facts["compute_capability"][1])),
            sm_count=facts["sm_count"],
            l2_bytes=facts["l2_bytes"],
            memory_bytes=facts["memory_bytes"],
            driver=nvml.driver_version() or f"CUDA {facts['cuda_version'] / 1000:g}",
            sm_clock_max_mhz=facts["sm_clock_max_mhz"],
            dram_gbs=facts["dram_gbs"],
            l2_gbs=self.floors["l2_read_gbs"],
            fp32_tflops=facts["fp32_tflops"],
            launch_floor_ms=self.floors["launch_ms"],
        )

    def prepare(
        self, workload: Workload, *, space: str, cases: Sequence[Case], seed: int, allow_shared: bool = False
    ) -> CudaBackend:
        """Make inputs and references ready, in the background. See `Device.prepare`."""
        return CudaBackend(self, workload, cases, seed, allow_shared=allow_shared or self._allow_shared)

    def close(self) -> None:
        """End every process and release the GPU's lock."""
        self._resources.close()


def _done(handle: WorkerHandle) -> Future[WorkerHandle]:
    future: Future[WorkerHandle] = Future()
    future.set_result(handle)
    return future


def _require_driver() -> None:
    """Fail at once, without starting a process, where there is no driver."""
    if not has_driver():
        raise NoDeviceError(
            "no CUDA driver here (libcuda.so.1 was not found); --device recorded:h200 works without one"
        )
