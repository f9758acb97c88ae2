"""Hardware counters of candidates: what to ask for, what came of it, and the call that does it.

Nsight Compute runs in processes of its own (`worker.profiled`), never in one that times. It has several
candidates in one start, because a start costs more than the counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..telemetry.ncu.counters import Counters
from ..telemetry.ncu.errors import NcuError
from .errors import ExitCode, UsageError, WarpdeckError
from .model import CacheMode, Candidate, Case, Status

if TYPE_CHECKING:
    from .devices.base import Device
    from .workload import Workload

SEED = "seed"
TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 86_400
# Failures that the next start of Nsight Compute would meet again, whatever it runs.
HOPELESS = frozenset(
    {
        *("not_installed", "permission", "counters_held", "driver_mismatch", "no_driver"),
        *("unsupported_gpu", "lock_file", "bad_option", "no_program"),
    }
)


@dataclass(frozen=True)
class ProfileOptions:
    """What to read, and how.

    `set`: a name in `telemetry.ncu.metrics.SETS`; `metrics`: instead, quantities of ours and names of Nsight
    Compute's, beside the seed set. `cache`: "cold" flushes the caches before every pass, "hot" leaves what
    the launches before left. `invocation`: launches of a candidate before the one that counts. `kernel`: of a
    candidate with several launches, whose counters; None: the longest's. `keep`: where the report goes.
    """

    set: str = SEED
    metrics: tuple[str, ...] = ()
    cache: CacheMode = CacheMode.COLD
    timeout_s: float = TIMEOUT_S
    invocation: int = 1
    kernel: str | None = None
    keep: Path | None = None

    def __post_init__(self) -> None:
        if self.cache not in (CacheMode.COLD, CacheMode.HOT):
            raise UsageError(f"counters are read with the cache cold or hot, not '{self.cache}'")
        if self.invocation < 0:
            raise UsageError(f"invocation {self.invocation}: give 0 (the first launch) or more")
        if not 0 < self.timeout_s <= MAX_TIMEOUT_S:
            raise UsageError(f"a time limit of {self.timeout_s:g} s is impossible; at most {MAX_TIMEOUT_S:,}")


@dataclass(frozen=True)
class NcuFailure:
    """Why a candidate has no counters. `kind`: one of `NcuError`'s, or the candidate's own status."""

    candidate: Candidate
    kind: str
    reason: str
    remedy: str = ""

    @classmethod
    def of(cls, candidate: Candidate, error: NcuError) -> NcuFailure:
        """From a failure of the tool."""
        return cls(candidate, error.kind, error.message, error.remedy)

    @property
    def text(self) -> str:
        """One plain line: what, and what to do."""
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason

    @property
    def exit_code(self) -> ExitCode:
        """What a command leaves with that asked for these counters."""
        return _EXIT.get(self.kind, ExitCode.RUN_FAILED)

    def error(self) -> WarpdeckError:
        """As an exception for callers that want one candidate's counters."""
        raised = ProfileError(self.text)
        raised.exit_code = self.exit_code
        return raised


class ProfileError(WarpdeckError):
    """A candidate's counters can't be had. `exit_code` depends on why."""


_EXIT = {
    "timeout": ExitCode.BUDGET,
    "bad_option": ExitCode.USAGE,
    "no_driver": ExitCode.NO_DEVICE,
    "not_recorded": ExitCode.USAGE,
    str(Status.INCORRECT): ExitCode.VERIFICATION,
}


def read_report(path: Path) -> list[Counters]:
    """The launches of a report (.ncu-rep), in order. UsageError if it can't be read."""
    from ..telemetry.ncu.report import read

    try:
        found = read(path)
    except NcuError as error:
        raise UsageError(str(error)) from None
    if not found:
        raise UsageError(f"{path}: no kernel was profiled in it")
    return found


def document(counters: Counters) -> dict[str, Any]:
    """What `profile --json` prints: the counters, the device, and the diagnosis in words."""
    from ..telemetry.ncu.diagnosis import diagnose

    data = counters.to_json()
    meta = data.pop("meta")
    return {
        "kernel": data.pop("kernel"),
        "device": meta.get("device"),
        **data,
        "diagnosis": [{"text": d.text, "evidence": d.evidence} for d in diagnose(counters)],
        "meta": {name: value for name, value in meta.items() if name != "device"},
    }


def profile(
    workload: Workload,
    device: Device,
    candidates: Sequence[Candidate],
    case: Case,
    *,
    set: str = SEED,
    metrics: Sequence[str] | None = None,
    cache: CacheMode = CacheMode.COLD,
    timeout_s: float = TIMEOUT_S,
    invocation: int = 1,
    kernel: str | None = None,
    keep: Path | None = None,
    seed: int = 0,
    allow_shared: bool = False,
) -> list[Counters | NcuFailure]:
    """Read hardware counters; one result a candidate, in order.

    A live device compiles and checks every candidate first, then runs Nsight Compute once over those that
    passed. A recorded one answers from what was recorded: a stored profile of this variant and case, else
    the seed set of a configuration in the recording.

    Args:
        workload: whose candidates.
        device: open; a live one holds the GPU's lock.
        candidates: what to profile.
        case: the input.
        set: what to collect: seed, cheap, roofline, stalls, memory or full.
        metrics: instead of a set, quantities of ours and Nsight Compute's own names, beside the seed set.
        cache: cold or hot.
        timeout_s: of one start of Nsight Compute; a candidate that exceeds it is left out of the next.
        invocation: launches of a candidate before the one that counts.
        kernel: of a candidate with several launches, whose counters; None: the longest's.
        keep: where to put the report (.ncu-rep).
        seed: of the inputs.
        allow_shared: go on although other processes use the GPU.

    Raises:
        UsageError: an impossible option, or nothing of the workload is recorded.
        WarpdeckError: the device failed. What a candidate or Nsight Compute does is a result, never raised.
    """
    from .devices.recorded import RecordedDevice
    from .devices.stored_counters import stored

    options = ProfileOptions(set, tuple(metrics or ()), cache, timeout_s, invocation, kernel, keep)
    if isinstance(device, RecordedDevice):
        return [stored(device, workload, candidate, case) for candidate in candidates]
    space = next(iter(workload.spaces))  # all the same to a live device
    backend = device.prepare(workload, space=space, cases=[case], seed=seed, allow_shared=allow_shared)
    try:
        return backend.profile(candidates, case, options)
    finally:
        backend.close()
