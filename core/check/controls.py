"""Null controls: outputs that no computation is needed for. A case that accepts one proves nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import VerificationError
from ..model import Case, Role
from ..workload import Argument
from .reference import Expected, FullExpected, SampledProduct

Outputs = Mapping[str, NDArray[Any]]
CONTROLS = ("zeros", "a constant", "an input copy", "the last output")


def controls(
    outputs: Mapping[str, Argument],
    shapes: Mapping[str, tuple[int, ...]],
    inputs: Mapping[str, NDArray[Any]],
    other: Expected | None,
) -> Iterator[tuple[str, Outputs]]:
    """The controls of one draw but the last output: (name in `CONTROLS`, outputs).

    The constant is what suits another draw best (`other`, its expected outputs; None: no constant), since a
    kernel could have that built in. Every input is copied, repeated or cut to the output's size.
    """
    types = {name: np.dtype(a.dtype) for name, a in outputs.items()}
    yield "zeros", {n: np.broadcast_to(types[n].type(0), shapes[n]) for n in outputs}
    if other is not None:
        best = {n: _rounded(_mean(other[n]), types[n]) for n in outputs}
        yield "a constant", {n: np.broadcast_to(best[n], shapes[n]) for n in outputs}
    for source in inputs.values():
        yield "an input copy", {n: _copied(source, shapes[n], types[n]) for n in outputs}


def require_strong(accepted: Mapping[str, set[str]], cases: Mapping[str, Case], workload: str) -> None:
    """Refuse a workload whose cases prove nothing.

    Args:
        accepted: by case name, the controls that some draw of it accepts.

    Raises:
        VerificationError: `weak_case`: a performance case that isn't marked `edge` accepts a control, or
            all correctness cases do.
    """
    for name, controls_accepted in accepted.items():
        case = cases[name]
        if case.role is Role.PERFORMANCE and not case.edge and controls_accepted:
            which = ", ".join(sorted(controls_accepted))
            raise VerificationError(
                f"weak_case: {workload}, case {name!r} would accept {which} as a right answer; use zero-mean "
                "random data or a tighter tolerance, or mark the case edge = true"
            )
    correctness = [n for n in accepted if cases[n].role is Role.CORRECTNESS]
    for control in CONTROLS:
        if correctness and all(control in accepted[n] for n in correctness):
            raise VerificationError(
                f"weak_case: {workload}: every correctness case would accept {control} as a right answer; "
                "add a case with larger, zero-mean random data or tighten the tolerance"
            )


def _mean(expected: FullExpected | SampledProduct) -> float:
    values = expected.values if isinstance(expected, FullExpected) else expected.row_values
    sample = values.reshape(-1)[: 1 << 20].astype(np.float64)
    sample = sample[np.isfinite(sample)]
    return float(sample.mean()) if sample.size else 1.0


def _rounded(value: float, dtype: np.dtype[Any]) -> Any:
    return dtype.type(round(value) if dtype.kind in "iu" else value)


def _copied(source: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    size = int(np.prod(shape, dtype=np.int64))
    flat = source.reshape(-1)[:size]
    with np.errstate(all="ignore"):
        repeated = flat if flat.size == size else np.resize(flat, size)
        return repeated.astype(dtype, copy=False).reshape(shape)
