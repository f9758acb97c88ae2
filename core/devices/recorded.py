"""A device that answers from stored samples: read-only, seeded, and labelled wherever its numbers appear.

An evaluation draws rounds with replacement (a bootstrap by round) and keeps each round's samples
together, so that it is as noisy as measuring again would have been. The environment's quick protocol
draws one round and five of its samples, as five launches in a row would have come from one moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...telemetry.ncu.counters import Counters
from .. import exchange
from ..errors import UsageError
from ..model import (
    CacheMode,
    Candidate,
    Case,
    CheckResult,
    Config,
    DeviceInfo,
    Evaluation,
    Measurement,
    Protocol,
    Role,
    Status,
)
from ..profiling import TIMEOUT_S, NcuFailure, ProfileOptions
from ..recording import Entry, Recording, Series, config_key
from ..stats import block_bootstrap, bootstrap_by_round
from ..tracing import SUFFIX as TRACE_SUFFIX
from ..tracing import RecordedTrace, TraceOptions, choose, recorded_traces
from ..workload import Workload
from .base import Backend, Paired, Uninstrumented, floor_ms
from .stored_counters import not_recorded, of_recording, stored

if TYPE_CHECKING:
    from ...telemetry.trace.timeline import RawTrace

_EMPTY = np.empty(0)


class RecordedDevice:
    """Recordings of one name (or one file), possibly of several workloads and cases; read when they are
    needed."""

    def __init__(
        self, spec: str, files: Sequence[Path], loaded: Mapping[Path, Recording] | None = None
    ) -> None:
        if not files:
            raise UsageError(f"{spec}: no recording found")
        self._files = files
        self._spec = spec
        self._loaded = dict(loaded or {})

    @property
    def info(self) -> DeviceInfo:
        """The device that was recorded, as its first file describes it."""
        return _with_spec(self._load(self._files[0]).reading, self._spec)

    @property
    def name(self) -> str:
        """What its recordings are called: "h200"."""
        return self._load(self._files[0]).name

    @property
    def folders(self) -> list[Path]:
        """Where its files lie; profiles and traces lie beside them."""
        return sorted({file.parent for file in self._files})

    def _load(self, path: Path) -> Recording:
        if path not in self._loaded:
            self._loaded[path] = exchange.read(path)
        return self._loaded[path]

    def recordings(self, workload: str | None = None, space: str | None = None) -> list[Recording]:
        """The recordings behind this device, in case order; named files are filtered before they are
        read."""
        parts = [p for p in (workload, space) if p]
        files = [
            f for f in self._files if len(self._files) == 1 or all(f"-{p}-" in f"-{f.name}" for p in parts)
        ]
        found = [self._load(f) for f in files]
        found = [r for r in found if workload in (None, r.workload) and space in (None, r.space)]
        return sorted(found, key=lambda r: (r.workload, r.space, len(r.case), r.case))

    def file_of(self, recording: Recording) -> Path:
        """Where one of `recordings()` lies."""
        return next(path for path, loaded in self._loaded.items() if loaded is recording)

    def traces(self, workload: str) -> list[RecordedTrace]:
        """The traces of a workload that lie beside this device's recordings, under the same name."""
        starts = {(f.parent, f"{f.name.split('-', 1)[0]}-{workload}-") for f in self._files}
        files = [
            path
            for folder, start in starts
            for path in folder.iterdir()
            if path.suffix == TRACE_SUFFIX and path.name.startswith(start)
        ]
        return recorded_traces(files, workload, self._spec)

    def prepare(
        self, workload: Workload, *, space: str, cases: Sequence[Case], seed: int, allow_shared: bool = False
    ) -> RecordedBackend:
        """Pick the recording of every case. UsageError names what is recorded if one is missing."""
        mine = self.recordings(workload.name, space)
        chosen: dict[str, Recording] = {}
        for case in cases:
            match = [r for r in mine if _answers(r, case)]
            if not match and not self.recordings(workload.name):
                known = ", ".join(sorted({r.workload for r in self.recordings()}))
                raise UsageError(
                    f"{self._spec}: nothing of '{workload.name}' is recorded, only {known};"
                    f" to run a kernel of your own takes a CUDA GPU"
                )
            if not match:
                raise UsageError(
                    f"{self._spec}: {workload.name}, space '{space}', size {case.name} is not recorded;"
                    f" recorded: {self._available(workload.name)}"
                )
            chosen[case.name] = match[0]
        info = _with_spec(next(iter(chosen.values())).reading, self._spec) if chosen else self.info
        imported = any(r.imported for r in chosen.values())
        made = (ImportedBackend if imported else RecordedBackend)(workload, chosen, info, seed)
        made.traces = lambda: self.traces(workload.name)
        made.device = self
        return made

    def _available(self, workload: str) -> str:
        spaces: dict[str, dict[str, None]] = {}  # a case may be recorded twice: bundled, and imported
        for recording in self.recordings(workload):
            spaces.setdefault(recording.space, {})[recording.case] = None
        return "; ".join(f"{space}: {', '.join(cases)}" for space, cases in spaces.items())

    def close(self) -> None:
        """Nothing to release."""


class RecordedBackend(Uninstrumented):
    """One workload's cases, answered from their recordings."""

    checked = "checked when recorded"
    device: RecordedDevice | None = None  # that prepared it

    def __init__(
        self, workload: Workload, chosen: Mapping[str, Recording], info: DeviceInfo, seed: int
    ) -> None:
        self._workload = workload
        self._chosen = chosen
        self.info = info
        self._seed = seed
        self.traces: Callable[[], list[RecordedTrace]] = list  # read when asked for
        self._visits: dict[str, int] = {}
        self._quick_rng = np.random.default_rng(np.random.SeedSequence([seed, 0x51]))

    @property
    def stale(self) -> list[str]:
        """Cases whose recording was made from another version of the kernel's or the baseline's source."""
        sources = {v.source_hash for v in self._workload.variants.values()}
        return [c for c, r in self._chosen.items() if not {r.source_hash, r.baseline_hash} <= sources]

    @property
    def nvml(self) -> Mapping[str, object]:
        """The NVML sample stored beside the first case's measurements ({} if none)."""
        return next(iter(self._chosen.values())).nvml

    @property
    def protocol(self) -> Mapping[str, object]:
        """How it was measured, as far as its file tells."""
        return next(iter(self._chosen.values())).protocol

    def nvml_of(self, case: Case) -> Mapping[str, object]:
        """The NVML sample stored beside a case's measurements ({} if none)."""
        return self._chosen[case.name].nvml

    @property
    def notes(self) -> list[str]:
        """What a reader of these numbers should know, besides the device's label."""
        return []

    def entry(self, candidate: Candidate, case: Case) -> Entry | None:
        """The stored entry of a candidate; the baseline of another variant is found too."""
        rec = self._chosen[case.name]
        if candidate.variant == rec.variant:
            return rec.entries.get(config_key(candidate.config))
        if candidate.variant == rec.baseline_variant and dict(candidate.config) == dict(rec.baseline.config):
            return rec.baseline
        return None

    def scores(
        self, configs: Iterable[Config], cases: Sequence[Case], cache: CacheMode
    ) -> list[float | None]:
        """Each configuration's recorded score in ms: the geometric mean of the cases' medians; None where it
        failed, or one of the cases has no samples of it."""
        found: list[float | None] = []
        for config in configs:
            medians = []
            for case in cases:
                entry = self._chosen[case.name].entries.get(config_key(config))
                series = entry.series.get(cache) if entry is not None and entry.status is Status.OK else None
                medians.append(math.nan if series is None else series.median_ms)
            score = math.exp(math.fsum(map(math.log, medians)) / len(medians)) if medians else math.nan
            found.append(score if math.isfinite(score) else None)
        return found

    def _rng(self, candidate: Candidate, purpose: int) -> np.random.Generator:
        """A generator that depends on seed, candidate and visit, not on the order of evaluations."""
        visit = self._visits[candidate.id] = self._visits.get(candidate.id, 0) + 1
        return np.random.default_rng([self._seed, int(candidate.id, 16), visit, purpose])

    def evaluate(self, candidate: Candidate, cases: Sequence[Case], protocol: Protocol) -> Evaluation:
        """Look the candidate up and draw its samples."""
        rng = self._rng(candidate, 1)
        measurements: list[Measurement] = []
        checks: list[CheckResult] = []
        launches = {}
        first: Entry | None = None
        for case in cases:
            entry = self.entry(candidate, case)
            if entry is None:
                return Evaluation(
                    candidate,
                    Status.UNSUPPORTED,
                    f"not recorded for case {case.name}: a recording answers only for the space it measured",
                )
            first = first or entry
            if entry.status is not Status.OK:
                return Evaluation(
                    candidate,
                    entry.status,
                    entry.message,
                    resources=entry.resources,
                    compile_s=entry.compile_s,
                )
            series = entry.series.get(protocol.cache)
            if series is None:
                return Evaluation(candidate, Status.UNSUPPORTED, f"no {protocol.cache} samples are recorded")
            launches[case.name] = self._workload.launches(candidate, case)
            measurements.append(self._draw(case, protocol.cache, series, rng))
            checks.append(CheckResult(case.name, Role.PERFORMANCE, Status.OK, self.checked))
        assert first is not None
        return Evaluation(
            candidate,
            Status.OK,
            "few samples: over 5x the best when recorded" if first.early_stop else "",
            tuple(measurements),
            launches,
            first.resources,
            tuple(checks),
            compile_s=first.compile_s,
        )

    def _draw(self, case: Case, cache: CacheMode, series: Series, rng: np.random.Generator) -> Measurement:
        rounds = series.by_round
        picks = rng.integers(len(rounds), size=len(rounds))
        samples = np.concatenate([rounds[i] for i in picks])
        index = np.repeat(np.arange(len(picks)), [len(rounds[i]) for i in picks]).astype(np.int32)
        return Measurement(
            case.name, cache, self._clock(case), samples, index, ci95_ms=bootstrap_by_round(samples, index)
        )

    def evaluate_many(
        self, candidates: Iterable[Candidate], cases: Sequence[Case], protocol: Protocol
    ) -> Iterator[Evaluation]:
        """As `evaluate`, in order."""
        for candidate in candidates:
            yield self.evaluate(candidate, cases, protocol)

    def recheck(self, candidate: Candidate, cases: Sequence[Case], draw: int) -> Sequence[CheckResult]:
        """None: a recording runs nothing."""
        return ()

    def quick(
        self,
        candidate: Candidate,
        case: Case,
        *,
        cache: CacheMode,
        samples: int = 5,
        rng: np.random.Generator | None = None,
    ) -> tuple[Status, NDArray[np.float64]]:
        """`samples` draws from one random round. About 10 µs."""
        entry = self.entry(candidate, case)
        if entry is None:
            return Status.UNSUPPORTED, _EMPTY
        series = entry.series.get(cache)
        if entry.status is not Status.OK or series is None:
            return entry.status if entry.status is not Status.OK else Status.UNSUPPORTED, _EMPTY
        rounds = series.by_round
        pick = (self._quick_rng if rng is None else rng).random(samples + 1)
        chosen = rounds[int(pick[0] * len(rounds))]
        return Status.OK, chosen[(pick[1:] * len(chosen)).astype(np.int64)]

    def compare(
        self,
        a: Candidate,
        b: Candidate,
        cases: Sequence[Case],
        cache: CacheMode,
        *,
        blocks: Mapping[str, int],
    ) -> list[Paired]:
        """One block a recorded round: both candidates' samples of that round. See `Backend.compare`.

        The number of blocks is what was recorded, whatever was asked: a recording can't learn more about
        itself by being asked again. Samples of one round share its drift, so they are not split into more
        blocks.
        """
        return [self._compared(a, b, case, cache) for case in cases]

    def _compared(self, a: Candidate, b: Candidate, case: Case, cache: CacheMode) -> Paired:
        sa, sb = self._series(a, case, cache), self._series(b, case, cache)
        shared = np.intersect1d(sa.rounds, sb.rounds)
        rows = [(sa.ms[sa.rounds == r], sb.ms[sb.rounds == r]) for r in shared]
        if not rows:
            raise UsageError(
                f"{self.info.label}: the two candidates share no measuring round; nothing to compare"
            )
        n = min(min(len(x), len(y)) for x, y in rows)
        return Paired(
            case.name,
            cache,
            self._clock(case),
            np.stack([x[:n] for x, _ in rows]),
            np.stack([y[:n] for _, y in rows]),
        )

    def _series(self, candidate: Candidate, case: Case, cache: CacheMode) -> Series:
        entry = self.entry(candidate, case)
        if entry is None or cache not in entry.series:
            raise UsageError(f"{self.info.label}: can't compare a candidate that isn't recorded as ok")
        return entry.series[cache]

    def _clock(self, case: Case) -> str:
        return str(self._chosen[case.name].protocol.get("clock", "unknown"))

    @property
    def vendor_ready(self) -> bool:
        """Always: it was recorded or it wasn't."""
        return True

    @property
    def vendor_problem(self) -> str | None:
        """None: a recording without a vendor time never had one."""
        return None

    def vendor(self, case: Case, cache: CacheMode) -> Measurement | None:
        """The vendor's stored samples."""
        series = self._chosen[case.name].vendor.get(cache)
        if series is None:
            return None
        ci95 = bootstrap_by_round(series.ms, series.rounds)
        return Measurement(case.name, cache, self._clock(case), series.ms, series.rounds, ci95_ms=ci95)

    def trace(self, candidate: Candidate, case: Case, options: TraceOptions) -> RawTrace:
        """The trace recorded of this configuration. UsageError lists what is recorded, if there is none."""
        wanted = {"variant": candidate.variant, "case": case.name, "config": dict(candidate.config)}
        return choose(self.traces(), self.info.spec, self._workload.name, **wanted).raw

    def floor_ms(self, case: Case, cache: CacheMode) -> float | None:
        """The floor from the recorded device's peaks."""
        return floor_ms(self._workload, case, self.info, cache)

    def profile(
        self, candidates: Sequence[Candidate], case: Case, options: ProfileOptions
    ) -> list[Counters | NcuFailure]:
        """What is stored of each candidate, whatever set was asked for; a recording reads no counters."""
        assert self.device is not None
        return [stored(self.device, self._workload, candidate, case) for candidate in candidates]

    def counters(
        self,
        candidates: Sequence[Candidate],
        case: Case,
        *,
        cache: CacheMode = CacheMode.COLD,
        timeout_s: float = TIMEOUT_S,
    ) -> list[Counters | NcuFailure]:
        """The seed sets that the case's recording holds, with the caches as they were then."""
        recording = self._chosen[case.name]
        return [of_recording(recording, c) or not_recorded(recording, c) for c in candidates]

    def close(self) -> None:
        """Nothing to release."""


class ImportedBackend(RecordedBackend):
    """A recording of another tuner's: each configuration was measured in one go, some time, without rounds.

    An evaluation draws the configuration's samples with replacement; comparisons are unpaired, and use the
    samples as they are.
    """

    checked = "valid in the imported file, which doesn't say how that was checked"

    @property
    def notes(self) -> list[str]:
        """Where it comes from, what was odd about its file, and how its numbers compare."""
        found: list[str] = []
        for recording in self._chosen.values():
            found.append(f"imported from {recording.origin.get('file')} ({recording.origin.get('format')})")
            found += [str(note) for note in recording.origin.get("notes") or ()]
        return [
            *found,
            "no baseline was recorded: speedups are relative to the recording's median configuration",
            "no rounds were recorded: comparisons are unpaired and cover no drift between configurations",
        ]

    def _draw(self, case: Case, cache: CacheMode, series: Series, rng: np.random.Generator) -> Measurement:
        samples = series.ms[rng.integers(len(series.ms), size=len(series.ms))]
        return Measurement(case.name, cache, self._clock(case), samples, ci95_ms=block_bootstrap(series.ms))

    def _compared(self, a: Candidate, b: Candidate, case: Case, cache: CacheMode) -> Paired:
        """All samples of both, not interleaved: nothing that was recorded pairs them."""
        first, second = self._series(a, case, cache), self._series(b, case, cache)
        return Paired(case.name, cache, self._clock(case), first.ms, second.ms, interleaved=False)


def _answers(recording: Recording, case: Case) -> bool:
    """Whether a case is the recorded one; an imported recording's has a name only."""
    if recording.imported:
        return recording.case == case.name
    return dict(recording.params) == dict(case.params)


def _with_spec(info: DeviceInfo, spec: str) -> DeviceInfo:
    return DeviceInfo(**{**info.__dict__, "spec": spec})


def refuse_stale(backend: Backend) -> None:
    """UsageError if this is a recording of sources that have changed since: it can't say anything of them."""
    if isinstance(backend, RecordedBackend) and backend.stale:
        cases = ", ".join(backend.stale)
        raise UsageError(
            f"{backend.info.label}: the kernel's source has changed since it was recorded (case {cases}); a"
            " recording can't run it: use a live device"
        )
