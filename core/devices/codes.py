"""Compiled code of one workload's candidates on one CUDA device, with the launches of their cases."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from ..errors import UsageError
from ..model import Candidate, Case, Resources
from ..toolchain import Compiled, CompilePool
from ..toolchain.compiled import Blocks
from ..toolchain.requests import candidate_request
from ..worker.session import Code
from ..workload import Workload

_REGISTER_STEP = 8  # a thread gets registers in steps of so many
# Bytes a thread that two bodies may spill so that as many warps share an SM as without markers. The untraced
# one fits as it is: it is the traced one that spills.
_SPLIT_SPILL = 32
# Two bodies of a kernel with so few registers get no more than it; larger tiles came out worse when capped.
_CAPPED = 64


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
        self._futures: dict[str, Future[Compiled]] = {}  # by candidate
        self._codes: dict[str, Code] = {}

    def submit(self, candidate: Candidate, cases: Sequence[Case]) -> Future[Compiled]:
        """Compile, once. A launch that no device allows, or not this one, is refused without compiling."""
        key = candidate.id
        if key not in self._futures:
            refusal = self._refusal(candidate, cases)
            if refusal is not None:
                refused: Future[Compiled] = Future()
                refused.set_exception(refusal)
                return refused
            self._futures[key] = self._pool.submit(self._workload, candidate, cases[0], self._cc)
        return self._futures[key]

    def _refusal(self, candidate: Candidate, cases: Sequence[Case]) -> UsageError | None:
        most = self._limits["max_shared_bytes"]
        try:
            launches = [x for case in cases for x in self._workload.launches(candidate, case)]
        except UsageError as error:
            return error
        too_much = next((x.shared for x in launches if x.shared > most), None)
        return None if too_much is None else UsageError(_too_much_shared(too_much, most))

    def get(
        self,
        candidate: Candidate,
        cases: Sequence[Case],
        *,
        trace: bool = False,
        split: Blocks | None = None,
    ) -> Code:
        """Compiled code with the launches of these cases; `trace`: with its stage markers; `split`: these in
        some blocks only, where that can be.

        Raises CompileError, UsageError, ToolchainError.
        """
        key = candidate.id + "+trace" * trace + (f"+split{split}" if split else "")
        known = self._codes.get(key)
        if trace:
            compiled = known.compiled if known else self._traced(candidate, cases, split)
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

    def _traced(self, candidate: Candidate, cases: Sequence[Case], split: Blocks | None) -> Compiled:
        """With stage markers, and the occupancy of the kernel without them where that costs no spill: the few
        registers that markers take must not change how many warps share an SM. Both bodies in one get no more
        registers than an untraced one with few where that costs no spill."""
        plain = self.submit(candidate, cases).result()
        request = candidate_request(self._workload, candidate, self._cc, trace=True, split=split)
        before, most = plain.resources, -(-plain.resources.registers // _REGISTER_STEP) * _REGISTER_STEP
        traced = self._pool.submit_request(request, plain.launches).result()
        lost = _lost(before, traced)
        if not lost and (split is None or most > _CAPPED or traced.resources.registers <= most):
            return traced
        request = replace(request, reg_cap=most)
        capped = self._pool.submit_request(request, plain.launches).result()
        better = (capped.resources.occupancy or 0) > (traced.resources.occupancy or 0) or not lost
        more = capped.resources.local_bytes - max(traced.resources.local_bytes, before.local_bytes)
        if better and capped.resources.registers <= most and more <= (_SPLIT_SPILL if split and lost else 0):
            traced = capped
        if split and _lost(before, traced):
            whole = self._traced(candidate, cases, split=None)
            if not _lost(before, whole):
                return replace(whole, unsplit="with both bodies in it, fewer of its warps fit on an SM")
        return traced

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


def _lost(before: Resources, traced: Compiled) -> bool:
    """Whether fewer warps share an SM than without markers."""
    after = traced.resources.occupancy
    return before.occupancy is not None and after is not None and after < before.occupancy


def _too_much_shared(nbytes: int, most: int) -> str:
    return f"{nbytes} bytes of shared memory a block; {most} at most"
