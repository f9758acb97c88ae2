"""Is a reference that a model wrote right? A second one that agrees, and properties that hold, say so.

Both run only in the sandbox. Agreement of two texts by the same model is evidence, no proof: results say
"generated reference" whatever is found here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.check.functions import told
from ...core.errors import UsageError
from ...core.model import Case
from ...core.sandbox.host_code import HostCode, HostCodeError
from ...core.workload import Workload

DRAWS = 3  # random inputs of each case
SMALL = 64 << 20  # bytes of a case's buffers, above which it isn't drawn here
RTOL = 1e-9  # in float64, relative to the largest element: rounding in another order stays far below
KINDS = ("linear", "scaling", "permutation", "invariant")


@dataclass(frozen=True)
class Property:
    """What must hold for the function, for people and numerically.

    Attributes:
        kind: `linear` (in `inputs` together), `scaling` (by c of all `inputs`: the output by c**power),
            `permutation` (of `axis` of the one input permutes `output_axis`), `invariant` (changes nothing).
        inputs: names of the buffers that are changed.
        power: of `scaling`.
        axis: of the input, for the last two.
        output_axis: for `permutation`.
    """

    kind: str
    inputs: tuple[str, ...]
    power: float = 1.0
    axis: int = 0
    output_axis: int = 0

    def __str__(self) -> str:
        """In words."""
        names = ", ".join(self.inputs)
        moved = f"permuting axis {self.axis} of {names}"
        return {
            "linear": f"linear in {names}",
            "scaling": f"scaling {names} by c scales the result by c^{self.power:g}",
            "permutation": f"{moved} permutes axis {self.output_axis} of the result",
            "invariant": f"{moved} changes nothing",
        }[self.kind]


class Disagreement(Exception):
    """The references, or a reference and a property, don't agree; the text says where."""


class References:
    """Reference texts as functions in the sandbox, and random inputs for them. A context manager.

    Args:
        workload: whose signature and cases count; its own reference isn't used.
        texts: Python sources with a function `reference`.
    """

    def __init__(self, workload: Workload, texts: Sequence[str]) -> None:
        self._workload = workload
        self._folder = tempfile.TemporaryDirectory(prefix="warpdeck-author-")
        self._codes: list[HostCode] = []
        for number, text in enumerate(texts):
            file = Path(self._folder.name) / f"reference{number}.py"
            file.write_text(text, encoding="utf-8")
            self._codes.append(HostCode(file))
        self._outputs = [a for a in workload.arguments if a.is_output]

    def __enter__(self) -> References:
        return self

    def __exit__(self, *_: object) -> None:
        for code in self._codes:
            code.close()
        self._folder.cleanup()

    def call(self, number: int, case: Case, arguments: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
        """One reference's outputs, in float64. Raises Disagreement for what no reference may do."""
        code = self._codes[number]
        try:
            wanted = code.functions.get("reference")
        except UsageError as error:
            raise Disagreement(
                f"reference can't be loaded: {str(error).removeprefix(f'{code.file.parent}/')}"
            ) from None
        if wanted is None:
            raise Disagreement("it has no function reference(…)")
        unknown = next((n for n in wanted.parameters if n not in arguments), None)
        if unknown is not None:
            raise Disagreement(f"reference asks for {unknown!r}; there are {', '.join(arguments)}")
        try:
            result = code.call("reference", kwargs={n: arguments[n] for n in wanted.parameters})
        except HostCodeError as error:
            raise Disagreement(f"reference fails in case {case.name!r}: {told(error)}") from None
        except UsageError as error:
            raise Disagreement(str(error)) from None
        if not isinstance(result, Mapping):
            result = {self._outputs[0].name: result} if len(self._outputs) == 1 else {}
        shapes = self._workload.shapes(case)
        found: dict[str, NDArray[np.float64]] = {}
        for output in self._outputs:
            array = np.asarray(result.get(output.name))
            if array.shape != shapes[output.name] or array.dtype.kind not in "biuf":
                raise Disagreement(
                    f"reference gives {output.name!r} as {array.dtype}{list(array.shape)} in case "
                    f"{case.name!r}; {list(shapes[output.name])} is declared"
                )
            if array.dtype.kind == "f" and array.dtype != np.float64:
                raise Disagreement(f"reference computes {output.name!r} in {array.dtype}, not in float64")
            found[output.name] = array.astype(np.float64)
        return found

    def draws(self, rng: np.random.Generator) -> Iterator[tuple[Case, dict[str, Any]]]:
        """Random arguments of every small case, as a reference gets them."""
        cases = [c for c in self._workload.cases if self._workload.total_bytes(c) <= SMALL]
        for case in cases or [self._workload.size_case(48)]:
            for _ in range(DRAWS):
                yield case, self._drawn(case, rng)

    def _drawn(self, case: Case, rng: np.random.Generator) -> dict[str, Any]:
        shapes, scalars = self._workload.shapes(case), self._workload.scalars(case)
        found: dict[str, Any] = {}
        for a in self._workload.arguments:
            dtype = np.dtype(a.dtype)
            if a.kind == "scalar":
                found[a.name] = dtype.type(scalars[a.name]).item()
            elif a.is_input and dtype.kind == "f":
                found[a.name] = rng.standard_normal(shapes[a.name]).astype(dtype).astype(np.float64)
            elif a.is_input:
                high = 2 if dtype.kind == "b" else 101
                drawn = rng.integers(0, high, shapes[a.name]).astype(dtype)
                found[a.name] = drawn.astype(np.int64) if dtype.kind == "i" else drawn
        return found


def agree(references: References, seed: int) -> float:
    """The largest difference of references 0 and 1, relative to the largest element of its output.

    Raises Disagreement: more than rounding, or one of them fails.
    """
    rng = np.random.default_rng(seed)
    largest = 0.0
    for case, arguments in references.draws(rng):
        first, second = (references.call(i, case, arguments) for i in (0, 1))
        for name, values in first.items():
            difference = _difference(values, second[name])
            if not difference <= RTOL:
                raise Disagreement(
                    f"the two references differ in {name!r}, case {case.name!r}: by {difference:.3g} of its "
                    "largest element"
                )
            largest = max(largest, difference)
    return largest


def holds(references: References, rule: Property, seed: int) -> None:
    """Check a property of reference 0 numerically. Raises Disagreement where it doesn't hold."""
    rng = np.random.default_rng(seed)
    for case, arguments in references.draws(rng):
        for left, right in _sides(references, rule, case, arguments, rng):
            if not _difference(left, right) <= RTOL:
                raise Disagreement(f"{rule}: that doesn't hold in case {case.name!r}")


def _sides(
    references: References, rule: Property, case: Case, arguments: Mapping[str, Any], rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """What must be equal, output by output."""
    base = references.call(0, case, arguments)
    if rule.kind == "linear":
        other = {**arguments, **{n: rng.standard_normal(np.shape(arguments[n])) for n in rule.inputs}}
        both = {**arguments, **{n: 2.0 * arguments[n] - 3.0 * other[n] for n in rule.inputs}}
        second, sum_of = references.call(0, case, other), references.call(0, case, both)
        for name in base:
            yield sum_of[name], 2.0 * base[name] - 3.0 * second[name]
    elif rule.kind == "scaling":
        scaled = references.call(0, case, {**arguments, **{n: 2.0 * arguments[n] for n in rule.inputs}})
        for name in base:
            yield scaled[name], 2.0**rule.power * base[name]
    else:
        (name_in,) = rule.inputs
        order = rng.permutation(np.shape(arguments[name_in])[rule.axis])
        moved = np.take(arguments[name_in], order, axis=rule.axis)
        result = references.call(0, case, {**arguments, name_in: moved})
        for name in base:
            same = rule.kind == "invariant"
            yield result[name], base[name] if same else np.take(base[name], order, axis=rule.output_axis)


def _difference(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Largest |a - b| over the largest |a|; infinities and not-a-numbers must be in the same places."""
    special = ~np.isfinite(a)
    if not np.array_equal(special, ~np.isfinite(b)) or not np.array_equal(
        a[special], b[special], equal_nan=True
    ):
        return float("inf")
    if special.all():
        return 0.0
    scale = max(float(np.abs(a[~special]).max()), np.finfo(np.float64).tiny)
    return float(np.abs(a[~special] - b[~special]).max()) / scale
