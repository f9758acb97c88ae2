"""A CUDA GPU of this machine: its lock, its fork server, its compile processes, what it can do at best."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...telemetry import nvml
from ..check import Plans
from ..errors import NoDeviceError
from ..lock import gpu_lock
from ..model import Candidate, Case, DeviceInfo, Status
from ..server_process import has_driver
from ..toolchain.pool import CompilePool
from ..worker import ForkServer, WorkerFault, WorkerHandle, Workers
from ..worker.library import VendorWorker
from ..workload import Workload
from .cuda_backend import CudaBackend

_HELPERS = Path(__file__).resolve().parent.parent / "worker" / "helpers.cu"
_LOCK_WAIT_S = 5.0
_FIRST_S, _OPEN_S = 60.0, 20.0  # for a step of creating a context: the first may have to wake the GPU
_MOST_SPARES = 12
_SPARE_BYTES = 8 << 30  # of device memory for each spare context that may wait, beside the first
_FLOORS_S = 60.0


class CudaDevice:
    """One GPU of this machine, locked while it is open.

    Args:
        index: CUDA's ordinal.
        allow_shared: measure although other processes use the GPU; results are labelled.
        plans: where to take check plans from.
        ahead: whole runs that follow: start at once to import the vendor's library, and to create the two
            contexts that each will need.

    Raises:
        NoDeviceError: no driver, no such device, or the CUDA packages aren't installed.
        WarpdeckError: another run holds the GPU.
    """

    def __init__(
        self, index: int = 0, *, allow_shared: bool = False, plans: Plans | None = None, ahead: int = 0
    ) -> None:
        _require_driver()
        self._index = index
        self._allow_shared = allow_shared
        self._resources = contextlib.ExitStack()
        self._helpers: bytes | None = None
        self._uuid = ""
        # The GPU's lock is taken late, and given back last: until then workers end.
        self._lock = self._resources.enter_context(contextlib.ExitStack())
        try:
            nvml_starts = threading.Thread(target=nvml.driver_version, daemon=True)  # as long as CUDA does
            nvml_starts.start()
            self.plans = plans or self._resources.enter_context(Plans())
            self._server = self._resources.enter_context(ForkServer())
            self.pool = self._resources.enter_context(CompilePool())
            self.workers = Workers(self._server.fork, self._open, listed=self._listed)
            self._resources.callback(self.workers.close)
            self.vendor = VendorWorker(self._server, self.workers.open)
            self._resources.callback(self.vendor.close)
            if ahead:
                self.vendor.begin()
            first = self._first(spare=ahead > 0)
            nvml_starts.join()
            with self.workers.timing():
                self.info = self._describe(first)
            self.workers.most = min(_MOST_SPARES, 1 + self.limits["memory_bytes"] // _SPARE_BYTES)
            self.workers.give(first)  # it ran nothing but our own kernels
            if ahead:
                self.workers.want(2 * ahead)
        except BaseException:
            self.close()
            raise

    @property
    def cc(self) -> tuple[int, int]:
        """Compute capability."""
        assert self.info.compute_capability is not None
        return self.info.compute_capability

    def spawn(self) -> WorkerHandle:
        """A fresh worker: its own process and context, ready to measure. Nobody ran anything in it."""
        return self.workers.take()

    def compile_ahead(self, workload: Workload, candidates: Sequence[Candidate], case: Case) -> None:
        """Compile what will be asked for later, while others measure; the results wait in the cache."""
        for candidate in candidates:
            self.pool.submit(workload, candidate, case, self.cc)

    def _first(self, *, spare: bool) -> WorkerHandle:
        """The first worker. Its context waits for the GPU's lock: to create it would disturb the holder."""
        handle = self._server.first(self._index)
        try:
            self._uuid = self._started(handle, _FIRST_S)
            self._lock.enter_context(gpu_lock(self._uuid, _LOCK_WAIT_S))
        except BaseException:
            handle.kill()
            raise
        self.workers.want(int(spare))
        self.workers.open(handle)
        return handle

    def _started(self, handle: WorkerHandle, limit_s: float) -> str:
        try:
            return handle.start(self._index, limit_s=limit_s)
        except WorkerFault as fault:
            raise self._told(fault) from None

    def _open(self, handle: WorkerHandle) -> None:
        """Create a forked worker's context and make it ready to measure."""
        limit_s = _FIRST_S if self._helpers is None else _OPEN_S
        self._started(handle, limit_s)
        try:
            handle.open(limit_s=limit_s)
            if self._helpers is None:
                major, minor = handle.info["compute_capability"]
                source = _HELPERS.read_text(encoding="utf-8")
                compiled = self.pool.submit_cuda(source, _HELPERS.name, (int(major), int(minor)))
                self._helpers = compiled.result().cubin
            handle.load_helpers(self._helpers)
        except WorkerFault as fault:
            raise self._told(fault) from None

    def _told(self, fault: WorkerFault) -> Exception:
        """A fault of a worker that has run nothing yet: the device's, if it says that there is none."""
        absent = fault.status is Status.UNSUPPORTED
        return NoDeviceError(f"cuda:{self._index}: {fault.message}") if absent else fault

    def _listed(self) -> set[int]:
        return {process.pid for process in nvml.compute_processes(self._uuid)}

    def _describe(self, handle: WorkerHandle) -> DeviceInfo:
        facts = handle.info
        best = handle.call("floors", {"brief": True}, _FLOORS_S)
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
            l2_gbs=best["l2_read_gbs"],
            fp32_tflops=facts["fp32_tflops"],
            launch_floor_ms=best["launch_ms"],
        )

    def prepare(
        self, workload: Workload, *, space: str, cases: Sequence[Case], seed: int, allow_shared: bool = False
    ) -> CudaBackend:
        """Make inputs and references ready, in the background. See `Device.prepare`."""
        return CudaBackend(self, workload, cases, seed, allow_shared=allow_shared or self._allow_shared)

    def close(self) -> None:
        """End every process and release the GPU's lock."""
        self._resources.close()


def _require_driver() -> None:
    """Fail at once, without starting a process, where there is no driver."""
    if not has_driver():
        raise NoDeviceError(
            "no CUDA driver here (libcuda.so.1 was not found); --device recorded:h200 works without one"
        )
