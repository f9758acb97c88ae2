"""Why a run's best is as fast as it is: its trace and counters, and the baseline's, as artifacts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ..core.bench import Bench
from ..core.devices.stored_counters import save
from ..core.errors import NoDeviceError, WarpdeckError
from ..core.model import CacheMode, Candidate, Case
from ..core.profiling import NcuFailure, ProfileOptions
from ..core.ranking import Result
from ..core.tracing import TraceOptions
from . import paths

SAID = 3  # sentences of the diagnosis that go into the log

Message = Callable[[str, str], None]  # level, text


def explain(bench: Bench, result: Result, folder: Path, message: Message) -> Iterator[tuple[str, str]]:
    """Trace and profile the best and the baseline on the last case.

    Args:
        bench: of the run, its device still open.
        result: the run's.
        folder: the session's.
        message: logs; also what can't be had, which ends nothing.

    Yields:
        (name, path within the session) of each artifact written.

    Raises NoDeviceError if the GPU is gone.
    """
    if result.best is None:
        return
    best, baseline = result.best.evaluation.candidate, result.baseline.candidate
    subjects = {"best": best} if best.id == baseline.id else {"best": best, "baseline": baseline}
    case, cache = bench.cases[-1], bench.protocol.cache
    (folder / paths.ARTIFACTS).mkdir(exist_ok=True)
    for role, candidate in subjects.items():
        yield from _trace(bench, candidate, case, cache, role, folder, message)
    yield from _profile(bench, subjects, case, cache, folder, message)


def _trace(
    bench: Bench,
    candidate: Candidate,
    case: Case,
    cache: CacheMode,
    role: str,
    folder: Path,
    message: Message,
) -> Iterator[tuple[str, str]]:
    from ..telemetry.trace import store
    from ..telemetry.trace.errors import TraceError

    name = f"{paths.ARTIFACTS}/{role}.wdtrace"
    try:
        raw = bench.backend.trace(candidate, case, TraceOptions(cache=cache))
        store.save(raw, folder / name)
    except NoDeviceError:
        raise
    except (WarpdeckError, TraceError, OSError) as error:
        message("warning", f"no trace of the {role}: {error}")
        return
    yield f"{role}-trace", name


def _profile(
    bench: Bench,
    subjects: dict[str, Candidate],
    case: Case,
    cache: CacheMode,
    folder: Path,
    message: Message,
) -> Iterator[tuple[str, str]]:
    from ..telemetry.ncu.diagnosis import diagnose

    options = ProfileOptions(set="full", cache=cache)
    try:
        results = bench.backend.profile(list(subjects.values()), case, options)
    except NoDeviceError:
        raise
    except WarpdeckError as error:
        message("warning", f"no counters: {error}")
        return
    for role, found in zip(subjects, results, strict=True):
        if isinstance(found, NcuFailure):
            message("warning", f"no counters of the {role}: {found.text}")
            continue
        name = f"{paths.ARTIFACTS}/{role}.counters.json.gz"
        try:
            save(found, folder / name)
        except OSError as error:
            message("warning", f"no counters of the {role}: {error}")
            continue
        for finding in diagnose(found)[:SAID]:
            message("info", f"{role}, size {case.name}: {finding.text}")
        yield f"{role}-counters", name
