"""Reduction's reference in float64, its error scale, and its vendor call (torch.sum)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def reference(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """total = [sum of x]; x [m, n]."""
    return np.array([x.sum()])


def scale(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of |x|: what a rounding error of the sum is relative to, since zero-mean data cancel."""
    return np.array([np.abs(x).sum()])


def vendor(torch: Any, x: Any, total: Any) -> None:
    """The sum of x [m, n] into total [1]. Device tensors."""
    torch.sum(x.view(1, -1), dim=1, out=total)
