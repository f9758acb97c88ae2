"""The reference of a copy with its signs changed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def reference(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """y = -x; both [n]."""
    return -x
