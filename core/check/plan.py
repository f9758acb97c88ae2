"""The check of one run: its secret inputs, their expected outputs, and the verdict on what a kernel wrote."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..model import Case, CheckResult, Role, Status, Trust
from ..workload import Tolerance, Workload
from .compare import Comparison
from .controls import controls, require_strong
from .functions import functions_of
from .inputs import POOL, UNSEEN, Arrays, InputData
from .reference import Expected, References
from .store import Store

REDRAWS = 8  # of inputs for which a performance case accepts a control, before the case is called weak


class CheckPlan:
    """Inputs and expected outputs of a workload's cases, computed on first use and kept for the run.

    Draws are numbered: 0 to `POOL - 1` are independent; `POOL + k` is draw k with a sixteenth of every
    input replaced; `UNSEEN` is independent again. A draw of a performance case for which a null control
    happens to pass (a sum near zero) is redrawn. Methods may be called from several threads.

    Args:
        workload: what is checked. Its `reference.py` is imported here, or runs in a sandbox if a model or a
            client wrote it.
        cases: the cases that will be checked.
        seed: None for a secret one; a number reproduces every draw.
        folder: where the private data folder is created; None: the system's temporary folder. Up to
            2 × POOL × (inputs + 8 to 16 bytes an output element) go there for each case.

    Raises:
        UsageError: a fault in `reference.py`; also from `inputs` and `verify`.
        WarpdeckError: no room in `folder`, or (SandboxError) `reference.py` needs a sandbox that can't be
            had, or was ended there by a limit; also from `inputs` and `verify`.
    """

    def __init__(
        self,
        workload: Workload,
        cases: Sequence[Case],
        *,
        seed: int | None = None,
        folder: Path | None = None,
    ) -> None:
        self.workload = workload
        self.cases = {c.name: c for c in cases}
        if len(self.cases) != len(cases):
            raise UsageError(f"{workload.name}: two cases have the same name")
        entropy = secrets.randbits(128) if seed is None else abs(seed)
        self._store = Store(folder)
        self._functions = functions_of(workload)
        self._references = References(workload, self._store, entropy, self._functions)
        self._inputs = InputData(workload, self._store, entropy, self._functions.make_inputs)
        self._draws: dict[tuple[str, int], tuple[Arrays, Expected]] = {}
        self._accepted: dict[str, set[str]] = {}
        # Cases are independent, but what a user wrote may not be made for several threads.
        self._lock = threading.RLock()
        apart = self.cases if workload.trust is Trust.BUNDLED else ()
        self._locks = {name: threading.RLock() for name in apart}

    def inputs(self, case: Case, k: int) -> Arrays:
        """Every `in` and `inout` buffer's contents before the kernel runs, for draw k.

        Read-only memory maps in declared type and shape, C-contiguous; `.filename` is the raw file.
        """
        return self._draw(case, k)[0]

    def prepare(self, case: Case, draws: Sequence[int] = (0, 1)) -> None:
        """Compute these draws now, for instance while candidates compile."""
        for k in draws:
            self._draw(case, k)

    def verify(
        self, case: Case, k: int, outputs: Mapping[str, NDArray[Any]], tolerance: Tolerance | None = None
    ) -> CheckResult:
        """Judge what a kernel wrote for draw k: `ok` or `incorrect`, with the reason.

        Args:
            outputs: every `out` and `inout` buffer after the run, in declared type and shape.
            tolerance: the variant's (`Workload.tolerance_of`); None: the workload's.

        The result's `max_error` is the largest over outputs, in the tolerance's measure (`Comparison`).
        """
        expected = self._draw(case, k)[1]
        tolerance = tolerance or self._tolerance(case)
        errors = []
        for name, reference in expected.items():
            problem = self._misfit(case, name, outputs.get(name))
            if problem is None:
                found = reference.judge(outputs[name], tolerance)
                errors.append(found.max_error)
                problem = None if found.ok else _reason(name, found)
            if problem is not None:
                return CheckResult(
                    case.name, case.role, Status.INCORRECT, problem, errors[-1] if errors else None
                )
        worst = max((e for e in errors if e is not None), default=None)
        return CheckResult(case.name, case.role, Status.OK, max_error=worst)

    def assert_strong(self) -> None:
        """Raise VerificationError (`weak_case`) if the cases accept outputs that need no computation.

        Every performance case that isn't `edge` must refuse every control (zeros, a constant, an input
        copy, the last output), and of the correctness cases at least one each.
        """
        for case in self.cases.values():
            self.prepare(case)
        require_strong({n: self._accepted[n] for n in self.cases}, self.cases, self.workload.name)

    def stop(self) -> None:
        """End the reference's sandbox, if it has one: whoever waits for a result gets an error."""
        self._functions.close()

    def close(self) -> None:
        """Remove the data, and end the reference's sandbox if it has one."""
        self.stop()
        self._store.close()

    def __enter__(self) -> CheckPlan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- draws -----------------------------------------------------------------------------------

    def _draw(self, case: Case, k: int) -> tuple[Arrays, Expected]:
        if not 0 <= k <= UNSEEN:
            raise ValueError(f"draw {k}: they are numbered 0 to {UNSEEN}")
        draw = self._draws.get((case.name, k))
        if draw is not None:
            return draw
        with self._locks.get(case.name, self._lock):
            if (case.name, k) not in self._draws:
                self._draws[case.name, k] = self._new_draw(case, k)
            return self._draws[case.name, k]

    def _new_draw(self, case: Case, k: int) -> tuple[Arrays, Expected]:
        if POOL <= k < UNSEEN:
            inputs = self._inputs.generate(case, k, 0, self._draw(case, k - POOL)[0])
            return inputs, self._references.compute(case, k, inputs)
        attempt = 0
        redraws = REDRAWS if case.role is Role.PERFORMANCE and not case.edge else 0
        while True:
            inputs = self._inputs.generate(case, k, attempt)
            expected = self._references.compute(case, k, inputs)
            accepted = self._accepted_by(case, inputs, expected)
            if not accepted or attempt == redraws:
                self._accepted.setdefault(case.name, set()).update(accepted)
                return inputs, expected
            attempt += 1

    def _accepted_by(self, case: Case, inputs: Arrays, expected: Expected) -> set[str]:
        """Names of the controls that a new draw accepts; those from other draws if there are any yet."""
        known = (self._draws.get((case.name, j)) for j in range(POOL))
        others = [draw[1] for draw in known if draw is not None]
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
        return list(dict.fromkeys([self._tolerance(case), *every]))

    def _tolerance(self, case: Case) -> Tolerance:
        return Tolerance(exact=True) if case.exact else self.workload.tolerance

    def _misfit(self, case: Case, name: str, actual: NDArray[Any] | None) -> str | None:
        if actual is None:
            return f"output {name!r} is missing"
        shape, dtype = self.workload.shapes(case)[name], self.workload.argument(name).dtype
        if actual.shape != shape or actual.dtype != np.dtype(dtype):
            return f"output {name!r} is {actual.dtype}{list(actual.shape)}, declared {dtype}{list(shape)}"
        return None


def _reason(name: str, found: Comparison) -> str:
    return f"{name}: {found.mismatches:,} of {found.elements:,} elements are wrong; {found.detail}"
