"""What a run is asked to do, as its session stores it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.model import CacheMode, Protocol, Trust
from ..core.workload import Workload


@dataclass(frozen=True)
class RunSpec:
    """One tuning run.

    Attributes:
        workload: A bundled workload's name, or a user's folder.
        agent: Name of a strategy (see `agents.registry`).
        device: `auto`, `cuda:N`, `recorded:NAME`, `recorded:FILE`.
        space: Name of the workload's search space.
        sizes: Each is a performance case; empty means the workload's own or its default size.
        steps: Evaluations, failures included.
        time_limit_s: Seconds of running after which no further evaluation starts; None for no limit.
        cache: `cold` or `hot`.
        samples: At most, for each case.
        warmup: Launches before the first sample.
        seed: Of everything the run draws.
        options: The agent's own settings.
        allow_shared: Go on although other processes use the GPU, and label the results.
        finalists: Candidates re-measured in pairs at the end.
        first: Configurations to evaluate before the agent's own.
        explain: Trace and profile the best and the baseline at the end.
        parts: Of a workload that isn't whole yet (`kernels.parts.Parts`): the model writes the rest into the
            folder `workload` before anything else; None once it is whole.
        allow_unsandboxed: Run a model's host code although no sandbox works.
        origin: What `--from` named, if the run continues from it.
        reference_limit_s: Seconds that the reference may take for one draw; None: the workload's own limit.
    """

    workload: str
    agent: str = "tpe"
    device: str = "auto"
    space: str = "full"
    sizes: tuple[int, ...] = ()
    steps: int = 100
    time_limit_s: float | None = None
    cache: str = "cold"
    samples: int = 100
    warmup: int = 10
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    allow_shared: bool = False
    finalists: int = 8
    first: tuple[Mapping[str, Any], ...] = ()
    explain: bool = False
    parts: Mapping[str, Any] | None = None
    allow_unsandboxed: bool = False
    origin: str | None = None
    reference_limit_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse impossible numbers. Raises UsageError."""
        for name, least in (("steps", 1), ("samples", 1), ("warmup", 0), ("finalists", 1), ("seed", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name} must be a whole number of at least {least}, not {value!r}")
        for what, limit in (("time", self.time_limit_s), ("reference's", self.reference_limit_s)):
            if limit is not None and not (math.isfinite(limit) and limit > 0):
                raise UsageError(f"the {what} limit must be more than 0 seconds, not {limit}")
        if self.cache not in list(CacheMode):
            raise UsageError(f"cache must be cold or hot, not {self.cache!r}")

    @property
    def protocol(self) -> Protocol:
        """How each candidate is measured."""
        return Protocol(
            cache=CacheMode(self.cache),
            warmup=self.warmup,
            samples=self.samples,
            min_samples=min(30, self.samples),
        )

    def absolute(self, workload: Workload) -> RunSpec:
        """With file names that hold from any working directory, as the run process needs them.

        `workload` is what the spec's name was loaded as.
        """
        changes: dict[str, Any] = {}
        if workload.trust is not Trust.BUNDLED:
            changes["workload"] = str(workload.folder.absolute())
        target = self.device.removeprefix("recorded:")
        if target != self.device and ("/" in target or target.endswith((".json", ".gz"))):
            changes["device"] = f"recorded:{Path(target).expanduser().absolute()}"
        return RunSpec(**{**{f.name: getattr(self, f.name) for f in fields(self)}, **changes})

    def to_json(self) -> dict[str, Any]:
        """As stored in the session's header."""
        first = [dict(config) for config in self.first]
        return {**asdict(self), "sizes": list(self.sizes), "options": dict(self.options), "first": first}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunSpec:
        """Inverse of `to_json`; unknown keys are ignored. Raises UsageError for what can't be a spec."""
        try:
            known = {k: v for k, v in data.items() if k in cls.__dataclass_fields__}
            sizes = tuple(int(n) for n in known.get("sizes", ()))
            first = tuple(dict(config) for config in known.get("first", ()))
            return cls(**{**known, "sizes": sizes, "first": first})
        except (TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"the session's description of its run is damaged: {error}") from None
