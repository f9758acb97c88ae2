"""How the emulation of a candidate can fail: with the status of its evaluation, and one plain line."""

from __future__ import annotations

from ..errors import WarpdeckError
from ..model import Status


class EmulatorError(WarpdeckError):
    """This machine can't emulate anything: no compiler, no sanitizer, no room."""


class CandidateFault(Exception):
    """A candidate's own failure.

    Args:
        status: what its evaluation ends with.
        message: one line; with the user's file and line, block and thread where they are known.
        kind: what the runtime calls it ("deadlock", "race", …).
    """

    def __init__(self, status: Status, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind


def unsupported(what: str) -> CandidateFault:
    """What this device can't run."""
    return CandidateFault(Status.UNSUPPORTED, f"{what} can't run on the cpu device", "unsupported")
