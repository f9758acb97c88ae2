"""Start Nsight Compute: find it, build its command, run it within a time limit, tell what went wrong."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .. import process
from ..environment import without_secrets
from . import errors
from .errors import NcuError
from .metrics import QUANTITIES, SEED, SETS, MetricSet

SUFFIX = ".ncu-rep"
CACHES = {"cold": "all", "hot": "none"}  # cache mode -> `--cache-control`
_PLACES = ("/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
_VERSION_S = 20.0
_TEMPORARY, _NO_SECTIONS = "tmp", "sections"  # folders beside a report, and in it


@dataclass(frozen=True)
class Outcome:
    """One start of Nsight Compute. With a report and a failure, the report has the launches before it.

    `seconds`: since its end was waited for.
    """

    report: Path | None
    failure: NcuError | None
    output: str
    seconds: float


def find(environ: Mapping[str, str] | None = None) -> Path:
    """Nsight Compute's command line: `$WARPDECK_NCU`, else `ncu` on PATH, else the newest installed one.

    Raises NcuError (not_installed).
    """
    env = os.environ if environ is None else environ
    named = env.get("WARPDECK_NCU")
    if named:
        if os.access(named, os.X_OK) and Path(named).is_file():
            return Path(named)
        raise errors.not_installed([f"WARPDECK_NCU={named}"])
    path = shutil.which("ncu", path=env.get("PATH", os.defpath))
    if path:
        return Path(path)
    installed = [
        found for place in _PLACES for found in Path("/").glob(place[1:]) if os.access(found, os.X_OK)
    ]
    if not installed:
        raise errors.not_installed(["PATH", *_PLACES])
    return max(installed, key=lambda p: [int(n) for n in re.findall(r"\d+", str(p))])


def version(ncu: Path) -> str | None:
    """Its version, "2025.3.1"; None if it doesn't tell."""
    with tempfile.TemporaryDirectory(prefix="warpdeck-ncu-") as folder:
        try:
            ended = process.run(
                [str(ncu), "--version"],
                environment=_environment(None, Path(folder)),
                timeout_s=_VERSION_S,
                log=Path(folder) / "log",
            )
        except OSError:
            return None
    found = re.search(r"Version\s+(\d+(?:\.\d+)+)", ended.output)
    return ".".join(found[1].split(".")[:3]) if found else None


def metric_set(name: str, metrics: Sequence[str] = ()) -> tuple[MetricSet, tuple[str, ...]]:
    """What to collect: a set by its name, or the seed set and `metrics`; also the counters among those.

    `metrics` are quantities of ours and Nsight Compute's own names. Raises NcuError (bad_option).
    """
    if not metrics:
        if name not in SETS:
            raise NcuError("bad_option", f"there is no metric set '{name}'", f"use {', '.join(SETS)}")
        return SETS[name], ()
    ours = tuple(m for m in metrics if m in QUANTITIES)
    others = tuple(m for m in metrics if m not in QUANTITIES)
    for other in others:
        if not re.fullmatch(r"[A-Za-z0-9_:.]+__[A-Za-z0-9_:.]+", other):
            raise NcuError(
                "bad_option",
                f"'{other}' is no metric",
                f"use a name of Nsight Compute's (`ncu --query-metrics`), or one of {', '.join(SEED)}",
            )
    own = replace(SETS["seed"], name="metrics", quantities=(*SETS["seed"].quantities, *ours), passes=None)
    return own, others


def command(
    ncu: Path,
    program: Sequence[str],
    report: Path,
    *,
    chosen: MetricSet,
    counters: Sequence[str] = (),
    cache: str = "cold",
    capability: tuple[int, int] | None = None,
    sources: Sequence[Path] = (),
) -> list[str]:
    """The command line that profiles what `program` launches between cuProfilerStart and cuProfilerStop.

    Args:
        ncu: from `find`.
        program: what to run; its own process launches the kernels.
        report: the file to write, which ends in .ncu-rep.
        chosen: what to collect.
        counters: Nsight Compute's names to collect too.
        cache: "cold" (every pass flushes the caches) or "hot" (the launches before leave them as they are).
        capability: of the GPU; counters that it lacks aren't asked for.
        sources: folders with the kernels' sources, for a set with samples by line.
    """
    options = chosen.arguments(capability)
    if not (chosen.preset or chosen.sections):  # it would read all its own sections, which takes 0.2 s
        options += ["--section-folder", str(report.parent / _TEMPORARY / _NO_SECTIONS)]
    if counters:
        if "--metrics" in options:
            options[options.index("--metrics") + 1] += "," + ",".join(counters)
        else:
            options += ["--metrics", ",".join(counters)]
    if chosen.source and sources:
        options += ["--source-folders", ",".join(map(str, sources))]
    return [
        str(ncu),
        *("--profile-from-start", "off"),
        *("--target-processes", "application-only"),
        *("--clock-control", "none"),
        *("--cache-control", CACHES[cache]),
        *("--kernel-name-base", "function"),
        *("--replay-mode", "kernel"),
        *options,
        *("--force-overwrite", "--export", str(report)),
        *program,
    ]


class Start:
    """Nsight Compute at work on a program, which may wait for its own work meanwhile.

    See `command` for the arguments. The folder of `report` also gets the log, and a temporary directory of
    the tool's own, since its lock file in a shared one may belong to another user. `environment`: of tool and
    program, without what looks like a secret; None: this process'.
    """

    def __init__(
        self,
        program: Sequence[str],
        report: Path,
        *,
        chosen: MetricSet,
        counters: Sequence[str] = (),
        cache: str = "cold",
        capability: tuple[int, int] | None = None,
        sources: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._report = report
        self._running: process.Running | None = None
        self._failure: NcuError | None = None
        folder = report.parent
        try:
            line = command(
                find(environment),
                program,
                report,
                chosen=chosen,
                counters=counters,
                cache=cache,
                capability=capability,
                sources=sources,
            )
            self._running = process.Running(
                line, environment=_environment(environment, folder), log=folder / "ncu.log"
            )
        except NcuError as failure:
            self._failure = failure
        except OSError as error:
            self._failure = NcuError(
                "not_installed", f"Nsight Compute can't be started: {error}", "reinstall it"
            )

    def finish(self, timeout_s: float) -> Outcome:
        """What came of it, `timeout_s` from now at the latest; never raises for what tool or program do.

        Everything that was started is gone afterwards.
        """
        if self._running is None:
            return Outcome(None, self._failure, "", 0.0)
        ended = self._running.wait(timeout_s)
        failure = errors.timed_out(timeout_s) if ended.timed_out else errors.explain(ended.output, ended.code)
        if ended.left:
            pids = ", ".join(map(str, ended.left))
            failure = NcuError(
                "failed",
                f"process {pids} of a profiling run can't be ended: the driver holds it",
                "the GPU may need a reset",
            )
        report = self._report
        written = report if not ended.timed_out and report.is_file() and report.stat().st_size else None
        if written is None and failure is None:
            failure = NcuError(
                "report", "Nsight Compute ended without a report", f"its log: {_last(ended.output)}"
            )
        return Outcome(written, failure, ended.output, ended.seconds)

    def close(self) -> None:
        """End it, if it hasn't ended."""
        if self._running is not None:
            self._running.close()


def profile(
    program: Sequence[str],
    report: Path,
    *,
    set: str = "seed",
    metrics: Sequence[str] = (),
    cache: str = "cold",
    timeout_s: float = 120.0,
    environment: Mapping[str, str] | None = None,
) -> Path:
    """Profile any program that calls cuProfilerStart and cuProfilerStop; returns the report's file.

    `set` is a name in `metrics.SETS`; `metrics` replaces it by the seed set and these. Raises NcuError for
    every known failure, with what to do about it.
    """
    chosen, counters = metric_set(set, metrics)
    outcome = Start(
        program, report, chosen=chosen, counters=counters, cache=cache, environment=environment
    ).finish(timeout_s)
    if outcome.failure is not None:
        raise outcome.failure
    assert outcome.report is not None
    return outcome.report


def _environment(base: Mapping[str, str] | None, folder: Path) -> dict[str, str]:
    temporary = folder / _TEMPORARY
    temporary.mkdir(mode=0o700, exist_ok=True)
    (temporary / _NO_SECTIONS).mkdir(exist_ok=True)
    return {
        **without_secrets(base),
        "TMPDIR": str(temporary),
        # It would copy its section files into the user's home at the first start.
        "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1",
    }


def _last(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "empty"
