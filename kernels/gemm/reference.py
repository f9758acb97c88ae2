"""GEMM's reference in float64 and its vendor call (cuBLAS SGEMM through torch)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def reference(a: NDArray[np.float32], b: NDArray[np.float32]) -> dict[str, NDArray[np.float64]]:
    """C = A·B; a [m, k], b [k, n], c [m, n]."""
    return {"c": a.astype(np.float64) @ b.astype(np.float64)}


def vendor(torch: Any, a: Any, b: Any, c: Any) -> None:
    """C = A·B into `c` in strict float32: cuBLAS SGEMM, TF32 off."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.mm(a, b, out=c)
