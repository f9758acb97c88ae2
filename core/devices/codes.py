"""Compiled code of one workload's candidates on one CUDA device, with the launches of their cases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from ..errors import UsageError
from ..model import Candidate, Case
from ..toolchain import Compiled, CompilePool
from ..toolchain.requests import candidate_request
from ..worker.session import Code
from ..workload import Workload

_REGISTER_STEP = 8  # a thread gets registers in steps of so many


class Codes:
    """Compiles ahead, remembers, and tells what the device can't launch.

    Args:
        workload: whose candidates.
        pool: compiles them.
        cc: compute capability to compile for.
        limits: the device's facts, as a worker tells them.
    """

    def __init__(
        self, workload: Workload, pool: CompilePool, cc: tuple[int, int], limits: Mapping[str, Any]
    ) -> None:
        self._workload = workload
        self._pool = pool
        self._cc = cc
        self._limits = limits
        self._futures: dict[str, Future[Compiled]] = {}  # by `_key`
        self._codes: dict[str, Code] = {}

    def submit(self, candidate: Candidate, cases: Sequence[Case], *, trace: bool = False) -> Future[Compiled]:
        """Compile, once. A launch that no device allows, or not this one, is refused without compiling."""
        key = _key(candidate, trace)
        if key not in self._futures:
            refusal = self._refusal(candidate, cases)
            if refusal is not None:
                refused: Future[Compiled] = Future()
                refused.set_exception(refusal)
                return refused
            self._futures[key] = self._pool.submit(self._workload, candidate, cases[0], self._cc, trace=trace)
        return self._futures[key]

    def _refusal(self, candidate: Candidate, cases: Sequence[Case]) -> UsageError | None:
        most = self._limits["max_shared_bytes"]
        try:
            launches = [x for case in cases for x in self._workload.launches(candidate, case)]
        except UsageError as error:
            return error
        too_much = next((x.shared for x in launches if x.shared > most), None)
        return None if too_much is None else UsageError(_too_much_shared(too_much, most))

    def get(self, candidate: Candidate, cases: Sequence[Case], *, trace: bool = False) -> Code:
        """Compiled code with the launches of these cases; `trace`: with its stage markers.

        Raises CompileError, UsageError, ToolchainError.
        """
        key = _key(candidate, trace)
        known = self._codes.get(key)
        if trace:
            compiled = known.compiled if known else self._traced(candidate, cases)
        else:
            compiled = self.submit(candidate, cases).result()
        launches = dict(known.launches) if known else {}
        for case in cases:
            if case.name not in launches:
                launches[case.name] = self._workload.launches(candidate, case)
                compiled.with_launches(launches[case.name])
        code = Code(key, candidate.variant, compiled, launches)
        self._codes[key] = code
        return code

    def _traced(self, candidate: Candidate, cases: Sequence[Case]) -> Compiled:
        """With stage markers, and the occupancy of the kernel without them where that costs no spill: the few
        registers that markers take must not change how many warps share an SM."""
        plain = self.submit(candidate, cases).result()
        traced = self.submit(candidate, cases, trace=True).result()
        before, after = plain.resources, traced.resources
        if before.occupancy is None or after.occupancy is None or after.occupancy >= before.occupancy:
            return traced
        request = candidate_request(self._workload, candidate, self._cc, trace=True)
        request = replace(request, reg_cap=-(-before.registers // _REGISTER_STEP) * _REGISTER_STEP)
        capped = self._pool.submit_request(request, traced.launches).result()
        better = (capped.resources.occupancy or 0) > after.occupancy
        return capped if better and capped.resources.spill_bytes <= after.spill_bytes else traced

    def problem(self, code: Code, cases: Sequence[Case]) -> str | None:
        """Why a launch can't work on this device; None if it can."""
        most = self._limits["max_shared_bytes"]
        for case in cases:
            for launch in code.launches[case.name]:
                threads = math.prod(launch.block)
                if threads > code.compiled.max_threads:
                    return f"{threads} threads a block need more registers than an SM has"
                shared = launch.shared + code.compiled.kernels[launch.entry].shared_bytes
                if shared > most:
                    return _too_much_shared(shared, most)
        return None


def _key(candidate: Candidate, trace: bool) -> str:
    return f"{candidate.id}+trace" if trace else candidate.id


def _too_much_shared(nbytes: int, most: int) -> str:
    return f"{nbytes} bytes of shared memory a block; {most} at most"
