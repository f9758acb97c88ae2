"""Measuring rounds over many candidates on one CUDA device, as recordings are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import WarpdeckError
from ..model import CacheMode, Candidate, Case, Evaluation, Status
from ..worker import WorkerFault
from ..worker.session import Session
from .codes import Codes

CACHES = (CacheMode.COLD, CacheMode.HOT)

Samples = Mapping[CacheMode, NDArray[np.float64]]


class Rounds:
    """Measures in the warm worker of a session."""

    def __init__(self, session: Session, codes: Codes) -> None:
        self._session = session
        self._codes = codes

    def measure(
        self, candidates: Sequence[Candidate], case: Case, *, samples: int, warmup: int
    ) -> list[Samples | Evaluation]:
        """One round: `samples` cold and hot samples of every candidate, in the order given.

        A candidate that fails gets an evaluation in place of samples; the others go on in a new worker.
        """
        found: list[Samples | Evaluation] = []
        while len(found) < len(candidates):
            self._round(candidates[len(found) :], case, samples, warmup, found)
        return found

    def _round(
        self,
        candidates: Sequence[Candidate],
        case: Case,
        samples: int,
        warmup: int,
        found: list[Samples | Evaluation],
    ) -> None:
        """Measure until the end or the first failure that costs the worker; append to `found`."""
        handle = self._session.warm()
        job: dict[str, Any] = {"key": case.name, "samples": samples, "warmup": warmup, "items": []}
        job["caches"] = [str(cache) for cache in CACHES]
        for candidate in candidates:
            payload = self._session.payload(handle, self._codes.get(candidate, [case]), case)
            job["items"].append({"code": payload["code"], "launches": payload["launches"]})
        try:
            (answer,), _ = self._session.watched(handle, "rounds", [(job, case)])
        except WorkerFault as fault:
            if not fault.fatal:
                raise WarpdeckError(f"case {case.name}: {fault.status}: {fault.message}") from None
            self._session.renew()
            # The finished ones are measured again: their samples died with the worker.
            at = min(handle.progress, len(candidates) - 1)
            if at:
                self._round(candidates[:at], case, samples, warmup, found)
            found.append(Evaluation(candidates[at], fault.status, fault.message))
            return
        for candidate, item in zip(candidates, answer["items"], strict=True):
            if "fault" in item:
                status = Status(item["fault"]["status"])
                found.append(Evaluation(candidate, status, str(item["fault"]["message"])))
            else:
                found.append({cache: np.asarray(item[str(cache)]["samples_ms"]) for cache in CACHES})
