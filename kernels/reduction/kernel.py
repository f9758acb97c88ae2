"""Reduction, the vector variant: many wide loads in flight, sums in registers, one launch.

A fixed number of blocks walks over the matrix in batches; a thread has `unroll` independent loads of
`vector` elements under way. Warps add up by shuffles, warps of a block through shared memory, and blocks
either by an atomic addition or by leaving their sums for the block that finishes last (`ticket`), which
adds them in a fixed order, so that the result is the same bits every time.

What limits it: at 8192² DRAM alone (on an H200 the best configurations read at a copy's rate, 4.2 TB/s). It
takes about 32 KB in flight per multiprocessor: too few threads, too narrow loads or too little unrolling
fall behind. Below 4096² the launch, the ramp-up and the last block's round trip count as much as the read.
"""

# Device code: Numba's stubs describe the host's side of these calls.
# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportOptionalSubscript=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, float32, int32

from warpdeck.kernels.numba_intrinsics import COPY, LOAD_STREAMING, load_flat, warp_sum
from warpdeck.kernels.stages import pin, stage


def make(
    block_size: int, blocks: int, vector: int, unroll: int, streaming: int, finish: str
) -> Callable[..., None]:
    """The kernel total[0] = sum of x for one configuration.

    Shapes: x [m, n] and total [1], float32; partials [blocks or more] float32 and ticket [1] int32 are
    workspace, zero before the launch, and zero again after it as far as the kernel relies on it.
    Launch: block (block_size), grid (min(blocks, number of batches)).

    Args:
        block_size: Threads a block, a multiple of 32.
        blocks: Blocks at most; only the launch depends on it.
        vector: Elements a load: 1, 2 or 4.
        unroll: Loads a thread has in flight.
        streaming: 1 marks the loads as read once, to be evicted first.
        finish: "ticket" or "atomic".
    """
    warps = block_size // 32
    batch = block_size * unroll  # vectors a block reads at a time
    words = unroll * vector
    by_atomics = finish == "atomic"
    load = LOAD_STREAMING[vector] if streaming else COPY[vector]

    @cuda.jit(device=True, forceinline=True)
    def block_sum(value: float, sums: Any, tid: int) -> float:
        """The sum of a block's values, in its first warp."""
        value = warp_sum(value)
        if tid % 32 == 0:
            sums[tid // 32] = value
        cuda.syncthreads()
        value = float32(0.0)
        if tid < 32:
            if tid < warps:
                value = sums[tid]
            value = warp_sum(value)
        return value

    def reduction_vector(x, total, partials, ticket):
        sums = cuda.shared.array(32, float32)
        is_last = cuda.shared.array(1, int32)
        part = cuda.local.array(words, float32, alignment=16)
        mine = cuda.local.array(vector, float32, alignment=16)
        tid = cuda.threadIdx.x
        blocks = cuda.gridDim.x
        vectors = x.size // vector

        for j in range(vector):
            mine[j] = float32(0.0)
        with stage("load"):
            first = cuda.blockIdx.x * batch
            while first + batch <= vectors:
                for u in range(unroll):
                    load(part, u * vector, x, (first + u * block_size + tid) * vector)
                for u in range(unroll):
                    for j in range(vector):
                        mine[j] += part[u * vector + j]
                first += blocks * batch
            if first < vectors:  # at most one block has an incomplete batch
                i = first + tid
                while i < vectors:
                    for j in range(vector):
                        mine[j] += load_flat(x, i * vector + j)
                    i += block_size
            value = float32(0.0)
            for j in range(vector):
                value += mine[j]
            rest = vectors * vector + tid
            if cuda.blockIdx.x == 0 and rest < x.size:
                value += load_flat(x, rest)
            value = pin(value)

        with stage("reduce"):
            value = block_sum(value, sums, tid)
            value = pin(value)
        with stage("store"):
            if tid == 0:
                if by_atomics:
                    cuda.atomic.add(partials, 0, value)
                else:
                    partials[cuda.blockIdx.x] = value
                cuda.threadfence()
                is_last[0] = cuda.atomic.add(ticket, 0, 1) == blocks - 1
        with stage("wait"):
            cuda.syncthreads()
        if is_last[0]:
            cuda.threadfence()
            if by_atomics:
                with stage("store"):
                    if tid == 0:
                        total[0] = cuda.atomic.add(partials, 0, float32(0.0))
                        partials[0] = float32(0.0)
                        ticket[0] = 0
            else:
                with stage("load"):
                    value = float32(0.0)
                    i = tid
                    while i < blocks:
                        value += partials[i]
                        i += block_size
                    value = pin(value)
                with stage("reduce"):
                    value = block_sum(value, sums, tid)
                    value = pin(value)
                with stage("store"):
                    if tid == 0:
                        total[0] = value
                        ticket[0] = 0

    return reduction_vector
