"""Recordings: a fully measured search space of one workload, case and device, in a T4-valid JSON file.

The file is gzip-compressed T4 (schema 1.0.0), so other tuners' tools read it; what T4 has no place for
lies under `metadata.warpdeck` and `results[i].warpdeck`. Samples are kept in measuring order with their
round, because two rounds a minute apart differ by more than two samples a millisecond apart.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..telemetry.whole import whole
from .errors import UsageError, WarpdeckError
from .model import CacheMode, Config, DeviceInfo, Resources, Status
from .space import value_text

FORMAT = 1
SUFFIX = ".t4.json.gz"
MAX_NAME = 255  # bytes of a file's name, as file systems have it
MAX_BYTES = 512 << 20  # of unpacked JSON; a gzip bomb is refused

_PART = re.compile(r"(?!\.)[^/\\\x00-\x1f\x7f-\x9f]{1,100}")
_DEVICE_NUMBERS = (
    *("sm_count", "l2_bytes", "memory_bytes", "sm_clock_max_mhz"),
    *("dram_gbs", "l2_gbs", "fp32_tflops", "launch_floor_ms"),
)
_INVALIDITY = {
    Status.OK: "correct",
    Status.IMPLAUSIBLE: "correctness",
    Status.INCORRECT: "correctness",
    Status.COMPILE_ERROR: "compile",
    Status.TIMEOUT: "timeout",
    Status.RESTRICTED: "constraints",
}
_STATUS = {
    "correct": Status.OK,
    "correctness": Status.INCORRECT,
    "compile": Status.COMPILE_ERROR,
    "timeout": Status.TIMEOUT,
    "constraints": Status.RESTRICTED,
    "runtime": Status.RUNTIME_ERROR,
}


@dataclass(frozen=True)
class Series:
    """Samples of one candidate in one cache mode: milliseconds and the round of each, both shape (n,)."""

    ms: NDArray[np.float64]
    rounds: NDArray[np.int32]

    @cached_property
    def by_round(self) -> tuple[NDArray[np.float64], ...]:
        """One array of samples for every round present, in round order."""
        return tuple(self.ms[self.rounds == r] for r in np.unique(self.rounds))

    @cached_property
    def median_ms(self) -> float:
        """Median over all samples."""
        return float(np.median(self.ms))

    def to_json(self) -> dict[str, Any]:
        """JSON form; nanosecond resolution. Rounds are run-length coded as samples per round, in order."""
        numbers, counts = np.unique(self.rounds, return_counts=True)
        if not np.array_equal(np.repeat(numbers, counts), self.rounds):
            raise WarpdeckError("a recording's samples must be ordered by round")
        return {
            "ms": [round(float(x), 6) for x in self.ms],
            "rounds": [[int(r), int(c)] for r, c in zip(numbers, counts, strict=True)],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Series:
        """Inverse of `to_json`."""
        ms = np.asarray(data["ms"], dtype=np.float64)
        runs = data["rounds"]
        if ms.ndim != 1 or not len(ms) or sum(int(c) for _, c in runs) != len(ms):
            raise ValueError("samples and rounds differ in length")
        rounds = np.repeat([r for r, _ in runs], [c for _, c in runs]).astype(np.int32)
        if not np.all(np.isfinite(ms)) or np.any(ms <= 0):
            raise ValueError("a sample is not a positive time")
        return cls(ms, rounds)


@dataclass(frozen=True)
class Entry:
    """One configuration of a recording: its status and, if `ok`, its samples."""

    config: Config
    status: Status
    message: str = ""
    series: Mapping[CacheMode, Series] = field(default_factory=dict)
    resources: Resources | None = None
    early_stop: bool = False  # over 5x the best after three samples: only those are kept
    same_as: str | None = None  # key of the entry with the same binary and launch, which was measured
    compile_s: float = 0.0
    counters: Mapping[str, float] = field(default_factory=dict)  # hardware counters, 0..1, where recorded
    reported_ms: float | None = None  # the time that an imported file gives beside its samples


@dataclass(frozen=True)
class Recording:
    """A measured space. `entries` is keyed by the space's configuration key, in space order."""

    name: str  # "h200"
    workload: str
    space: str
    variant: str
    source_hash: str
    case: str
    params: Mapping[str, int]
    device: DeviceInfo
    date: str | None  # ISO; None where an imported file doesn't say
    protocol: Mapping[str, Any]
    knobs: Mapping[str, tuple[Any, ...]]
    entries: Mapping[str, Entry]
    baseline_variant: str
    baseline_hash: str
    baseline: Entry
    vendor_name: str | None = None
    vendor: Mapping[CacheMode, Series] = field(default_factory=dict)
    nvml: Mapping[str, Any] = field(default_factory=dict)  # a sample taken beside the measurement
    versions: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)  # of an import: format, file, kernel, notes
    counters: Mapping[str, Any] = field(default_factory=dict)  # how the entries' were read

    @property
    def imported(self) -> bool:
        """Whether another tuner measured it: no rounds, no known cache mode, no source of ours."""
        return bool(self.origin)

    @property
    def file_name(self) -> str:
        """`h200-softmax-classic-1024.t4.json.gz`; a recorded device finds files by these parts."""
        return f"{self.name}-{self.workload}-{self.space}-{self.case}{SUFFIX}"

    @cached_property
    def reading(self) -> DeviceInfo:
        """The device as a recorded device shows it."""
        known = {**self.device.__dict__, "spec": f"recorded:{self.name}", "recorded": True, "date": self.date}
        return DeviceInfo(**known)

    def optimum_ms(self, cache: CacheMode) -> float:
        """Smallest median over all `ok` entries."""
        return min(e.series[cache].median_ms for e in self.entries.values() if e.status is Status.OK)


def config_key(config: Config) -> str:
    """Comma-joined values in the space's knob order (as Kernel Tuner's cache keys)."""
    return ",".join(value_text(v) for v in config.values())


def _entry_json(entry: Entry) -> dict[str, Any]:
    cold = entry.series.get(CacheMode.COLD) or next(iter(entry.series.values()), None)
    times: dict[str, Any] = {
        "compilation": round(entry.compile_s * 1e3, 3),
        "framework": 0,
        "search_algorithm": 0,
        "validation": 0,
    }
    value: float | str
    if entry.status is Status.OK and cold is not None:
        times["runtimes"] = [round(float(x), 6) for x in cold.ms]
        value = round(cold.median_ms, 6)
    else:
        value = str(entry.status)
    return {
        "configuration": dict(entry.config),
        "times": times,
        "invalidity": invalidity(entry.status),
        "correctness": 1 if entry.status is Status.OK else 0,
        "measurements": [{"name": "time", "value": value, "unit": "milliseconds"}],
        "objectives": ["time"],
        "warpdeck": {
            "status": str(entry.status),
            "message": entry.message,
            "series": {str(c): s.to_json() for c, s in entry.series.items()},
            "resources": entry.resources.to_json() if entry.resources else None,
            "early_stop": entry.early_stop,
            "same_as": entry.same_as,
            "counters": dict(entry.counters),
            **({"reported_ms": entry.reported_ms} if entry.reported_ms is not None else {}),
        },
    }


def _entry(data: Mapping[str, Any]) -> Entry:
    extra = data["warpdeck"]
    return Entry(
        config=dict(data["configuration"]),
        status=Status(extra["status"]),
        message=extra.get("message", ""),
        series={CacheMode(c): Series.from_json(s) for c, s in extra["series"].items()},
        resources=Resources.from_json(extra["resources"]) if extra.get("resources") else None,
        early_stop=bool(extra.get("early_stop")),
        same_as=extra.get("same_as"),
        compile_s=data["times"].get("compilation", 0.0) / 1e3,
        counters=extra.get("counters") or {},
        reported_ms=extra.get("reported_ms"),
    )


def to_json(recording: Recording) -> dict[str, Any]:
    """The T4 document."""
    return {
        "schema_version": "1.0.0",
        "metadata": {
            "timeunit": "milliseconds",
            "warpdeck": {
                "format": FORMAT,
                "name": recording.name,
                "workload": recording.workload,
                "space": recording.space,
                "variant": recording.variant,
                "source_hash": recording.source_hash,
                "case": recording.case,
                "params": dict(recording.params),
                "device": recording.device.to_json(),
                "date": recording.date,
                "protocol": dict(recording.protocol),
                "knobs": {k: list(v) for k, v in recording.knobs.items()},
                "baseline": {
                    "variant": recording.baseline_variant,
                    "source_hash": recording.baseline_hash,
                    **_entry_json(recording.baseline),
                },
                "vendor": {
                    "name": recording.vendor_name,
                    "series": {str(c): s.to_json() for c, s in recording.vendor.items()},
                },
                "nvml": dict(recording.nvml),
                "versions": dict(recording.versions),
                **({"origin": dict(recording.origin)} if recording.origin else {}),
                **({"counters": dict(recording.counters)} if recording.counters else {}),
            },
        },
        "results": [_entry_json(e) for e in recording.entries.values()],
    }


def from_json(data: Mapping[str, Any]) -> Recording:
    """Inverse of `to_json`. Raises KeyError, TypeError or ValueError on a malformed document."""
    meta = data["metadata"]["warpdeck"]
    if int(meta["format"]) > FORMAT:
        raise ValueError(
            f"written by a newer warpdeck (format {meta['format']}; this one reads {FORMAT}); upgrade it"
        )
    entries = [_entry(r) for r in data["results"]]
    baseline = meta["baseline"]
    recording = Recording(
        name=meta["name"],
        workload=meta["workload"],
        space=meta["space"],
        variant=meta["variant"],
        source_hash=meta["source_hash"],
        case=meta["case"],
        params={k: int(v) for k, v in meta["params"].items()},
        device=DeviceInfo.from_json(meta["device"]),
        date=meta["date"],
        protocol=meta["protocol"],
        knobs={k: tuple(v) for k, v in meta["knobs"].items()},
        entries={config_key(e.config): e for e in entries},
        baseline_variant=baseline["variant"],
        baseline_hash=baseline["source_hash"],
        baseline=_entry(baseline),
        vendor_name=meta["vendor"]["name"],
        vendor={CacheMode(c): Series.from_json(s) for c, s in meta["vendor"]["series"].items()},
        nvml=meta.get("nvml", {}),
        versions=meta.get("versions", {}),
        origin=meta.get("origin") or {},
        counters=meta.get("counters") or {},
    )
    _require_sound(recording)
    return recording


def _require_sound(recording: Recording) -> None:
    """Raise ValueError for what has the right form, but can't be a recording."""
    for part in ("name", "workload", "space", "case"):  # they make a file's name, and are shown on terminals
        text = getattr(recording, part)
        if not isinstance(text, str) or not _PART.fullmatch(text):
            raise ValueError(f"its {part} {str(text)[:80]!r} is no name")
    if len(os.fsencode(recording.file_name)) > MAX_NAME:
        raise ValueError(f"its name is longer than {MAX_NAME} bytes")
    if not isinstance(recording.date, str | None):
        raise ValueError(f"its date {recording.date!r} is no text")
    for part in ("protocol", "nvml", "versions", "origin", "counters"):
        if not isinstance(getattr(recording, part), Mapping):
            raise ValueError(f"its {part} is no object")
    if not isinstance(recording.device.name, str):
        raise ValueError(f"its device's name {recording.device.name!r} is no text")
    for number in _DEVICE_NUMBERS:
        value = getattr(recording.device, number)
        if value is not None and not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
            raise ValueError(f"its device's {number} {value!r} is no possible number")
    if not recording.entries:
        raise ValueError("it holds no configuration")
    for key, entry in recording.entries.items():
        if set(entry.config) != set(recording.knobs):
            raise ValueError(f"configuration {key} has other knobs than the space")
        if entry.status is Status.OK and not entry.series:
            raise ValueError(f"configuration {key} is ok, and has no samples")
        for name, value in entry.counters.items():
            if not (isinstance(value, int | float) and 0 <= value <= 1):
                raise ValueError(f"configuration {key} has an impossible counter {name}")


def with_counters(
    document: Mapping[str, Any], counters: Mapping[str, Mapping[str, float]], protocol: Mapping[str, Any]
) -> dict[str, Any]:
    """A recording's document with hardware counters; all else stays as it is, to the byte.

    Args:
        document: as `read_json` gives it.
        counters: 0..1 by name, by configuration key; configurations that are left out lose theirs.
        protocol: how they were read.
    """
    results = []
    for row in document["results"]:
        read = dict(counters.get(config_key(row["configuration"]), {}))
        results.append({**row, "warpdeck": {**row["warpdeck"], "counters": read}})
    metadata = document["metadata"]
    own = {**metadata["warpdeck"], "counters": dict(protocol)}
    return {**document, "metadata": {**metadata, "warpdeck": own}, "results": results}


def read_bytes(path: Path) -> bytes:
    """A file's contents, unpacked if they are gzip-compressed. UsageError if they can't be read."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise UsageError(f"{path}: larger than {MAX_BYTES >> 20} MB; not a recording")
        if raw[:2] != b"\x1f\x8b":
            return raw
        unpacker = zlib.decompressobj(wbits=31)
        raw = unpacker.decompress(raw, MAX_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except zlib.error as error:
        raise UsageError(f"{path}: not a JSON or gzip-compressed JSON file ({error})") from None
    if unpacker.unconsumed_tail:
        raise UsageError(f"{path}: unpacks to more than {MAX_BYTES >> 20} MB; not a recording")
    if not unpacker.eof:
        raise UsageError(f"{path}: the file is cut short; fetch or export it again")
    return raw


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file, gzip-compressed or not. UsageError if it can't be read."""
    raw = read_bytes(path)
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not a JSON or gzip-compressed JSON file ({error})") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}: not a recording (its top level is not an object)")
    return data


def load(path: Path) -> Recording:
    """Read a recording of ours. UsageError if it is corrupt, foreign or from the future."""
    data = read_json(path)
    if "warpdeck" not in (data.get("metadata") or {}):
        raise UsageError(
            f"{path}: not a warpdeck recording; T4 and Kernel Tuner files come in through"
            " 'warpdeck recordings import'"
        )
    return parse(path, data)


def parse(path: Path, data: Mapping[str, Any]) -> Recording:
    """`from_json` of a document that was read from `path`. UsageError if it is corrupt."""
    try:
        return from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"missing {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{path}: corrupt recording: {what}") from None


def save(recording: Recording, path: Path) -> None:
    """Write atomically; a crash leaves the old file or none."""
    save_bytes(text(recording).encode(), path, packed=True)


def text(recording: Recording) -> str:
    """A recording's file, uncompressed."""
    return json.dumps(to_json(recording), separators=(",", ":"), allow_nan=False)


def save_bytes(data: bytes, path: Path, *, packed: bool) -> None:
    """Write a file atomically, gzip-compressed if `packed`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as partial:
        # mtime 0: the same recording gives the same bytes
        partial.write_bytes(gzip.compress(data, compresslevel=9, mtime=0) if packed else data)


def statuses(entries: Iterable[Entry]) -> dict[str, int]:
    """How many entries have each status."""
    counts: dict[str, int] = {}
    for entry in entries:
        counts[str(entry.status)] = counts.get(str(entry.status), 0) + 1
    return counts


def invalidity(status: Status) -> str:
    """What T4 calls a status."""
    return _INVALIDITY.get(status, "runtime")


def t4_status(invalidity: str) -> Status:
    """The status that a foreign T4 row's `invalidity` stands for."""
    return _STATUS.get(invalidity, Status.RUNTIME_ERROR)
