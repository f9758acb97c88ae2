"""What goes wrong with sandboxed code."""

from __future__ import annotations

from ..errors import WarpdeckError
from ..model import Status


class SandboxError(WarpdeckError):
    """Untrusted code can't run here, or its sandbox ended it.

    `status` is what an evaluation reports; `ended` names the limit that was reached, if one was.
    """

    def __init__(self, message: str, status: Status = Status.SANDBOX_ERROR, ended: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.ended = ended
