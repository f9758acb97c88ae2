"""The device of the sessions that one process runs: opened once while they ask for the same one."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType

from ..agents import registry
from ..agents.registry import agent_spec
from ..core import sandbox
from ..core.bench import performance_cases
from ..core.check import Plans
from ..core.devices.base import Device
from ..core.errors import NoDeviceError, WarpdeckError
from ..core.server_process import has_driver
from ..kernels.imported import open_workload
from ..kernels.recordings import open_device
from ..telemetry.readings import Snapshot
from ..telemetry.sampler import Sampler
from .spec import RunSpec

EMULATED = "cpu"
MOST_AHEAD = 64  # configurations of one workload that are compiled before its turn
MOST_BYTES = 64 << 20  # of a case's buffers, for its inputs to be computed before its turn


def _prepare(spec: RunSpec) -> None:
    """What a run's agent needs before the first measurement, while the device is opened."""
    if agent_spec(spec.agent).writes_code:
        sandbox.layers()
    registry.preload(spec.agent)


class SharedDevice:
    """Opens the device that a run asks for, keeps it for the next one, and makes that one's things ready.

    Args:
        specs: of the runs, in order; None for one that nobody could read.
    """

    def __init__(self, specs: Sequence[RunSpec | None]) -> None:
        self._coming = list(specs)
        self._device: Device | None = None
        self._asked: tuple[str, bool] | None = None
        self._sampler: Sampler | None = None
        self._plans: Plans | None = None
        self._leaving: Future[None] | None = None
        self._ahead: Future[None] | None = None
        self.seed = 0
        """Of the inputs of the run whose turn it is; a secret one where its agent writes code."""

    def open(self, spec: RunSpec) -> Device:
        """The device of the run whose turn it is. Raises as `open_device`."""
        self.left()
        self._coming = self._coming[1:]
        self.seed = secrets.randbits(63) if agent_spec(spec.agent).writes_code else spec.seed
        asked = (spec.device, spec.allow_shared)
        if self._device is not None and self._asked == asked:
            return self._device
        self.close()
        self._asked = asked
        threading.Thread(target=_prepare, args=(spec,), name="warpdeck-agent", daemon=True).start()
        same = [spec, *self._same()]
        workload = open_workload(spec.workload)
        with ThreadPoolExecutor(1, "warpdeck-plans") as meanwhile:
            planned = None
            if spec.device.startswith("cuda") or (spec.device == "auto" and has_driver()):
                self._plans = Plans()
                planned = meanwhile.submit(self._plan_ahead, self._plans, same)
            ahead = len(same) if workload.vendor_name is not None else 0
            self._device = self._opened(spec, ahead=ahead)
            if planned is not None:
                planned.result()
        executor = ThreadPoolExecutor(1, "warpdeck-ahead")
        self._ahead = executor.submit(self._compile_ahead, self._device, same)
        executor.shutdown(wait=False)
        return self._device

    def _opened(self, spec: RunSpec, *, ahead: int) -> Device:
        """`auto` without a GPU is emulation for an agent of sources: no recording can run those."""
        wanted, sources = spec.device, registry.agent_spec(spec.agent).needs_context
        for name in ("cuda:0", EMULATED) if wanted == "auto" and sources else (wanted,):
            try:
                return open_device(name, allow_shared=spec.allow_shared, plans=self._plans, ahead=ahead)
            except NoDeviceError:
                if name == wanted:
                    raise
        raise AssertionError("emulation needs no device")

    def expect_sources(self, count: int) -> None:
        """A model will propose so many sources at a time: begin to start what compiles and runs them."""
        from ..core.devices.cuda import CudaDevice

        if isinstance(self._device, CudaDevice):
            self._device.pool.warm(count, self._device.cc)
            self._device.workers.want(count + 1)  # one to compare in

    def make_ready(self) -> None:
        """A run times nothing any more: begin to create the contexts of the next one."""
        from ..core.devices.cuda import CudaDevice

        if self._same() and isinstance(self._device, CudaDevice):
            self._device.workers.want(2)  # one to measure in, one to compare in

    def sampler(self, sink: Callable[[Snapshot], None], problem: Callable[[str], None]) -> Sampler:
        """What reads the GPU of the open device, for all runs on it: to start NVML takes as long as many
        measurements. From now on it tells these."""
        assert self._device is not None
        if self._sampler is None:
            self._sampler = Sampler(self._device.info.uuid or "", sink)
        self._sampler.tell(sink, problem)
        return self._sampler

    def leave(self) -> None:
        """A run has ended well: begin to close its device, unless the next one needs it."""
        if not self._same():
            executor = ThreadPoolExecutor(1, "warpdeck-closing")
            self._leaving = executor.submit(self.close)
            executor.shutdown(wait=False)

    def left(self) -> None:
        """Wait until the device is closed, if that was begun. Raises what closing it raised."""
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            leaving.result()

    def close(self) -> None:
        """Close the device, if one is open."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.result()
        sampler, self._sampler = self._sampler, None
        if sampler is not None:
            sampler.stop()
        device, self._device = self._device, None
        if device is not None:
            device.close()
        plans, self._plans = self._plans, None
        if plans is not None:
            plans.close()

    def _same(self) -> list[RunSpec]:
        """The runs that follow on this device."""
        found = []
        for spec in self._coming:
            if spec is None or (spec.device, spec.allow_shared) != self._asked:
                break
            found.append(spec)
        return found

    def _plan_ahead(self, plans: Plans, specs: Sequence[RunSpec]) -> None:
        """Begin the inputs and references of runs; of all but the first only small ones, which neither fill
        the disk nor keep many cores busy while another run measures."""
        for spec in specs:
            if spec is not specs[0] and agent_spec(spec.agent).writes_code:
                continue  # its seed is drawn when it is its turn
            with suppress(WarpdeckError):  # its own run will say so
                workload = open_workload(spec.workload)
                cases = performance_cases(workload, spec.sizes)
                if spec is specs[0] or all(workload.total_bytes(case) <= MOST_BYTES for case in cases):
                    plans.begin(workload, cases, self.seed if spec is specs[0] else spec.seed)

    @staticmethod
    def _compile_ahead(device: Device, specs: Sequence[RunSpec]) -> None:
        """Compile what sweeps will ask for: they know it beforehand."""
        from ..core.devices.cuda import CudaDevice

        if not isinstance(device, CudaDevice):
            return
        for spec in specs:
            if spec.agent != "sweep":
                continue
            try:
                workload = open_workload(spec.workload)
                case, *others = performance_cases(workload, spec.sizes)
                space = workload.space(spec.space)
                configs = space.configs_for([c.params for c in (case, *others)])[:MOST_AHEAD]
                candidates = [workload.candidate(space.name, config) for config in configs]
            except WarpdeckError:  # its own run will say so
                continue
            device.compile_ahead(workload, candidates, case)

    def __enter__(self) -> SharedDevice:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.left()
        finally:
            self.close()
