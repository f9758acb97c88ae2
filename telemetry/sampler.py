"""NVML in the background of a run, held still while something is timed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .nvml import Selector, Snapshot, device, slow_fields, snapshot


class Sampler:
    """Reads one GPU in the background and hands each `Snapshot` to `sink` (called from its thread).

    Fast fields are read every `interval_s`; slow ones every `slow_interval_s` by a second thread, whose
    last values complete each snapshot. Inside `with sampler.paused():` no NVML call is in flight, so
    that reading can't disturb what is timed there. Without a GPU nothing starts and nothing is sent.
    """

    def __init__(
        self,
        which: Selector,
        sink: Callable[[Snapshot], None],
        *,
        interval_s: float = 1.0,
        slow_interval_s: float = 5.0,
    ) -> None:
        self.which = which
        self._sink = sink
        self._intervals = (interval_s, slow_interval_s)
        self._stop = threading.Event()
        self._gate = threading.Condition()
        self._pauses = 0
        self._reading = 0
        self._slow_values: dict[str, Any] = {}
        self._threads: list[threading.Thread] = []

    def start(self) -> Sampler:
        """Start reading, if the GPU is there. Returns itself."""
        if self._threads or device(self.which) is None:
            return self
        for target, interval in zip((self._read_fast, self._read_slow), self._intervals, strict=True):
            thread = threading.Thread(
                target=self._loop, args=(target, interval), name=f"nvml {self.which}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        return self

    def stop(self, timeout_s: float = 1.0) -> None:
        """Stop reading; a thread stuck in the driver is left behind after `timeout_s`, as a daemon."""
        self._stop.set()
        with self._gate:
            self._gate.notify_all()
        for thread in self._threads:
            thread.join(timeout_s)
        self._threads.clear()

    def paused(self) -> _Pause:
        """Context manager (may nest, from any thread): no NVML call runs inside it."""
        return _Pause(self)

    def __enter__(self) -> Sampler:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _loop(self, read: Callable[[], None], interval: float) -> None:
        while not self._stop.is_set():
            with self._gate:
                self._gate.wait_for(lambda: self._pauses == 0 or self._stop.is_set())
                if self._stop.is_set():
                    return
                self._reading += 1
            try:
                read()
            finally:
                with self._gate:
                    self._reading -= 1
                    self._gate.notify_all()
            self._stop.wait(interval)

    def _read_fast(self) -> None:
        reading = snapshot(self.which, slow=False)
        if reading is not None:
            self._sink(Snapshot(**{**reading.__dict__, **self._slow_values}))

    def _read_slow(self) -> None:
        self._slow_values = slow_fields(self.which)


class _Pause:
    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def __enter__(self) -> None:
        gate = self._sampler._gate
        with gate:
            self._sampler._pauses += 1
            # A call that hangs in the driver must not hang the measurement for ever.
            gate.wait_for(lambda: self._sampler._reading == 0, timeout=1.0)

    def __exit__(self, *exc: object) -> None:
        gate = self._sampler._gate
        with gate:
            self._sampler._pauses -= 1
            gate.notify_all()
