"""GEMM's reference in float64 and its vendor call (cuBLAS SGEMM through torch)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def reference(a: Matrix, b: Matrix) -> Matrix:
    """C = A·B; a [m, k], b [k, n] -> c [m, n]."""
    return a @ b


def operands(a: Matrix, b: Matrix) -> tuple[Matrix, Matrix]:
    """The factors of c, from which the checker takes its error scale |A|·|B|."""
    return a, b


def vendor(torch: Any, a: Any, b: Any, c: Any) -> None:
    """C = A·B into `c` in strict float32: cuBLAS SGEMM, TF32 off. Device tensors, shapes as above."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.mm(a, b, out=c)
