"""Climb a workload's optimisation ladder: its CUDA C++ variants from naive to excellent, with their knobs.

It needs no model and no key: the loop of an agent that rewrites kernels, with the rewrites given. What it
reaches is the yardstick for such an agent.
"""

from __future__ import annotations

import random
import re
from collections import deque
from typing import TYPE_CHECKING

from ..core.errors import UsageError
from ..core.model import Candidate, Evaluation, Status
from ..core.stats import Verdict, unpaired_speedup
from ..core.workload import Variant
from .base import Context

if TYPE_CHECKING:
    from ..core.bench import Bench

EACH = 6  # configurations of a rung; ladders have few knobs
_COMMENT = re.compile(r"\s*(?://[^\n]*\n?)+|\s*/\*.*?\*/", re.DOTALL)


class Ladder:
    """Every rung from the lowest: its default configuration, then others drawn from its space.

    Args:
        bench: judges them; its workload has the ladder.
        context: where attempts are told.
        seed: of the draws.
        each: configurations of a rung; on a device that times nothing, one.

    Raises:
        UsageError: the workload has no ladder.
    """

    name = "ladder"
    lookahead = 0  # what is tried doesn't depend on what was found

    def __init__(self, bench: Bench, context: Context, *, seed: int = 0, each: int = EACH) -> None:
        rungs = bench.workload.ladder()
        if not rungs:
            raise UsageError(f"workload '{bench.workload.name}' has no ladder; use another agent")
        self._bench = bench
        self._context = context
        rng = random.Random(seed)
        self._rest = deque(
            candidate
            for rung in rungs
            for candidate in _of_rung(bench, rung, 1 if bench.device.emulated else each, rng)
        )
        self._told: set[str] = set()
        self._attempts: dict[str, int] = {}  # of the first configuration of each variant
        self._count = 0
        self._best: tuple[int, Evaluation] | None = None

    def ask(self) -> Candidate | None:
        """The next configuration of the rung, or of the next rung."""
        while self._rest:
            candidate = self._rest.popleft()
            if candidate.id not in self._told:
                return candidate
        return None

    def tell(self, proposal: Candidate, evaluation: Evaluation) -> None:
        """Note the attempt, and whether it beats the best so far by more than noise."""
        self._told.add(proposal.id)
        self._count += 1
        variant = self._bench.workload.variant(evaluation.candidate.variant)
        first = variant.name not in self._attempts
        self._attempts.setdefault(variant.name, self._count)
        parent = self._best[0] if self._best else None
        verdict = self._verdict(evaluation)
        kept = verdict is Verdict.WIN and variant.precision is None
        if kept:
            self._best = (self._count, evaluation)
        if len(self._context.past) >= self._count:  # an interrupted run told it already
            return
        knobs = " ".join(f"{k}={v}" for k, v in evaluation.candidate.config.items())
        title, text = described(variant)
        self._context.emit(
            "attempt",
            {
                "attempt": self._count,
                "parent": parent,
                "idea": f"rung {variant.ladder}: {title}" if first else f"{variant.name}: {knobs}",
                "summary": text if first else "",
                "variant": variant.name,
                "candidate": evaluation.candidate.id,
                "precision": variant.precision,
                "source": None,
                "launches": evaluation.to_json(samples=False)["launches"],
                "repairs": None,
                "kept": kept,
                "verdict": None if verdict is None else str(verdict),
            },
        )

    def _verdict(self, evaluation: Evaluation) -> Verdict | None:
        """Against the best so far, from the screening samples; the first that works wins. On a device that
        times nothing every correct rung does."""
        if evaluation.status is not Status.OK:
            return None
        if self._best is None or not evaluation.measurements:
            return Verdict.WIN
        best = {m.case: m.samples_ms for m in self._best[1].measurements}
        pairs = [(best[m.case], m.samples_ms) for m in evaluation.measurements]
        return unpaired_speedup(pairs).verdict


def _of_rung(bench: Bench, rung: Variant, each: int, rng: random.Random) -> list[Candidate]:
    """The rung's default configuration first; none of the restrictions leave any for every case."""
    space = bench.workload.space_of(rung.name)
    configs = space.configs_for([case.params for case in bench.cases])
    if not configs:
        return []
    others = range(1, len(configs))
    chosen = [configs[i] for i in (0, *rng.sample(others, min(each - 1, len(others))))]
    return [Candidate(rung.name, dict(config), rung.source_hash) for config in chosen]


def described(variant: Variant) -> tuple[str, str]:
    """Title and text of a source's head comment: its first sentence, and the rest on one line."""
    found = _COMMENT.match(variant.source())
    if found is None:
        return variant.name, ""
    lines = [re.sub(r"^\s*(//+|/\*+|\*+/?)\s?|\*/\s*$", "", line).strip() for line in found[0].splitlines()]
    text = " ".join(line for line in lines if line)
    title, _, rest = text.partition(". ")
    return re.sub(r"^.*?\brung \d+\W\s*", "", title).rstrip("."), rest
