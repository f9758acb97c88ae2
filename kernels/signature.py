"""A kernel's signature: read from a CUDA C prototype, from a kernel's source, or from JSON.

The grammar is a prototype's, with shapes in brackets behind a buffer's name and values behind a scalar's:

    signature  := ['extern "C"'] ['__global__'] 'void' NAME '(' parameter {',' parameter} ')' [';' | body]
    parameter  := {qualifier} TYPE {qualifier | '*'} NAME {'[' EXPRESSION ']'} ['=' EXPRESSION]
    qualifier  := 'const' | 'in' | 'out' | 'inout' | 'workspace' | '__restrict__' | '__restrict' | 'volatile'

A parameter with `*` or brackets is a buffer: `const` or `in` is read, `out` written, `inout` both; without
any of them it is an output. Another is a scalar: an integer without a value has that of the case parameter of
its name, a floating-point one needs a value. Expressions are workload.toml's, over case parameters:

    void gemm(const float A[m][k], const float B[k][n], float C[m][n], int m, int n, int k)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..core.errors import UsageError
from ..core.expr import compile_expr
from ..core.workload import Argument

TYPES = {
    "bool": "bool",
    "char": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "int": "int32",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "long long": "int64",
    "unsigned long long": "uint64",
    "size_t": "uint64",
    "half": "float16",
    "__half": "float16",
    "float": "float32",
    "double": "float64",
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
# The other way round: what CUDA C++ calls a type.
CTYPES: Mapping[str, str] = {
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float16": "__half",
    "float32": "float",
    "float64": "double",
    "complex64": "float2",
    "complex128": "double2",
}
DIRECTIONS = ("in", "out", "inout", "workspace")
_SCALARS = ("int32", "int64", "uint32", "uint64", "float32", "float64")
_IGNORED = ("__restrict__", "__restrict", "restrict", "volatile", "struct")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*$", re.MULTILINE | re.DOTALL)
_BOUNDS = r"(?:__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s*)?"
_KERNEL = re.compile(rf"__global__\s+{_BOUNDS}void\s+{_BOUNDS}([A-Za-z_]\w*)\s*\(")
_PROTOTYPE = re.compile(
    rf'\s*(?:extern\s*"C"\s*)?(?:__global__\s+)?{_BOUNDS}(?:void\s+)?{_BOUNDS}([A-Za-z_]\w*)\s*\('
)
_KEYS = ("name", "kind", "dtype", "shape", "direction", "data", "value")


@dataclass(frozen=True)
class Signature:
    """A kernel's name and parameters. A buffer whose shape isn't known yet has none."""

    entry: str
    arguments: tuple[Argument, ...]

    @property
    def shapeless(self) -> tuple[str, ...]:
        """Names of the buffers without a shape."""
        return tuple(a.name for a in self.arguments if a.kind != "scalar" and not a.shape)

    @property
    def params(self) -> tuple[str, ...]:
        """The case parameters that shapes and scalars name, in order of appearance."""
        texts = [t for a in self.arguments for t in (*a.shape, *([a.value] if a.value else []))]
        return tuple(dict.fromkeys(name for t in texts for name in _names_in_order(t)))

    def with_shapes(self, shapes: Mapping[str, tuple[str, ...]]) -> Signature:
        """With these shapes where there is none yet."""
        arguments = tuple(
            replace(a, shape=shapes[a.name]) if a.name in shapes and a.kind != "scalar" and not a.shape else a
            for a in self.arguments
        )
        return replace(self, arguments=arguments)

    def text(self) -> str:
        """As a prototype that `parse_signature` reads."""
        return f"void {self.entry}({', '.join(_parameter_text(a) for a in self.arguments)})"


def parse_signature(text: str, where: str = "signature") -> Signature:
    """A signature from a prototype or JSON (`{"name": …, "arguments": [{…}]}`, keys as in workload.toml).

    Args:
        text: what the user wrote.
        where: what an error names as its place, a file for instance.

    Raises:
        UsageError: it is neither; says which parameter, and what to write.
    """
    if text.lstrip().startswith(("{", "[")):
        return _from_json(text, where)
    return _prototype(_COMMENT.sub(" ", text), where)


def signature_of(source: str, where: str, entry: str | None = None) -> Signature:
    """The signature of a kernel in CUDA C++: the named one, else the first. Its buffers have no shapes.

    Raises UsageError: no such kernel, or parameters that no workload can give it.
    """
    text = _DIRECTIVE.sub("", _COMMENT.sub(" ", source))
    names = []
    for match in _KERNEL.finditer(text):
        names.append(match[1])
        if entry in (None, match[1]):
            return _prototype(text[match.start() :], where)
    if entry is not None and names:
        raise UsageError(f"{where}: no kernel {entry!r}; it has {', '.join(dict.fromkeys(names))}")
    raise UsageError(f'{where}: no kernel in it; write extern "C" __global__ void NAME(…)')


def kernels_in(source: str) -> tuple[str, ...]:
    """Names of the `__global__` functions of a CUDA C++ source, in order."""
    text = _DIRECTIVE.sub("", _COMMENT.sub(" ", source))
    return tuple(dict.fromkeys(match[1] for match in _KERNEL.finditer(text)))


def _prototype(text: str, where: str) -> Signature:
    match = _PROTOTYPE.match(text)
    if match is None:
        raise UsageError(f"{where}: not a prototype; write for example void axpy(const float x[n], int n)")
    inside = _parenthesised(text, match.end(), where)
    parts = [part for part in _split(inside) if part.strip()]
    arguments = tuple(_parameter(part.strip(), where) for part in parts)
    return _sound(Signature(match[1], arguments), where)


def _parenthesised(text: str, start: int, where: str) -> str:
    depth = 1
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return text[start:i]
    raise UsageError(f"{where}: the parameter list isn't closed; write )")


def _split(text: str) -> list[str]:
    """At the commas that are in no brackets."""
    parts, depth, last = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(text[last:i])
            last = i + 1
    return [*parts, text[last:]]


def _parameter(text: str, where: str) -> Argument:
    declaration, equals, value = _at_value(text)
    shape = tuple(part.strip() for part in re.findall(r"\[([^\[\]]*)\]", declaration))
    head = re.sub(r"\[[^\[\]]*\]", " ", declaration)
    stars = head.count("*")
    words = [w for w in head.replace("*", " ").split() if w not in _IGNORED]
    marks = [w for w in words if w in (*DIRECTIONS, "const")]
    words = [w for w in words if w not in (*DIRECTIONS, "const")]
    if len(words) < 2 or not words[-1].isidentifier():
        raise UsageError(f"{where}: parameter {text!r}: write a type and a name, as in const float x[n]")
    name, dtype = words[-1], TYPES.get(" ".join(words[:-1]))
    if dtype is None:
        raise UsageError(
            f"{where}: parameter {name!r}: no argument can have the type {' '.join(words[:-1])!r}; "
            f"use one of {', '.join(list(TYPES)[:16])}"
        )
    if stars > 1:
        raise UsageError(f"{where}: parameter {name!r}: a pointer to pointers can't be filled; use one *")
    if not stars and not shape:
        directions = [m for m in marks if m in DIRECTIONS and m != "in"]
        if directions:
            raise UsageError(f"{where}: parameter {name!r}: a scalar can't be {directions[0]}; write a *")
        return _scalar(name, dtype, value.strip() if equals else None, where)
    if equals:
        raise UsageError(f"{where}: buffer {name!r} has no value; its data are drawn")
    if any(not s for s in shape):
        raise UsageError(f"{where}: buffer {name!r}: an empty []; write each extent, as in {name}[n]")
    direction = next((m for m in marks if m in DIRECTIONS), "in" if "const" in marks else "out")
    return _buffer(name, dtype, shape, direction)


def _at_value(text: str) -> tuple[str, str, str]:
    match = re.search(r"(?<![=<>!])=(?!=)", text)
    return (text, "", "") if match is None else (text[: match.start()], "=", text[match.end() :])


def _buffer(name: str, dtype: str, shape: tuple[str, ...], direction: str) -> Argument:
    if direction == "workspace":
        return Argument(name, "workspace", dtype, shape, direction="inout", data="zeros")
    data = "normal" if dtype.startswith("float") else "integers"
    return Argument(name, "buffer", dtype, shape, direction, data)


def _scalar(name: str, dtype: str, value: str | None, where: str) -> Argument:
    if dtype not in _SCALARS:
        raise UsageError(f"{where}: scalar {name!r}: {dtype} isn't one of {', '.join(_SCALARS)}")
    if value is None and not dtype.startswith("float"):
        value = name
    return Argument(name, "scalar", dtype, value=value)


def _sound(found: Signature, where: str) -> Signature:
    names = [a.name for a in found.arguments]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise UsageError(f"{where}: parameter {twice!r} occurs twice; rename one")
    if not any(a.is_output for a in found.arguments):
        raise UsageError(f"{where}: {found.entry} writes nothing; a buffer without const is an output")
    for a in found.arguments:
        for text in (*a.shape, *([a.value] if a.value else [])):
            try:
                compile_expr(text)
            except UsageError as e:
                raise UsageError(f"{where}: parameter {a.name!r}: {e}") from None
        if len(a.shape) > 4:
            raise UsageError(f"{where}: buffer {a.name!r} has {len(a.shape)} extents; at most 4")
    return found


def _from_json(text: str, where: str) -> Signature:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise UsageError(f"{where}: not valid JSON: {e}") from None
    rows: Any = data.get("arguments") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(data.get("name"), str) or not isinstance(rows, list):
        raise UsageError(f'{where}: write {{"name": "axpy", "arguments": [{{"name": "x", …}}]}}')
    return _sound(Signature(data["name"], tuple(_row(row, i, where) for i, row in enumerate(rows))), where)


def _row(row: Any, number: int, where: str) -> Argument:
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        raise UsageError(f"{where}: argument {number + 1}: write an object with a name")
    name, place = row["name"], f"{where}: argument {row['name']!r}"
    unknown = next((k for k in row if k not in _KEYS), None)
    if unknown is not None:
        raise UsageError(f"{place}: unknown key {unknown!r}; the keys are {', '.join(_KEYS)}")
    if not name.isidentifier():
        raise UsageError(f"{place}: not a name; use letters, digits and _")
    dtype = TYPES.get(str(row.get("dtype")), str(row.get("dtype")))
    if dtype not in TYPES.values():
        raise UsageError(f"{place}: dtype {dtype!r} isn't one of {', '.join(dict.fromkeys(TYPES.values()))}")
    kind = row.get("kind", "buffer" if "shape" in row else "scalar")
    if kind == "scalar":
        value = row.get("value")
        return _scalar(name, dtype, None if value is None else str(value), where)
    shape = row.get("shape", [])
    if kind not in ("buffer", "workspace") or not isinstance(shape, list):
        raise UsageError(f"{place}: kind is buffer, scalar or workspace, and shape a list of expressions")
    direction = "workspace" if kind == "workspace" else row.get("direction", "in")
    if direction not in DIRECTIONS:
        raise UsageError(f"{place}: direction is in, out or inout, not {direction!r}")
    buffer = _buffer(name, dtype, tuple(str(s) for s in shape), direction)
    data = row.get("data")
    return buffer if data is None or kind == "workspace" else replace(buffer, data=str(data))


def _parameter_text(a: Argument) -> str:
    c_type = next(c for c, numpy in TYPES.items() if numpy == a.dtype)
    if a.kind == "scalar":
        return f"{c_type} {a.name}" + ("" if a.value in (None, a.name) else f" = {a.value}")
    mark = (
        "workspace" if a.kind == "workspace" else {"in": "const", "out": "out", "inout": "inout"}[a.direction]
    )
    extents = "".join(f"[{text}]" for text in a.shape)
    return f"{mark} {c_type} {'' if extents else '*'}{a.name}{extents}"


def _names_in_order(text: str) -> list[str]:
    names = compile_expr(text).names
    return [word for word in re.findall(r"[A-Za-z_]\w*", text) if word in names]
