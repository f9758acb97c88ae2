"""How a kernel's arguments are laid out for `cuLaunchKernel`, per language.

CUDA C++ takes one parameter per argument: a device pointer, or the scalar. Numba flattens an array of
rank r into 5 + 2r parameters: meminfo pointer (0), parent pointer (0), number of items (i64), bytes per
item (i64), data pointer, then r extents and r strides in bytes (i64); a scalar stays one parameter.

A traced kernel takes a trace's descriptor after these: one of 32 bytes, in Numba four of 8.

The GPU worker imports this module: it needs neither Numba nor the CUDA bindings.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

_SCALARS: Mapping[str, Any] = {
    "bool": ctypes.c_uint8,
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
    "int16": ctypes.c_int16,
    "uint16": ctypes.c_uint16,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}
_ITEM_BYTES = {name: ctypes.sizeof(kind) for name, kind in _SCALARS.items()} | {
    "float16": 2,
    "complex64": 8,
    "complex128": 16,
}
# Bytes of the parameters that a traced kernel has more, per language.
DESCRIPTOR: Mapping[str, tuple[int, ...]] = {"cuda": (32,), "numba": (8, 8, 8, 8)}


class ArgumentLike(Protocol):
    """What is needed of a `workload.Argument`."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    def taken_by(self, language: str, /) -> bool: ...


def item_bytes(dtype: str) -> int:
    """Bytes of one element. Raises ValueError for a type that kernels here can't take."""
    try:
        return _ITEM_BYTES[dtype]
    except KeyError:
        raise ValueError(f"no kernel argument of type {dtype!r}; known: {', '.join(_ITEM_BYTES)}") from None


def signature(
    language: str, arguments: Sequence[ArgumentLike], ranks: Mapping[str, int]
) -> list[tuple[str, str]]:
    """The flattened parameters, in order, as (what, type): for documentation, checks and traces.

    `ranks` gives every buffer's and workspace's number of dimensions.
    """
    flat: list[tuple[str, str]] = []
    for argument in arguments:
        if not argument.taken_by(language):
            continue
        name = argument.name
        if argument.kind == "scalar":
            flat.append((name, argument.dtype))
        elif language == "cuda":
            flat.append((name, f"{argument.dtype}*"))
        else:
            rank = max(ranks[name], 1)
            flat += [(f"{name}.meminfo", "void*"), (f"{name}.parent", "void*")]
            flat += [(f"{name}.nitems", "int64"), (f"{name}.itemsize", "int64")]
            flat.append((f"{name}.data", f"{argument.dtype}*"))
            flat += [(f"{name}.shape[{axis}]", "int64") for axis in range(rank)]
            flat += [(f"{name}.strides[{axis}]", "int64") for axis in range(rank)]
    return flat


def pack_arguments(
    language: str,
    arguments: Sequence[ArgumentLike],
    pointers: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]],
    scalars: Mapping[str, int | float],
    trace: Sequence[int] = (),
) -> tuple[ctypes.Array[ctypes.c_void_p], list[Any]]:
    """The `kernelParams` of one launch.

    Args:
        language: "numba" or "cuda".
        arguments: The workload's, in order; those for another language are left out.
        pointers: Device address of every buffer and workspace.
        shapes: Extents of every buffer and workspace; C-contiguous. A rank of 0 counts as (1,).
        scalars: Value of every scalar.
        trace: The trace's descriptor of a traced kernel, as four integers of 64 bits.

    Returns:
        The array of addresses to pass, and the values it points to, which must outlive the launch call.

    Raises:
        KeyError: a buffer has no pointer or shape, or a scalar no value.
        ValueError: an unknown language or type, or a scalar that doesn't fit its type.
    """
    if language not in ("numba", "cuda"):
        raise ValueError(f"unknown language {language!r}; known: numba, cuda")
    values: list[Any] = []
    for argument in arguments:
        if not argument.taken_by(language):
            continue
        if argument.kind == "scalar":
            values.append(_scalar(argument, scalars[argument.name]))
            continue
        pointer = ctypes.c_void_p(int(pointers[argument.name]))
        if language == "cuda":
            values.append(pointer)
            continue
        item = item_bytes(argument.dtype)
        shape = [int(extent) for extent in shapes[argument.name]] or [1]
        strides = [math.prod(shape[axis + 1 :]) * item for axis in range(len(shape))]
        values += [ctypes.c_void_p(0), ctypes.c_void_p(0)]
        values += [ctypes.c_int64(math.prod(shape)), ctypes.c_int64(item), pointer]
        values += [ctypes.c_int64(number) for number in (*shape, *strides)]
    if trace:
        words = (ctypes.c_uint64 * len(trace))(*trace)
        values += [words] if language == "cuda" else [ctypes.c_uint64(word) for word in trace]
    packed = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    return packed, values


def _scalar(argument: ArgumentLike, value: int | float) -> Any:
    kind = _SCALARS.get(argument.dtype)
    if kind is None:
        raise ValueError(
            f"{argument.name}: no scalar argument of type {argument.dtype!r}; known: {', '.join(_SCALARS)}"
        )
    if kind in (ctypes.c_float, ctypes.c_double):
        return kind(float(value))
    packed = kind(int(value))
    if packed.value != int(value):
        raise ValueError(f"{argument.name} = {value} doesn't fit {argument.dtype}")
    return packed
