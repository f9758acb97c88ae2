"""Comparing every element of an output with its reference, in chunks and threads.

Non-finite values: a NaN or an infinity in the output is a mismatch unless the reference, rounded to the
output's type, is the same NaN or infinity; and the other way round.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..workload import Tolerance
from .store import in_threads


@dataclass(frozen=True)
class Comparison:
    """Outcome for one output.

    `max_error` is in the tolerance's measure: |C-R| / S for `product` (S the error scale), absolute for
    exact and integer outputs, else |C-R| / (atol + rtol·|R|), where 1 is the limit. None if it isn't finite.
    """

    elements: int
    mismatches: int
    max_error: float | None
    first: int | None = None  # flat index of the first mismatch
    detail: str = ""

    @property
    def ok(self) -> bool:
        """No element differs by more than the tolerance."""
        return self.mismatches == 0


def compare(
    actual: NDArray[Any],
    expected: NDArray[Any],
    tolerance: Tolerance,
    scale: NDArray[np.float64] | None = None,
) -> Comparison:
    """Compare all elements of arrays of the same shape.

    Args:
        actual: the output, in its own type.
        expected: float64 for floating-point outputs; else the output's type.
        tolerance: `product` needs `scale`.
        scale: the error scale S >= 0, the same shape.
    """
    flat = np.ascontiguousarray(actual).reshape(-1)
    reference = expected.reshape(-1)
    scales = None if scale is None else scale.reshape(-1)
    if actual.dtype.kind != "f":
        test = _integers(flat, reference)
    elif tolerance.exact:
        test = _exact(flat, reference)
    else:
        test = _close(flat, reference, tolerance, scales)
    with np.errstate(all="ignore"):
        parts = in_threads(test, flat.size)
    wrong = sum(count for count, _, _ in parts)
    first = next((index for count, index, _ in parts if count), None)
    error = max((e for _, _, e in parts), default=0.0)
    detail = ""
    if first is not None:
        detail = _describe(flat, reference, scales, tolerance, first, actual.shape)
    return Comparison(flat.size, wrong, error if math.isfinite(error) else None, first, detail)


Test = Callable[[slice], tuple[int, int, float]]  # chunk -> mismatches, first one's index, largest error


def _count(bad: NDArray[np.bool_], start: int) -> tuple[int, int]:
    wrong = int(np.count_nonzero(bad))
    return wrong, start + int(np.argmax(bad)) if wrong else -1


def _integers(actual: NDArray[Any], expected: NDArray[Any]) -> Test:
    def test(part: slice) -> tuple[int, int, float]:
        c, r = actual[part], expected[part]
        bad = c != r
        wrong, first = _count(bad, part.start)
        error = 0.0
        if wrong:
            error = float(np.max(np.abs(c[bad].astype(np.float64) - r[bad].astype(np.float64))))
        return wrong, first, error

    return test


def _exact(actual: NDArray[Any], expected: NDArray[Any]) -> Test:
    def test(part: slice) -> tuple[int, int, float]:
        c, r = actual[part], expected[part].astype(actual.dtype)
        bad = (c != r) & ~(np.isnan(c) & np.isnan(r))
        wrong, first = _count(bad, part.start)
        error = _largest(np.abs(c[bad].astype(np.float64) - r[bad])) if wrong else 0.0
        return wrong, first, error

    return test


def _close(
    actual: NDArray[Any],
    expected: NDArray[Any],
    tolerance: Tolerance,
    scale: NDArray[np.float64] | None,
) -> Test:
    if tolerance.product is not None and scale is None:
        raise ValueError("a product tolerance needs an error scale")

    def test(part: slice) -> tuple[int, int, float]:
        c, r = actual[part], expected[part]
        error = np.subtract(c, r, dtype=np.float64)
        np.abs(error, out=error)
        if tolerance.product is not None and scale is not None:
            unit, limit = np.array(scale[part]), tolerance.product
        else:
            unit, limit = np.abs(r), 1.0
            unit *= tolerance.rtol
            unit += tolerance.atol
        np.divide(error, unit, out=error)
        bad = ~(error <= limit)  # NaN too: of NaN values, inf - inf, inf / inf, 0 / 0
        wrong = 0
        if bad.any():  # right after all where the output is the reference rounded, overflow included
            at = np.flatnonzero(bad)
            rounded = r[at].astype(c.dtype)
            same = (c[at] == rounded) | (np.isnan(c[at]) & np.isnan(rounded))
            bad[at[same]] = False
            error[at[same]] = 0.0
            wrong = int(np.count_nonzero(bad))
        if not wrong:
            return 0, -1, float(np.max(error))
        return *_count(bad, part.start), _largest(error[bad])

    return test


def _largest(errors: NDArray[np.float64]) -> float:
    largest = float(np.max(errors))
    return math.inf if math.isnan(largest) else largest


def _describe(
    actual: NDArray[Any],
    expected: NDArray[Any],
    scale: NDArray[np.float64] | None,
    tolerance: Tolerance,
    index: int,
    shape: tuple[int, ...],
) -> str:
    c, r = actual[index], expected[index]
    place = ", ".join(str(int(i)) for i in np.unravel_index(index, shape)) if shape else ""
    text = f"at [{place}] got {c:.9g}, expected {r:.9g}"
    if actual.dtype.kind == "f":
        if not np.isfinite(c):
            return text + (" (never written?)" if np.isnan(c) else "")
        if tolerance.exact:
            return text + " exactly"
        if tolerance.product is not None and scale is not None:
            allowed = tolerance.product * float(scale[index])
        else:
            allowed = tolerance.atol + tolerance.rtol * abs(float(r))
        text += f" (off by {abs(float(c) - float(r)):.3g}, allowed {allowed:.3g})"
    return text
