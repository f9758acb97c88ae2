"""Who competes in `bench`: the kernel now; against a file, a session's best, other knobs, or before."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..core.bench import performance_cases
from ..core.compare import Comparison, Contender, compare
from ..core.devices.base import Device
from ..core.errors import UsageError
from ..core.model import Config, Protocol, Status
from ..core.space import SearchSpace
from ..core.workload import Variant, Workload
from ..kernels.loader import load_workload, source_hash
from ..kernels.recordings import open_device
from ..kernels.versions import Versions
from . import examples, paths
from .store import SessionStore

LANGUAGES = {".py": "numba", ".cu": "cuda"}


class Duel:
    """A comparison that can be repeated while its sources change. Close it when done.

    Args:
        workload: name or folder; read afresh for every run.
        device: as `--device`; opened once.
        variant: a variant's name, or a source file that implements the same task; None: the space's.
        knobs: values by name, as texts; others take the baseline's value, else the first allowed.
        against: a source file, a session's name (its best), or knobs as "K=V,K=V". None: this variant's
            sources as they were when last run, else the baseline.
        space: whose knobs are named; None: the variant's first, or the first that has all the knobs.
        sizes: performance cases; empty: the workload's own.
        protocol: how both are measured.

    Raises (here and in `run`):
        UsageError: an unknown name, a value that isn't allowed, an unreadable file.
        NoDeviceError: the device isn't there.
    """

    def __init__(
        self,
        workload: str,
        *,
        device: str = "auto",
        variant: str | None = None,
        knobs: Mapping[str, str] | None = None,
        against: str | None = None,
        space: str | None = None,
        sizes: Sequence[int] = (),
        protocol: Protocol | None = None,
        seed: int = 0,
        allow_shared: bool = False,
    ) -> None:
        self._reference = workload
        self._variant = variant
        self._knobs = dict(knobs or {})
        self._against = against
        self._space = space
        self._sizes = sizes
        self._protocol = protocol
        self._seed = seed
        self._allow_shared = allow_shared
        loaded = load_workload(workload)
        self.folder = loaded.folder
        self._subject(loaded)  # an unknown name is told before a device is opened
        self._device: Device = open_device(device, allow_shared=allow_shared)
        info = self._device.info
        self.recorded = info.recorded
        fell_back = info.recorded and not device.startswith("recorded:")
        self.forgotten: str | None = None  # why a version wasn't remembered
        self.notice = f"no CUDA GPU here; {info.label}" if fell_back else None

    def run(self) -> Comparison:
        """Load, check and compare; a subject that works is remembered for the next time."""
        workload = load_workload(self._reference)
        subject, space = self._subject(workload)
        versions = Versions(paths.home().path, workload)
        rival = self._rival(workload, subject, space, versions)
        outcome = compare(
            workload,
            self._device,
            subject,
            rival,
            performance_cases(workload, self._sizes),
            space=space.name,
            protocol=self._protocol,
            seed=self._seed,
            allow_shared=self._allow_shared,
        )
        if outcome.subject_evaluation.status is Status.OK and subject.variant.file.parent == workload.folder:
            try:
                versions.remember(workload, subject.variant)
            except OSError as error:
                self.forgotten = (
                    f"this version can't be kept to compare the next with: {versions.root}: {error.strerror}"
                )
        return outcome

    def stamps(self) -> dict[Path, int]:
        """Modification times of what a run depends on, to see a save by. None are there while the folder is
        away: a checkout of another branch may take it and bring it back."""
        try:
            files = [f for f in self.folder.iterdir() if f.suffix in (".py", ".cu", ".cuh", ".h", ".toml")]
        except OSError:
            files = []
        for name in (self._variant, self._against):
            if name and Path(name).is_file():
                files.append(Path(name))
        found = {}
        for file in files:
            try:
                found[file] = file.stat().st_mtime_ns
            except OSError:  # an editor is replacing it
                continue
        return found

    def close(self) -> None:
        """Release the device."""
        self._device.close()

    # -- the two sides -----------------------------------------------------------------------------------

    def _subject(self, workload: Workload) -> tuple[Contender, SearchSpace]:
        variant, space = implementation(workload, self._variant, self._space, knobs=self._knobs)
        name = variant.file.name if variant.file.parent == workload.folder else self._variant
        config = completed(space, self._knobs, workload, self._sizes)
        return Contender(f"{name} {_text(config)}", variant, config), space

    def _rival(
        self, workload: Workload, subject: Contender, space: SearchSpace, versions: Versions
    ) -> Contender:
        if self._against is None:
            return self._default_rival(workload, subject, space, versions)
        path = Path(self._against)
        if path.is_file() and path.name != paths.DATABASE:
            variant = _from_file(workload, subject.variant, path)
            return Contender(f"{path} {_text(subject.config)}", variant, subject.config)
        if "=" in self._against:
            pairs = [part.partition("=") for part in self._against.split(",")]
            config = space.parse({**_texts(subject.config), **{k.strip(): v.strip() for k, _, v in pairs}})
            why = _why_invalid(space, config, workload, self._sizes)
            if why is not None:
                raise UsageError(f"--against {why}")
            return Contender(f"{subject.variant.file.name} {_text(config)}", subject.variant, config)
        return _best_of_session(workload, self._against)

    def _default_rival(
        self, workload: Workload, subject: Contender, space: SearchSpace, versions: Versions
    ) -> Contender:
        if not self._device.info.recorded:
            earlier = versions.before(subject.variant)
            if earlier is not None:
                label = (
                    f"{earlier.file.name} as last benched ({earlier.source_hash[:8]}) {_text(subject.config)}"
                )
                return Contender(label, earlier, subject.config)
        baseline = workload.baseline(space.name)
        if baseline == subject.candidate:
            return dataclasses.replace(subject, label="itself: no earlier version is known yet")
        variant = workload.variant(baseline.variant)
        return Contender(
            f"the baseline, {variant.file.name} {_text(baseline.config)}", variant, baseline.config
        )


def implementation(
    workload: Workload, variant: str | None, space: str | None, *, knobs: Iterable[str] = ()
) -> tuple[Variant, SearchSpace]:
    """What a command is about: an implementation and the space its configurations are of.

    Args:
        workload: whose.
        variant: a variant's name, or a source file that takes the place of the space's; None: the space's.
        space: a space's name; None: the variant's first, or the first (but `full` before) with these knobs.
        knobs: names that the space must have, if one has them all.

    Raises:
        UsageError: an unknown variant or space, or a file that can't be read.
    """
    if space:
        chosen = workload.space(space)
    elif variant in workload.variants:
        chosen = workload.space_of(str(variant))
    else:
        ordered = sorted(workload.spaces.values(), key=lambda s: s.name != "full")
        chosen = next((s for s in ordered if all(k in s.knobs for k in knobs)), ordered[0])
    if variant is None or variant in workload.variants:
        return workload.variant(variant or chosen.variant), chosen
    if not Path(variant).is_file():
        workload.variant(variant)  # raises: neither a variant nor a file
    return _from_file(workload, workload.variant(chosen.variant), Path(variant)), chosen


def _from_file(workload: Workload, like: Variant, file: Path) -> Variant:
    """Another source for the same task, launched as `like` is."""
    if file.suffix not in LANGUAGES:
        raise UsageError(f"{file}: a kernel's source ends in .py or .cu")
    own = next((v for v in workload.variants.values() if v.file.resolve() == file.resolve()), None)
    if own is not None:
        return own
    digest = source_hash(file)
    return dataclasses.replace(
        like,
        name=f"{file.stem}@{digest[:8]}",  # never taken for the variant it stands in for
        file=file.resolve(),
        language=LANGUAGES[file.suffix],
        source_hash=digest,
    )


def _best_of_session(workload: Workload, name: str) -> Contender:
    try:
        folder = examples.resolve(name)
    except UsageError as error:
        raise UsageError(f"--against {name!r} is no file, and {error}") from None
    with SessionStore.open(folder) as store:
        state = store.state()
    best = state.best
    if best is None or state.info is None:
        raise UsageError(f"session {folder.name} has no measured configuration to compare with")
    if state.info.workload != workload.name:
        raise UsageError(
            f"session {folder.name} is of workload '{state.info.workload}', not '{workload.name}'"
        )
    variant = workload.variant(best.variant)
    return Contender(f"best of {folder.name}, {_text(best.config)}", variant, dict(best.config))


def completed(
    space: SearchSpace, knobs: Mapping[str, str], workload: Workload, sizes: Sequence[int]
) -> Config:
    """The named values with the baseline's (or first) others; if restrictions forbid those, valid ones.

    UsageError for an unknown knob, a value that isn't allowed, and where no configuration is valid.
    """
    config = space.parse(knobs)
    why = _why_invalid(space, config, workload, sizes)
    if why is None:
        return config
    named = {name: config[name] for name in knobs}
    cases = performance_cases(workload, sizes)
    for found in space.configs(cases[0].params):
        if all(found[k] == v for k, v in named.items()) and all(space.valid(found, c.params) for c in cases):
            return found
    raise UsageError(why)


def _why_invalid(space: SearchSpace, config: Config, workload: Workload, sizes: Sequence[int]) -> str | None:
    for case in performance_cases(workload, sizes):
        why = space.why_invalid(config, case.params)
        if why is not None:
            return f"{_text(config)} is not allowed for size {case.name}: {why}"
    return None


def _texts(config: Config) -> dict[str, str]:
    return {k: str(v) for k, v in config.items()}


def _text(config: Config) -> str:
    return " ".join(f"{k}={v}" for k, v in config.items())
