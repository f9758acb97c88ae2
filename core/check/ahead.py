"""Check plans made ready in the background: inputs and references cost CPU time and no GPU."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType

import numpy as np

from ..model import Case, Trust
from ..workload import Workload
from .inputs import POOL
from .plan import CheckPlan
from .remote import begin

_ALL_DRAWS_BYTES = 8 << 20  # inputs up to this size are drawn `POOL` times, larger ones twice


def draws(workload: Workload, case: Case) -> tuple[int, ...]:
    """Numbers of the input draws in use for a case."""
    shapes = workload.shapes(case)
    size = sum(
        math.prod(shapes[a.name]) * np.dtype(a.dtype).itemsize for a in workload.arguments if a.is_input
    )
    return tuple(range(POOL if size <= _ALL_DRAWS_BYTES else 2))


class ReadyPlan:
    """The plan of one run: `plan`, whose draws are computed once it is `start`ed, or one by one when needed.

    Args:
        workload: what is checked.
        cases: its performance cases.
        seed: of the inputs. A seed makes a run repeatable; code that may be hostile gets data that it can't
            know in advance.
    """

    def __init__(self, workload: Workload, cases: Sequence[Case], seed: int) -> None:
        names = {case.name for case in cases}
        self.correctness = tuple(c for c in workload.correctness_cases() if c.name not in names)
        secret = workload.trust in (Trust.GENERATED, Trust.REMOTE)
        self._cases = tuple(cases)
        self.plan = CheckPlan(workload, [*self.correctness, *cases], seed=None if secret else seed)
        self._strong = False

    def start(self, then: Callable[[], None] = lambda: None) -> None:
        """Compute all draws; `then` is called afterwards."""
        self.plan.order(self._order(self._cases), then)

    def _order(self, cases: Sequence[Case]) -> list[tuple[Case, int]]:
        """All draws of all cases, in the order in which a run meets them."""
        wanted = {case.name: draws(self.plan.workload, case) for case in (*cases, *self.correctness)}
        early, late, changed = range(2), range(2, POOL), range(POOL, 2 * POOL)
        order = [(case, k) for k in early for case in (*cases, *self.correctness)]
        order += [(case, k) for k in late for case in self.correctness]
        order += [(case, k) for k in late for case in cases]
        order = [(case, k) for case, k in order if k in wanted[case.name]]
        return order + [(case, k) for k in changed for case in self.correctness]

    def require_strong(self) -> None:
        """Wait for the controls. Raises VerificationError if the cases prove nothing."""
        if not self._strong:
            self.plan.assert_strong()
            self._strong = True

    def close(self) -> None:
        """Stop computing and remove the data."""
        self.plan.close()


class Plans:
    """Makes plans, also of workloads whose turn comes later; their draws are computed one plan after the
    other."""

    def __init__(self) -> None:
        begin()
        self._waiting: list[tuple[object, ReadyPlan]] = []
        self._unstarted: deque[ReadyPlan] = deque()
        self._lock = threading.Lock()
        self._busy = False

    def begin(self, workload: Workload, cases: Sequence[Case], seed: int) -> None:
        """Begin a plan that will be taken later. Raises as `CheckPlan`."""
        self._waiting.append(((workload, tuple(cases), seed), self._begun(workload, cases, seed)))

    def _begun(self, workload: Workload, cases: Sequence[Case], seed: int) -> ReadyPlan:
        plan = ReadyPlan(workload, cases, seed)
        with self._lock:
            self._unstarted.append(plan)
            idle, self._busy = not self._busy, True
        if idle:
            self._next()
        return plan

    def _next(self) -> None:
        with self._lock:
            plan = self._unstarted.popleft() if self._unstarted else None
            self._busy = plan is not None
        if plan is not None:
            plan.start(self._next)

    def take(self, workload: Workload, cases: Sequence[Case], seed: int) -> ReadyPlan:
        """The plan that was begun for these, else a new one; the caller closes it. Raises as `CheckPlan`."""
        wanted = (workload, tuple(cases), seed)
        for number, (known, plan) in enumerate(self._waiting):
            if known == wanted:
                del self._waiting[number]
                return plan
        return self._begun(workload, cases, seed)

    def close(self) -> None:
        """Drop the plans that nobody took."""
        self._unstarted.clear()
        for _, plan in self._waiting:
            plan.close()
        self._waiting.clear()

    def __enter__(self) -> Plans:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
