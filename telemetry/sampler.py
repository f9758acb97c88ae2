"""NVML in the background of a run, held still while something is timed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .nvml import Selector
from .nvml_helper import Helper, Unavailable
from .readings import Snapshot


class Sampler:
    """Reads one GPU in the background and hands each `Snapshot` to `sink` (called from its thread).

    Fast fields are read every `interval_s`; slow ones every `slow_interval_s` by a second thread, whose
    last values complete each snapshot. A process of its own makes the calls: one that hangs in the driver is
    killed, and after three `problem` is told so, once. Inside `with sampler.paused():` no NVML call is in
    flight, so that reading can't disturb what is timed there. Without a GPU nothing is sent.
    """

    def __init__(
        self,
        which: Selector,
        sink: Callable[[Snapshot], None],
        *,
        interval_s: float = 1.0,
        slow_interval_s: float = 5.0,
        timeout_s: float = 1.0,
        problem: Callable[[str], None] | None = None,
    ) -> None:
        self.which = which
        self._sink = sink
        self._problem = problem
        self._intervals = (interval_s, slow_interval_s)
        self._helper = Helper(which, timeout_s=timeout_s)
        self._stop = threading.Event()
        self._gate = threading.Condition()
        self._pauses = 0
        self._reading = 0
        self._slow_values: dict[str, Any] = {}
        self._threads: list[threading.Thread] = []

    @property
    def pid(self) -> int | None:
        """Of the process that reads, while there is one."""
        return self._helper.pid

    def start(self) -> Sampler:
        """Start reading. Returns itself."""
        if self._threads:
            return self
        for target, interval in zip((self._read_fast, self._read_slow), self._intervals, strict=True):
            thread = threading.Thread(
                target=self._loop, args=(target, interval), name=f"nvml {self.which}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        return self

    def stop(self, timeout_s: float = 1.0) -> None:
        """Stop reading and end the process."""
        self._stop.set()
        with self._gate:
            self._gate.notify_all()
        self._helper.close()
        for thread in self._threads:
            thread.join(timeout_s)
        self._threads.clear()

    def tell(self, sink: Callable[[Snapshot], None], problem: Callable[[str], None] | None = None) -> None:
        """From now on tell these."""
        self._sink, self._problem = sink, problem

    def paused(self) -> _Pause:
        """Context manager (may nest, from any thread): no NVML call runs inside it."""
        return _Pause(self)

    def __enter__(self) -> Sampler:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _loop(self, read: Callable[[], None], interval: float) -> None:
        while not self._stop.is_set():
            try:
                self._helper.prepare()  # outside of the gate: a process that starts disturbs nothing
            except Unavailable as error:
                self._give_up(str(error))
                return
            with self._gate:
                self._gate.wait_for(lambda: self._pauses == 0 or self._stop.is_set())
                if self._stop.is_set():
                    return
                self._reading += 1
            try:
                read()
            except Unavailable as error:
                self._give_up(str(error))
                return
            finally:
                with self._gate:
                    self._reading -= 1
                    self._gate.notify_all()
            self._stop.wait(interval)

    def _give_up(self, why: str) -> None:
        first = not self._stop.is_set()
        self._stop.set()
        if why and first and self._problem is not None:
            self._problem(why)

    def _read_fast(self) -> None:
        reading = self._helper.ask("fast")
        if reading is not None:
            slow = self._slow_values
            self._sink(Snapshot.from_json({**reading, **slow}))
            slow.pop("others", None)  # told once a slow read: they are the longest part of a snapshot

    def _read_slow(self) -> None:
        self._slow_values = self._helper.ask("slow") or self._slow_values


class _Pause:
    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def __enter__(self) -> None:
        gate = self._sampler._gate
        with gate:
            self._sampler._pauses += 1
            # A call that hangs in the driver must not hang the measurement: its process is killed by then.
            gate.wait_for(lambda: self._sampler._reading == 0, timeout=2.0)

    def __exit__(self, *exc: object) -> None:
        gate = self._sampler._gate
        with gate:
            self._sampler._pauses -= 1
            gate.notify_all()
