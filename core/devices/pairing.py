"""Comparing two candidates on one CUDA device by interleaved samples, in a context of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import WarpdeckError
from ..model import CacheMode, Candidate, Case
from ..worker import WorkerFault, WorkerHandle
from .base import Paired
from .cases import foreign
from .parts import Parts

_WARMUP = 10


class Pairs:
    """Keeps the context of comparisons that follow each other."""

    def __init__(self, parts: Parts) -> None:
        self._workload, self._ready, self._session, self._codes = parts
        self._pair: tuple[Any, WorkerHandle] | None = None  # which pairs it is for, and their worker

    def compare(
        self,
        a: Candidate,
        b: Candidate,
        cases: Sequence[Case],
        cache: CacheMode,
        *,
        blocks: Mapping[str, int],
    ) -> list[Paired]:
        """A B B A and B A A B in one fresh context, kept while comparisons follow each other (of code of
        others: of the same two, and b's outputs are judged)."""
        self._ready.require_strong()
        codes = [self._codes.get(candidate, cases) for candidate in (a, b)]
        handle = self._worker(a, b)
        started = self._session.clock()
        try:
            jobs = []
            for case in cases:
                first, second = (self._session.payload(handle, code, case) for code in codes)
                job = {
                    "key": case.name,
                    "a": {k: first[k] for k in ("code", "launches")},
                    "b": {k: second[k] for k in ("code", "launches")},
                    "poison": foreign(self._workload, a, b),
                    "cache": str(cache),
                    "blocks": blocks[case.name],
                    "warmup": _WARMUP,
                }
                jobs.append((job, case))
            answers, labels, wrong = self._session.pair(handle, codes[1], jobs)
        except WorkerFault as fault:
            self.drop()
            raise WarpdeckError(f"comparing: {fault.status}: {fault.message}") from None
        if wrong is not None:
            self.drop()
            reason = f"wrong beside another kernel although right alone: {wrong.reason}"
            raise WarpdeckError(f"comparing: {wrong.status}: case {wrong.case}: {reason}")
        seconds = (self._session.clock() - started) / len(cases)
        return [
            Paired(
                case.name,
                cache,
                answer["clock"],
                np.asarray(answer["a_ms"], dtype=np.float64),
                np.asarray(answer["b_ms"], dtype=np.float64),
                labels,
                seconds=seconds,
            )
            for case, answer in zip(cases, answers, strict=True)
        ]

    def _worker(self, a: Candidate, b: Candidate) -> WorkerHandle:
        pair = (a.id, b.id) if foreign(self._workload, a, b) else None
        if self._pair is None or self._pair[0] != pair or not self._pair[1].alive:
            self.drop()
            self._pair = (pair, self._session.fresh())
        return self._pair[1]

    def drop(self) -> None:
        """End the worker: the next comparison gets a fresh context."""
        if self._pair is not None:
            self._session.retire(self._pair[1])
            self._pair = None
