"""A workload: what is tuned. Its signature, cases, reference, tolerance, variants and search spaces.

Built by `warpdeck.kernels.load_workload` from a folder's `workload.toml`, or by hand.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .errors import UsageError, WarpdeckError
from .expr import compile_expr, near
from .model import Candidate, Case, Config, Launch, Role, Trust
from .space import SearchSpace, value_text

MAX_BYTES = 64 * 2**30  # of one case's buffers together
MAX_BLOCK_THREADS = 1024  # on every CUDA device; also of blockDim.x and .y
MAX_BLOCK_Z = 64
MAX_GRID = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True)
class Argument:
    """One kernel parameter, in order. `shape` and `value` are expressions over case parameters."""

    name: str
    kind: str  # buffer | scalar | workspace
    dtype: str  # NumPy name
    shape: tuple[str, ...] = ()  # buffers and workspaces: C-contiguous, row-major
    direction: str = "in"  # in | out | inout
    data: str = "normal"  # normal | uniform | integers | zeros | file:PATH | python
    value: str | None = None  # scalars
    language: str | None = None  # scalars: only kernels of this language take it

    @property
    def is_input(self) -> bool:
        """A buffer the kernel reads."""
        return self.kind == "buffer" and self.direction in ("in", "inout")

    @property
    def is_output(self) -> bool:
        """A buffer the kernel writes and the check compares."""
        return self.kind == "buffer" and self.direction in ("out", "inout")

    def taken_by(self, language: str) -> bool:
        """Whether kernels of this language have the parameter."""
        return self.language in (None, language)


@dataclass(frozen=True)
class Tolerance:
    """When an output element C is right, given the reference R.

    Floating point: |C - R| <= atol + rtol·|R|; with `product`, |C - R| <= product·S, S being the
    error scale from `reference.py` (for a matrix product |A|·|B|). Integers always compare exactly.
    """

    rtol: float = 1e-4
    atol: float = 1e-5
    product: float | None = None
    exact: bool = False

    def to_json(self) -> dict[str, Any]:
        """Only what applies."""
        if self.exact:
            return {"exact": True}
        if self.product is not None:
            return {"product": self.product}
        return {"rtol": self.rtol, "atol": self.atol}


@dataclass(frozen=True)
class LaunchSpec:
    """One launch as written: expressions over case parameters and knobs; shared memory in bytes."""

    entry: str
    grid: tuple[str, ...]
    block: tuple[str, ...]
    shared: str = "0"


@dataclass(frozen=True)
class Variant:
    """One source implementation."""

    name: str
    file: Path
    language: str  # numba | cuda
    entry: str
    launches: tuple[LaunchSpec, ...]
    source_hash: str  # over the file and the sibling files it includes or imports
    tolerance: Tolerance | None = None  # None: the workload's
    ladder: int | None = None  # rung of an optimisation ladder, from 0
    trust: Trust | None = None  # None: the workload's
    case_launches: Mapping[str, tuple[LaunchSpec, ...]] = field(
        default_factory=dict
    )  # by case, for `launches`
    precision: str | None = None  # where it isn't the workload's own ("tf32 tensor cores"): never the best

    def source(self) -> str:
        """The file's text. Raises UsageError if it can't be read."""
        try:
            return self.file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise UsageError(f"{self.file}: can't read the source: {e}") from None


@dataclass(frozen=True)
class Workload:
    """What is tuned. Cases hold values for `params`; everything else is derived from them."""

    name: str
    description: str
    folder: Path
    trust: Trust
    arguments: tuple[Argument, ...]
    variants: Mapping[str, Variant]
    spaces: Mapping[str, SearchSpace]
    cases: tuple[Case, ...]
    sizes: Mapping[str, str]  # case parameter -> expression over `size`
    tolerance: Tolerance = field(default_factory=Tolerance)
    vendor_name: str | None = None
    floor_bytes: str | None = None
    floor_flops: str | None = None
    default_size: int = 1024
    recorded: bool = False  # an imported recording's: one case, no arguments, and no source

    # -- cases -----------------------------------------------------------------------------------

    @property
    def params(self) -> tuple[str, ...]:
        """Names of the case parameters, in the order of `[sizes]`."""
        return tuple(self.sizes)

    @property
    def shape_params(self) -> tuple[str, ...]:
        """The case parameters that occur in a shape; `check` varies each of them."""
        used = {n for a in self.arguments for text in a.shape for n in compile_expr(text).names}
        return tuple(p for p in self.params if p in used)

    def correctness_cases(self) -> tuple[Case, ...]:
        """The file's cases with the role `correctness`."""
        return tuple(c for c in self.cases if c.role is Role.CORRECTNESS)

    def size_case(self, n: int) -> Case:
        """The performance case of `--size n`. Raises UsageError for an impossible size."""
        if n < 1:
            raise UsageError(f"size {n} is impossible; give a positive whole number")
        params = {p: _whole(text, {"size": n}) for p, text in self.sizes.items()}
        return self._sound(Case(str(n), Role.PERFORMANCE, params), f"size {n}")

    def shape_case(self, params: Mapping[str, int]) -> Case:
        """A performance case with these parameters, named "m=512,n=256". Raises UsageError."""
        unknown = next((p for p in params if p not in self.sizes), None)
        if unknown is not None:
            raise UsageError(f"{self.name} has no parameter {unknown!r}; {near(unknown, self.params)}")
        missing = [p for p in self.params if p not in params]
        if missing:
            raise UsageError(f"{self.name}: give a value for {', '.join(missing)} too")
        ordered = {p: int(params[p]) for p in self.params}
        name = ",".join(f"{p}={v}" for p, v in ordered.items())
        return self._sound(Case(name, Role.PERFORMANCE, ordered), name)

    def _sound(self, case: Case, what: str) -> Case:
        low = next((p for p, v in case.params.items() if v < 1), None)
        if low is not None:
            raise UsageError(f"{self.name}: {what} is impossible: {low} must be at least 1")
        total = self.total_bytes(case)
        if total > MAX_BYTES:
            raise UsageError(
                f"{self.name}: {what} is impossible: its buffers take {total / 2**30:,.0f} GiB, "
                f"at most {MAX_BYTES // 2**30} are allowed"
            )
        self.scalars(case)
        return case

    # -- arguments -------------------------------------------------------------------------------

    def argument(self, name: str) -> Argument:
        """The argument of this name. Raises UsageError."""
        for a in self.arguments:
            if a.name == name:
                return a
        raise UsageError(
            f"{self.name} has no argument {name!r}; {near(name, [a.name for a in self.arguments])}"
        )

    def shapes(self, case: Case) -> dict[str, tuple[int, ...]]:
        """Shape of every buffer and workspace, in parameter order. Raises UsageError."""
        shapes = {}
        for a in self.arguments:
            if a.kind != "scalar":
                shapes[a.name] = tuple(_whole(text, case.params) for text in a.shape)
                if any(n < 1 for n in shapes[a.name]):
                    raise UsageError(
                        f"{self.name}: case {case.name!r} gives {a.name} the shape {shapes[a.name]}; "
                        "every dimension must be at least 1"
                    )
        return shapes

    def scalars(self, case: Case) -> dict[str, int | float]:
        """Value of every scalar, in parameter order. Raises UsageError if it doesn't fit its type."""
        values: dict[str, int | float] = {}
        for a in self.arguments:
            if a.kind == "scalar":
                dtype = np.dtype(a.dtype)
                text = a.value or "0"
                if dtype.kind == "f":
                    values[a.name] = _number(text, case.params)
                    continue
                number = _whole(text, case.params)
                limits = np.iinfo(dtype)
                if not limits.min <= number <= limits.max:
                    raise UsageError(
                        f"{self.name}: case {case.name!r}: {a.name} = {number} doesn't fit {a.dtype}"
                    )
                values[a.name] = number
        return values

    def total_bytes(self, case: Case) -> int:
        """Device memory of one buffer set, guard bands left out."""
        shapes = self.shapes(case)
        return sum(math.prod(s) * np.dtype(self.argument(n).dtype).itemsize for n, s in shapes.items())

    def min_bytes(self, case: Case) -> int | None:
        """Compulsory DRAM traffic of one evaluation: `[floor] bytes`, else every input read once and
        every output written once."""
        if self.floor_bytes is not None:
            return _whole(self.floor_bytes, case.params)
        shapes = self.shapes(case)
        return sum(
            math.prod(shapes[a.name]) * np.dtype(a.dtype).itemsize * (a.is_input + a.is_output)
            for a in self.arguments
            if a.kind == "buffer"
        )

    def flops(self, case: Case) -> int | None:
        """Compulsory floating-point operations (`[floor] flops`); None if the file doesn't say."""
        return None if self.floor_flops is None else _whole(self.floor_flops, case.params)

    # -- candidates ------------------------------------------------------------------------------

    def ladder(self) -> tuple[Variant, ...]:
        """The variants that form the optimisation ladder, lowest rung first; empty if there is none."""
        rungs = [(v.ladder, v) for v in self.variants.values() if v.ladder is not None]
        return tuple(variant for _, variant in sorted(rungs, key=lambda rung: rung[0]))

    def trust_of(self, variant: str) -> Trust:
        """Whose code a variant is."""
        return self.variant(variant).trust or self.trust

    def space(self, name: str) -> SearchSpace:
        """The space of this name. Raises UsageError."""
        if name not in self.spaces:
            raise UsageError(f"{self.name} has no space {name!r}; {near(name, self.spaces)}")
        return self.spaces[name]

    def variant(self, name: str) -> Variant:
        """The variant of this name. Raises UsageError."""
        if name not in self.variants:
            raise UsageError(f"{self.name} has no variant {name!r}; {near(name, self.variants)}")
        return self.variants[name]

    def space_of(self, variant: str) -> SearchSpace:
        """The first space over a variant. Raises UsageError for an unknown variant."""
        self.variant(variant)
        found = next((s for s in self.spaces.values() if s.variant == variant), None)
        if found is None:
            raise UsageError(f"{self.name}: variant {variant!r} has no space; give it one")
        return found

    def candidate(self, space_name: str, config: Config) -> Candidate:
        """A candidate of a space. Raises UsageError for a value that isn't allowed; restrictions are
        the evaluation's business."""
        space = self.space(space_name)
        variant = self.variant(space.variant)
        # The space's own values, in its order: 1, 1.0 and True would give one configuration several ids.
        return Candidate(variant.name, space.decode(space.encode(config)), variant.source_hash)

    def baseline(self, space_name: str) -> Candidate:
        """What speedups of this space are relative to. Follows `baseline_space`."""
        space = self.space(space_name)
        if space.baseline is None and space.baseline_space is not None:
            return self.baseline(space.baseline_space)
        return self.candidate(space_name, space.first if space.baseline is None else space.baseline)

    def launches(self, candidate: Candidate, case: Case) -> tuple[Launch, ...]:
        """The launches of one evaluation, in order.

        Raises:
            UsageError: an extent isn't a whole number of at least 1, or exceeds what every CUDA
                device allows (1024 threads a block, grid 2^31-1 × 65535 × 65535).
        """
        env = {**case.params, **candidate.config}
        resolved = []
        variant = self.variant(candidate.variant)
        for spec in variant.case_launches.get(case.name, variant.launches):
            grid, block = _extent(spec.grid, env), _extent(spec.block, env)
            shared = _whole(spec.shared, env)
            launch = Launch(spec.entry, grid, block, shared)
            problem = _launch_problem(launch)
            if problem is not None:
                values = ", ".join(f"{k}={value_text(v)}" for k, v in env.items())
                raise UsageError(f"{self.name}: launch of {spec.entry!r} with {values}: {problem}")
            resolved.append(launch)
        return tuple(resolved)

    def tolerance_of(self, variant: str, case: Case) -> Tolerance:
        """The tolerance that applies to a variant's outputs in a case."""
        if case.exact:
            return Tolerance(exact=True)
        return self.variant(variant).tolerance or self.tolerance

    def reference_module(self) -> ModuleType:
        """`reference.py`, imported afresh as one self-contained file (it can't import its siblings):
        `reference`, and if it has them `operands`, `scale`, `make_inputs`, `vendor`.

        Raises:
            UsageError: it is missing, fails to import, or has no `reference`.
            WarpdeckError: the workload isn't trusted to run host code in this process.
        """
        if self.trust in (Trust.GENERATED, Trust.REMOTE):
            raise WarpdeckError(f"{self.name}: a {self.trust} workload's reference runs only in a sandbox")
        path = self.folder / "reference.py"
        if not path.is_file():
            raise UsageError(f"{path} is missing; it must define reference(**arguments)")
        spec = importlib.util.spec_from_file_location(f"_warpdeck_reference_{self.name}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as e:
            raise UsageError(f"{path}: {type(e).__name__}: {e}") from e
        reference: Callable[..., Any] | None = getattr(module, "reference", None)
        if not callable(reference):
            raise UsageError(f"{path}: no function reference(**arguments)")
        return module


def _whole(text: str, env: Mapping[str, Any]) -> int:
    """An expression's value as a whole number. Raises UsageError."""
    value = compile_expr(text).evaluate(env)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise UsageError(f"expression {text!r} gives {value!r}; a whole number is needed")
    return int(value)


def _number(text: str, env: Mapping[str, Any]) -> float:
    """An expression's value as a floating-point number. Raises UsageError."""
    value = compile_expr(text).evaluate(env)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"expression {text!r} gives {value!r}; a number is needed") from None


def _extent(texts: tuple[str, ...], env: Mapping[str, Any]) -> tuple[int, int, int]:
    x, y, z = ([_whole(t, env) for t in texts] + [1, 1, 1])[:3]
    return x, y, z


def _launch_problem(launch: Launch) -> str | None:
    for what, extent, limits in (
        ("grid", launch.grid, MAX_GRID),
        ("block", launch.block, (MAX_BLOCK_THREADS, MAX_BLOCK_THREADS, MAX_BLOCK_Z)),
    ):
        if any(not 1 <= n <= limit for n, limit in zip(extent, limits, strict=True)):
            return f"{what} {extent} is outside 1 to {limits}"
    if math.prod(launch.block) > MAX_BLOCK_THREADS:
        return f"block {launch.block} has {math.prod(launch.block)} threads; at most {MAX_BLOCK_THREADS}"
    if launch.shared < 0:
        return f"shared memory of {launch.shared} bytes is impossible"
    return None
