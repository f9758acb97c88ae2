"""A CUDA GPU of this machine: its lock, its fork server, its compile processes, what it can do at best."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...telemetry import nvml
from ..errors import NoDeviceError
from ..lock import gpu_lock
from ..model import Case, DeviceInfo, Status
from ..toolchain.pool import CompilePool
from ..worker import ForkServer, WorkerFault, WorkerHandle
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

    Raises:
        NoDeviceError: no driver, no such device, or the CUDA packages aren't installed.
        WarpdeckError: another run holds the GPU.
    """

    def __init__(self, index: int = 0, *, allow_shared: bool = False) -> None:
        _require_driver()
        self._index = index
        self._allow_shared = allow_shared
        self._resources = contextlib.ExitStack()
        self._pool: CompilePool | None = None
        self._helpers: bytes | None = None
        try:
            self._server = self._resources.enter_context(ForkServer())
            first = self._start(take_lock=True)
            self.info = self._describe(first)
        except BaseException:
            self.close()
            raise

    @property
    def pool(self) -> CompilePool:
        """Compile processes, started when first needed."""
        if self._pool is None:
            self._pool = self._resources.enter_context(CompilePool())
        return self._pool

    @property
    def cc(self) -> tuple[int, int]:
        """Compute capability."""
        assert self.info.compute_capability is not None
        return self.info.compute_capability

    def spawn(self) -> WorkerHandle:
        """A fresh worker: its own process and context, ready to measure."""
        return self._start()

    def _start(self, *, take_lock: bool = False) -> WorkerHandle:
        handle = self._server.fork()
        try:
            uuid = handle.start(self._index)
            if take_lock:  # before there is a context: its creation would disturb the holder's timing
                self._resources.enter_context(gpu_lock(uuid, _LOCK_WAIT_S))
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
        except BaseException:
            handle.kill()
            raise
        return handle

    def _describe(self, handle: WorkerHandle) -> DeviceInfo:
        facts = handle.info
        self.floors: dict[str, float] = handle.call("floors", {}, _FLOORS_S)
        handle.close()
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


def _require_driver() -> None:
    """Fail at once, without starting a process, where there is no driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise NoDeviceError(
            "no CUDA driver here (libcuda.so.1 was not found); --device recorded:h200 works without one"
        ) from None
