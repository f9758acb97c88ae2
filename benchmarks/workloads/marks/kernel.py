"""The first of kernel.cu's kernels in Numba: `rounds` times 16 marks."""

# Device code: Numba's stubs describe the host's side of these calls.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Callable

from numba import cuda

from warpdeck.kernels.stages import mark


def make(EVENTS: int, WORK: int) -> Callable[..., None]:
    """`WORK` is for kernel.cu; here it must be 0."""
    assert WORK == 0

    def ticks(out, a, rounds):
        for _ in range(rounds):
            if EVENTS:
                mark("tick", 0)
                mark("tick", 1)
                mark("tick", 2)
                mark("tick", 3)
                mark("tick", 4)
                mark("tick", 5)
                mark("tick", 6)
                mark("tick", 7)
                mark("tick", 8)
                mark("tick", 9)
                mark("tick", 10)
                mark("tick", 11)
                mark("tick", 12)
                mark("tick", 13)
                mark("tick", 14)
                mark("tick", 15)
        out[cuda.grid(1)] = a

    return ticks
