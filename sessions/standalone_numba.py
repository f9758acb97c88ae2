"""A Numba variant as one Python file that needs NumPy and Numba but not warpdeck."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from ..core import expr
from ..core.errors import UsageError
from ..core.workload import Variant, Workload
from ..telemetry.parsing import parse_module
from ..telemetry.trace.unmarked import strip_text
from .choices import Choice

_PACKAGE = Path(__file__).resolve().parents[1]
_HELPERS = (expr.ceil_div, expr.round_up, expr.ilog2, expr.is_pow2)


def generate(workload: Workload, variant: Variant, choices: Sequence[Choice], about: Sequence[str]) -> str:
    """The file's text. `about`: lines for its docstring, the title first.

    Raises UsageError for sources that can't be put into one file.
    """
    derived, asked = _parameters(workload)
    buffers = [a for a in workload.arguments if a.kind == "buffer"]
    names = ", ".join(a.name for a in buffers)
    keywords = "".join(f", {name}: int" for name in asked)
    star = ", *" if asked else ""
    parts = [
        _docstring(about),
        _IMPORTS,
        *_sources(variant.file),
        "# -- what to run for which size " + "-" * 54,
        _table(workload, choices),
        *(inspect.getsource(helper).rstrip() for helper in _helpers(workload, variant)),
        _CHOOSE,
        _compiled(workload, variant),
        f"def {_identifier(workload.name)}({names}{star}{keywords}, stream=0):\n"
        + textwrap.indent(_run(workload, variant, derived), "    "),
        _main(workload, asked),
    ]
    text = "\n\n\n".join(part.strip("\n") for part in parts if part) + "\n"
    try:
        parse_module(text)
    except SyntaxError as error:
        raise UsageError(f"the sources of '{workload.name}' don't fit into one file: {error}") from None
    return text


def _docstring(about: Sequence[str]) -> str:
    title, *rest = [line.replace("\\", "/").replace('"""', "'''") for line in about]
    body = "\n".join(rest)
    usage = (
        "Needs NumPy and Numba with CUDA, nothing else. `python best.py [SIZE]` runs, checks and times it;\n"
        "import it to call the function on device arrays."
    )
    return f'"""{title}\n\n{body}\n\n{usage}\n"""'


# -- sources ----------------------------------------------------------------------------------------


def _sources(file: Path) -> Iterator[str]:
    """The variant's module and, before it, the modules of its own folder and of warpdeck that it imports."""
    defined: dict[str, Path] = {}
    done: list[Path] = []
    bodies: list[tuple[Path, str]] = []

    def visit(path: Path) -> None:
        if path in done:
            return
        done.append(path)
        text = strip_text(path.read_text(encoding="utf-8"), str(path))
        tree = parse_module(text, str(path))
        drop: list[tuple[int, int, str]] = []
        for node in ast.walk(tree):
            module = _own_module(node, path)
            if module is None:
                continue
            if not isinstance(node, ast.ImportFrom) or any(alias.name == "*" for alias in node.names):
                raise UsageError(
                    f"{path}:{getattr(node, 'lineno', 1)}: write `from {module.stem} import NAME…`; "
                    "a standalone file can't hold a whole module under a name"
                )
            visit(module)
            renamed = [f"{a.asname} = {a.name}" for a in node.names if a.asname and a.asname != a.name]
            drop.append((node.lineno, node.end_lineno or node.lineno, "; ".join(renamed)))
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                drop.append((node.lineno, node.end_lineno or node.lineno, ""))
            for name in _defines(node):
                if defined.setdefault(name, path) != path:
                    raise UsageError(f"{path} and {defined[name]} both define '{name}'; rename one of them")
        first = tree.body[0] if tree.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            drop.append((first.lineno, first.end_lineno or first.lineno, ""))  # the docstring
        lines = text.split("\n")
        for begin, end, instead in drop:
            indent = lines[begin - 1][: len(lines[begin - 1]) - len(lines[begin - 1].lstrip())]
            lines[begin - 1 : end] = [indent + instead if instead else ""] + [""] * (end - begin)
        body = "\n".join(line.rstrip() for line in lines).strip("\n")
        while "\n\n\n\n" in body:
            body = body.replace("\n\n\n\n", "\n\n\n")
        bodies.append((path, body))

    visit(file.resolve())
    for path, body in bodies:
        yield f"# -- {path.name} " + "-" * max(80 - len(path.name), 4)
        yield body


def _own_module(node: ast.AST, path: Path) -> Path | None:
    """The file of an imported module that has to be part of the text; None for an installed one."""
    if isinstance(node, ast.Import):
        found = [_module_file(alias.name, path.parent) for alias in node.names]
        return next((file for file in found if file), None)
    if isinstance(node, ast.ImportFrom):
        if node.level:
            return _module_file(node.module or "", path.parents[node.level - 1])
        return _module_file(node.module or "", path.parent)
    return None


def _module_file(module: str, folder: Path) -> Path | None:
    head, *tail = module.split(".")
    file = _PACKAGE.joinpath(*tail) if head == "warpdeck" else folder.joinpath(*module.split("."))
    file = file.with_suffix(".py")
    return file.resolve() if module and file.is_file() else None


def _defines(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            for part in ast.walk(target):
                if isinstance(part, ast.Name):
                    yield part.id


# -- the dispatch -----------------------------------------------------------------------------------


def _table(workload: Workload, choices: Sequence[Choice]) -> str:
    lines = []
    for choice in choices:
        key = tuple(choice.params[name] for name in workload.params)
        lines.append(f"    {key!r}: {dict(choice.config)!r},")
    return f"KNOBS = {{  # by case ({', '.join(workload.params)})\n" + "\n".join(lines) + "\n}"


_IMPORTS = """
from __future__ import annotations

import functools
import inspect
import math
import sys

import numpy as np
from numba import cuda
"""

_CHOOSE = '''
def knobs_for(*params):
    """The knobs of the nearest case, by the logarithm of each parameter."""
    def distance(case):
        return sum(abs(math.log(p / c)) for p, c in zip(params, case))
    return KNOBS[min(KNOBS, key=distance)]
'''.strip()


def _compiled(workload: Workload, variant: Variant) -> str:
    types = ", ".join(
        _type(a.dtype, -1 if a.kind == "scalar" else max(len(a.shape), 1))
        for a in workload.arguments
        if a.taken_by(variant.language)
    )
    entries = tuple(dict.fromkeys(launch.entry for launch in variant.launches))
    return f'''
ENTRIES = {entries!r}


def functions(knobs):
    """The Python function of every entry, for these knobs."""
    wanted = {{k: v for k, v in knobs.items() if k != "reg_cap"}}
    if "make" not in globals():
        return {{entry: globals()[entry] for entry in ENTRIES}}
    parameters = inspect.signature(make).parameters
    if "fastmath" not in parameters:
        wanted.pop("fastmath", None)
    made = make(**wanted)
    made = made if isinstance(made, dict) else dict.fromkeys(ENTRIES, made)
    return {{entry: getattr(f, "py_func", f) for entry, f in made.items()}}


@functools.cache
def kernels(*items):
    """Compiled kernels by entry, for (name, value) pairs of knobs; compiled once."""
    knobs = dict(items)
    options = {{"fastmath": bool(knobs.get("fastmath", 0)), "max_registers": knobs.get("reg_cap", 0) or None}}
    return {{e: cuda.jit("void({types})", **options)(f) for e, f in functions(knobs).items()}}
'''.strip()


def _type(dtype: str, rank: int) -> str:
    dtype = {"bool": "boolean"}.get(dtype, dtype)
    if rank < 0:
        return dtype
    return f"{dtype}[{', '.join([':'] * (rank - 1) + ['::1'])}]"


def _parameters(workload: Workload) -> tuple[dict[str, str], list[str]]:
    """Case parameters that a buffer's shape tells (name -> expression), and those that must be given."""
    derived: dict[str, str] = {}
    for argument in workload.arguments:
        if argument.kind == "buffer":
            for axis, text in enumerate(argument.shape):
                if text in workload.params:
                    derived.setdefault(text, f"{argument.name}.shape[{axis}]")
    return derived, [name for name in workload.params if name not in derived]


def _run(workload: Workload, variant: Variant, derived: dict[str, str]) -> str:
    lines = [f'"""{_summary(workload)}"""']
    lines += [f"{name} = {text}" for name, text in derived.items()]
    lines.append(f"knobs = knobs_for({', '.join(workload.params)})")
    used = sorted(
        {
            name
            for spec in variant.launches
            for text in (*spec.grid, *spec.block, spec.shared)
            for name in expr.compile_expr(text).names
        }
        - set(workload.params)
    )
    lines += [f'{name} = knobs["{name}"]' for name in used]
    for argument in workload.arguments:
        if argument.kind == "workspace":
            zeros = f"np.zeros({_shape(argument.shape)}, {argument.dtype!r})"
            lines.append(f"{argument.name} = cuda.to_device({zeros}, stream)")
    lines.append("kernel = kernels(*knobs.items())")
    values = []
    for argument in workload.arguments:
        if not argument.taken_by(variant.language):
            continue
        if argument.kind == "scalar":
            values.append(f"np.{argument.dtype}({argument.value or 0})")
        else:
            values.append(argument.name)
    for spec in variant.launches:
        grid, block = (", ".join(texts) + "," * (len(texts) == 1) for texts in (spec.grid, spec.block))
        lines.append(
            f'kernel["{spec.entry}"][({grid}), ({block}), stream, {spec.shared}]({", ".join(values)})'
        )
    return "\n".join(lines)


def _summary(workload: Workload) -> str:
    text = workload.description or workload.name
    return text.replace("\\", "/").replace('"', "'") + ". Buffers are device arrays, C-contiguous."


def _shape(shape: Sequence[str]) -> str:
    return "(" + ", ".join(shape) + ",)" if shape else "1"


def _helpers(workload: Workload, variant: Variant) -> list[Callable[..., object]]:
    """Functions of the expression language that the launches and shapes call."""
    texts = [text for spec in variant.launches for text in (*spec.grid, *spec.block, spec.shared)]
    texts += [text for argument in workload.arguments for text in argument.shape]
    texts += list(workload.sizes.values())
    needed: list[Callable[..., object]] = [
        helper for helper in _HELPERS if any(helper.__name__ in text for text in texts)
    ]
    if expr.round_up in needed and expr.ceil_div not in needed:
        needed.insert(0, expr.ceil_div)
    return needed


def _identifier(name: str) -> str:
    text = "".join(c if c.isalnum() else "_" for c in name)
    return text if text.isidentifier() and text not in ("make", "main", "reference") else f"run_{text}"


def _main(workload: Workload, asked: Sequence[str]) -> str:
    reference = (workload.folder / "reference.py").read_text(encoding="utf-8")
    reference = "\n".join(line for line in reference.split("\n") if "from __future__" not in line)
    buffers = [a for a in workload.arguments if a.kind == "buffer"]
    inputs = [a.name for a in buffers if a.direction in ("in", "inout")]
    outputs = [a.name for a in buffers if a.direction in ("out", "inout")]
    lines = [
        "if not cuda.is_available():",
        '    sys.exit("no CUDA GPU here, or no driver")',
        "size = int(sys.argv[1]) if len(sys.argv) > 1 else max(max(case) for case in KNOBS)",
        *(f"{name} = {text}" for name, text in workload.sizes.items()),
        "rng = np.random.default_rng(0)",
    ]
    for a in buffers:
        shape = _shape(a.shape)
        if a.name not in inputs:
            lines.append(f"{a.name} = np.zeros({shape}, {a.dtype!r})")
        elif np.dtype(a.dtype).kind == "f":
            draw = "random" if a.data == "uniform" else "standard_normal"
            lines.append(f"{a.name} = rng.{draw}({shape}).astype({a.dtype!r})")
        else:
            lines.append(f"{a.name} = rng.integers(0, 100, {shape}).astype({a.dtype!r})")
    function = _identifier(workload.name)
    keywords = "".join(f", {name}={name}" for name in asked)
    given = [
        f"{a.name}=np.{a.dtype}({a.value or 0})" if a.kind == "scalar" else f"{a.name}={a.name}"
        for a in workload.arguments
        if a.kind == "scalar" or a.name in inputs
    ]
    lines += [
        f"device = [cuda.to_device(array) for array in ({', '.join(a.name for a in buffers)},)]",
        "reference = reference_function()",
        f"arguments = dict({', '.join(given)})",
        "taken = inspect.signature(reference).parameters",
        "expected = reference(**{k: v for k, v in arguments.items() if k in taken})",
        f"expected = expected if isinstance(expected, dict) else {{{outputs[0]!r}: expected}}",
        f"{function}(*device{keywords})",
        "cuda.synchronize()",
    ]
    for a in buffers:
        if a.name in outputs:
            index = [b.name for b in buffers].index(a.name)
            lines += [
                f"error = np.abs(device[{index}].copy_to_host() - expected[{a.name!r}]).max()",
                f"scale = max(np.abs(expected[{a.name!r}]).max(), 1e-30)",
                f'print(f"{a.name}: error at most {{error:.3g}}, {{error / scale:.3g}} of the largest")',
            ]
    lines += [
        "times = []",
        "for _ in range(20):",
        "    start, end = cuda.event(), cuda.event()",
        "    start.record()",
        f"    {function}(*device{keywords})",
        "    end.record()",
        "    end.synchronize()",
        "    times.append(cuda.event_elapsed_time(start, end))",
        'print(f"median of 20 calls, launch included: {np.median(times) * 1e3:.1f} µs")',
    ]
    body = textwrap.indent("\n".join(lines), "    ")
    return (
        "def reference_function():\n"
        f"{textwrap.indent(reference.strip(chr(10)), '    ')}\n\n    return reference\n\n\n"
        f'def main():\n    """Run once against NumPy, then time."""\n{body}\n\n\n'
        'if __name__ == "__main__":\n    main()'
    )
