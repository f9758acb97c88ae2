"""Softmax's reference in float64 and its vendor call (torch.softmax)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def reference(x: NDArray[np.float32]) -> dict[str, NDArray[np.float64]]:
    """y[i] = exp(x[i] - max x[i]) / sum of the same, along rows; x and y [m, n]."""
    y = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True).astype(np.float64))
    y /= y.sum(axis=1, keepdims=True)
    return {"y": y}


def vendor(torch: Any, x: Any, y: Any) -> None:
    """Softmax along rows into `y`."""
    torch.softmax(x, dim=1, out=y)
