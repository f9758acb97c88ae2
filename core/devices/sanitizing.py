"""Candidates of one workload on one CUDA device under compute-sanitizer's tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...telemetry import sanitizer
from ...telemetry.sanitizer import Finding, Report, SanitizerError
from ..errors import WarpdeckError
from ..model import Candidate, Case, CheckResult, DeviceInfo, Role, Status
from ..worker.program import Item, Marker, Program
from ..worker.session import Session
from .codes import Codes

TIMEOUT_S = 600.0  # of one tool; they slow kernels down by 10 to 100
_GRACE_S = 30.0


def sanitize(
    info: DeviceInfo,
    session: Session,
    codes: Codes,
    todo: Sequence[tuple[Candidate, Case]],
    *,
    tools: Sequence[str] = sanitizer.TOOLS,
    timeout_s: float = TIMEOUT_S,
) -> list[CheckResult]:
    """Launch each candidate once on its case, under each tool; one result a tool, called as the tool is.

    Its buffers have exactly their size and nothing but the inputs is written before. The status is `ok` only
    if the tool ended with exit code 0, its summary counts nothing, and the program's completion marker says
    that every launch was made; `incorrect` if it found something.

    Raises WarpdeckError if compute-sanitizer isn't there.
    """
    try:
        path = sanitizer.find()
    except SanitizerError as error:
        raise WarpdeckError(str(error)) from None
    ordered = sorted(todo, key=lambda pair: pair[1].name)  # a case's buffers are made once
    items = [
        Item(codes.get(candidate, [case]), case, session.describe(case, (0,))) for candidate, case in ordered
    ]
    entries = {symbol: entry for i in items for entry, symbol in i.code.compiled.entries.items()}
    device = int(info.spec.partition(":")[2] or 0)
    found = []
    for tool in tools:
        with Program(device) as program:
            program.give(items, invocation=0, limit_s=timeout_s + _GRACE_S)
            report = sanitizer.run(
                tool,
                program.command,
                folder=program.folder,
                environment=program.environment,
                timeout_s=timeout_s,
                sanitizer=path,
            )
            found.append(_judged(report, program.marker, ordered, program.progress, entries))
    return found


def _judged(
    report: Report,
    marker: Marker | None,
    todo: Sequence[tuple[Candidate, Case]],
    at: int,
    entries: Mapping[str, str],
) -> CheckResult:
    def result(status: Status, reason: str) -> CheckResult:
        return CheckResult(report.tool, Role.CORRECTNESS, status, reason)

    if report.findings:
        told = [_told(finding, entries) for finding in report.findings]
        more = f"; and {len(told) - 3} more" if len(told) > 3 else ""
        return result(Status.INCORRECT, "; ".join(told[:3]) + more)
    where = f" (at {_name(todo[at])})" if 0 <= at < len(todo) else ""
    if report.problem:
        timed_out = "took longer" in report.problem
        return result(Status.TIMEOUT if timed_out else Status.RUNTIME_ERROR, report.problem + where)
    if report.errors != 0:
        return result(Status.INCORRECT, f"its summary counts {report.errors} errors that it didn't print")
    if marker is None or not marker.complete:
        why = marker.fault if marker is not None else f"it didn't run to its end{where}"
        return result(Status.RUNTIME_ERROR, f"no completion marker: {why}; nothing is proven")
    for number, pair in enumerate(todo):
        end = marker.items[number] if number < len(marker.items) else None
        if end is None or end.status is not Status.OK:
            why = f"{end.status}: {end.message}" if end is not None else "it was not launched"
            return result(end.status if end is not None else Status.RUNTIME_ERROR, f"{_name(pair)}: {why}")
    return result(Status.OK, f"{len(todo)} launches")


def _told(finding: Finding, entries: Mapping[str, str]) -> str:
    """A finding with the kernel's own name instead of its symbol's."""
    name = next((entry for symbol, entry in entries.items() if entry in finding.kernel), finding.kernel)
    return finding.text.replace(finding.kernel, name) if finding.kernel else finding.text


def _name(pair: tuple[Candidate, Case]) -> str:
    candidate, case = pair
    config = " ".join(f"{k}={v}" for k, v in candidate.config.items())
    return f"{candidate.variant} {config}, case {case.name}"
