"""Tracing one launch of a candidate: what to trace, running it on a device, keeping it as a recording."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..telemetry.trace.timeline import RawTrace, Timeline
from .errors import UsageError, WarpdeckError
from .model import CacheMode, Candidate, Case, Config, DeviceInfo
from .workload import Workload

if TYPE_CHECKING:
    from .devices.base import Device

SUFFIX = ".wdtrace"
FORMATS = {
    ".pftrace": "Perfetto",
    ".json": "Chrome",
    ".csv": "a table",
    SUFFIX: "all that was recorded",
}
DEFAULT_CTAS = 16
ALL_WARPS = 0xFFFFFFFF
MAX_CAPACITY = 1 << 26  # records a row
_PART = re.compile(r"(?!\.)[^/\\\x00-\x1f\x7f-\x9f]{1,100}")


@dataclass(frozen=True)
class TraceOptions:
    """What of a launch is traced, and how.

    Raises UsageError for an impossible value.
    """

    ctas: int | None = DEFAULT_CTAS  # spread over the grid; None: all
    capacity: int | None = None  # records a warp; None: a counting launch first tells the exact number
    warp_mask: int | None = None  # bit w: warp w of each CTA; None: all
    overhead: bool = True  # time the traced kernel against the untraced one
    cache: CacheMode = CacheMode.COLD  # state of the L2 before the traced launch, and while both are timed
    launch: int = 0  # which launch of a candidate that has several
    limit_bytes: int = 1 << 30  # of all rows together
    # Whether CTAs that aren't traced run the untraced code, if that can be; None: where it costs less.
    split: bool | None = None

    def __post_init__(self) -> None:
        if self.ctas is not None and self.ctas < 1:
            raise UsageError(f"tracing {self.ctas} CTAs is impossible; give at least 1, or all")
        if self.capacity is not None and not 0 <= self.capacity <= MAX_CAPACITY:
            raise UsageError(f"a capacity of {self.capacity} records is impossible; 0 to {MAX_CAPACITY}")
        if self.warp_mask is not None and not 0 < self.warp_mask <= ALL_WARPS:
            raise UsageError("no warp is selected; warps are numbered from 0 to 31 in each CTA")
        if self.cache not in (CacheMode.COLD, CacheMode.HOT):
            raise UsageError(f"a launch is traced with the cache cold or hot, not {self.cache}")


def trace(
    workload: Workload,
    device: Device,
    candidate: Candidate,
    case: Case,
    options: TraceOptions | None = None,
    *,
    space: str | None = None,
    seed: int = 0,
    allow_shared: bool = False,
) -> RawTrace:
    """Trace one launch of a candidate; its outputs are checked like any candidate's.

    Args:
        workload: whose candidate.
        device: where; a recorded one has the traces that were recorded, whatever the options.
        candidate: what to trace.
        case: on which input.
        options: None: 16 CTAs spread over the grid, exactly sized, with the overhead.
        space: the candidate's; None: the first over its variant.
        seed: of the inputs.
        allow_shared: go on although other processes use the GPU.

    Raises:
        UsageError: an impossible selection, a trace over the byte limit, or one that isn't recorded.
        CompileError: the candidate doesn't compile, or has no stage markers.
        VerificationError: the traced kernel's outputs are wrong.
        WarpdeckError: it failed otherwise.
    """
    # A recording's traces don't depend on which of its timings there are.
    cases = [] if device.info.recorded else [case]
    space = space or workload.space_of(candidate.variant).name
    backend = device.prepare(workload, space=space, cases=cases, seed=seed, allow_shared=allow_shared)
    try:
        return backend.trace(candidate, case, options or TraceOptions())
    finally:
        backend.close()


def file_name(name: str, workload: str, variant: str, case: str) -> str:
    """The file of a recorded trace."""
    return f"{name}-{workload}-{variant}-{case}{SUFFIX}"


def record(raw: RawTrace, folder: Path, name: str) -> Path:
    """Write a trace as a recording, for `recorded:NAME` to show; an older one of the same case is replaced.

    Args:
        raw: from a live device; its meta names device, date, workload, variant and case.
        folder: where recordings of this name lie, or will.
        name: the recorded device's, `h200` say.

    Raises:
        UsageError: a trace that was recorded already, or a name that can't be part of a file's.
        WarpdeckError: the file can't be written.
    """
    parts = [name, *(str(raw.meta.get(key, "")) for key in ("workload", "variant", "case"))]
    bad = next((part for part in parts if not _PART.fullmatch(part)), None)
    if bad is not None or "-" in name:
        raise UsageError(f"{bad or name!r} can't be part of a recording's file name")
    if info_of(raw).recorded:
        raise UsageError("this trace comes from a recording; only a live device's can be recorded")
    from ..telemetry.trace import store

    path = folder / file_name(parts[0], parts[1], parts[2], parts[3])
    if "/" in str(raw.meta.get("command")):  # folders of this machine say nothing on another one
        raw = replace(raw, meta={key: value for key, value in raw.meta.items() if key != "command"})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        store.save(raw, path)
    except OSError as error:
        raise WarpdeckError(f"{path}: can't be written: {error.strerror or error}") from None
    return path


def info_of(raw: RawTrace) -> DeviceInfo:
    """The device that a trace came from, labelled."""
    return DeviceInfo.from_json({"name": "an unknown GPU", "spec": "", **raw.meta.get("device", {})})


def parse_warps(text: str) -> int:
    """A warp mask from numbers and ranges, "0,2-3" say. Raises UsageError."""
    mask = 0
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = (first, last if dash else first)
        if not all(end.isdecimal() and int(end) < 32 for end in ends) or int(ends[0]) > int(ends[1]):
            raise UsageError(f"warps {text!r}: write numbers from 0 to 31 and ranges, as in 0,2-3")
        for warp in range(int(ends[0]), int(ends[1]) + 1):
            mask |= 1 << warp
    return mask


def decoded(raw: RawTrace) -> Timeline:
    """A trace's timeline. Raises WarpdeckError for rows that make no sense."""
    from ..telemetry.trace.decode import decode
    from ..telemetry.trace.errors import TraceError

    try:
        return decode(raw)
    except TraceError as error:
        raise WarpdeckError(str(error)) from None


def read(path: Path) -> Timeline:
    """A saved trace of any format. Raises UsageError for a file that is none, or a damaged one."""
    from ..telemetry.trace.errors import TraceError
    from ..telemetry.trace.store import open_timeline

    try:
        return open_timeline(path)
    except TraceError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror or error}") from None


def check_suffix(path: Path) -> None:
    """UsageError unless a name ends as one of the formats that a trace can be written in."""
    if path.suffix not in FORMATS:
        known = ", ".join(f"{suffix} ({what})" for suffix, what in FORMATS.items())
        raise UsageError(f"{path}: a trace's file name ends in {known}")


def write(raw: RawTrace, timeline: Timeline, path: Path) -> None:
    """Save a trace in the format of the file's suffix. Raises UsageError, WarpdeckError."""
    _write(raw, timeline, path)


def _write(raw: RawTrace | None, timeline: Timeline, path: Path) -> None:
    check_suffix(path)
    from ..telemetry.trace import chrome, perfetto, store, table
    from ..telemetry.trace.errors import TraceError

    try:
        if raw is not None and path.suffix == SUFFIX:
            store.save(raw, path)
        else:
            {".pftrace": perfetto, ".json": chrome, ".csv": table}[path.suffix].write(timeline, path)
    except TraceError as error:
        raise WarpdeckError(str(error)) from None
    except OSError as error:
        raise WarpdeckError(f"{path}: can't be written: {error.strerror or error}") from None


def convert(source: Path, timeline: Timeline, target: Path) -> None:
    """Save a trace that was read from `source` in another format. Raises UsageError, WarpdeckError."""
    if target.suffix == SUFFIX and source.suffix != SUFFIX:
        raise UsageError(f"{target}: a {SUFFIX} file holds the raw records, which {source} doesn't")
    raw = _load(source) if source.suffix == SUFFIX else None
    _write(raw, timeline, target)


def document(timeline: Timeline) -> dict[str, Any]:
    """What `trace --json` prints, without its schema version and files: the summary, and what was traced.

    Keys that a file of another format doesn't tell are None, or empty.
    """
    from ..telemetry.trace.summary import summarise

    meta = timeline.meta
    device = DeviceInfo.from_json({"name": "unknown GPU", "spec": "", **(meta.get("device") or {})})
    return {
        **{key: meta.get(key) for key in ("workload", "variant")},
        "config": dict(meta.get("config") or {}),
        "case": meta.get("case"),
        "params": dict(meta.get("params") or {}),
        **{key: meta.get(key) for key in ("kernel", "grid", "block", "instance", "cache", "date")},
        "device": device.to_json(),
        "capacity": meta.get("capacity"),
        **summarise(timeline).to_json(),
        "ctas": dict(meta.get("ctas") or {"traced": len(np.unique(timeline.warps.cta)), "of": None}),
        "mispaired_at": [found.to_json() for found in timeline.mispaired],
        "clock": dict(timeline.clock.__dict__),
        "overhead": meta.get("overhead"),
        "resources": meta.get("resources"),
        "warnings": list(meta.get("warnings") or ()),
        "stale": bool(meta.get("stale")),
        "command": meta.get("command"),
    }


@dataclass(frozen=True)
class RecordedTrace:
    """A trace that a recorded device has."""

    path: Path
    workload: str
    variant: str
    case: str
    config: Config
    raw: RawTrace

    @property
    def label(self) -> str:
        """For people, as the command line takes it."""
        knobs = ",".join(f"{k}={v}" for k, v in self.config.items())
        return f"--variant {self.variant} --size {self.case}" + (f" --knob {knobs}" if knobs else "")


def recorded_traces(files: Sequence[Path], workload: str, spec: str) -> list[RecordedTrace]:
    """The recorded traces of a workload among these files. Raises UsageError for a damaged one."""
    found = []
    for path in sorted(files):
        raw = _load(path)
        meta = raw.meta
        if meta.get("workload") != workload:
            continue
        device = replace(info_of(raw), recorded=True, spec=spec, date=meta.get("date"))
        labelled = replace(raw, meta={**meta, "device": device.to_json()})
        config = dict(meta.get("config") or {})
        found.append(RecordedTrace(path, workload, str(meta["variant"]), str(meta["case"]), config, labelled))
    return found


def _load(path: Path) -> RawTrace:
    from ..telemetry.trace import store
    from ..telemetry.trace.errors import TraceError

    try:
        return store.load(path)
    except TraceError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror or error}") from None


def choose(traces: Sequence[RecordedTrace], spec: str, workload: str, **wanted: Any) -> RecordedTrace:
    """The first recorded trace with these values of `variant`, `case` and `config`; None matches any.

    Raises UsageError that lists what is recorded.
    """
    if not traces:
        raise UsageError(f"{spec}: no trace of '{workload}' is recorded; tracing a launch takes a CUDA GPU")
    given = {key: value for key, value in wanted.items() if value is not None}
    match = [t for t in traces if all(getattr(t, key) == value for key, value in given.items())]
    if not match:
        config = given.get("config", {})
        asked = [f"{key} {given[key]}" for key in ("variant", "case") if key in given]
        asked += [" ".join(f"{k}={v}" for k, v in config.items())] if config else []
        have = "; ".join(t.label for t in traces)
        raise UsageError(f"{spec}: no trace of {workload}, {', '.join(asked)} is recorded; there is: {have}")
    return match[0]
