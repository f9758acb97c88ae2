"""Reduction's reference in float64, its error scale, and its vendor call (torch.sum)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def reference(x: NDArray[np.float32]) -> dict[str, NDArray[np.float64]]:
    """total[0] = sum of x [m, n]."""
    return {"total": np.array([x.sum(dtype=np.float64)])}


def vendor(torch: Any, x: Any, total: Any) -> None:
    """The sum of x into total[0]."""
    torch.sum(x, dim=(0, 1), out=total[0])
