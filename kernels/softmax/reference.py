"""Softmax's reference in float64, its cases' own inputs, and its vendor call (torch.softmax)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def reference(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """exp(x - top) / sum of the same, with the row's maximum `top`; x and y [m, n]."""
    y = np.exp(x - x.max(axis=1, keepdims=True))
    y /= y.sum(axis=1, keepdims=True)
    return y


def make_inputs(case: Any, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """Rows whose softmax is exact: 2^p maxima, equal small integers, and the rest 1,000 below them.

    exp(-1000) is 0 in float32 and in float64, so the maxima get exactly 2^-p and the rest 0. Where a case
    isn't exact: rows around any level to 200, whose results span the decades down to the tolerance.
    """
    m, n = case.params["m"], case.params["n"]
    if not case.exact:
        x = 4 * rng.standard_normal((m, n)) + rng.uniform(-200, 200, (m, 1))
        return {"x": x.astype(np.float32)}
    tops = rng.integers(-4, 5, (m, 1)).astype(np.float32)
    x = np.repeat(tops - 1000, n, axis=1)
    for row, top in zip(x, tops[:, 0], strict=True):
        count = 2 ** int(rng.integers(0, int(n).bit_length()))
        row[rng.choice(n, count, replace=False)] = top
    return {"x": x}


def vendor(torch: Any, x: Any, y: Any) -> None:
    """Softmax along the rows of x into y, both [m, n]. Device tensors."""
    torch.softmax(x, dim=1, out=y)
