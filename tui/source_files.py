"""The versions of a source that a run has, and their texts. Reading takes a while, and runs in a thread."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import UsageError, WarpdeckError
from ..core.model import Candidate, Case, DeviceInfo, Role
from ..sessions.attempts import workload_named
from ..sessions.entries import Entry
from ..sessions.llm_state import Attempt
from ..sessions.state import RunState
from ..sessions.store import SessionStore
from ..telemetry.ncu.counters import Counters
from .format import interval, shown_lines, speedup, time_text
from .verdicts import kept_words, status_words

MOST_BYTES = 4 << 20


@dataclass(frozen=True)
class Version:
    """A source with what became of it. `path`: below the session's folder; None: the workload's variant."""

    key: str
    title: str
    idea: str
    variant: str
    candidate: str
    config: Mapping[str, Any]
    path: str | None
    parent: str | None
    launches: Mapping[str, Any]
    facts: tuple[str, ...]
    status: str | None


@dataclass(frozen=True)
class Text:
    """A version's text. `file`: its name, for its language; `note`: what is to be said about it; `before`:
    how many lines stand before the file's first."""

    lines: tuple[str, ...]
    file: str
    launch: str = ""
    note: str = ""
    before: int = 0


@dataclass(frozen=True)
class Sources:
    """All versions of a run, in order, and where they are read from."""

    versions: tuple[Version, ...] = ()
    folder: Path | None = None
    workload: str = ""
    case: str = ""
    params: Mapping[str, int] = field(default_factory=dict)
    device: DeviceInfo | None = None

    def find(self, key: str | None) -> Version | None:
        """The version of this key."""
        return next((v for v in self.versions if v.key == key), None)

    def default(self, key: str | None) -> tuple[Version, Version] | None:
        """What a version (None: the best) is first compared with: its parent, else the first of all."""
        if not self.versions:
            return None
        new = self.find(key) or self.versions[-1]
        old = self.find(new.parent) or self.versions[0]
        return old, new


def sources_of(state: RunState, folder: Path | None) -> Sources:
    """The attempts of a run that tries sources; else the baseline and the leaderboard."""
    info = state.info
    if info is None:
        return Sources()
    emulated = info.device is not None and info.device.emulated
    if state.llm is not None:
        board = {entry.candidate: entry for entry in state.leaderboard}
        found = [_of_attempt(a, board.get(a.candidate) or a.entry, emulated) for a in state.llm.attempts]
    else:
        base = state.baseline
        ranked = [e for e in state.leaderboard if base is None or e.candidate != base.candidate]
        found = [] if base is None else [_of_entry(base, "baseline", None)]
        parent = None if base is None else base.candidate
        found += [_of_entry(entry, f"rank {i}", parent) for i, entry in enumerate(ranked, 1)]
    first = info.cases[0] if info.cases else None
    return Sources(
        tuple(found),
        folder,
        info.workload,
        "" if first is None else first.name,
        {} if first is None else first.params,
        info.device,
    )


def of_counters(counters: Counters, folder: Path | None) -> tuple[Sources, Version]:
    """The one version that a profile is of."""
    meta = counters.meta
    config = meta.get("config")
    version = Version(
        key="profiled",
        title="as profiled",
        idea="",
        variant=str(meta.get("variant") or ""),
        candidate="",
        config=config if isinstance(config, Mapping) else {},
        path=None,
        parent=None,
        launches={},
        facts=(),
        status=None,
    )
    told = meta.get("device")
    device = DeviceInfo.from_json(told) if isinstance(told, Mapping) and told.get("name") else None
    case = str(meta.get("case") or "")
    return Sources((version,), folder, str(meta.get("workload") or ""), case, {}, device), version


def attempt_key(number: int | None) -> str | None:
    """The key of an attempt's version."""
    return None if number is None else f"attempt {number}"


def _of_attempt(attempt: Attempt, entry: Entry | None, emulated: bool) -> Version:
    facts = [status_words(None if entry is None else entry.status)]
    if entry is not None and entry.score_ms is not None and not emulated:
        facts += [
            time_text(entry.score_ms),
            f"{speedup(entry.speedup)} {interval(entry.speedup_ci)}".rstrip(),
        ]
    facts += [attempt.precision, kept_words(attempt)]
    title = attempt_key(attempt.number) or ""
    parent = attempt.repairs if attempt.repairs is not None else attempt.parent
    return Version(
        key=title,
        title=title,
        idea=attempt.idea,
        variant=attempt.variant,
        candidate=attempt.candidate,
        config={} if entry is None else entry.config,
        path=attempt.source,
        parent=attempt_key(parent),
        launches=attempt.launches,
        facts=tuple(fact for fact in facts if fact),
        status=None if entry is None else entry.status,
    )


def _of_entry(entry: Entry, title: str, parent: str | None) -> Version:
    facts = [status_words(entry.status), time_text(entry.score_ms)]
    if parent is not None:
        facts.append(_speedup(entry))
    return Version(
        key=entry.candidate,
        title=title,
        idea="",
        variant=entry.variant,
        candidate=entry.candidate,
        config=entry.config,
        path=None,
        parent=parent,
        launches={},
        facts=tuple(facts),
        status=entry.status,
    )


def _speedup(entry: Entry) -> str:
    return f"{speedup(entry.speedup)} {interval(entry.speedup_ci)}".rstrip()


def load(sources: Sources, version: Version) -> Text:
    """A version's text; a variant's with its knobs before it. WarpdeckError in one line."""
    launch = launch_words(version.launches, sources.case)
    if version.path is not None:
        if sources.folder is None:
            raise UsageError(f"{version.title}: this run has no folder to read {version.path} from")
        return Text(shown_lines(read_below(sources.folder, version.path)), version.path, launch)
    return _of_workload(sources, version, launch)


def read_below(folder: Path, path: str) -> str:
    """A file's text, only if it lies below the folder whatever links lead to it. UsageError otherwise."""
    root = folder.resolve()
    try:
        file = (root / path).resolve(strict=True)
        if not file.is_relative_to(root):
            raise UsageError(f"{path} is not below the session's folder; it is not read")
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path} is no file")
        if status.st_size > MOST_BYTES:
            raise UsageError(f"{path} has {status.st_size >> 20} MiB; at most {MOST_BYTES >> 20} are shown")
        return file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "no path to a file"
        raise UsageError(f"can't read {path}: {reason}") from None


def _of_workload(sources: Sources, version: Version, launch: str) -> Text:
    """The workload's own source, which the session has no copy of."""
    from ..kernels.imported import open_workload

    require_source(version)
    workload = open_workload(named_workload(sources))
    if workload.recorded:
        raise UsageError(f"{workload.name} was imported: a recording holds no source")
    variant = workload.variant(version.variant)
    candidate = Candidate(variant.name, dict(version.config), variant.source_hash)
    changed = version.candidate != candidate.id
    note = f"{variant.file.name} was changed since {version.title} was measured" if changed else ""
    if not launch and sources.params:
        case = Case(sources.case, Role.PERFORMANCE, dict(sources.params))
        try:
            launch = "; ".join(
                _launch(x.entry, x.grid, x.block, x.shared) for x in workload.launches(candidate, case)
            )
        except WarpdeckError:  # knobs that the workload no longer has: the note says so
            launch = ""
    source = variant.source()
    lines = _with_knobs(source, variant.file.name, version.config)
    return Text(lines, variant.file.name, launch, note, len(lines) - len(shown_lines(source)))


def require_source(version: Version) -> None:
    """UsageError for an attempt that ended before it had a source."""
    if version.path is None and not version.variant:
        raise UsageError(f"{version.title} has no source: none of it was kept")


def named_workload(sources: Sources) -> str:
    """The workload as the run was told: a name or a folder. A profile alone holds only its name.

    Raises UsageError: as `workload_named`; or a profile names a path, which somebody made up.
    """
    if sources.folder is not None:
        with SessionStore.open(sources.folder) as store:
            return workload_named(store, sources.workload)
    if "/" in sources.workload:
        raise UsageError(f"{sources.workload}: a path where a workload's name should be; it is not opened")
    return sources.workload


def _with_knobs(text: str, file: str, config: Mapping[str, Any]) -> tuple[str, ...]:
    lines = shown_lines(text)
    if not config:
        return lines
    if file.endswith(".py"):
        head = [f"{name} = {value!r}" for name, value in config.items()]
        return ("# the configuration's knobs", *head, "", *lines)
    head = [f"#define {name} {value}" for name, value in config.items() if name != "reg_cap"]
    cap = config.get("reg_cap")
    head += [f"// at most {cap} registers a thread (reg_cap)"] if cap else []
    return ("// the configuration's knobs, which the compiler gets as -D", *head, "", *lines)


def launch_words(launches: Mapping[str, Any], case: str) -> str:
    """The launches of a case (else of the first that is known) in words; "" where they are not known."""
    found = launches.get(case) or next((value for value in launches.values() if value), None)
    if not isinstance(found, Sequence) or isinstance(found, str):
        return ""
    try:
        return "; ".join(_launch(x["entry"], x["grid"], x["block"], x.get("shared") or 0) for x in found)
    except (KeyError, TypeError, AttributeError):
        return ""


def _launch(entry: str, grid: Sequence[Any], block: Sequence[Any], shared: Any) -> str:
    dynamic = f", {shared} B" if shared else ""
    return f"{entry}<<<{_extent(grid)}, {_extent(block)}{dynamic}>>>"


def _extent(extent: Sequence[Any]) -> str:
    """ "64", "64×64": without trailing ones."""
    sizes = [str(size) for size in extent]
    while len(sizes) > 1 and sizes[-1] == "1":
        sizes.pop()
    return "×".join(sizes)
