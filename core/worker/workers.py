"""The workers of one GPU: made before they are needed, ended behind the scenes, neither while it is timed.

    wanted ──▶ starting ──▶ ready ──▶ taken ──▶ ending ──▶ gone
                   └──▶ failed (no driver, too slow, killed): whoever needed it starts another

Creating a context and ending a process keep the driver busy, so they disturb what is timed. They run in
threads, and `timing` keeps them apart from measurements: it waits for those under way, and those that come
meanwhile wait for its end. Spares are made one after the other: the driver creates several contexts no faster
together, and who wants to measure waits for one at most.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from ..errors import WarpdeckError
from .client import WorkerHandle
from .faults import WorkerFault

_PING_S = 2.0
_RETURNED_S = 10.0  # for the driver to give back what an ended process held
_POLL_S = 0.003


class Workers:
    """Starts, hands out and ends workers. Only one thread may measure; any may ask for spares.

    Args:
        fork: a new process that hasn't touched CUDA.
        open_worker: creates the context of one and makes it ready to measure. Whatever it raises ends it.
        listed: process ids that the driver lists on the GPU.
    """

    def __init__(
        self,
        fork: Callable[[], WorkerHandle],
        open_worker: Callable[[WorkerHandle], None],
        *,
        listed: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self._fork = fork
        self._open_worker = open_worker
        self._listed = listed
        self.most = 1  # spares at a time
        self._changed = threading.Condition()
        self._wanted = 0  # spares
        self._making = False  # whether a thread makes them
        self._ready: deque[WorkerHandle] = deque()
        self._open: dict[int, WorkerHandle] = {}  # that have, or may have, a context
        self.waited_s = 0.0  # by `timing`, so far
        self._disturbing = 0  # contexts being created, processes ending
        self._measurer: threading.Thread | None = None  # who times something now
        self._problem: str | None = None  # of a worker that can't be ended
        self._closed = False

    # -- starting ----------------------------------------------------------------------------------

    def want(self, count: int) -> None:
        """Have so many ready, or as many as may be; returns at once. They start when nothing is timed."""
        with self._changed:
            self._wanted = min(count, self.most)
            if not self._making and not self._closed and len(self._ready) < self._wanted:
                self._making = True
                threading.Thread(target=self._make_spares, name="warpdeck-spares", daemon=True).start()

    def give(self, handle: WorkerHandle) -> None:
        """Let a worker that ran nothing but our own kernels be the next that is taken."""
        with self._changed:
            self._ready.appendleft(handle)

    def take(self) -> WorkerHandle:
        """A worker in which nothing ran: a spare, the one that comes next, else one started now.

        Raises what forking or `open_worker` raise, WarpdeckError if an earlier worker can't be ended.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or not self._making)
                self._check()
                self._wanted = max(0, self._wanted - 1)
                if not self._ready:
                    break
                handle = self._ready.popleft()
            try:
                handle.call("ping", timeout_s=_PING_S)
                return handle
            except WorkerFault:  # it was killed while it waited: no candidate's fault
                self.end(handle)
        return self._start()

    def open(self, handle: WorkerHandle) -> None:
        """Create a forked worker's context; waits while something is timed. It is killed if that fails."""
        with self._disturbance():
            with self._changed:
                self._open[handle.pid] = handle
            try:
                if self._closed:
                    raise WarpdeckError("the device was closed")
                self._open_worker(handle)
            except BaseException:
                handle.kill()
                self._forget(handle)
                raise

    def _start(self) -> WorkerHandle:
        handle = self._fork()
        self.open(handle)
        return handle

    def _make_spares(self) -> None:
        while self._lacking():
            try:
                made = self._start()
            except Exception:  # noqa: BLE001 - whoever needs one starts another, and hears why it can't be
                self._give_up()
                return
            with self._changed:
                self._ready.append(made)
                self._changed.notify_all()

    def _lacking(self) -> bool:
        with self._changed:
            self._making = not self._closed and len(self._ready) < self._wanted
            self._changed.notify_all()
            return self._making

    def _give_up(self) -> None:
        with self._changed:
            self._making = False
            self._changed.notify_all()

    # -- ending ------------------------------------------------------------------------------------

    def end(self, handle: WorkerHandle) -> None:
        """End a worker; returns at once. `timing` waits until its process is gone and its memory returned,
        and raises WarpdeckError if that doesn't come to pass."""
        self._begin()
        threading.Thread(target=self._see_off, args=(handle,), name="warpdeck-ending", daemon=True).start()

    def _see_off(self, handle: WorkerHandle) -> None:
        problem = None
        try:
            # In a container the driver may list ids of the host's, which say nothing here.
            known = handle.pid in self._listed()
            handle.close()
            if not handle.gone:
                problem = f"worker process {handle.pid} can't be ended: the driver holds it"
            elif known and not self._returned(handle.pid):
                problem = f"worker process {handle.pid} has ended, but the driver still holds its memory"
        finally:
            self._forget(handle)
            with self._changed:
                self._problem = self._problem or problem
            self._finish()

    def _returned(self, pid: int) -> bool:
        deadline = time.monotonic() + _RETURNED_S
        while pid in self._listed():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def _forget(self, handle: WorkerHandle) -> None:
        with self._changed:
            self._open.pop(handle.pid, None)

    # -- measuring ---------------------------------------------------------------------------------

    @contextmanager
    def timing(self) -> Iterator[None]:
        """While something is timed: no context is created, no process ends. Waits until it is so.

        Raises WarpdeckError if a worker can't be ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._measurer is None)
            self._measurer = threading.current_thread()
        try:
            with self._changed:
                started = time.perf_counter()
                self._changed.wait_for(lambda: not self._disturbing)
                self.waited_s += time.perf_counter() - started
                self._check()
            yield
        finally:
            with self._changed:
                self._measurer = None
                self._changed.notify_all()

    @contextmanager
    def _disturbance(self) -> Iterator[None]:
        self._begin()
        try:
            yield
        finally:
            self._finish()

    def _begin(self) -> None:
        with self._changed:
            if self._measurer is threading.current_thread():
                raise RuntimeError("a worker can't start or end while something is timed")
            self._changed.wait_for(lambda: self._measurer is None)
            self._disturbing += 1

    def _finish(self) -> None:
        with self._changed:
            self._disturbing -= 1
            self._changed.notify_all()

    def _check(self) -> None:
        if self._problem is not None:
            raise WarpdeckError(f"{self._problem}; the GPU may need a reset")

    def pids(self) -> set[int]:
        """Process ids of the workers that have a context, or may."""
        with self._changed:
            return {pid for pid, handle in self._open.items() if handle.alive}

    def close(self) -> None:
        """End every worker, also one that is starting, and wait for it."""
        with self._changed:
            self._closed = True
            every = list(self._open.values())
            self._ready.clear()
        for handle in every:  # they end together
            handle.hang_up()
        for handle in every:
            handle.kill()
        with self._changed:
            self._changed.wait_for(lambda: not self._disturbing, _RETURNED_S)
