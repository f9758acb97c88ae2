"""The check of one run: its secret inputs, their expected outputs, and the verdict on what a kernel wrote."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..model import Case, CheckResult, Status
from ..workload import Tolerance, Workload
from .compare import Comparison
from .controls import require_strong
from .drawer import Draw, tolerance_of
from .inputs import UNSEEN, Arrays
from .remote import Draws
from .store import Store


class CheckPlan:
    """Inputs and expected outputs of a workload's cases, computed on first use and kept for the run.

    Draws are numbered: 0 to `POOL - 1` are independent; `POOL + k` is draw k with a sixteenth of every
    input replaced; `UNSEEN` is independent again. A draw of a performance case for which a null control
    happens to pass (a sum near zero) is redrawn. They are computed in a process of their own, which a
    reference that crashes, or never ends, can't take this one with. Methods may be called from several
    threads.

    Args:
        workload: what is checked. Its `reference.py` is imported in that process, or runs in a sandbox if a
            model or a client wrote it.
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
        try:
            self._draws = Draws(workload, cases, entropy, self._store)
        except BaseException:
            self._store.close()
            raise

    def inputs(self, case: Case, k: int) -> Arrays:
        """Every `in` and `inout` buffer's contents before the kernel runs, for draw k.

        Read-only memory maps in declared type and shape, C-contiguous; `.filename` is the raw file.
        """
        return self._draw(case, k).inputs

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
        expected = self._draw(case, k).expected
        tolerance = tolerance or tolerance_of(self.workload, case)
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

    def order(self, draws: Sequence[tuple[Case, int]], then: Callable[[], None] = lambda: None) -> None:
        """Compute these in the background, in order; `then` is called once they are there, or can't be."""
        self._draws.order(draws, then)

    def assert_strong(self) -> None:
        """Raise VerificationError (`weak_case`) if the cases accept outputs that need no computation.

        Every performance case that isn't `edge` must refuse every control (zeros, a constant, an input
        copy, the last output), and of the correctness cases at least one each.
        """
        accepted = {
            name: set().union(*(self._draw(case, k).accepted for k in (0, 1)))
            for name, case in self.cases.items()
        }
        require_strong(accepted, self.cases, self.workload.name)

    def close(self) -> None:
        """End the process that computes, and remove the data."""
        self._draws.close()
        self._store.close()

    def __enter__(self) -> CheckPlan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _draw(self, case: Case, k: int) -> Draw:
        if not 0 <= k <= UNSEEN:
            raise ValueError(f"draw {k}: they are numbered 0 to {UNSEEN}")
        return self._draws.get(case, k)

    def _misfit(self, case: Case, name: str, actual: NDArray[Any] | None) -> str | None:
        if actual is None:
            return f"output {name!r} is missing"
        shape, dtype = self.workload.shapes(case)[name], self.workload.argument(name).dtype
        if actual.shape != shape or actual.dtype != np.dtype(dtype):
            return f"output {name!r} is {actual.dtype}{list(actual.shape)}, declared {dtype}{list(shape)}"
        return None


def _reason(name: str, found: Comparison) -> str:
    return f"{name}: {found.mismatches:,} of {found.elements:,} elements are wrong; {found.detail}"
