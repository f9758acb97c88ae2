"""What became of an attempt, as a letter, as words and as a colour: letters and words read without it."""

from __future__ import annotations

from ..core.model import Status
from ..sessions.llm_state import Attempt

# status: letter, short words
STATUSES = {
    Status.OK: ("✔", "ok"),
    Status.RESTRICTED: ("R", "restricted"),
    Status.COMPILE_ERROR: ("C", "compile error"),
    Status.LAUNCH_ERROR: ("L", "launch error"),
    Status.RUNTIME_ERROR: ("E", "runtime error"),
    Status.OUT_OF_MEMORY: ("M", "out of memory"),
    Status.TIMEOUT: ("T", "timeout"),
    Status.INCORRECT: ("I", "incorrect"),
    Status.IMPLAUSIBLE: ("F", "below floor"),
    Status.THROTTLED: ("H", "throttled"),
    Status.SANDBOX_ERROR: ("S", "sandbox error"),
    Status.UNSUPPORTED: ("U", "unsupported"),
    Status.CANCELLED: ("X", "cancelled"),
}
PENDING = ("…", "not judged yet")
TONES = {Status.OK: "good", Status.UNSUPPORTED: "dim", Status.CANCELLED: "dim", Status.RESTRICTED: "dim"}


def status_mark(status: str | None) -> str:
    """One character for a status."""
    return PENDING[0] if status is None else _of(status)[0]


def status_words(status: str | None) -> str:
    """A status in words."""
    return PENDING[1] if status is None else _of(status)[1]


def status_tone(status: str | None) -> str:
    """Its colour: "good", "bad" or "dim"."""
    if status is None:
        return "dim"
    return TONES.get(Status(status), "bad") if status in list(Status) else "bad"


def _of(status: str) -> tuple[str, str]:
    return STATUSES[Status(status)] if status in list(Status) else ("?", status)


def kept_words(attempt: Attempt) -> str:
    """Whether a change was kept, and the verdict on it."""
    if attempt.kept is None:
        return attempt.verdict
    kept = "kept" if attempt.kept else "not kept"
    return f"{kept}: {attempt.verdict}" if attempt.verdict else kept
