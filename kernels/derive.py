"""What a workload's missing parts must be, as far as the others say: launches, shapes, directions, cases."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.errors import UsageError
from ..core.workload import Argument
from ..telemetry.parsing import parse_module
from .signature import Signature

BLOCK_1D = 256
BLOCK_2D = (16, 16)  # x, y
ODD = (37, 65, 19, 101, 11, 53)  # extents of the case "odd", by parameter; no two alike
EVEN = (64, 96, 32, 128, 16, 48)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_CONSTANT = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\d+)[ \t]*$"
    r"|\b(?:constexpr|const)\s+(?:static\s+)?(?:unsigned\s+)?int\s+(\w+)\s*=\s*(\d+)\s*;",
    re.MULTILINE,
)


def directions(signature: Signature, reference: str | None) -> Signature:
    """Outputs that the reference takes as arguments are read too: `inout`."""
    read = parameters_of(reference)
    arguments = tuple(
        replace(a, direction="inout") if a.direction == "out" and a.name in read else a
        for a in signature.arguments
    )
    return replace(signature, arguments=arguments)


def parameters_of(reference: str | None) -> frozenset[str]:
    """Names of the parameters of a reference's function `reference`; empty if it can't be parsed."""
    try:
        tree = parse_module(reference or "")
    except (SyntaxError, ValueError):
        return frozenset()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "reference":
            every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            return frozenset(a.arg for a in every)
    return frozenset()


def only_shape(signature: Signature) -> Mapping[str, tuple[str, ...]]:
    """Of a kernel with a single integer parameter: every buffer has that many elements. Else nothing."""
    whole = [a for a in signature.arguments if a.kind == "scalar" and not a.dtype.startswith("float")]
    if len(whole) != 1:
        return {}
    return dict.fromkeys(signature.shapeless, (whole[0].name,))


def cases(params: Sequence[str]) -> list[dict[str, Any]]:
    """Two correctness cases, one of odd and one of even extents, all different."""
    return [
        {"name": name, "role": "correctness", **{p: values[i % len(values)] for i, p in enumerate(params)}}
        for name, values in (("odd", ODD), ("even", EVEN))
    ]


def launch(source: str, entry: str, output: Argument) -> dict[str, Any]:
    """Grid and block of a kernel that gives each thread, or each block, a part of its output.

    It reads how the kernel uses `blockIdx`: times `blockDim` or a constant, a thread works on an element (the
    constant is the block's extent); alone, a block works on a row.

    Raises:
        UsageError: it uses three dimensions, or more than the output has.
    """
    text = _COMMENT.sub(" ", source)
    used = [axis for axis in "xyz" if re.search(rf"\b(?:blockIdx|threadIdx)\.{axis}\b", text)]
    deepest = max(("xyz".index(axis) + 1 for axis in used), default=1)
    if deepest > 2 or deepest > len(output.shape):
        raise UsageError(
            f"the launch of {entry!r} can't be derived: it uses {deepest} dimensions; give "
            '"launch": {"grid": […], "block": […]} in --config'
        )
    constants = {m[1] or m[3]: int(m[2] or m[4]) for m in _CONSTANT.finditer(text)}
    if deepest == 1:
        extents = [" * ".join(_factor(e) for e in output.shape)]
        defaults: tuple[int, ...] = (BLOCK_1D,)
        if not _scaled(text, "x") and re.search(r"\bblockIdx\.x\b", text):
            return {"grid": [output.shape[0]], "block": [BLOCK_1D]}  # a row a block
    else:
        columns = output.shape[-1]
        extents = [columns, " * ".join(_factor(e) for e in output.shape[:-1])]
        defaults = BLOCK_2D
    grid, block = [], []
    for axis, extent, default in zip("xy", extents, defaults, strict=False):
        factor = _scaled(text, axis)
        threads = constants.get(factor or "", int(factor) if factor and factor.isdecimal() else default)
        if factor is None and re.search(rf"\bblockIdx\.{axis}\b", text):
            grid.append(extent)
            block.append(1)
        else:
            grid.append(f"ceil_div({extent}, {threads})")
            block.append(threads)
    return {"grid": grid, "block": block}


def _scaled(text: str, axis: str) -> str | None:
    """What blockIdx is multiplied with: `blockDim.x`, a number or a name."""
    match = re.search(
        rf"\bblockIdx\.{axis}\s*\*\s*([\w.]+)|([\w.]+)\s*\*\s*(?:\(\w+(?:\s\w+)*\)\s*)?blockIdx\.{axis}\b",
        text,
    )
    return (match[1] or match[2]) if match else None


def _factor(text: str) -> str:
    return text if re.fullmatch(r"\w+", text) else f"({text})"
