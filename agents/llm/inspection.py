"""Looking into candidates for the model: resources, machine code, counters, timelines, the sanitizer. All
of it in words; nothing here evaluates."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...core import tracing
from ...core.check.flags import ptx_flags, refusal
from ...core.errors import NoDeviceError, WarpdeckError
from ...core.model import CacheMode, Candidate, Case
from ...core.profiling import NcuFailure, ProfileOptions
from ...core.toolchain import Compiled, CompileError, compile_candidate
from ...core.toolchain.disassembly import disassemble
from ...core.workload import LaunchSpec
from ..base import Context, Control
from .history import Attempt
from .ledger import candidate_of, generated
from .settings import LlmSettings

if TYPE_CHECKING:
    from ...core.bench import Bench

ERRORS = 12  # lines of a compiler's log that are told
INNER_SET = "cheap"  # counters that every valid attempt is worth
TOOL_SET = "full"  # when the model asks
HOT_LINES = 8
MARKER = re.compile(r"\bWD_STAGES\s*\(")


class Inspector:
    """Answers about attempts, from several threads one at a time.

    Args:
        bench: the candidates'.
        context: where reports go and are told of.
        settings: whether counters are wanted.
    """

    def __init__(self, bench: Bench, context: Context, settings: LlmSettings) -> None:
        self._bench = bench
        self._context = context
        info = bench.device
        self.live = not (info.emulated or info.recorded)
        self.compiles = self.live and info.compute_capability is not None
        self.counters = settings.counters and self.live
        self._lock = threading.RLock()
        self._held = False

    def hold(self, control: Control) -> None:
        """Keep the model's turns off the device while the loop's thread evaluates. Raises Stop."""
        while not self._held:
            self._held = self._lock.acquire(timeout=0.2)
            control.check()

    def release(self) -> None:
        """Let them on again. Called by the thread that holds."""
        if self._held:
            self._held = False
            self._lock.release()

    # -- the compiler ------------------------------------------------------------------------------------

    def compile(self, source: str, entries: Sequence[str]) -> str:
        """Resources of each kernel of a draft, or the compiler's first errors."""
        folder = self._context.folder / "artifacts"
        with self._lock, tempfile.TemporaryDirectory(prefix="draft-", dir=folder) as place:
            file = Path(place) / "draft.cu"
            file.write_text(source, encoding="utf-8")
            launches = tuple(LaunchSpec(entry, ("1",), ("1",)) for entry in entries)
            variant = generated("draft", file, launches)
            workload = replace(self._bench.workload, variants={"draft": variant})
            candidate = Candidate("draft", {}, variant.source_hash)
            try:
                compiled = compile_candidate(workload, candidate, self._case(), self._cc())
            except CompileError as error:
                return f"it doesn't compile: {compile_errors(error).replace(f'{place}/', '')}"
        refused = refusal(ptx_flags(compiled.ptx or ""))
        verdict = "it compiles" if refused is None else f"it compiles, but it would be refused: {refused}"
        return "\n".join([verdict, *_kernels(compiled), *compiled.warnings])

    def errors(self, attempt: Attempt) -> list[str]:
        """The compiler's first errors about an attempt that doesn't compile; its message told only one."""
        if not self.compiles:
            return []
        try:
            self._compiled(attempt)
        except CompileError as error:
            return compile_errors(error).splitlines()[1:]
        except WarpdeckError:  # of the toolchain, not of the attempt
            return []
        return []

    def resources(self, attempt: Attempt) -> str:
        """What the compiler gave each kernel of an attempt."""
        compiled, candidate = self._compiled(attempt), candidate_of(self._bench, attempt)
        lines = _kernels(compiled)
        for case in self._bench.cases:
            launched = compiled.with_launches(self._bench.workload.launches(candidate, case))
            fit = launched.resources
            if fit.occupancy is not None:
                lines.append(
                    f"case {case.name}: occupancy {fit.occupancy:.0%}, limited by {fit.limiter} (first"
                    " launch)"
                )
        return "\n".join(lines)

    def code(self, attempt: Attempt, kind: str, kernel: str, pattern: str, first: int, count: int) -> str:
        """Lines of an attempt's PTX or SASS, numbered; only those that contain `pattern`, if given."""
        compiled = self._compiled(attempt)
        if kind == "ptx":
            lines = (compiled.ptx or "").splitlines()
        else:
            symbols = {symbol: entry for entry, symbol in compiled.entries.items()}
            lines = [
                f"{i.label + ': ' if i.label else ''}{i.text}" + (f"  // line {i.line}" if i.line else "")
                for i in disassemble(compiled.cubin)
                if not kernel or kernel in (i.kernel, symbols.get(i.kernel))
            ]
        wanted = [(n, line) for n, line in enumerate(lines, 1) if pattern in line]
        shown = wanted[max(first, 1) - 1 :][:count]
        if not shown:
            return f"no such lines; {kind} has {len(lines)} lines, {len(wanted)} of them with {pattern!r}"
        head = f"{kind}: {len(lines)} lines" + (f", {len(wanted)} with {pattern!r}" if pattern else "")
        return "\n".join([head, *(f"{n}: {line}" for n, line in shown)])

    def _compiled(self, attempt: Attempt) -> Compiled:
        candidate = candidate_of(self._bench, attempt)
        return compile_candidate(self._bench.workload, candidate, self._case(), self._cc())

    # -- the device --------------------------------------------------------------------------------------

    def diagnose(self, attempt: Attempt) -> list[str]:
        """What the counters of a valid attempt's slowest case say; keeps the report. Never raises for the
        candidate's or the profiler's failures."""
        report = self._context.folder / f"artifacts/attempts/attempt-{attempt.number:03d}.ncu-rep"
        try:
            found = self._profile(attempt, self._slowest(attempt), INNER_SET, report)
        except NoDeviceError:
            raise
        except WarpdeckError as error:
            return [f"no counters: {error}"]
        if report.is_file():
            path = str(report.relative_to(self._context.folder))
            self._context.emit("artifact", {"name": f"counters of attempt {attempt.number}", "path": path})
        return found

    def profile(self, attempt: Attempt, case: str) -> str:
        """Everything that the counters say about one case, with the hottest lines."""
        return "\n".join(self._profile(attempt, self._case(case), TOOL_SET, None))

    def _profile(self, attempt: Attempt, case: Case, metrics: str, keep: Path | None) -> list[str]:
        from ...telemetry.ncu.diagnosis import diagnose

        protocol = self._bench.protocol.cache
        cache = protocol if protocol in (CacheMode.COLD, CacheMode.HOT) else CacheMode.COLD
        options = ProfileOptions(set=metrics, cache=cache, keep=keep)
        with self._lock, self._bench.quiet():
            (found,) = self._bench.backend.profile([candidate_of(self._bench, attempt)], case, options)
        if isinstance(found, NcuFailure):
            return [f"no counters: {found.text}"]
        lines = [f"counters, case {case.name}, kernel {found.kernel}:"]
        lines += [f"- {d.text}" for d in diagnose(found)]
        for spot in found.hotspots[:HOT_LINES]:
            place = f"line {spot.line}: {spot.source.strip()}" if spot.line else spot.sass
            stalls = sorted(spot.stalls.items(), key=lambda item: -item[1])[:2]
            waits = ", ".join(f"{name} {count}" for name, count in stalls)
            lines.append(f"- {spot.samples} samples at {place} ({waits})")
        return lines

    def timeline(self, attempt: Attempt, case: str) -> str:
        """Where the warps' time goes, stage by stage, of an attempt with stage markers."""
        if not MARKER.search(attempt.text):
            return (
                f"attempt {attempt.number} has no stage markers: #include <warpdeck/trace.cuh>, name stages"
                " with WD_STAGES(load, compute) at file scope, put WD_TRACE_PARAM after the last parameter"
                " (no comma), WD_TRACE_BEGIN(); first in the kernel, WD_PUSH(load); and WD_POP(load); around"
                " the parts, WD_TRACE_END(); before every return. They cost nothing when nothing is traced"
            )
        options = tracing.TraceOptions(cache=CacheMode(self._bench.protocol.cache))
        with self._lock, self._bench.quiet():
            raw = self._bench.backend.trace(candidate_of(self._bench, attempt), self._case(case), options)
        told = tracing.document(tracing.decoded(raw))
        lines = [f"{told['kernel']}: {told['warps']} warps traced, {told['span_ns'] / 1e3:.2f} µs"]
        for stage in told["stages"]:
            lines.append(
                f"- {stage['name']}: {stage['share']:.1%} of the warps' time, {stage['count']} times,"
                f" median {stage['p50_ns']:.0f} ns, 95% below {stage['p95_ns']:.0f} ns"
            )
        return "\n".join([*lines, *told["warnings"], *told["notes"]])

    def sanitize(self, attempt: Attempt) -> str:
        """What compute-sanitizer's tools find in an attempt."""
        with self._lock, self._bench.quiet():
            found = self._bench.backend.sanitize([candidate_of(self._bench, attempt)], self._bench.cases)
        return "\n".join(f"{r.case}: {r.status}{': ' + r.reason if r.reason else ''}" for r in found)

    # -- helpers -----------------------------------------------------------------------------------------

    def _cc(self) -> tuple[int, int]:
        return self._bench.device.compute_capability or (9, 0)

    def _case(self, name: str = "") -> Case:
        """The performance case of this name; the first if there is none."""
        return next((c for c in self._bench.cases if c.name == name), self._bench.cases[0])

    def _slowest(self, attempt: Attempt) -> Case:
        measured = attempt.evaluation.measurements if attempt.evaluation else ()
        times: Mapping[str, float] = {m.case: m.median_ms for m in measured}
        return max(self._bench.cases, key=lambda case: times.get(case.name, 0.0))


def compile_errors(error: CompileError) -> str:
    """The first lines of a compiler's log that name errors, with what follows each."""
    lines = error.log.splitlines()
    told: list[str] = []
    for i, line in enumerate(lines):
        if "error" in line and len(told) < ERRORS:
            told += lines[i : i + 3]
    return "\n".join([str(error), *dict.fromkeys(told)])


def _kernels(compiled: Compiled) -> list[str]:
    return [
        f"{entry}: {info.registers} registers, {info.shared_bytes} B static shared memory,"
        f" {info.spill_bytes} B spilled, {info.local_bytes} B local, {info.code_bytes} B code"
        for entry, info in compiled.kernels.items()
    ]
