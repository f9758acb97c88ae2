"""Softmax over rows, the classic variant: one block a row, three passes over it, shared-memory trees.

The row is read three times (maximum, sum, output); the second and third reads come from L1 or L2, so
latency and barriers, not DRAM, limit short rows.
"""

# Device code: Numba's stubs describe the host's side of these calls.
# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportOptionalSubscript=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

import math
from collections.abc import Callable

from numba import cuda, float32

from warpdeck.kernels.stages import pin, stage


def make(block_size: int) -> Callable[..., None]:
    """The kernel y = softmax(x) along rows, for `block_size` threads (a power of two) a block.

    Shapes: x and y [m, n], float32, C-contiguous; any m, n ≥ 1.
    Launch: block (block_size), grid (m).
    """
    half = block_size // 2

    def softmax_classic(x, y):
        tree = cuda.shared.array(block_size, float32)
        tid = cuda.threadIdx.x
        row = cuda.blockIdx.x
        n = x.shape[1]

        top = float32(-math.inf)
        with stage("load"):
            for j in range(tid, n, block_size):
                top = max(top, x[row, j])
            top = pin(top)
        tree[tid] = top
        with stage("wait"):
            cuda.syncthreads()
        with stage("reduce"):
            stride = half
            while stride > 0:
                if tid < stride:
                    tree[tid] = max(tree[tid], tree[tid + stride])
                cuda.syncthreads()
                stride //= 2
            top = tree[0]
            cuda.syncthreads()

        mine = float32(0.0)
        with stage("compute"):
            for j in range(tid, n, block_size):
                mine += math.exp(x[row, j] - top)
            mine = pin(mine)
        tree[tid] = mine
        with stage("wait"):
            cuda.syncthreads()
        with stage("reduce"):
            stride = half
            while stride > 0:
                if tid < stride:
                    tree[tid] += tree[tid + stride]
                cuda.syncthreads()
                stride //= 2
            scale = float32(1.0) / tree[0]
            scale = pin(scale)

        with stage("store"):
            for j in range(tid, n, block_size):
                y[row, j] = math.exp(x[row, j] - top) * scale

    return softmax_classic
