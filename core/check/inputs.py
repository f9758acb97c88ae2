"""Input data: zero-mean, seeded, generated once and memory-mapped.

Index k below `POOL` is a draw of its own; `POOL + k` is draw k with a sixteenth of every input replaced, so
that a kernel that remembers results by a sample of its data is caught. `UNSEEN` is one more, for what
is to be a run's result: no verdict during the run has told anything about it.
"""

from __future__ import annotations

import hashlib
import inspect
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, WarpdeckError
from ..model import Case, Trust
from ..workload import Argument, Workload
from .functions import told
from .store import CHUNK, Store, in_threads

POOL = 4
UNSEEN = 2 * POOL
PART = 16  # one part in 16 of the data changes in a partly changed draw
INTEGER_SPAN = 4  # integers for floating-point inputs: -4..4, so that float32 sums of products are exact

Arrays = dict[str, np.memmap]


class InputData:
    """Makes the inputs of a workload's cases.

    Args:
        workload: whose arguments.
        store: where the arrays live.
        entropy: the run's secret.
        make_inputs: `reference.py`'s function for data of kind "python", if it has one.
    """

    def __init__(
        self,
        workload: Workload,
        store: Store,
        entropy: int,
        make_inputs: Callable[..., Mapping[str, Any]] | None,
    ) -> None:
        self.workload = workload
        self.store = store
        self.entropy = entropy
        self.make_inputs = make_inputs

    def generate(self, case: Case, k: int, attempt: int, base: Arrays | None = None) -> Arrays:
        """Every `in` and `inout` buffer of draw k, read-only, C-contiguous, in its declared type.

        Args:
            attempt: 0 for the first draw; another number redraws.
            base: draw k - POOL, for a partly changed draw.

        Raises:
            UsageError: data from a file or from `make_inputs` that can't be had or don't fit.
        """
        shapes = self.workload.shapes(case)
        inputs = [a for a in self.workload.arguments if a.is_input]
        made: Mapping[str, Any] = {}
        if any(_kind(case, a) == "python" for a in inputs):
            made = self._made(case, np.random.default_rng(self._seed(case, k, attempt, -1)))
        arrays: Arrays = {}
        for position, a in enumerate(inputs):
            kind = _kind(case, a)
            target = self.store.create(f"in-{a.name}", a.dtype, shapes[a.name])
            flat = target.reshape(-1)
            seed = self._seed(case, k, attempt, position)
            if kind == "python":
                target[...] = self._fitting(made.get(a.name), a, shapes[a.name], "make_inputs")
            elif kind.startswith("file:"):
                target[...] = self._fitting(self._load(kind[5:]), a, shapes[a.name], kind[5:])
            elif kind == "zeros":
                pass
            elif base is None:
                _fill(flat, kind, seed)
            else:
                flat[:] = base[a.name].reshape(-1)
                count = max(flat.size // PART, 1)
                start = int(np.random.default_rng(seed).integers(flat.size - count + 1))
                _fill(flat[start : start + count], kind, seed)
            arrays[a.name] = self.store.sealed(target)
        return arrays

    def _seed(self, case: Case, k: int, attempt: int, position: int) -> np.random.SeedSequence:
        return np.random.SeedSequence([self.entropy, case_number(case), k, attempt, position + 1])

    def _made(self, case: Case, rng: np.random.Generator) -> Mapping[str, Any]:
        path = self.workload.folder / "reference.py"
        if self.make_inputs is None:
            raise UsageError(f'{path}: data = "python" needs make_inputs(case, rng) there')
        try:
            made = self.make_inputs(case, rng)
        except WarpdeckError:  # the sandbox's own
            raise
        except BaseException as e:
            raise UsageError(f"{path}: make_inputs failed on case {case.name!r}: {told(e)}") from e
        if not isinstance(made, Mapping):
            raise UsageError(f"{path}: make_inputs must return {{name: array}}, got {type(made).__name__}")
        return made

    def _load(self, text: str) -> NDArray[Any]:
        path = (self.workload.folder / Path(text).expanduser()).resolve()
        inside = path.is_relative_to(self.workload.folder.resolve())
        if self.workload.trust in (Trust.GENERATED, Trust.REMOTE) and not inside:
            raise UsageError(f"data file {text!r} is outside the workload's folder")
        try:
            return np.load(path, mmap_mode="r", allow_pickle=False)
        except OSError as e:
            raise UsageError(f"{path}: can't be read: {e.strerror or e}") from None
        except (ValueError, EOFError, zipfile.BadZipFile, ArithmeticError, MemoryError) as e:
            why = "" if "pickle" in str(e) else f" ({e})"
            raise UsageError(f"{path}: not a .npy file of numbers{why}") from None

    def _fitting(self, value: Any, a: Argument, shape: tuple[int, ...], source: str) -> NDArray[Any]:
        if value is None:
            raise UsageError(f"{self.workload.name}: {source} gives no data for {a.name!r}")
        array = np.asarray(value)
        if array.shape != shape or not np.can_cast(array.dtype, a.dtype, "same_kind"):
            raise UsageError(
                f"{self.workload.name}: {source} gives {a.name!r} as {array.dtype}{list(array.shape)}; "
                f"declared {a.dtype}{list(shape)}"
            )
        return array


def _kind(case: Case, a: Argument) -> str:
    return case.data or a.data


def case_number(case: Case) -> int:
    """A 64-bit number for a case's name, the same in every process."""
    return int.from_bytes(hashlib.sha256(case.name.encode()).digest()[:8], "little")


def _fill(flat: NDArray[Any], kind: str, seed: np.random.SeedSequence) -> None:
    """Fill a one-dimensional array; each chunk has a generator of its own, so threads don't matter."""
    children = seed.spawn(-(-flat.size // CHUNK))

    def fill(part: slice) -> None:
        rng = np.random.Generator(np.random.SFC64(children[part.start // CHUNK]))
        flat[part] = _draw(rng, kind, flat.dtype, part.stop - part.start)

    in_threads(fill, flat.size)


def _draw(rng: np.random.Generator, kind: str, dtype: np.dtype[Any], n: int) -> NDArray[Any]:
    if dtype.kind == "b":
        return rng.integers(0, 2, n, dtype=np.int8)
    if dtype.kind in "iu":
        return rng.integers(-100 if dtype.kind == "i" else 0, 101, n, dtype=dtype)
    if kind == "integers":
        return rng.integers(-INTEGER_SPAN, INTEGER_SPAN + 1, n, dtype=np.int8)
    if dtype == np.float64:
        return rng.standard_normal(n) if kind == "normal" else 2 * rng.random(n) - 1
    if kind == "normal":
        return rng.standard_normal(n, dtype=np.float32)
    return 2 * rng.random(n, dtype=np.float32) - 1


def arguments_of(function: Callable[..., Any], known: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """The arguments that a function of `reference.py` asks for. Raises UsageError for an unknown one."""
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(known)
    for p in parameters:
        if p.name not in known and p.default is p.empty:
            raise UsageError(
                f"{where}: {function.__name__} asks for {p.name!r}; there are {', '.join(known)}"
            )
    return {p.name: known[p.name] for p in parameters if p.name in known}
