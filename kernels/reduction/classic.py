"""Reduction, the classic variant: grid-stride sums, a shared-memory tree, and a last block that adds up.

At most 1,024 blocks, whatever the size, so each block size is a different number of threads in
flight. Scalar loads leave too few bytes in flight to fill the memory system at small block sizes.
"""

# Device code: Numba's stubs describe the host's side of these calls.
# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportOptionalSubscript=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

from collections.abc import Callable

from numba import cuda, float32, int32

from warpdeck.kernels.numba_intrinsics import load_flat
from warpdeck.kernels.stages import pin, stage


def make(block_size: int) -> Callable[..., None]:
    """The kernel total[0] = sum of x for `block_size` threads (a power of two) a block.

    Shapes: x [m, n] and total [1], float32; partials [blocks or more] float32 and ticket [1] int32
    are workspace, zero before the launch (the kernel leaves `ticket` zero again).
    Launch: block (block_size), grid (any number of blocks up to the length of `partials`).
    """
    half = block_size // 2

    def reduction_classic(x, total, partials, ticket):
        tree = cuda.shared.array(block_size, float32)
        is_last = cuda.shared.array(1, int32)
        tid = cuda.threadIdx.x
        blocks = cuda.gridDim.x

        mine = float32(0.0)
        with stage("load"):
            for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
                mine += load_flat(x, i)
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

        with stage("store"):
            if tid == 0:
                partials[cuda.blockIdx.x] = tree[0]
                cuda.threadfence()
                is_last[0] = cuda.atomic.add(ticket, 0, 1) == blocks - 1
        with stage("wait"):
            cuda.syncthreads()
        if is_last[0]:
            with stage("load"):
                cuda.threadfence()
                mine = float32(0.0)
                for i in range(tid, blocks, block_size):
                    mine += partials[i]
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
            with stage("store"):
                if tid == 0:
                    total[0] = tree[0]
                    ticket[0] = 0

    return reduction_classic
