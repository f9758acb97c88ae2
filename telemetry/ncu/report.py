"""Read Nsight Compute's reports: through NVIDIA's module `ncu_report`, or through the CSV that `ncu` prints.

Both ways give the same: the tests compare them on one report. The module is used where it is installed and at
least as new as the tool that wrote the report; it runs in a process of its own (see `extract`).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..environment import without_secrets
from . import pages, run
from .container import Container, inspect
from .counters import Counters, HotSpot, Metric
from .errors import NcuError, bad_report, explain, timed_out
from .launch import NO_VALUE, Instruction, Launch, base_unit, display_name, has_no_value
from .metrics import QUANTITIES, SEED, SETS, derive, normalise, stall_name

_MODULE = "ncu_report"
_EXTRACT = Path(__file__).with_name("extract.py")
# Not about the launch (facts of the machine, samples over time, intermediate results), or sums over tables
# that mean nothing.
_NOISE = re.compile(
    r"device__attribute_|nvlink__|numa__|c2clink__|profiler__|derived_tempMetric|\w+\.Triage"
    r"|launch__occupancy_per_|derived__pct_occupancy_per_|launch__kernel_name$"
)
_LABEL = re.compile(r"`\(\.L\w*\) ")  # before a jump's target; the tool's own pages leave it out
_NEEDS = "install the package ncu-report (pip install 'warpdeck[cuda]') or Nsight Compute itself"


def read(
    path: Path | str,
    *,
    metric_set: str = "",
    wanted: Sequence[str] = (),
    ncu: Path | str | None = None,
    timeout_s: float = 120.0,
) -> list[Counters]:
    """The launches of the report at `path` (`.ncu-rep`), in launch order.

    Args:
        path: the report.
        metric_set: the set that was asked for; what it names and the report lacks is in `missing`.
        wanted: more quantities and counters that were asked for.
        ncu: the program that prints the report where the module can't read it (None: as `run.find`).
        timeout_s: for each start of a reader.

    Raises NcuError: the report is damaged, cut short, foreign or without launches; there is nothing to read
    it with; the reader took too long.
    """
    path = Path(path)
    container = inspect(path)
    reason = _module_lacks(container)
    launches: list[Launch] | None = None
    if not reason:
        try:
            launches = read_module(path, timeout_s)
        except _ModuleMissingError as error:
            reason = str(error)
    if launches is None:
        try:
            program = ncu or run.find()
        except NcuError as error:
            raise NcuError(
                "report", f"{path} can't be read here: {reason}; {error.message}", _NEEDS
            ) from None
        launches = read_pages(path, program, timeout_s)
    # What the module can't decode it leaves out, or gives it empty.
    whole = sum(bool(launch.kernel and launch.metrics) for launch in launches)
    if whole != container.results:
        raise bad_report(str(path), f"it is damaged: {whole} of its {container.results} launches can be read")
    return [
        counters(launch, metric_set=metric_set, wanted=wanted, tool=container.tool, index=i)
        for i, launch in enumerate(launches)
    ]


class _ModuleMissingError(Exception):
    """The module can't be imported after all."""


def _module_lacks(container: Container) -> str:
    """Why the module can't read this report, "" if it can."""
    if importlib.util.find_spec(_MODULE) is None:
        return "the package ncu-report is not installed"
    try:
        have = importlib.metadata.version("ncu-report")
    except importlib.metadata.PackageNotFoundError:
        return ""  # the copy of an Nsight Compute on the path: its version is not known without loading it
    if container.tool and _release(have) < _release(container.tool):
        return f"the report is of Nsight Compute {container.tool}, the package ncu-report only {have}"
    return ""


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version)[:2])


def read_module(path: Path, timeout_s: float) -> list[Launch]:
    """The launches of a report through `ncu_report`, in a process that may crash without harm."""
    with tempfile.TemporaryDirectory(prefix="warpdeck-ncu-") as folder:
        output = Path(folder) / "report.json"
        done = _run([sys.executable, "-P", str(_EXTRACT), str(path), str(output)], timeout_s, path)
        said = (done.stderr.strip().splitlines() or [""])[-1][:200]
        if done.returncode == 3:
            raise _ModuleMissingError(f"the package ncu-report can't be loaded ({said})")
        if done.returncode < 0:
            raise bad_report(str(path), f"it is damaged (its reader crashed with signal {-done.returncode})")
        if done.returncode != 0:
            raise bad_report(str(path), f"it is damaged ({said or f'exit code {done.returncode}'})")
        try:
            data = json.loads(output.read_text(errors="replace"))
            return [_from_module(launch) for launch in data["launches"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise bad_report(str(path), f"it is damaged (its reader's answer is odd: {error})") from None


def _from_module(data: Mapping[str, Any]) -> Launch:
    metrics: dict[str, Metric] = {}
    absent: dict[str, str] = {}
    texts: dict[str, str] = {}
    for name, (value, unit) in data["metrics"].items():
        if isinstance(value, (int, float)):
            metrics[name] = Metric(*base_unit(float(value), unit))
        elif value is None or has_no_value(value):
            absent[name] = NO_VALUE
        else:
            texts[name] = value
    instructions = tuple(
        Instruction(
            address=row["pc"],
            sass=_LABEL.sub("", _text(row["sass"])).strip(),
            file=_text(row["file"]),
            line=row["line"],
            ptx=_text(row["ptx"]).strip(),
            samples=row["samples"],
            executed=row["executed"],
            stalls={stall_name(reason): count for reason, count in row["stalls"].items()},
        )
        for row in data["instructions"]
    )
    return Launch(
        kernel=_text(data["kernel"]),
        metrics=metrics,
        absent=absent,
        texts=texts,
        instructions=instructions,
        base=data["base"],
        sources=data["sources"],
        mangled=_text(data["mangled"]),
    )


def _text(value: Any) -> str:
    """A text of the module's, which has None for one that it can't read."""
    return value if isinstance(value, str) else ""


def read_pages(path: Path, ncu: Path | str, timeout_s: float) -> list[Launch]:
    """The launches of a report through the CSV pages of `ncu`. PTX is not among them."""

    def page(*options: str) -> str:
        line = [str(ncu), "--import", str(path), "--csv", *options]
        done = _run(line, timeout_s, path)
        failure = explain(done.stdout + "\n" + done.stderr, done.returncode)
        if failure is not None:
            raise bad_report(str(path), failure.message)
        return done.stdout

    launches = pages.parse_raw(page("--page", "raw", "--print-units", "base"))
    for view in ("sass", "cuda,sass"):
        try:
            found = pages.parse_source(page("--page", "source", "--print-source", view))
        except NcuError:
            continue  # without samples, or without line information, there is no such page
        launches = with_instructions(launches, found)
    return launches


def with_instructions(launches: Sequence[Launch], found: Sequence[pages.Page]) -> list[Launch]:
    """Put the source pages to the launches they are of, by order and name.

    A page that can't be told to be a launch's own (another order, fewer of them) is put to none. A launch
    that has instructions already (the view `sass` has all of them) gets the files and lines of this page.
    """
    if [page.kernel for page in found] != [launch.kernel for launch in launches]:
        by_name = {page.kernel: page for page in found}
        names = [launch.kernel for launch in launches]
        once = len(by_name) == len(found) and len(set(names)) == len(names)
        matched = [by_name.get(name) if once else None for name in names]
    else:
        matched = list(found)
    return [
        launch if page is None else _with_page(launch, page)
        for launch, page in zip(launches, matched, strict=True)
    ]


def _with_page(launch: Launch, page: pages.Page) -> Launch:
    merged = {i.address: i for i in page.instructions}
    for one in launch.instructions:
        line = merged.get(one.address)
        merged[one.address] = (
            one if line is None else replace(one, file=line.file, line=line.line, source=line.source)
        )
    return replace(
        launch,
        instructions=tuple(merged[address] for address in sorted(merged)),
        base=min(merged, default=0),
    )


def _run(command: Sequence[str], timeout_s: float, path: Path) -> subprocess.CompletedProcess[str]:
    """Run a reader; its numbers must not depend on the user's locale, nor its lock on other users."""
    with tempfile.TemporaryDirectory(prefix="warpdeck-ncu-") as folder:
        environment = {**without_secrets(), "LC_ALL": "C", "TMPDIR": folder}
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                env=environment,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            raise timed_out(timeout_s, f"reading {path}") from None
        except OSError as error:
            raise bad_report(str(path), f"its reader can't be started ({error})") from None


def counters(
    launch: Launch,
    *,
    metric_set: str = "",
    wanted: Sequence[str] = (),
    tool: str = "",
    index: int = 0,
) -> Counters:
    """What a launch's counters say, by our names and the tool's own. For the arguments see `read`."""
    chosen = SETS.get(metric_set)
    capability = _capability(launch)
    absent = dict(launch.absent)
    asked = (*(chosen.counters(capability) if chosen else ()), *(w for w in wanted if w not in QUANTITIES))
    for name in asked:
        if name not in launch.metrics and name not in absent and name not in launch.texts:
            absent[name] = NO_VALUE
    names = (*SEED, *(chosen.quantities if chosen else ()), *wanted)
    ours, missing = derive(launch.metrics, absent, names, capability)
    theirs = {
        name: Metric(metric.value, metric.unit, normalise(metric.value, metric.unit))
        for name, metric in launch.metrics.items()
        if not _NOISE.match(name)
    }
    missing.update({name: why for name, why in launch.absent.items() if not _NOISE.match(name)})
    return Counters(
        kernel=display_name(launch.mangled or launch.kernel),
        metrics={**ours, **theirs},
        missing=missing,
        hotspots=_hotspots(launch),
        meta=_meta(launch, metric_set, tool, index),
    )


def _hotspots(launch: Launch) -> tuple[HotSpot, ...]:
    """Instructions that were sampled or executed, most samples first, with their source where it is known."""
    texts = _SourceTexts(launch.sources)
    spots = [
        HotSpot(
            file=i.file,
            line=i.line,
            sass=i.sass,
            address=max(i.address - launch.base, 0),
            samples=i.samples,
            stalls=dict(i.stalls),
            executed=i.executed,
            source=i.source or texts.line(i.file, i.line),
            ptx=i.ptx,
        )
        for i in launch.instructions
        if i.samples or i.executed
    ]
    return tuple(sorted(spots, key=lambda spot: (-spot.samples, spot.address)))


class _SourceTexts:
    """Lines of source files: of those in the report, else of those on this machine.

    A report may name any file; only what looks like source is opened, so that a foreign one can't have other
    files quoted.
    """

    _LARGEST = 4 << 20  # bytes; a longer file is no source that someone reads
    _SUFFIXES = frozenset(
        {".py", ".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".inl", ".ptx"}
    )

    def __init__(self, imported: Mapping[str, str]) -> None:
        self._lines = {name: text.splitlines() for name, text in imported.items() if text}

    def line(self, file: str, line: int) -> str:
        """The text of a line (from 1) without its indentation, "" if it is not known."""
        if not file or line <= 0:
            return ""
        if file not in self._lines:
            self._lines[file] = self._read(Path(file))
        lines = self._lines[file]
        return lines[line - 1].strip() if line <= len(lines) else ""

    def _read(self, path: Path) -> list[str]:
        try:
            if path.suffix not in self._SUFFIXES or not path.is_file() or path.stat().st_size > self._LARGEST:
                return []
            return path.read_text(errors="replace").splitlines()
        except (OSError, ValueError):
            return []


def _capability(launch: Launch) -> tuple[int, int] | None:
    major = launch.metrics.get("device__attribute_compute_capability_major")
    minor = launch.metrics.get("device__attribute_compute_capability_minor")
    if major is not None and minor is not None:
        return int(major.value), int(minor.value)
    match = re.fullmatch(r"(\d+)\.(\d+)", launch.texts.get("CC", ""))
    return (int(match[1]), int(match[2])) if match else None


def _meta(launch: Launch, metric_set: str, tool: str, index: int) -> dict[str, Any]:
    """The facts about a launch that are known; the caller adds its own."""
    meta: dict[str, Any] = {"launch": index, "signature": launch.kernel}
    capability = _capability(launch)
    device: dict[str, Any] = {}
    if name := launch.texts.get("device__attribute_display_name"):
        device["name"] = name
    if capability is not None:
        device["capability"] = list(capability)
    if device:
        meta["device"] = device
    for key in ("grid", "block"):
        dims = [launch.metrics.get(f"launch__{key}_dim_{axis}") for axis in "xyz"]
        if all(d is not None for d in dims):
            meta[key] = [int(d.value) for d in dims if d is not None]
    if (passes := launch.metrics.get("profiler__replayer_passes")) is not None:
        meta["passes"] = int(passes.value)
    if tool:
        meta["tool"] = tool
    if metric_set:
        meta["set"] = metric_set
    return meta
