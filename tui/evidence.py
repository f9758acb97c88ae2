"""Where the trace and the counters of a configuration are: in its session, or recorded. All of it may take a
while, and runs in a thread."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..core.errors import UsageError, WarpdeckError
from ..sessions.paths import ARTIFACTS
from ..sessions.state import RunState
from .format import config_flags, config_text

if TYPE_CHECKING:
    from ..telemetry.ncu.counters import Counters
    from ..telemetry.trace.timeline import Timeline

TRACE, COUNTERS = "*.wdtrace", "*.counters.json.gz"
Found = TypeVar("Found")


@dataclass(frozen=True)
class Subject:
    """One configuration of a run. `size`: the first case's, None where cases have other names; `folder`: the
    session's."""

    workload: str
    variant: str
    config: Mapping[str, Any]
    size: int | None
    device: str
    recorded: bool
    folder: Path | None

    @classmethod
    def of(cls, state: RunState, candidate: str, folder: Path | None) -> Subject | None:
        """A candidate on a run's leaderboard; None if it isn't there, or the run has not begun."""
        entry = next((e for e in state.leaderboard if e.candidate == candidate), None)
        info = state.info
        if entry is None or info is None or info.device is None:
            return None
        case = info.cases[0].name if info.cases else ""
        size = int(case) if case.isdecimal() else None
        device = info.device
        return cls(info.workload, entry.variant, entry.config, size, device.spec, device.recorded, folder)

    def command(self, verb: str, *more: str) -> str:
        """The command line that makes what is missing."""
        words = ["warpdeck", verb, self.workload, "--variant", self.variant]
        words += [] if self.size is None else ["--size", str(self.size)]
        knobs = f" {config_flags(self.config)}" if self.config else ""
        return f"{shlex.join(words)}{knobs}{''.join(f' {shlex.quote(word)}' for word in more)}"


def find_trace(subject: Subject) -> tuple[Timeline, str]:
    """A configuration's timeline, and what is to be said about where it is from ("" if nothing).

    WarpdeckError in one line, with the command that makes one, if there is none.
    """
    from ..core.tracing import decoded, read
    from ..sessions.traces import trace_named

    def recorded(knobs: Mapping[str, str] | None) -> Timeline:
        variant, size = (_variant(subject), subject.size) if knobs else (None, None)
        raw = trace_named(subject.workload, device=subject.device, variant=variant, knobs=knobs, size=size)
        return decoded(raw)

    target = [] if subject.folder is None else ["-o", str(subject.folder / ARTIFACTS / "best.wdtrace")]
    command = subject.command("trace", *target)
    return _find(subject, TRACE, read, recorded, "trace", command)


def find_counters(subject: Subject) -> tuple[Counters, str]:
    """A configuration's counters; otherwise as `find_trace`."""
    from ..core.devices.stored_counters import load
    from ..sessions.profiles import profile_one

    def recorded(knobs: Mapping[str, str] | None) -> Counters:
        variant = _variant(subject) if knobs else None
        return profile_one(subject.workload, subject.device, variant=variant, knobs=knobs, size=subject.size)

    target = [] if subject.folder is None else ["--record", str(subject.folder / ARTIFACTS)]
    command = subject.command("profile", *target)
    return _find(subject, COUNTERS, load, recorded, "profile", command)


def require_names(folder: Path | None, workload: str, device: str) -> None:
    """UsageError unless these may be looked up among recordings: what a log, a trace or a profile says are
    names, and no path unless somebody made it up; an imported session's recording is no file, either."""
    from ..core.devices import names_file
    from ..kernels.loader import is_foreign, may_name

    if "/" in workload or not device.startswith("recorded:"):
        raise UsageError(f"{workload} on {device}: no names of a workload and a recording; not looked for")
    if folder is not None and is_foreign(folder):
        may_name(folder, workload)
        if names_file(device):
            raise UsageError(f"{folder.name} was imported: its {device} is not looked for on this machine")


def _variant(subject: Subject) -> str:
    """Its variant's name, which is not a file's. UsageError if the workload has none of that name."""
    from ..kernels.loader import load_workload

    return load_workload(subject.workload).variant(subject.variant).name


def _find(
    subject: Subject,
    pattern: str,
    read: Callable[[Path], Found],
    recorded: Callable[[Mapping[str, str] | None], Found],
    what: str,
    command: str,
) -> tuple[Found, str]:
    other: Found | None = None
    for path in _newest(subject.folder, pattern):
        found = read(path)
        if _is_of(found, subject):
            return found, ""
        other = other or found
    knobs = {name: str(value) for name, value in subject.config.items()}
    if subject.recorded:
        try:
            require_names(subject.folder, subject.workload, subject.device)
            return recorded(knobs), ""
        except WarpdeckError:  # another configuration's may be there
            pass
    if other is not None:
        return other, f"the session has no {what} of {_words(other, subject)}"
    if subject.recorded:
        try:
            require_names(subject.folder, subject.workload, subject.device)
            found = recorded(None)
        except WarpdeckError as error:
            raise WarpdeckError(f"{error}; on a GPU: {command}") from None
        return found, f"no {what} is recorded of {_words(found, subject)}"
    raise WarpdeckError(f"no {what} of this configuration yet; to make one: {command}")


def _newest(folder: Path | None, pattern: str) -> list[Path]:
    """A session's files, the newest first."""
    files = [] if folder is None else list((folder / ARTIFACTS).glob(pattern))
    return sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)[:20]


def _is_of(found: Any, subject: Subject) -> bool:
    meta = found.meta
    return meta.get("config") == dict(subject.config) and meta.get("variant") in (None, subject.variant)


def _words(found: Any, subject: Subject) -> str:
    """What was asked for and what is shown instead: of one variant, only the knobs that differ."""
    config, variant = found.meta.get("config"), found.meta.get("variant")
    if not isinstance(config, Mapping) or not config:
        return f"{config_text(subject.config)}; this is another configuration"
    if variant not in (None, subject.variant) or set(config) != set(subject.config):
        named = f"{config_text(config)} of {variant}" if variant else config_text(config)
        return f"{config_text(subject.config)}; this is {named}"
    differ = [name for name in config if config[name] != subject.config[name]]
    asked, shown = ({name: of[name] for name in differ} for of in (subject.config, config))
    return f"{config_text(asked)}; this has {config_text(shown)}"
