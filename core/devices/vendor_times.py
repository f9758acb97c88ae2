"""The vendor library's times beside a workload's own, on the same clock."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..model import CacheMode, Case, Measurement, Protocol, Trust
from ..worker import WorkerFault
from ..worker.library import VendorWorker
from ..worker.session import Session
from ..workload import Workload
from .rounds import CACHES, Samples


class VendorTimes:
    """Measured once for each case and cache mode; none any more once the library has failed.

    Args:
        workload: whose `vendor` function.
        session: measures.
        library: has imported it, or does so.

    Attributes:
        problem: why there is no time, if one was asked for.
    """

    def __init__(self, workload: Workload, session: Session, library: VendorWorker) -> None:
        self._workload = workload
        self._session = session
        self._library = library
        self._known: dict[tuple[str, CacheMode], Measurement | None] = {}
        self.problem: str | None = None

    def time(self, case: Case, cache: CacheMode) -> Measurement | None:
        """The vendor library's time on the same clock; None where there is no vendor or no torch."""
        key = (case.name, cache)
        if key not in self._known:
            self._known[key] = self._measure(case, Protocol(cache=cache))
        return self._known[key]

    def round(self, case: Case, *, samples: int) -> Samples:
        """Cold and hot samples of the vendor's kernel; empty where there is none."""
        found: dict[CacheMode, NDArray[np.float64]] = {}
        for cache in CACHES:
            protocol = Protocol(cache, warmup=2, samples=samples, min_samples=samples, adaptive=False)
            measured = self._measure(case, protocol)
            if measured is not None:
                found[cache] = measured.samples_ms
        return found

    @property
    def ready(self) -> bool:
        """Whether the vendor's time can be asked for without waiting for its library's import."""
        return not self._has_vendor or self._library.ready

    @property
    def _has_vendor(self) -> bool:
        trusted = self._workload.trust in (Trust.BUNDLED, Trust.OWN)
        return self._workload.vendor_name is not None and trusted and self.problem is None

    def _measure(self, case: Case, protocol: Protocol) -> Measurement | None:
        if not self._has_vendor:
            return None
        try:
            return self._session.time_vendor(case, protocol)
        except WorkerFault as fault:
            self.problem = fault.message
            return None
