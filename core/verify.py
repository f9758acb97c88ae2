"""`check`: is a variant correct, over more cases and configurations than a tuning run looks at?"""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..telemetry import sanitizer
from .bench import performance_cases
from .check.derived import covering_configs, derived_cases
from .devices.base import Backend, Device
from .devices.cases import foreign
from .devices.recorded import refuse_stale
from .errors import UsageError, VerificationError, WarpdeckError
from .model import Candidate, Case, CheckResult, Config, DeviceInfo, Evaluation, Protocol, Status
from .workload import Variant, Workload

WEAK_CASE = "weak_case"
LAUNCHES = 32  # at least, of every configuration, each on newly drawn or partly changed data
SLOW_SIZE = 2048
EMULATED_CONFIGS = 8  # all of them up to so many where each takes seconds
SANITIZED = 6  # configurations, spread over those that were checked
_NEVER_RAN = (Status.RESTRICTED, Status.COMPILE_ERROR, Status.UNSUPPORTED)
_DRAWS = (4, 1, 5, 2, 6, 3, 7)  # partly changed data (check.POOL and above) and new data by turns
_BRIEF = Protocol(warmup=1, samples=3, min_samples=3, adaptive=False)  # timing is not what is asked for


@dataclass(frozen=True)
class Verification:
    """The verdict on one variant. `status` is `ok`, the first failure's status, or `weak_case`."""

    workload: str
    variant: str
    device: DeviceInfo
    status: str
    reason: str
    cases: tuple[CheckResult, ...]  # one a case: its first failure, else its largest error
    configs: int  # checked; the last of them is the one that failed
    config: Config | None = None  # the one that failed

    @property
    def ok(self) -> bool:
        """Whether nothing was found wrong."""
        return self.status == Status.OK

    def to_json(self) -> dict[str, Any]:
        """The document of `check --json`, without its schema version."""
        return {
            "workload": self.workload,
            "variant": self.variant,
            "device": self.device.to_json(),
            "status": self.status,
            "reason": self.reason,
            "configs": self.configs,
            "config": None if self.config is None else dict(self.config),
            "cases": [case.to_json() for case in self.cases],
        }


def verify(
    workload: Workload,
    device: Device,
    variant: Variant,
    *,
    space: str | None = None,
    sizes: Sequence[int] = (),
    slow: bool = False,
    sanitize: bool = False,
    seed: int = 0,
    allow_shared: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """Check a variant's configurations on the workload's cases and on derived ones, up to the first failure.

    A live device runs every configuration up to 64 (an emulated one up to 8), else few in which each knob
    value occurs, each at least 32 times. A recorded one tells what was found when it was recorded.

    Args:
        workload: whose reference decides.
        device: where.
        variant: the implementation; another source may stand in for the space's.
        space: whose configurations; None: the variant's first.
        sizes: performance cases to check too; empty: the workload's own, or its default size.
        slow: every valid configuration, and size 2048 too.
        sanitize: then run compute-sanitizer's tools, each a result in `cases`; on the configuration that
            failed if one did, else on a few.
        seed: of the inputs. Those of code of others are secret all the same.
        allow_shared: go on although other processes use the GPU.
        progress: told (done, total) configurations.

    Raises:
        UsageError: an unknown space, no valid configuration, or a recording of other sources.
        WarpdeckError: the device failed.
    """
    chosen = workload.space(space) if space else workload.space_of(variant.name)
    # Its own source, under the name that the space's configurations stand for.
    workload = dataclasses.replace(
        workload,
        variants={**workload.variants, chosen.variant: dataclasses.replace(variant, name=chosen.variant)},
    )
    measured = not (device.info.recorded or device.info.emulated)
    cases = performance_cases(
        workload, [*sizes, SLOW_SIZE] if slow and sizes and measured else sizes, device.info
    )
    if slow and not sizes and measured:
        cases = [*cases, workload.size_case(SLOW_SIZE)]
    valid = chosen.configs_for([case.params for case in cases])
    if not valid:
        raise UsageError(f"workload '{workload.name}', space '{chosen.name}': no configuration is valid")
    if not device.info.recorded:
        known = {case.name for case in workload.cases}
        derived = [c for c in derived_cases(workload, chosen) if c.name not in known]
        workload = dataclasses.replace(workload, cases=(*workload.cases, *derived))
    few = {"up_to": EMULATED_CONFIGS} if device.info.emulated else {}
    configs = valid if slow else covering_configs(valid, **few)
    if sanitize:  # what would be missing at the end is told at the start
        if device.info.recorded:
            raise UsageError(f"{device.info.label}: a recording runs no sanitizer; use --device cuda:0")
        if device.info.emulated:
            raise UsageError(
                f"{device.info.label}: compute-sanitizer needs a GPU; leave --sanitize out: memory accesses, "
                "barriers and races are always checked here"
            )
        try:
            sanitizer.find()
        except sanitizer.SanitizerError as error:
            raise WarpdeckError(str(error)) from None
    found: dict[str, CheckResult] = {}

    def verdict(status: str, reason: str, done: int, config: Config | None = None) -> Verification:
        return Verification(
            workload.name, variant.name, device.info, status, reason, tuple(found.values()), done, config
        )

    if foreign(workload, workload.candidate(chosen.name, configs[0])):  # it mustn't know them in advance
        seed = secrets.randbits(63)
    backend = device.prepare(workload, space=chosen.name, cases=cases, seed=seed, allow_shared=allow_shared)
    try:
        refuse_stale(backend)
        for done, config in enumerate(configs):
            progress(done, len(configs))
            evaluation = _repeated(backend, workload, chosen.name, config, cases, found)
            if evaluation.status is not Status.OK:
                if sanitize and evaluation.status not in _NEVER_RAN:
                    _sanitized(backend, [evaluation.candidate], cases, found)
                return verdict(str(evaluation.status), evaluation.message, done + 1, config)
        progress(len(configs), len(configs))
        if sanitize:
            some = configs[:: -(-len(configs) // SANITIZED)]
            bad = _sanitized(backend, [workload.candidate(chosen.name, c) for c in some], cases, found)
            if bad is not None:
                return verdict(str(bad.status), f"{bad.case}: {bad.reason}", len(configs))
        return verdict(str(Status.OK), "", len(configs))
    except VerificationError as weak:
        return verdict(WEAK_CASE, str(weak), 0)
    finally:
        backend.close()


def _sanitized(
    backend: Backend, candidates: Sequence[Candidate], cases: Sequence[Case], found: dict[str, CheckResult]
) -> CheckResult | None:
    """Run every tool; adds its results to `found` and returns the first that isn't `ok`."""
    results = backend.sanitize(candidates, cases)
    found |= {result.case: result for result in results}
    return next((r for r in results if r.status is not Status.OK), None)


def _repeated(
    backend: Backend,
    workload: Workload,
    space: str,
    config: Config,
    cases: Sequence[Case],
    found: dict[str, CheckResult],
) -> Evaluation:
    """Evaluate a configuration, then launch it often enough; merges its checks into `found`."""
    candidate = workload.candidate(space, config)
    evaluation = backend.evaluate(candidate, cases, _BRIEF)
    launched = _merge(evaluation.checks, found)
    if evaluation.status is not Status.OK or evaluation.same_as is not None:
        return evaluation
    for draw in _DRAWS:
        checks = backend.recheck(candidate, cases, draw) if launched < LAUNCHES else ()
        if not checks:
            break
        launched += _merge(checks, found)
        if checks[-1].status is not Status.OK:
            message = f"case {checks[-1].case}: wrong on later data: {checks[-1].reason}"
            return dataclasses.replace(evaluation, status=checks[-1].status, message=message)
    return evaluation


def _merge(checks: Sequence[CheckResult], found: dict[str, CheckResult]) -> int:
    for check in checks:
        found[check.case] = _worse(found.get(check.case), check)
    return len(checks)


def _worse(known: CheckResult | None, new: CheckResult) -> CheckResult:
    if known is None or new.status is not Status.OK:
        return new
    if known.status is not Status.OK:
        return known
    errors = [e for e in (known.max_error, new.max_error) if e is not None]
    return dataclasses.replace(new, max_error=max(errors, default=None, key=_finite_first))


def _finite_first(error: float) -> float:
    return math.inf if math.isnan(error) else error
