"""GEMM, the classic variant: one output element a thread, square-ish tiles staged in shared memory.

Each block size is its own tiling: 64 threads make 8×8 tiles, 128 make 8×16, 256 make 16×16. Every
thread does one multiply-add per two shared-memory loads, so shared memory limits it long before the
multiply-add units do; `kernel.py` is the variant that keeps a register tile instead.
"""

# Device code: Numba's stubs describe the host's side of these calls.
# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportOptionalSubscript=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

from collections.abc import Callable

from numba import cuda, float32

from warpdeck.kernels.stages import pin, stage

TILE_N = {64: 8, 128: 16, 256: 16}


def make(block_size: int) -> Callable[..., None]:
    """The kernel C = A·B for `block_size` threads a block.

    Shapes: a [m, k], b [k, n], c [m, n], float32, C-contiguous; any m, n, k ≥ 1.
    Launch: block (block_size), grid (ceil(n / tile_n), ceil(m / tile_m)).
    """
    tile_n = TILE_N[block_size]
    tile_m = block_size // tile_n
    tile_k = tile_n

    def gemm_classic(a, b, c):
        a_tile = cuda.shared.array((tile_m, tile_k), float32)
        b_tile = cuda.shared.array((tile_k, tile_n), float32)
        m, k = a.shape
        n = b.shape[1]
        tx = cuda.threadIdx.x % tile_n
        ty = cuda.threadIdx.x // tile_n
        row = cuda.blockIdx.y * tile_m + ty
        col = cuda.blockIdx.x * tile_n + tx

        total = float32(0.0)
        for k0 in range(0, k, tile_k):
            with stage("load", k0 // tile_k):
                # tile_k equals tile_n, so the thread's own column is also its column of the A tile
                if row < m and k0 + tx < k:
                    a_tile[ty, tx] = a[row, k0 + tx]
                else:
                    a_tile[ty, tx] = float32(0.0)
                for r in range(ty, tile_k, tile_m):
                    if k0 + r < k and col < n:
                        b_tile[r, tx] = b[k0 + r, col]
                    else:
                        b_tile[r, tx] = float32(0.0)
            with stage("wait", k0 // tile_k):
                cuda.syncthreads()
            with stage("compute", k0 // tile_k):
                for i in range(tile_k):
                    total += a_tile[ty, i] * b_tile[i, tx]
                total = pin(total)
            with stage("wait", k0 // tile_k):
                cuda.syncthreads()

        with stage("store"):
            if row < m and col < n:
                c[row, col] = total

    return gemm_classic
