"""Layer norm's reference in float64, its exact case, and its vendor call (PyTorch's layer_norm)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def reference(
    x: NDArray[np.float64], weight: NDArray[np.float64], bias: NDArray[np.float64], eps: float
) -> NDArray[np.float64]:
    """(x - mean) / sqrt(variance + eps) · weight + bias along rows; x and y [m, n], weight and bias [n].

    The variance is the mean square deviation (divided by n, not by n - 1).
    """
    y = x - x.mean(axis=1, keepdims=True)
    y /= np.sqrt(np.mean(y * y, axis=1, keepdims=True) + eps)
    y *= weight
    y += bias
    return y


def make_inputs(case: Any, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """Rows of one small integer each, as many as a power of two: mean exact, variance 0, y = bias."""
    m, n = case.params["m"], case.params["n"]
    x = np.repeat(rng.integers(-4, 5, (m, 1)), n, axis=1)
    weight, bias = rng.integers(-4, 5, (2, n))
    return {k: v.astype(np.float32) for k, v in {"x": x, "weight": weight, "bias": bias}.items()}


def vendor(torch: Any, x: Any, weight: Any, bias: Any, eps: float) -> None:
    """Layer norm along the rows of x [m, n]. Device tensors.

    The result goes to a tensor of PyTorch's own: its forms with `out` copy from one.
    """
    torch.nn.functional.layer_norm(x, (x.shape[1],), weight, bias, eps)
