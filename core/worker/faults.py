"""How a worker's failure is told, on both sides of the socket."""

from __future__ import annotations

from ..errors import WarpdeckError
from ..model import Status


class WorkerFault(WarpdeckError):
    """A job failed in the worker. `status` is what the candidate gets; the worker is gone if `fatal`."""

    def __init__(self, status: Status, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.fatal = fatal


class WorkerDied(WorkerFault):
    """The worker's process ended by itself (a crash, or the system's out-of-memory killer)."""

    def __init__(self, message: str) -> None:
        super().__init__(Status.RUNTIME_ERROR, message, fatal=True)


class WorkerTimeout(WorkerFault):
    """The worker gave no sign of life in time and was killed."""

    def __init__(self, message: str) -> None:
        super().__init__(Status.TIMEOUT, message, fatal=True)
