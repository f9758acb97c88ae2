"""Device intrinsics that Numba lacks: vector accesses of 4 to 16 bytes, cache hints, warp sums.

All offsets count float32 elements from the array's first one, whatever its rank (arrays are
C-contiguous). There are no bounds checks and no negative indices. A vector access of `width` elements
needs an address that is a multiple of `4 * width` bytes: check the row pitch first, and declare shared
and local arrays with `alignment=16`. Accesses to shared and local arrays stay in their own address
space (`ld.shared.v4`, or registers once loops are unrolled), since NVVM infers it.
"""

# Device code: Numba's stubs describe the host's side of these calls.
# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportOptionalSubscript=false, reportIndexIssue=false, reportReturnType=false

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import cuda, types
from numba.cuda.extending import intrinsic

WIDTHS = (1, 2, 4)
ALL_LANES = 0xFFFFFFFF

_F32 = ir.FloatType()
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, offset_type: Any, offset: Any) -> Any:
    """The address of element `offset` of a float32 array, as a `float*`."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [context.cast(builder, offset, offset_type, types.int64)])


def _lanes(builder: Any, vector: Any, width: int) -> list[Any]:
    return [builder.extract_element(vector, ir.Constant(_I32, i)) for i in range(width)]


def _make_copy(width: int) -> Any:
    vector = ir.VectorType(_F32, width).as_pointer() if width > 1 else _F32.as_pointer()

    @intrinsic
    def copy(typing_context, target, i, source, j):
        def codegen(context, builder, signature, args):
            kinds = signature.args
            to = builder.bitcast(_pointer(context, builder, kinds[0], args[0], kinds[1], args[1]), vector)
            at = builder.bitcast(_pointer(context, builder, kinds[2], args[2], kinds[3], args[3]), vector)
            builder.store(builder.load(at, align=4 * width), to, align=4 * width)
            return context.get_dummy_value()

        return types.void(target, i, source, j), codegen

    return copy


def _make_streaming_load(width: int) -> Any:
    suffix = "" if width == 1 else f".v{width}"
    names = ", ".join(f"${i}" for i in range(width))
    result = names if width == 1 else "{" + names + "}"
    text = f"ld.global.cs{suffix}.f32 {result}, [${width}];"
    constraints = ",".join(["=f"] * width + ["l"])
    returns = _F32 if width == 1 else ir.LiteralStructType([_F32] * width)
    asm = ir.InlineAsm(ir.FunctionType(returns, [_I64]), text, constraints)

    @intrinsic
    def load(typing_context, target, i, source, j):
        def codegen(context, builder, signature, args):
            kinds = signature.args
            to = _pointer(context, builder, kinds[0], args[0], kinds[1], args[1])
            at = _pointer(context, builder, kinds[2], args[2], kinds[3], args[3])
            values = builder.call(asm, [builder.ptrtoint(at, _I64)])
            for lane in range(width):
                value = values if width == 1 else builder.extract_value(values, lane)
                builder.store(value, builder.gep(to, [ir.Constant(_I64, lane)]))
            return context.get_dummy_value()

        return types.void(target, i, source, j), codegen

    return load


def _make_streaming_store(width: int) -> Any:
    suffix = "" if width == 1 else f".v{width}"
    names = ", ".join(f"${i + 1}" for i in range(width))
    operand = names if width == 1 else "{" + names + "}"
    text = f"st.global.cs{suffix}.f32 [$0], {operand};"
    constraints = ",".join(["l"] + ["f"] * width + ["~{memory}"])
    kind = ir.FunctionType(ir.VoidType(), [_I64] + [_F32] * width)
    asm = ir.InlineAsm(kind, text, constraints, side_effect=True)

    @intrinsic
    def store(typing_context, target, i, source, j):
        def codegen(context, builder, signature, args):
            kinds = signature.args
            to = _pointer(context, builder, kinds[0], args[0], kinds[1], args[1])
            at = _pointer(context, builder, kinds[2], args[2], kinds[3], args[3])
            values = [builder.load(builder.gep(at, [ir.Constant(_I64, i)])) for i in range(width)]
            builder.call(asm, [builder.ptrtoint(to, _I64), *values])
            return context.get_dummy_value()

        return types.void(target, i, source, j), codegen

    return store


# `move(target, i, source, j)`: copy `width` consecutive elements from source[j…] to target[i…].
COPY = {width: _make_copy(width) for width in WIDTHS}
# The same from global memory into a local array, marked as read once, so that L1 and L2 evict it first.
LOAD_STREAMING = {width: _make_streaming_load(width) for width in WIDTHS}
# The same from a local array into global memory, marked as not read again soon.
STORE_STREAMING = {width: _make_streaming_store(width) for width in WIDTHS}


@intrinsic
def load_flat(typing_context, array, offset):
    """Element `offset` of a C-contiguous float32 array of any rank."""

    def codegen(context, builder, signature, args):
        kinds = signature.args
        return builder.load(_pointer(context, builder, kinds[0], args[0], kinds[1], args[1]), align=4)

    return types.float32(array, offset), codegen


@intrinsic
def store_flat(typing_context, array, offset, value):
    """Set element `offset` of a C-contiguous float32 array of any rank."""

    def codegen(context, builder, signature, args):
        kinds = signature.args
        builder.store(args[2], _pointer(context, builder, kinds[0], args[0], kinds[1], args[1]), align=4)
        return context.get_dummy_value()

    return types.void(array, offset, types.float32), codegen


@cuda.jit(device=True, forceinline=True)
def warp_sum(value):
    """The sum of a warp's 32 values, in every lane, by the same tree in each (all lanes take part)."""
    value += cuda.shfl_xor_sync(ALL_LANES, value, 16)
    value += cuda.shfl_xor_sync(ALL_LANES, value, 8)
    value += cuda.shfl_xor_sync(ALL_LANES, value, 4)
    value += cuda.shfl_xor_sync(ALL_LANES, value, 2)
    value += cuda.shfl_xor_sync(ALL_LANES, value, 1)
    return value


@cuda.jit(device=True, forceinline=True)
def warp_max(value):
    """The maximum of a warp's 32 values, in every lane (all lanes take part)."""
    value = max(value, cuda.shfl_xor_sync(ALL_LANES, value, 16))
    value = max(value, cuda.shfl_xor_sync(ALL_LANES, value, 8))
    value = max(value, cuda.shfl_xor_sync(ALL_LANES, value, 4))
    value = max(value, cuda.shfl_xor_sync(ALL_LANES, value, 2))
    return max(value, cuda.shfl_xor_sync(ALL_LANES, value, 1))
