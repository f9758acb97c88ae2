"""Errors that reach a user: one plain line that says what was wrong, where, and what to do.

Raise the class whose exit code fits; the command line prints the message and leaves with that code.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process returns (the contract of every command)."""

    OK = 0
    RUN_FAILED = 1
    USAGE = 2
    NO_DEVICE = 3
    BUDGET = 4
    VERIFICATION = 5
    HUNG_UP = 129  # SIGHUP ended the console, which stopped its run
    INTERRUPTED = 130
    TERMINATED = 143  # SIGTERM; as SIGHUP


class WarpdeckError(Exception):
    """A failure with a message for people. `exit_code` is what the command leaves with."""

    exit_code = ExitCode.RUN_FAILED


class UsageError(WarpdeckError):
    """An unknown name, an impossible value, or an unreadable or corrupt file that the user named."""

    exit_code = ExitCode.USAGE


class NoDeviceError(WarpdeckError):
    """The CUDA device or driver asked for isn't there."""

    exit_code = ExitCode.NO_DEVICE


class BudgetError(WarpdeckError):
    """A time limit ended the work."""

    exit_code = ExitCode.BUDGET


class VerificationError(WarpdeckError):
    """A kernel's output is wrong, or a workload's cases prove nothing (`weak_case`)."""

    exit_code = ExitCode.VERIFICATION
