"""The run process's side of the vendor's library: one worker for all workloads of a device.

Importing torch takes seconds and needs no GPU, so it begins early, in the worker's own process and before
CUDA starts there. Its context is created when the first time is asked for: then nothing else is timed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from .client import ForkServer, WorkerHandle
from .faults import WorkerDied

_IMPORT_S = 120.0  # of torch, on a slow disk


class VendorWorker:
    """Imports the library in the background, once, and keeps it loaded.

    Args:
        server: forks the worker.
        open_worker: creates the context of a forked worker and makes it ready to measure.
    """

    def __init__(self, server: ForkServer, open_worker: Callable[[WorkerHandle], None]) -> None:
        self._server = server
        self._open = open_worker
        self._importing: Future[WorkerHandle] | None = None
        self._thread: threading.Thread | None = None
        self._forked: WorkerHandle | None = None
        self._handle: WorkerHandle | None = None
        self._owner: object = None  # whose function is loaded and whose cases are bound
        self._closed = False

    def begin(self) -> None:
        """Start to import, unless that was done. Returns at once."""
        if self._importing is None and not self._closed:
            self._importing = Future()
            self._thread = threading.Thread(
                target=self._import, args=(self._importing,), name="warpdeck-vendor", daemon=True
            )
            self._thread.start()

    def _import(self, imported: Future[WorkerHandle]) -> None:
        try:
            self._forked = self._server.library()
            if self._closed:
                raise WorkerDied("the device was closed")
            self._forked.call("vendor_import", {}, _IMPORT_S)
            imported.set_result(self._forked)
        except BaseException as error:  # noqa: BLE001 - raised where a time is asked for
            imported.set_exception(error)

    @property
    def ready(self) -> bool:
        """Whether a time can be had without waiting for the import. Begins it, if nobody has."""
        self.begin()
        return self._importing is None or self._importing.done()

    def handle(self, reference: Path, owner: object) -> WorkerHandle:
        """The worker, with the `vendor` function of a workload's reference.py; waits for the import.

        `owner` stands for the cases that will be bound: those of another one are released.
        Raises WorkerFault where there is no library, or its function doesn't load.
        """
        handle = self._handle
        if handle is None or not handle.alive:
            if handle is not None:  # it died, and what was imported with it
                self._importing = self._handle = None
            self.begin()
            assert self._importing is not None
            handle = self._importing.result()
            self._open(handle)
            self._handle, self._owner = handle, None
        if self._owner is not owner:
            self._owner = None
            for key in tuple(handle.bound):
                handle.release(key)
            handle.call("vendor_start", {"path": str(reference)}, _IMPORT_S)
            self._owner = owner
        return handle

    def close(self) -> None:
        """End the worker, also one that still imports."""
        self._closed = True
        if self._forked is not None:
            self._server.reap(self._forked.pid, kill=True, wait_s=0)  # its thread sees the channel end
        if self._thread is not None:
            self._thread.join()
        if self._forked is not None:
            self._forked.hang_up()
