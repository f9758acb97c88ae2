"""Softmax over rows, the cached variant: a row is read once, kept in registers and written once.

`row_threads` threads share a row, each with `cached` vectors of it in registers. A thread takes the
exponentials against its own maximum, so that one pass over the registers and one barrier yield the row's
maximum and sum together; a factor per thread corrects the difference at the end. What of a row exceeds
the registers is read twice (the second time L2 has most of it). Rows whose length isn't a multiple of
`vector` are handled element by element.

What limits it: DRAM, if registers hold the whole row and several blocks share a multiprocessor, so that
one block's loads overlap another's stores (on an H200 97% of a copy's rate at 8192², 100% at 4096²).
Configurations that cache less than a row pay for the second read, those that cache more idle.
"""

# Device code: Numba's stubs describe the host's side of these calls.
# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportOptionalSubscript=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

import math
from collections.abc import Callable

from numba import cuda, float32

from warpdeck.kernels.numba_intrinsics import (
    COPY,
    LOAD_STREAMING,
    STORE_STREAMING,
    load_flat,
    store_flat,
    warp_max,
    warp_sum,
)
from warpdeck.kernels.stages import pin, stage

LOWEST = -3.4028234663852886e38  # finite, so that fast-math assumptions hold


def make(row_threads: int, rows: int, vector: int, cached: int, streaming: int) -> Callable[..., None]:
    """The kernel y = softmax(x) along rows for one configuration.

    Shapes: x and y [m, n], float32, C-contiguous; any m, n ≥ 1.
    Launch: block (row_threads · rows), grid (ceil(m / rows)).

    Args:
        row_threads: Threads that share a row, a multiple of 32.
        rows: Rows a block handles side by side.
        vector: Elements a load and a store: 1, 2 or 4.
        cached: Vectors of its row a thread keeps in registers.
        streaming: 1 marks loads and stores as used once, to be evicted first.
    """
    row_warps = row_threads // 32
    pairs = rows * row_warps
    words = cached * vector
    load = LOAD_STREAMING[vector] if streaming else COPY[vector]
    store = STORE_STREAMING[vector] if streaming else COPY[vector]
    reread = COPY[vector]

    def softmax_cached(x, y):
        tops = cuda.shared.array(pairs, float32)
        sums = cuda.shared.array(pairs, float32)
        kept = cuda.local.array(words, float32, alignment=16)
        part = cuda.local.array(vector, float32, alignment=16)
        m, n = x.shape
        lane = cuda.threadIdx.x % row_threads
        slot = cuda.threadIdx.x // row_threads
        row = cuda.blockIdx.x * rows + slot
        base = row * n
        vectors = 0
        if row < m and n % vector == 0:
            vectors = n // vector
        scalars = 0
        if row < m and n % vector != 0:
            scalars = n

        top = float32(LOWEST)
        total = float32(0.0)
        with stage("load"):
            for c in range(cached):
                i = lane + c * row_threads
                if i < vectors:
                    load(kept, c * vector, x, base + i * vector)
                else:
                    for j in range(vector):
                        kept[c * vector + j] = float32(LOWEST)
            for j in range(words):
                top = max(top, kept[j])
            top = pin(top)
        with stage("compute"):
            for c in range(cached):
                if lane + c * row_threads < vectors:
                    for j in range(vector):
                        kept[c * vector + j] = math.exp(kept[c * vector + j] - top)
                        total += kept[c * vector + j]
            kept_top = top

            # Longer rows: the rest is read here and again below, which L2 serves.
            i = lane + cached * row_threads
            while i < vectors:
                reread(part, 0, x, base + i * vector)
                new_top = top
                for j in range(vector):
                    new_top = max(new_top, part[j])
                total *= math.exp(top - new_top)
                top = new_top
                for j in range(vector):
                    total += math.exp(part[j] - top)
                i += row_threads
            i = lane
            while i < scalars:
                value = load_flat(x, base + i)
                new_top = max(top, value)
                total = total * math.exp(top - new_top) + math.exp(value - new_top)
                top = new_top
                i += row_threads
            top, total = pin(top, total)

        with stage("reduce"):
            row_top = warp_max(top)
            row_total = warp_sum(total * math.exp(top - row_top))
            row_top, row_total = pin(row_top, row_total)
        if row_warps > 1:
            warp = lane // 32
            if lane % 32 == 0:
                tops[slot * row_warps + warp] = row_top
                sums[slot * row_warps + warp] = row_total
            with stage("wait"):
                cuda.syncthreads()
            with stage("reduce"):
                row_top = float32(LOWEST)
                row_total = float32(0.0)
                if lane % 32 < row_warps:
                    row_top = tops[slot * row_warps + lane % 32]
                    row_total = sums[slot * row_warps + lane % 32]
                top = row_top
                row_top = warp_max(top)
                row_total = warp_sum(row_total * math.exp(top - row_top))
                row_top, row_total = pin(row_top, row_total)
        scale = float32(1.0) / row_total
        kept_scale = math.exp(kept_top - row_top) * scale

        with stage("store"):
            for c in range(cached):
                i = lane + c * row_threads
                if i < vectors:
                    for j in range(vector):
                        kept[c * vector + j] *= kept_scale
                    store(y, base + i * vector, kept, c * vector)
            i = lane + cached * row_threads
            while i < vectors:
                reread(part, 0, x, base + i * vector)
                for j in range(vector):
                    part[j] = math.exp(part[j] - row_top) * scale
                store(y, base + i * vector, part, 0)
                i += row_threads
            i = lane
            while i < scalars:
                store_flat(y, base + i, math.exp(load_flat(x, base + i) - row_top) * scale)
                i += row_threads

    return softmax_cached
