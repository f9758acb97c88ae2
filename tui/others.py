"""What a trace or a profile can be compared with: others of its session, of its recording, or a file. All of
it may take a while, and runs in a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..core.errors import UsageError, WarpdeckError
from ..sessions.paths import ARTIFACTS
from .evidence import COUNTERS, TRACE, require_names
from .format import config_text

if TYPE_CHECKING:
    from ..telemetry.ncu.counters import Counters
    from ..telemetry.trace.timeline import Timeline

Found = TypeVar("Found")
MOST = 200


@dataclass(frozen=True)
class Choice(Generic[Found]):
    """One to compare with. `where`: its session or its recording; `load` takes a while, and raises
    WarpdeckError."""

    label: str
    where: str
    load: Callable[[], Found]
    meta: Mapping[str, Any]


@dataclass(frozen=True)
class Baseline:
    """A run's baseline, which comes first where there is one of it."""

    variant: str
    config: Mapping[str, Any]


def title_of(meta: Mapping[str, Any]) -> str:
    """ "pipelined · size 1024 · TILE_M=64 …": what tells one launch of a workload from another."""
    config = meta.get("config")
    knobs = config_text(config) if isinstance(config, Mapping) and config else ""
    case = f"size {meta['case']}" if meta.get("case") else ""
    return " · ".join(part for part in (str(meta.get("variant") or ""), case, knobs) if part) or "a launch"


def short_of(meta: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The shortest name that tells a launch from the other one."""
    for key in ("variant", "case"):
        if meta.get(key) and meta.get(key) != other.get(key):
            return str(meta[key])
    mine, theirs = (m.get("config") if isinstance(m.get("config"), Mapping) else {} for m in (meta, other))
    differ = {k: v for k, v in (mine or {}).items() if (theirs or {}).get(k) != v}
    return config_text(differ) if differ else str(meta.get("variant") or meta.get("workload") or "this")


def same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two are of one launch."""
    return all(a.get(key) == b.get(key) for key in ("workload", "variant", "case", "config", "date"))


def traces(
    meta: Mapping[str, Any], folder: Path | None, baseline: Baseline | None = None
) -> list[Choice[Timeline]]:
    """Traces of the same workload, the baseline's first, without the one of `meta`."""
    from ..core.devices.recorded import RecordedDevice
    from ..core.tracing import decoded, read

    found = _of_session(folder, TRACE, read)
    device = _recorded(meta, folder)
    if isinstance(device, RecordedDevice):
        for trace in device.traces(str(meta.get("workload"))):
            raw = trace.raw
            found.append(Choice(title_of(raw.meta), device.info.spec, lambda raw=raw: decoded(raw), raw.meta))
    return _ordered(found, meta, baseline)


def profiles(
    meta: Mapping[str, Any], folder: Path | None, baseline: Baseline | None = None
) -> list[Choice[Counters]]:
    """Profiles of the same workload; otherwise as `traces`."""
    from ..core.devices import stored_counters
    from ..core.devices.recorded import RecordedDevice
    from ..kernels.loader import load_workload

    found = _of_session(folder, COUNTERS, stored_counters.load)
    device = _recorded(meta, folder)
    if isinstance(device, RecordedDevice):
        workload = load_workload(str(meta.get("workload")))
        for path in stored_counters.find(device.folders, device.name, workload.name):
            counters = stored_counters.labelled(stored_counters.load(path), workload, device)
            found.append(
                Choice(title_of(counters.meta), device.info.spec, lambda c=counters: c, counters.meta)
            )
    return _ordered(found, meta, baseline)


def trace_in(path: Path) -> Timeline:
    """A trace in a file. WarpdeckError in one line."""
    from ..core.tracing import read

    return read(path.expanduser())


def profile_in(path: Path) -> Counters:
    """A profile or an Nsight Compute report in a file: of a report's launches the longest."""
    from ..core.devices.stored_counters import load
    from ..core.profiling import read_report

    path = path.expanduser()
    if path.suffix != ".ncu-rep":
        return load(path)
    launches = read_report(path)
    if not launches:
        raise UsageError(f"{path} holds no launch")
    return max(launches, key=lambda counters: counters.value("duration_ns") or 0.0)


def _recorded(meta: Mapping[str, Any], folder: Path | None) -> Any:
    """The recorded device that this is from; None if it is from none, or it isn't here."""
    from ..kernels.recordings import open_device

    device = meta.get("device")
    if not isinstance(device, Mapping) or not device.get("recorded") or not meta.get("workload"):
        return None
    spec = str(device.get("spec"))
    try:
        require_names(folder, str(meta["workload"]), spec)
        return open_device(spec)
    except WarpdeckError:
        return None


def _of_session(folder: Path | None, pattern: str, read: Callable[[Path], Found]) -> list[Choice[Found]]:
    """The session's own, the newest first; one that can't be read is left out, since others may be good."""
    files = [] if folder is None else list((folder / ARTIFACTS).glob(pattern))
    found: list[Choice[Found]] = []
    for path in sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)[:MOST]:
        try:
            loaded: Any = read(path)
        except WarpdeckError:
            continue
        found.append(Choice(title_of(loaded.meta), path.name, lambda it=loaded: it, loaded.meta))
    return found


def _ordered(
    found: list[Choice[Found]], meta: Mapping[str, Any], baseline: Baseline | None
) -> list[Choice[Found]]:
    workload = meta.get("workload")
    kept = [c for c in found if not same(c.meta, meta) and c.meta.get("workload") in (None, workload)]
    size = meta.get("case")
    return sorted(kept, key=lambda c: (not is_baseline(c, baseline), c.meta.get("case") != size))[:MOST]


def is_baseline(choice: Choice[Any], baseline: Baseline | None) -> bool:
    """Whether it is of the run's baseline."""
    if baseline is None:
        return False
    return choice.meta.get("variant") in (None, baseline.variant) and choice.meta.get("config") == dict(
        baseline.config
    )
