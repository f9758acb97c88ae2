"""Which of a workload's cases a candidate must get right."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from ..model import Candidate, Case, Trust
from ..workload import Workload


def foreign(workload: Workload, *candidates: Candidate) -> bool:
    """Whether code of others is among them: that gets processes of its own."""
    return any(workload.trust_of(c.variant) not in (Trust.BUNDLED, Trust.OWN) for c in candidates)


def applicable(workload: Workload, candidate: Candidate, cases: Sequence[Case]) -> list[Case]:
    """The correctness cases that a configuration is valid for. Code of others is meant for all of them."""
    if foreign(workload, candidate):
        return list(cases)
    every = workload.spaces.values()
    spaces = [s for s in every if s.variant == candidate.variant]
    # An edited copy of a variant is in no space; its restrictions are those of the space with its knobs.
    spaces = spaces or [s for s in every if set(s.knobs) == set(candidate.config)]
    found = []
    for case in cases:
        if spaces and all(s.why_invalid(candidate.config, case.params) for s in spaces):
            continue
        try:
            workload.launches(candidate, case)
        except UsageError:
            continue
        found.append(case)
    return found
