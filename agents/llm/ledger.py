"""Keeps the attempts: their files, their variants on the bench, their verdicts, their events."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import NoDeviceError, UsageError, WarpdeckError
from ...core.model import Candidate, Config, Launch, Status, Trust
from ...core.ranking import identity
from ...core.stats import Verdict
from ...core.workload import LaunchSpec, Variant
from ..base import Context
from . import prompts
from .history import Attempt, History, microseconds, past_attempts
from .proposal import Proposal

if TYPE_CHECKING:
    from ...core.bench import Bench

FOLDER = "artifacts/attempts"  # below the session's


def prepare(bench: Bench, context: Context) -> None:
    """Give the bench of a resumed run the sources of earlier attempts, before their results.

    Raises UsageError for one that is gone or unreadable.
    """
    for attempt in past_attempts(context.past, context.folder).values():
        if attempt.source and attempt.launches and attempt.variant not in bench.workload.variants:
            _add(bench, context, attempt)


def _add(bench: Bench, context: Context, attempt: Attempt) -> Candidate:
    file = context.folder / file_name(attempt.number)
    return bench.add_variant(
        generated(attempt.variant, file, attempt.launches, case_launches=dict(attempt.case_launches))
    )


def generated(name: str, file: Path, launches: tuple[LaunchSpec, ...], **more: Any) -> Variant:
    """A variant of a model's source. Its hash is of the one file: it may include none beside it, and nothing
    that it names is read for it. Raises UsageError if it can't be read."""
    try:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise UsageError(f"{file}: can't read the source: {error.strerror}") from None
    return Variant(name, file, "cuda", launches[0].entry, launches, digest, trust=Trust.GENERATED, **more)


def file_name(number: int) -> str:
    """An attempt's source below the session's folder."""
    return f"{FOLDER}/attempt-{number:03d}.cu"


def candidate_of(bench: Bench, attempt: Attempt) -> Candidate:
    """What the bench evaluates of an attempt. Raises UsageError if it doesn't know its variant."""
    variant = bench.workload.variant(attempt.variant)
    return Candidate(variant.name, attempt.config, variant.source_hash)


class Ledger:
    """Makes attempts of proposals and judges them.

    Args:
        bench: evaluates them.
        context: has the folder and the log.
        history: where they go.
    """

    def __init__(self, bench: Bench, context: Context, history: History) -> None:
        self._bench = bench
        self._context = context
        self._history = history

    def put(self, attempt: Attempt) -> None:
        """Keep what is known of an attempt, and tell it."""
        self._history.put(attempt)
        launches: Mapping[str, tuple[Launch, ...]] = {}
        if attempt.variant:
            candidate = candidate_of(self._bench, attempt)
            launches = {c.name: self._bench.workload.launches(candidate, c) for c in self._bench.cases}
        self._context.emit("attempt", attempt.to_json(launches))

    def initial(self) -> Attempt | None:
        """The kernel to start from; None if the workload has none in CUDA C++ that is valid for the cases."""
        found = self._initial()
        if found is None:
            return None
        variant, config = found
        text = prompts.with_knobs(variant.source(), config)
        attempt = Attempt(
            1,
            idea="the initial kernel",
            variant=variant.name,
            candidate=Candidate(variant.name, config, variant.source_hash).id,
            source=self._write(1, text),
            text=text,
            config=config,
            launches=tuple(prompts.bound_launch(spec, config) for spec in variant.launches),
            case_launches={
                case: tuple(prompts.bound_launch(spec, config) for spec in specs)
                for case, specs in variant.case_launches.items()
            },
        )
        self.put(attempt)
        return attempt

    def _initial(self) -> tuple[Variant, Config] | None:
        """The ladder's lowest rung, else the space's own variant if it is CUDA C++, else the first that is;
        and its knobs."""
        workload = self._bench.workload
        own = workload.variant(self._bench.space.variant)
        for variant in (*workload.ladder()[:1], own, *workload.variants.values()):
            if variant.language == "cuda":
                space = workload.space_of(variant.name)
                configs = space.configs_for([case.params for case in self._bench.cases])
                if configs:
                    own = space.baseline
                    return variant, own if own is not None and own in configs else configs[0]
        return None

    def accept(self, attempt: Attempt, proposal: Proposal) -> Attempt | None:
        """The attempt with its proposal, known to the bench; None if another attempt is the same."""
        again = self._history.same(proposal.source, proposal.launches, dict(proposal.case_launches))
        if again is not None:
            self.give_up(attempt, f"the same as attempt {again.number}")
            return None
        attempt = replace(
            attempt,
            idea=proposal.idea or attempt.idea,
            summary=proposal.summary,
            variant=f"attempt-{attempt.number:03d}",
            source=self._write(attempt.number, proposal.source),
            text=proposal.source,
            launches=proposal.launches,
            case_launches=proposal.case_launches,
        )
        attempt = replace(attempt, candidate=_add(self._bench, self._context, attempt).id)
        self.put(attempt)
        return attempt

    def give_up(self, attempt: Attempt, reason: str) -> None:
        """Note an attempt that brought nothing to evaluate."""
        self.put(replace(attempt, kept=False, reason=reason))

    def _write(self, number: int, text: str) -> str:
        name = file_name(number)
        path = self._context.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return name

    def judged(self, attempt: Attempt) -> Attempt:
        """With the verdict on its evaluation: kept if it is the first that works, or beats the best by more
        than noise; on a device that times nothing, if it is correct."""
        evaluation, best = attempt.evaluation, self._history.best
        assert evaluation is not None
        if evaluation.status is not Status.OK:
            said = evaluation.message.strip().splitlines()
            return replace(attempt, kept=False, reason=": ".join([attempt.status, *said[:1]]))
        if evaluation.score_ms is None:
            return replace(attempt, kept=True, reason="correct; nothing is timed here")
        if best is None or best.evaluation is None or best.score_ms is None:
            reason = f"the first that works: {microseconds(evaluation.score_ms)}"
            return replace(attempt, kept=True, verdict=str(Verdict.WIN), reason=reason)
        if identity(evaluation) == identity(best.evaluation):
            reason = f"the same machine code and launches as attempt {best.number}"
            return replace(attempt, kept=False, verdict=str(Verdict.TIE), reason=reason)
        if evaluation.score_ms >= best.score_ms:
            times = f"{microseconds(evaluation.score_ms)} against {microseconds(best.score_ms)}"
            reason = f"not faster than attempt {best.number}: {times}"
            return replace(attempt, kept=False, verdict=str(Verdict.LOSS), reason=reason)
        try:
            speedup = self._bench.compare(best.evaluation, evaluation)
        except NoDeviceError:
            raise
        except WarpdeckError as error:
            return replace(attempt, kept=False, reason=f"not compared with attempt {best.number}: {error}")
        kept = speedup.verdict is Verdict.WIN
        reason = (
            f"{speedup.ratio:.3f} times as fast as attempt {best.number}"
            f" (95% interval {speedup.lo:.3f} to {speedup.hi:.3f})" + ("" if kept else ": within noise")
        )
        return replace(attempt, kept=kept, verdict=str(speedup.verdict), reason=reason)
