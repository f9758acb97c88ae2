"""Checking outputs against a float64 reference on the host.

What a workload supplies in `reference.py` (one self-contained NumPy file):

- `reference(**arguments) -> array | {output: array}` (required). `arguments` are the inputs (`in` and
  `inout` buffers, floating-point ones in float64, integers in int64) and the scalars, by name; only those
  that its signature names are passed. Outputs have their declared shapes and are float64 (or integers).
  Inputs must not be changed.
- With `tolerance = { product = 2e-6 }`, one of
  - `operands(**arguments) -> (A, B)` or `(A, B, D)`: the single output is the matrix product A @ B (+ D),
    compared by |C - R| <= product · (|A| @ |B| + |D|), element by element. Above m·n·k = 2048^3 the
    reference is computed on 64 random rows and columns, and Freivalds' test covers everything; below,
    it must agree with `reference`;
  - `scale(**arguments) -> array | {output: array}`: the error scale S >= 0 of other sums, compared by
    |C - R| <= product · S (for a sum over x: the sum of |x|). `reference` gives R.
- `make_inputs(case, rng) -> {name: array}` where an argument or a case has `data = "python"`: every such
  input, in its declared shape; `rng` is a seeded `numpy.random.Generator`.
- An exact case in `workload.toml`: `data = "integers"` (small whole numbers in -4..4, exact in float32
  sums) or "python", and `exact = true` (outputs must equal the reference rounded to their type).
"""

from .ahead import Plans, draws
from .compare import Comparison, compare
from .derived import covering_configs, derived_cases
from .inputs import POOL, UNSEEN
from .plan import CheckPlan

__all__ = [
    "POOL",
    "UNSEEN",
    "CheckPlan",
    "Comparison",
    "Plans",
    "compare",
    "covering_configs",
    "derived_cases",
    "draws",
]
