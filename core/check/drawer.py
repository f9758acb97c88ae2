"""The draws of one workload: inputs, what is expected of them, and which null controls that would accept."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ..model import Case, Role, Trust
from ..sandbox import Layer
from ..workload import Tolerance, Workload
from .controls import controls
from .functions import functions_of
from .inputs import POOL, UNSEEN, Arrays, InputData
from .reference import Expected, References
from .store import Store

REDRAWS = 8  # of inputs for which a performance case accepts a control, before the case is called weak


@dataclass(frozen=True)
class Draw:
    """One draw of a case: memory maps of its inputs and expected outputs, and the controls it accepts."""

    inputs: Arrays
    expected: Expected
    accepted: frozenset[str] = frozenset()


def tolerance_of(workload: Workload, case: Case) -> Tolerance:
    """A case's tolerance, whatever a variant has."""
    return Tolerance(exact=True) if case.exact else workload.tolerance


class Drawer:
    """Computes draws, each once. Methods may be called from several threads.

    Args:
        workload: whose. Its `reference.py` is imported here, or runs in a sandbox if a model or a client
            wrote it.
        cases: those that may be computed side by side, if the workload is bundled.
        entropy: the run's secret.
        store: where the arrays live.
        layer: what code of others is kept apart by; None: the best that works here.

    Raises:
        UsageError: a fault in `reference.py`; also from `draw`.
        WarpdeckError: no room, or (SandboxError) `reference.py` needs a sandbox that can't be had, or was
            ended there by a limit; also from `draw`.
    """

    def __init__(
        self,
        workload: Workload,
        cases: Sequence[Case],
        entropy: int,
        store: Store,
        layer: Layer | None = None,
    ) -> None:
        self.workload = workload
        self._functions = functions_of(workload, layer)
        self._references = References(workload, store, entropy, self._functions)
        self._inputs = InputData(workload, store, entropy, self._functions.make_inputs)
        self._draws: dict[tuple[str, int], Draw] = {}
        # Cases are independent, but what a user wrote may not be made for several threads.
        self._lock = threading.RLock()
        apart = cases if workload.trust is Trust.BUNDLED else ()
        self._locks = {case.name: threading.RLock() for case in apart}

    def draw(self, case: Case, k: int) -> Draw:
        """Draw k of a case; see `CheckPlan` for the numbers."""
        draw = self._draws.get((case.name, k))
        if draw is not None:
            return draw
        with self._locks.get(case.name, self._lock):
            if (case.name, k) not in self._draws:
                self._draws[case.name, k] = self._new_draw(case, k)
            return self._draws[case.name, k]

    def close(self) -> None:
        """End the reference's sandbox, if it has one: whoever waits for a result gets an error."""
        self._functions.close()

    def _new_draw(self, case: Case, k: int) -> Draw:
        if POOL <= k < UNSEEN:
            inputs = self._inputs.generate(case, k, 0, self.draw(case, k - POOL).inputs)
            return Draw(inputs, self._references.compute(case, k, inputs))
        attempt = 0
        redraws = REDRAWS if case.role is Role.PERFORMANCE and not case.edge else 0
        while True:
            inputs = self._inputs.generate(case, k, attempt)
            expected = self._references.compute(case, k, inputs)
            accepted = self._accepted_by(case, inputs, expected)
            if not accepted or attempt == redraws:
                return Draw(inputs, expected, frozenset(accepted))
            attempt += 1

    def _accepted_by(self, case: Case, inputs: Arrays, expected: Expected) -> set[str]:
        """Names of the controls that a new draw accepts; those from other draws if there are any yet."""
        known = (self._draws.get((case.name, j)) for j in range(POOL))
        others = [draw.expected for draw in known if draw is not None]
        outputs, shapes = self._references.outputs, self.workload.shapes(case)
        accepted: set[str] = set()
        for tolerance in self._tolerances(case):
            for name, written in controls(outputs, shapes, inputs, others[-1] if others else None):
                if all(e.glance(written[n], tolerance).ok for n, e in expected.items()) and all(
                    e.judge(written[n], tolerance).ok for n, e in expected.items()
                ):
                    accepted.add(name)
            for other in others:
                if all(e.repeats(other[n], outputs[n].dtype, tolerance) for n, e in expected.items()):
                    accepted.add("the last output")
        return accepted

    def _tolerances(self, case: Case) -> list[Tolerance]:
        """Every tolerance that some variant is judged by: the loosest must refuse a control too."""
        every = [self.workload.tolerance_of(name, case) for name in self.workload.variants]
        return list(dict.fromkeys([tolerance_of(self.workload, case), *every]))
