"""Expected outputs: the workload's reference in float64, computed once and memory-mapped.

A matrix product above 2048^3 is expected on 64 random rows and columns, element by element, and everywhere
by Freivalds' test: with random signs x, every row of C @ x must equal A @ (B @ x) within
product · |S_i|, S_i being the row's error scales in Euclidean norm, since independent rounding errors add
up like that. A single wrong element of the size of its row's others stands out of it by orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, WarpdeckError
from ..model import Case
from ..workload import Argument, Tolerance, Workload
from .compare import Comparison, compare
from .functions import Functions, told
from .inputs import arguments_of, case_number
from .store import CHUNK, Store, in_threads

LARGE_PRODUCT = 2048**3  # m·n·k above which a product is sampled
SAMPLED = 64  # rows, and columns
PROBES = 4  # of Freivalds' test; each sees any single wrong element, and half of those that could cancel
SCALE_PROBES = 16  # to estimate a row's norm of error scales
GLANCE = 1 << 12  # elements that tell most wrong outputs
AGREEMENT = 1e-12  # between `operands` and `reference`, in units of the error scale

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class FullExpected:
    """Reference and, for `product` tolerances, error scale of every element of one output."""

    values: NDArray[Any]
    scale: F64 | None = None

    def judge(self, actual: NDArray[Any], tolerance: Tolerance) -> Comparison:
        """Compare all elements."""
        return compare(actual, self.values, tolerance, self.scale)

    def repeats(self, other: FullExpected | SampledProduct, dtype: str, tolerance: Tolerance) -> bool:
        """Whether another draw's output would pass as this one's."""
        if not isinstance(other, FullExpected):
            return False
        with np.errstate(all="ignore"):
            start = other.values.reshape(-1)[:GLANCE].astype(dtype)
            return self.glance(start, tolerance).ok and self.judge(other.values.astype(dtype), tolerance).ok

    def glance(self, actual: NDArray[Any], tolerance: Tolerance) -> Comparison:
        """Compare the first elements only; finds most wrong outputs at no cost."""
        part = slice(0, GLANCE)
        scale = None if self.scale is None else self.scale.reshape(-1)[part]
        return compare(actual.flat[part], self.values.reshape(-1)[part], tolerance, scale)


@dataclass(frozen=True)
class SampledProduct:
    """What is known of a large product C = A @ B (+ D): rows, columns, and its action on random signs."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]
    row_values: F64  # [rows, n]
    row_scale: F64
    column_values: F64  # [m, columns]
    column_scale: F64
    signs: F64  # [n, PROBES]
    action: F64  # [m, PROBES]: C @ signs
    norms: F64  # [m]: Euclidean norm of each row's error scales

    def judge(self, actual: NDArray[Any], tolerance: Tolerance) -> Comparison:
        """Compare the sampled rows and columns, then everything by Freivalds' test."""
        if tolerance.product is None:
            raise UsageError(
                "outputs of this size are checked as a product; give tolerance = { product = … }"
            )
        for values, part, scale in (
            (self.row_values, actual[self.rows], self.row_scale),
            (self.column_values, actual[:, self.columns], self.column_scale),
        ):
            found = compare(part, values, tolerance, scale)
            if not found.ok:
                return found
        deviation = self._freivalds(actual)
        allowed = tolerance.product * self.norms
        bad = ~(deviation <= allowed)  # NaN fails
        error = compare(actual[self.rows], self.row_values, tolerance, self.row_scale).max_error
        if not bad.any():
            return Comparison(actual.size, 0, error)
        row = int(np.argmax(bad))
        detail = f"row {row} fails Freivalds' test: off by {deviation[row]:.3g}, allowed {allowed[row]:.3g}"
        return Comparison(actual.size, int(np.count_nonzero(bad)), error, row * actual.shape[1], detail)

    def repeats(self, other: FullExpected | SampledProduct, dtype: str, tolerance: Tolerance) -> bool:
        """Whether another draw's rows would pass as this one's."""
        if not isinstance(other, SampledProduct):
            return False
        return compare(other.row_values.astype(dtype), self.row_values, tolerance, self.row_scale).ok

    def glance(self, actual: NDArray[Any], tolerance: Tolerance) -> Comparison:
        """Compare one row only."""
        return compare(actual[self.rows[:1]], self.row_values[:1], tolerance, self.row_scale[:1])

    def _freivalds(self, actual: NDArray[Any]) -> F64:
        """Largest deviation of each row's probes, shape [m]."""
        height = max(CHUNK // actual.shape[1], 1)

        def deviation(part: slice) -> F64:
            return np.abs(actual[part].astype(np.float64) @ self.signs - self.action[part]).max(axis=1)

        with np.errstate(all="ignore"):
            return np.concatenate(in_threads(deviation, actual.shape[0], height))


Expected = Mapping[str, FullExpected | SampledProduct]


class References:
    """Computes expected outputs with a workload's `reference.py`.

    Raises:
        UsageError: a `product` tolerance without `operands` or `scale`.
    """

    def __init__(self, workload: Workload, store: Store, entropy: int, functions: Functions) -> None:
        self.workload = workload
        self.store = store
        self.entropy = entropy
        self.path = workload.folder / "reference.py"
        self.outputs = {a.name: a for a in workload.arguments if a.is_output}
        self.reference = functions.reference
        self.operands = functions.operands
        self.scale = functions.scale
        tolerances = [workload.tolerance, *(v.tolerance for v in workload.variants.values() if v.tolerance)]
        self.product = any(t.product is not None for t in tolerances)
        if self.product and self.operands is None and self.scale is None:
            raise UsageError(f"{self.path}: tolerance.product needs operands(…) or scale(…) there")
        if self.operands is not None and len(self.outputs) != 1:
            raise UsageError(f"{self.path}: operands(…) is for a workload with one output")

    def compute(self, case: Case, k: int, inputs: Mapping[str, NDArray[Any]]) -> Expected:
        """Expected outputs of one case for these inputs.

        Raises:
            UsageError: `reference.py` fails, or what it returns doesn't fit the declared outputs.
        """
        arguments = self._arguments(case, inputs)
        product = None
        if self.product and self.operands is not None and not case.exact:
            product = self._operands(case, arguments)
            a, b = product[:2]
            if a.shape[0] * b.shape[1] * a.shape[1] > LARGE_PRODUCT:
                return {name: self._sampled(case, k, *product) for name in self.outputs}
        values = self._by_name(case, self._call(case, self.reference, arguments), "reference")
        scales: dict[str, NDArray[Any]] = {}
        if product is not None:
            (name,) = self.outputs
            scales[name] = _product_scale(*product)
            self._agree(case, values[name], scales[name], product)
        elif self.product and self.scale is not None and not case.exact:
            scales = self._by_name(case, self._call(case, self.scale, arguments), "scale")
        return {
            name: FullExpected(
                self.store.keep(f"reference-{name}", self._stored(case, name, values[name])),
                self.store.keep(f"scale-{name}", np.asarray(scales[name], np.float64))
                if name in scales
                else None,
            )
            for name in self.outputs
        }

    def _arguments(self, case: Case, inputs: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """Inputs and scalars as the reference gets them: the values that the kernel sees, in wide types."""
        scalars = self.workload.scalars(case)
        found: dict[str, Any] = {}
        for a in self.workload.arguments:
            if a.is_input:
                kind = np.dtype(a.dtype).kind
                wide = np.float64 if kind == "f" else np.int64 if kind == "i" else a.dtype
                found[a.name] = np.asarray(inputs[a.name]).astype(wide)
            elif a.kind == "scalar":
                found[a.name] = np.dtype(a.dtype).type(scalars[a.name]).item()
        return found

    def _call(self, case: Case, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        chosen = arguments_of(function, arguments, self.path)
        try:
            with np.errstate(all="ignore"):
                return function(**chosen)
        except WarpdeckError:  # the sandbox's own
            raise
        except BaseException as e:
            raise UsageError(
                f"{self.path}: {function.__name__} failed on case {case.name!r}: {told(e)}"
            ) from e

    def _by_name(self, case: Case, result: Any, what: str) -> dict[str, NDArray[Any]]:
        if not isinstance(result, Mapping):
            if len(self.outputs) != 1:
                raise UsageError(f"{self.path}: {what} must return {{{', '.join(self.outputs)}: array}}")
            result = {next(iter(self.outputs)): result}
        if set(result) != set(self.outputs):
            raise UsageError(
                f"{self.path}: {what} returns {', '.join(map(str, result)) or 'nothing'}; "
                f"the outputs are {', '.join(self.outputs)}"
            )
        shapes = self.workload.shapes(case)
        arrays = {name: np.asarray(value) for name, value in result.items()}
        for name, array in arrays.items():
            if array.shape != shapes[name]:
                raise UsageError(
                    f"{self.path}: {what} gives {name!r} the shape {list(array.shape)} in case "
                    f"{case.name!r}; declared {list(shapes[name])}"
                )
            if array.dtype.kind not in "biuf":
                raise UsageError(
                    f"{self.path}: {what} gives {name!r} the type {array.dtype} in case {case.name!r}; "
                    "real numbers are needed"
                )
        return arrays

    def _stored(self, case: Case, name: str, values: NDArray[Any]) -> NDArray[Any]:
        argument: Argument = self.outputs[name]
        dtype = np.dtype(argument.dtype)
        if dtype.kind == "f":
            return values.astype(np.float64, copy=False)
        narrowed = values.astype(dtype)
        if not np.array_equal(narrowed, values):
            raise UsageError(
                f"{self.path}: reference gives {name!r} values that don't fit {dtype} in case {case.name!r}"
            )
        return narrowed

    def _operands(self, case: Case, arguments: Mapping[str, Any]) -> tuple[F64, F64, F64 | None]:
        assert self.operands is not None
        result = self._call(case, self.operands, arguments)
        if not isinstance(result, tuple) or len(result) not in (2, 3):
            raise UsageError(f"{self.path}: operands must return (A, B) or (A, B, D)")
        try:
            a, b, *more = (np.asarray(x, dtype=np.float64) for x in result)
        except (TypeError, ValueError) as e:
            raise UsageError(f"{self.path}: operands in case {case.name!r}: {e}") from None
        d = more[0] if more else None
        (name,) = self.outputs
        shape = self.workload.shapes(case)[name]
        fits = a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0] and (a.shape[0], b.shape[1]) == shape
        if not fits or (d is not None and d.shape != shape):
            raise UsageError(
                f"{self.path}: operands {[np.shape(x) for x in result]} don't multiply to {name!r} {shape}"
            )
        return a, b, d

    def _agree(
        self, case: Case, values: NDArray[Any], scale: F64, product: tuple[F64, F64, F64 | None]
    ) -> None:
        """A few rows of A @ B (+ D) must be what `reference` says, or one of the two is wrong."""
        a, b, d = product
        rows = np.unique(np.linspace(0, len(a) - 1, 8).astype(np.intp))
        again = a[rows] @ b + (0 if d is None else d[rows])
        if not np.all(np.abs(again - values[rows]) <= AGREEMENT * scale[rows]):
            raise UsageError(
                f"{self.path}: operands and reference disagree in case {case.name!r}; "
                "A @ B (+ D) must be the reference"
            )

    def _sampled(self, case: Case, k: int, a: F64, b: F64, d: F64 | None) -> SampledProduct:
        # The same rows and columns in every draw, so that draws can be compared with each other.
        rng = np.random.default_rng([self.entropy, case_number(case)])
        (m, _), n = a.shape, b.shape[1]
        rows = np.sort(rng.choice(m, min(SAMPLED, m), replace=False))
        columns = np.sort(rng.choice(n, min(SAMPLED, n), replace=False))
        row_values, column_values = a[rows] @ b, a @ b[:, columns]
        rng = np.random.default_rng([self.entropy, case_number(case), k])
        signs = rng.choice((-1.0, 1.0), (n, PROBES))
        action = a @ (b @ signs)
        if d is not None:
            row_values, column_values = row_values + d[rows], column_values + d[:, columns]
            action = action + d @ signs
        # Row sums bound the norm from below; random signs estimate it where scales vary along a row.
        probes = np.hstack([np.full((n, 1), 1 / np.sqrt(n)), rng.choice((-1.0, 1.0), (n, SCALE_PROBES))])
        seen = _magnitudes(a, _magnitudes(b, probes))
        row_scale = _magnitudes(b.T, np.abs(a[rows]).T).T
        column_scale = _magnitudes(a, np.abs(b[:, columns]))
        if d is not None:
            seen = seen + _magnitudes(d, probes)
            row_scale, column_scale = row_scale + np.abs(d[rows]), column_scale + np.abs(d[:, columns])
        norms = np.maximum(seen[:, 0], np.sqrt(np.mean(seen[:, 1:] ** 2, axis=1)))
        return SampledProduct(
            rows, columns, row_values, row_scale, column_values, column_scale, signs, action, norms
        )


def _magnitudes(a: F64, x: F64) -> F64:
    """|a| @ x, without a copy of all of a."""
    height = max(8 * CHUNK // a.shape[1], 1)
    return np.vstack([np.abs(a[i : i + height]) @ x for i in range(0, len(a), height)])


def _product_scale(a: F64, b: F64, d: F64 | None) -> F64:
    scale = np.abs(a) @ np.abs(b)
    return scale if d is None else scale + np.abs(d)
