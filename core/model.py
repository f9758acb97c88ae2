"""The vocabulary: workloads, candidates, measurements, evaluations. Plain data; no GPU, no I/O.

Times are milliseconds, sizes bytes, clocks MHz, unless a name says otherwise.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Value = int | float | str | bool
Config = Mapping[str, Value]  # one assignment: knob name -> value, in the space's knob order


class Status(StrEnum):
    """How an evaluation ended. Only `OK` carries times."""

    OK = "ok"
    RESTRICTED = "restricted"
    COMPILE_ERROR = "compile_error"
    LAUNCH_ERROR = "launch_error"
    RUNTIME_ERROR = "runtime_error"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    INCORRECT = "incorrect"
    IMPLAUSIBLE = "implausible"  # faster than its physical floor
    THROTTLED = "throttled"  # the clock never held still long enough to measure
    SANDBOX_ERROR = "sandbox_error"
    UNSUPPORTED = "unsupported"  # this device can't run it
    CANCELLED = "cancelled"


class Trust(StrEnum):
    """Whose code it is; decides isolation."""

    BUNDLED = "bundled"
    OWN = "own"
    GENERATED = "generated"
    REMOTE = "remote"


class CacheMode(StrEnum):
    """State of the L2 before each timed launch."""

    COLD = "cold"
    HOT = "hot"
    AS_RECORDED = "as recorded"  # of an imported recording, whose file doesn't say; nothing is measured so


class Role(StrEnum):
    """What a case is for; only performance cases are timed and ranked."""

    CORRECTNESS = "correctness"
    PERFORMANCE = "performance"


@dataclass(frozen=True)
class Case:
    """One concrete input: values of the workload's shape parameters."""

    name: str
    role: Role
    params: Mapping[str, int]
    edge: bool = False  # a legitimate case that the null controls may pass (an all-zero input, say)
    data: str | None = None  # how this case fills its inputs, instead of the arguments' own `data`
    exact: bool = False  # outputs must equal the reference, rounded to the output's type


@dataclass(frozen=True)
class Launch:
    """One kernel launch, resolved for a case. `grid` and `block` always have three entries."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0  # dynamic shared memory, bytes


@dataclass(frozen=True)
class Candidate:
    """A variant's source with one configuration. Equal ids mean equal source and config."""

    variant: str
    config: Config
    source_hash: str

    @cached_property
    def id(self) -> str:
        """Twelve hex digits over variant, source and config."""
        text = json.dumps([self.variant, self.source_hash, dict(self.config)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Protocol:
    """How a number was measured; printed with every result.

    `adaptive` stops between `min_samples` and `samples` once the median's 95% interval is within
    ±1% or ±0.1 µs, whichever is larger.
    """

    cache: CacheMode = CacheMode.COLD
    warmup: int = 10
    samples: int = 100
    min_samples: int = 30
    adaptive: bool = True

    def to_json(self) -> dict[str, Any]:
        """As stored in sessions and printed with results."""
        return {
            "cache": str(self.cache),
            "warmup": self.warmup,
            "samples": self.samples,
            "min_samples": self.min_samples,
            "adaptive": self.adaptive,
        }


@dataclass(frozen=True)
class Measurement:
    """All samples of one case. `rounds[i]` is the measuring round of `samples_ms[i]` (0 if only one)."""

    case: str
    cache: CacheMode
    clock: str  # "cupti", "event", or "recorded cupti"…
    samples_ms: NDArray[np.float64]
    rounds: NDArray[np.int32] | None = None
    sm_clock_mhz: float | None = None
    throttle: tuple[str, ...] = ()
    event_floor_ms: float | None = None  # what an empty event pair reads, where the clock is "event"
    ci95_ms: tuple[float, float] | None = None  # of the median; by round where rounds are known

    @cached_property
    def median_ms(self) -> float:
        """Median over all samples."""
        import numpy as np  # not above: what a profiler runs imports this module, and starts in half the time

        return float(np.median(self.samples_ms))

    @property
    def mean_ms(self) -> float:
        """Arithmetic mean."""
        return float(self.samples_ms.mean())

    @property
    def std_ms(self) -> float:
        """Sample standard deviation (0 for one sample)."""
        return float(self.samples_ms.std(ddof=1)) if len(self.samples_ms) > 1 else 0.0

    @property
    def min_ms(self) -> float:
        """Fastest sample."""
        return float(self.samples_ms.min())

    @property
    def max_ms(self) -> float:
        """Slowest sample."""
        return float(self.samples_ms.max())

    def to_json(self, *, samples: bool = True) -> dict[str, Any]:
        """JSON form; `samples=False` keeps only the summary."""
        data: dict[str, Any] = {
            "case": self.case,
            "cache": str(self.cache),
            "clock": self.clock,
            "n": len(self.samples_ms),
            "median_ms": self.median_ms,
            "mean_ms": self.mean_ms,
            "std_ms": self.std_ms,
            "min_ms": self.min_ms,
            "max_ms": self.max_ms,
            "ci95_ms": list(self.ci95_ms) if self.ci95_ms else None,
            "sm_clock_mhz": self.sm_clock_mhz,
            "throttle": list(self.throttle),
        }
        if self.event_floor_ms is not None:
            data["event_floor_ms"] = self.event_floor_ms
        if samples:
            data["samples_ms"] = [round(float(x), 7) for x in self.samples_ms]
            if self.rounds is not None:
                data["rounds"] = [int(x) for x in self.rounds]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Inverse of `to_json(samples=True)`; a summary alone becomes its single median."""
        import numpy as np

        samples = np.asarray(data.get("samples_ms") or [data["median_ms"]], dtype=np.float64)
        rounds = data.get("rounds")
        ci = data.get("ci95_ms")
        return cls(
            case=data["case"],
            cache=CacheMode(data["cache"]),
            clock=data["clock"],
            samples_ms=samples,
            rounds=None if rounds is None else np.asarray(rounds, dtype=np.int32),
            sm_clock_mhz=data.get("sm_clock_mhz"),
            throttle=tuple(data.get("throttle", ())),
            event_floor_ms=data.get("event_floor_ms"),
            ci95_ms=None if ci is None else (float(ci[0]), float(ci[1])),
        )


@dataclass(frozen=True)
class Resources:
    """What the compiler gave one candidate (the first launch's kernel, block of the first case)."""

    registers: int
    spill_bytes: int = 0  # spill stores + loads, from the assembler's log
    shared_bytes: int = 0  # static, without the architecture's reserved kilobyte
    local_bytes: int = 0  # stack frame
    code_bytes: int = 0
    occupancy: float | None = None  # theoretical, 0..1
    limiter: str | None = None  # what bounds occupancy: registers, shared memory, warps, blocks
    code_hash: str = ""  # equal hash, launch and constants: the same binary, measured once

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return dict(self.__dict__)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Resources:
        """Inverse of `to_json`; unknown keys are ignored."""
        return cls(**{k: v for k, v in data.items() if k in cls.__dataclass_fields__})


@dataclass(frozen=True)
class CheckResult:
    """Outcome of checking one case against the reference."""

    case: str
    role: Role
    status: Status
    reason: str = ""
    max_error: float | None = None  # in units of the tolerance's own measure

    def to_json(self) -> dict[str, Any]:
        """JSON form (`check --json`)."""
        return {
            "name": self.case,
            "role": str(self.role),
            "status": str(self.status),
            "reason": self.reason,
            "max_error": self.max_error,
        }


@dataclass(frozen=True)
class Evaluation:
    """The outcome of one candidate on one device: status, times per case, resources."""

    candidate: Candidate
    status: Status
    message: str = ""
    measurements: tuple[Measurement, ...] = ()
    launches: Mapping[str, tuple[Launch, ...]] = field(default_factory=dict)  # by case name
    resources: Resources | None = None
    checks: tuple[CheckResult, ...] = ()
    same_as: str | None = None  # id of the candidate with the same binary that was measured instead
    compile_s: float = 0.0
    check_s: float = 0.0
    time_s: float = 0.0

    @cached_property
    def score_ms(self) -> float | None:
        """Geometric mean of the cases' medians; None unless the status is ok."""
        if self.status is not Status.OK or not self.measurements:
            return None
        return math.exp(sum(math.log(m.median_ms) for m in self.measurements) / len(self.measurements))

    @property
    def event_floor_ms(self) -> float | None:
        """What an empty event pair read beside these times; None where the clock is not event pairs."""
        return next((m.event_floor_ms for m in self.measurements if m.event_floor_ms is not None), None)

    def verdict(self, case: str) -> dict[str, Any]:
        """What results say of a case's check: `status` and `max_error`, None where there was none."""
        found = next((c for c in self.checks if c.case == case), None)
        return {
            "status": str(found.status) if found else None,
            "max_error": found.max_error if found else None,
        }

    def measurement(self, case: str) -> Measurement | None:
        """The measurement of a case, if it was timed."""
        return next((m for m in self.measurements if m.case == case), None)

    def to_json(self, *, samples: bool = True) -> dict[str, Any]:
        """JSON form, the `evaluation` event's data."""
        return {
            "candidate": self.candidate.id,
            "variant": self.candidate.variant,
            "source_hash": self.candidate.source_hash,
            "config": dict(self.candidate.config),
            "status": str(self.status),
            "message": self.message,
            "score_ms": self.score_ms,
            "measurements": [m.to_json(samples=samples) for m in self.measurements],
            "launches": {
                case: [
                    {"entry": x.entry, "grid": list(x.grid), "block": list(x.block), "shared": x.shared}
                    for x in launches
                ]
                for case, launches in self.launches.items()
            },
            "resources": self.resources.to_json() if self.resources else None,
            "checks": [c.to_json() for c in self.checks],
            "same_as": self.same_as,
            "compile_s": self.compile_s,
            "check_s": self.check_s,
            "time_s": self.time_s,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evaluation:
        """Inverse of `to_json`."""
        return cls(
            candidate=Candidate(data["variant"], dict(data["config"]), data["source_hash"]),
            status=Status(data["status"]),
            message=data.get("message", ""),
            measurements=tuple(Measurement.from_json(m) for m in data.get("measurements", ())),
            launches={
                case: tuple(
                    Launch(x["entry"], tuple(x["grid"]), tuple(x["block"]), x["shared"]) for x in launches
                )
                for case, launches in data.get("launches", {}).items()
            },
            resources=Resources.from_json(data["resources"]) if data.get("resources") else None,
            checks=tuple(
                CheckResult(c["name"], Role(c["role"]), Status(c["status"]), c["reason"], c["max_error"])
                for c in data.get("checks", ())
            ),
            same_as=data.get("same_as"),
            compile_s=data.get("compile_s", 0.0),
            check_s=data.get("check_s", 0.0),
            time_s=data.get("time_s", 0.0),
        )


@dataclass(frozen=True)
class DeviceInfo:
    """What a device is. Recorded and emulated devices say so wherever their numbers appear."""

    name: str  # "NVIDIA H200"
    spec: str  # what the user can type again: "cuda:0", "recorded:h200"
    recorded: bool = False
    emulated: bool = False
    date: str | None = None  # of the recording, ISO
    uuid: str | None = None
    compute_capability: tuple[int, int] | None = None
    sm_count: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    driver: str | None = None
    sm_clock_max_mhz: float | None = None
    dram_gbs: float | None = None  # peak DRAM bandwidth, GB/s, from bus width and memory clock
    l2_gbs: float | None = None  # measured L2 read bandwidth, GB/s
    fp32_tflops: float | None = None  # peak FP32 FMA rate
    launch_floor_ms: float | None = None  # an empty kernel on the same clock

    @property
    def label(self) -> str:
        """For people: the name, and where the numbers come from if they aren't live."""
        if self.recorded:
            return f"recorded on {self.name}, {self.date or 'date unknown'}"
        if self.emulated:
            return f"{self.name} (emulated: correctness only, no times)"
        return f"{self.name} ({self.spec})" if self.spec else self.name

    def to_json(self) -> dict[str, Any]:
        """JSON form: the session header's and `tune --json`'s `device`."""
        return {**self.__dict__, "label": self.label}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> DeviceInfo:
        """Inverse of `to_json`; unknown keys are ignored."""
        known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
        if known.get("compute_capability"):
            major, minor = known["compute_capability"]
            known["compute_capability"] = (int(major), int(minor))
        return cls(**known)
