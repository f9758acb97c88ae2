"""Transposition's reference, and its vendor call (PyTorch's copy of a transposed view)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def reference(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """y[j, i] = x[i, j]; x [m, n], y [n, m]."""
    return np.ascontiguousarray(x.T)


def vendor(torch: Any, x: Any, y: Any) -> None:
    """x [m, n] transposed into y [n, m]. Device tensors."""
    y.copy_(x.t())
