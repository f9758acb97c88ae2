"""The environment's protocol on one CUDA device: thousands of short measurements a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, WarpdeckError
from ..model import CacheMode, Candidate, Case, Status
from ..toolchain import CompileError
from ..worker import WorkerFault, WorkerHandle
from .cases import foreign
from .parts import Parts

_EMPTY = np.empty(0)


class Quick:
    """Remembers, of each candidate and case, what the worker needs and whether it failed.

    Args:
        worker: the worker that a candidate may use.
    """

    def __init__(self, parts: Parts, worker: Callable[[Candidate], WorkerHandle]) -> None:
        self._workload, self._ready, self._session, self._codes = parts
        self._worker = worker
        self._payloads: dict[tuple[str, str, CacheMode, int], dict[str, Any]] = {}
        self._failed: dict[tuple[str, str], Status] = {}

    def measure(
        self,
        candidate: Candidate,
        case: Case,
        *,
        cache: CacheMode,
        samples: int,
    ) -> tuple[Status, NDArray[np.float64]]:
        """One warm-up and `samples` launches. A candidate is checked when it is first met.

        Raises WarpdeckError for code of others: that gets a fresh process every time, which isn't quick.
        """
        if foreign(self._workload, candidate):
            raise WarpdeckError(f"{self._workload.name}: code of others has no quick protocol")
        failed = self._failed.get((candidate.id, case.name))
        if failed is not None:
            return failed, _EMPTY
        key = (candidate.id, case.name, cache, samples)
        payload = self._payloads.get(key)
        handle = self._worker(candidate)
        try:
            if payload is None or case.name not in handle.bound or candidate.id not in handle.loaded:
                payload = self._first(handle, candidate, case)
                if payload is None:
                    return self._failed[candidate.id, case.name], _EMPTY
                payload = self._payloads[key] = {**payload, "cache": str(cache), "samples": samples}
                handle = self._session.warm()
            with self._session.timing():
                answer = handle.call("quick", payload)
        except WorkerFault as fault:
            self._failed[candidate.id, case.name] = fault.status
            if fault.fatal:
                self._session.renew()
            return fault.status, _EMPTY
        return Status.OK, np.asarray(answer["samples_ms"], dtype=np.float64)

    def _first(self, handle: WorkerHandle, candidate: Candidate, case: Case) -> dict[str, Any] | None:
        """Compile, check and bind; None (and a remembered status) if the candidate fails."""
        self._ready.require_strong()
        try:
            code = self._codes.get(candidate, [case])
            problem = self._codes.problem(code, [case])
        except CompileError:
            self._failed[candidate.id, case.name] = Status.COMPILE_ERROR
            return None
        except UsageError:
            self._failed[candidate.id, case.name] = Status.RESTRICTED
            return None
        if problem:
            self._failed[candidate.id, case.name] = Status.RESTRICTED
            return None
        verdict = self._session.check(handle, code, case, self._session.any_draw(case))
        if verdict.status is not Status.OK:
            handle.kill()
            self._session.retire(handle)
            self._failed[candidate.id, case.name] = verdict.status
            return None
        return self._session.payload(handle, code, case)
