"""GEMM, the tiled variant: register tiles fed from double-buffered shared-memory tiles.

A block computes a tile_m × tile_n tile of C, a thread thread_m × thread_n of it in registers, in chunks
of 4 × 4 so that every shared-memory access is a conflict-free 16-byte one (a warp is 4 × 8 threads: its
reads of a row of the A tile are broadcasts, its reads of the B tile 128 contiguous bytes). The A tile is
stored transposed; `pad` keeps those stores from colliding in the banks. While one tile of depth tile_k is
multiplied, the next is on its way from global memory to registers.

What limits it: on an H200 the best configuration at 4096 (128 × 256 tiles, 8 × 16 a thread) runs at 47
TFLOP/s, 92% of cuBLAS and about 70% of the multiply-add peak. The rest is shared-memory traffic per
multiply-add (a larger thread tile lessens it, until registers allow one block a multiprocessor only) and
the barrier at every tile. At 512 and below the grid is too small for the chip: there small, deep tiles
win, limited by latency and shared memory.
"""

# Device code: Numba's stubs describe the host's side of these calls.
# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportOptionalSubscript=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda, float32

from warpdeck.kernels.numba_intrinsics import COPY, load_flat, store_flat
from warpdeck.kernels.stages import pin, stage

LANES_M, LANES_N = 4, 8  # a warp's threads along m and n
CHUNK_M, CHUNK_N = 4 * LANES_M, 4 * LANES_N  # rows and columns from one 4 × 4 chunk of a thread to the next


def make(
    tile_m: int,
    tile_n: int,
    tile_k: int,
    thread_m: int,
    thread_n: int,
    vector: int,
    pad: int,
    buffers: int,
    unroll: int,
) -> Callable[..., None]:
    """The kernel C = A·B for one configuration.

    Shapes: a [m, k], b [k, n], c [m, n], float32, C-contiguous; any m, n, k ≥ 1. Rows whose length isn't a
    multiple of `vector` take a slow path, element by element.
    Launch: block (tile_m / thread_m · tile_n / thread_n), grid (ceil(n / tile_n), ceil(m / tile_m)).

    Args:
        tile_m: Rows of C a block computes; a multiple of 4 · thread_m.
        tile_n: Columns of C a block computes; a multiple of 8 · thread_n.
        tile_k: Depth of a shared-memory tile.
        thread_m: Rows a thread computes, 4 or 8.
        thread_n: Columns a thread computes, 4, 8 or 16.
        vector: Elements of a global load: 1, 2 or 4. `threads * vector` divides both tiles' areas.
        pad: Elements added to a row of the transposed A tile: 0 or 4.
        buffers: 2 lets tiles be stored while others still read the last one; 1 needs half the memory.
        unroll: Depth steps in the inner loop's body: 1, 2, 4 or 8, at most tile_k.
    """
    threads = (tile_m // thread_m) * (tile_n // thread_n)
    warps_n = tile_n // (LANES_N * thread_n)
    chunks_m, chunks_n = thread_m // 4, thread_n // 4
    outputs = thread_m * thread_n

    a_pitch = tile_m + pad
    a_area, b_area = tile_m * tile_k, tile_k * tile_n
    a_size, b_size = tile_k * a_pitch, b_area
    a_length, b_length = buffers * a_size, buffers * b_size
    a_vectors, b_vectors = a_area // (threads * vector), b_area // (threads * vector)  # a thread's share
    a_words, b_words = a_vectors * vector, b_vectors * vector
    a_across, b_across = tile_k // vector, tile_n // vector
    a_step, b_step = threads // a_across, threads // b_across
    move, move4, move1 = COPY[vector], COPY[4], COPY[1]

    @cuda.jit(device=True, forceinline=True)
    def step(total: Any, a_tile: Any, a_at: int, b_tile: Any, b_at: int) -> None:
        """One step of depth: the outer product of a column of A and a row of B, into `total`."""
        a_part = cuda.local.array(thread_m, float32, alignment=16)
        b_part = cuda.local.array(thread_n, float32, alignment=16)
        for i in range(chunks_m):
            move4(a_part, i * 4, a_tile, a_at + i * CHUNK_M)
        for j in range(chunks_n):
            move4(b_part, j * 4, b_tile, b_at + j * CHUNK_N)
        for i in range(thread_m):
            for j in range(thread_n):
                total[i * thread_n + j] += a_part[i] * b_part[j]

    def gemm_tiled(a, b, c):
        a_tile = cuda.shared.array(a_length, float32, alignment=16)
        b_tile = cuda.shared.array(b_length, float32, alignment=16)
        a_next = cuda.local.array(a_words, float32, alignment=16)
        b_next = cuda.local.array(b_words, float32, alignment=16)
        total = cuda.local.array(outputs, float32, alignment=16)
        m, k = a.shape
        n = b.shape[1]
        tid = cuda.threadIdx.x
        lane = tid % 32
        warp = tid // 32
        thread_row = (warp // warps_n) * (LANES_M * thread_m) + (lane // LANES_N) * 4
        thread_col = (warp % warps_n) * (LANES_N * thread_n) + (lane % LANES_N) * 4
        first_row = cuda.blockIdx.y * tile_m
        first_col = cuda.blockIdx.x * tile_n
        a_row, a_col = tid // a_across, tid % a_across * vector
        b_row, b_col = tid // b_across, tid % b_across * vector

        for i in range(outputs):
            total[i] = float32(0.0)

        # Whole tiles: while one is multiplied, the next travels from global memory to registers.
        whole = k // tile_k if k % vector == 0 and n % vector == 0 else 0
        a_from = first_row + a_row
        b_from = min(first_col + b_col, n - vector)
        buffer = 0
        # One range for all tiles, the waits within it: a record costs as much as a row of multiply-adds.
        with stage("compute"):
            for t in range(-1, whole):
                if t + 1 < whole:
                    k0 = (t + 1) * tile_k
                    for i in range(a_vectors):
                        move(a_next, i * vector, a, min(a_from + i * a_step, m - 1) * k + k0 + a_col)
                    for i in range(b_vectors):
                        move(b_next, i * vector, b, (k0 + b_row + i * b_step) * n + b_from)
                if t >= 0:
                    a_at = buffer * a_size + thread_row
                    b_at = buffer * b_size + thread_col
                    # Written out, since the compiler wouldn't unroll a loop with a body of this size.
                    for _ in range(0, tile_k, unroll):
                        step(total, a_tile, a_at, b_tile, b_at)
                        if unroll > 1:
                            step(total, a_tile, a_at + a_pitch, b_tile, b_at + tile_n)
                        if unroll > 2:
                            step(total, a_tile, a_at + 2 * a_pitch, b_tile, b_at + 2 * tile_n)
                            step(total, a_tile, a_at + 3 * a_pitch, b_tile, b_at + 3 * tile_n)
                        if unroll > 4:
                            step(total, a_tile, a_at + 4 * a_pitch, b_tile, b_at + 4 * tile_n)
                            step(total, a_tile, a_at + 5 * a_pitch, b_tile, b_at + 5 * tile_n)
                            step(total, a_tile, a_at + 6 * a_pitch, b_tile, b_at + 6 * tile_n)
                            step(total, a_tile, a_at + 7 * a_pitch, b_tile, b_at + 7 * tile_n)
                        a_at += unroll * a_pitch
                        b_at += unroll * tile_n
                    for i in range(outputs):
                        total[i] = pin(total[i])
                if t + 1 < whole:
                    with stage("wait"):
                        if buffers == 1:
                            cuda.syncthreads()
                        else:
                            buffer ^= 1
                        # The loads were issued before the last tile's arithmetic; now they must be here.
                        for i in range(a_vectors):
                            for j in range(vector):
                                to = buffer * a_size + (a_col + j) * a_pitch + a_row + i * a_step
                                move1(a_tile, to, a_next, i * vector + j)
                        for i in range(b_vectors):
                            to = buffer * b_size + (b_row + i * b_step) * tile_n + b_col
                            move(b_tile, to, b_next, i * vector)
                        cuda.syncthreads()

        # What is left of k, or all of it if a row's pitch rules vector loads out: element by element.
        for k0 in range(whole * tile_k, k, tile_k):
            with stage("wait", k0 // tile_k):
                cuda.syncthreads()
            with stage("load", k0 // tile_k):
                e = tid
                while e < a_area:
                    row, col = first_row + e // tile_k, k0 + e % tile_k
                    value = float32(0.0)
                    if row < m and col < k:
                        value = load_flat(a, row * k + col)
                    store_flat(a_tile, e % tile_k * a_pitch + e // tile_k, value)
                    e += threads
                e = tid
                while e < b_area:
                    row, col = k0 + e // tile_n, first_col + e % tile_n
                    value = float32(0.0)
                    if row < k and col < n:
                        value = load_flat(b, row * n + col)
                    store_flat(b_tile, e, value)
                    e += threads
            with stage("wait", k0 // tile_k):
                cuda.syncthreads()
            with stage("compute", k0 // tile_k):
                for kk in range(tile_k):
                    step(total, a_tile, kk * a_pitch + thread_row, b_tile, kk * tile_n + thread_col)
                for i in range(outputs):
                    total[i] = pin(total[i])

        at = (first_row + thread_row) * n + first_col + thread_col
        rows = m - first_row - thread_row
        cols = n - first_col - thread_col
        with stage("store"):
            for i in range(thread_m):
                if (i // 4) * CHUNK_M + i % 4 < rows:
                    if n % 4 == 0:
                        for j in range(chunks_n):
                            if j * CHUNK_N < cols:
                                move4(c, at + j * CHUNK_N, total, i * thread_n + j * 4)
                    else:
                        for j in range(thread_n):
                            if (j // 4) * CHUNK_N + j % 4 < cols:
                                move1(c, at + (j // 4) * CHUNK_N + j % 4, total, i * thread_n + j)
                at += (CHUNK_M - 3) * n if i % 4 == 3 else n

    return gemm_tiled
