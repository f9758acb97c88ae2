"""What a traced Numba kernel calls in place of its stage markers (see `layout.py` for the bytes).

A thread's state is two numbers: where the next record goes, and how many more there is room for (negative
once some were dropped). Both are 0 at first but in lane 0 of a traced warp. `next + 8 * left` never changes:
it is the end of the row, or 0. Every record is one inline-assembly statement with the clock read and the
store, so that nothing comes between them; the branch over them becomes a predicate. No fences, atomics or
barriers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic

from . import layout

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_STATE = types.Tuple((types.uint64, types.int32))
_AT = {name: place[1] for name, place in (layout.HEADER.fields or {}).items()}  # bytes from a row's begin

# Both clocks, the timer between two reads of the counter: tm, c0 and gap. Volatile reads keep their order.
# All 64 bits of the last one are used: for its low half alone the compiler takes a slower read (S2UR).
_CLOCKS = """
mov.u64 c0, %clock64;
mov.u64 tm, %globaltimer;
mov.u64 c1, %clock64;
sub.u64 c1, c1, c0;
min.u64 c1, c1, 4294967295;
cvt.u32.u64 gap, c1;
"""

# $2 to $5 are the descriptor. Most CTAs aren't traced, so that is found out before anything else.
_BEGIN = f"""{{
.reg .pred p;
.reg .b32 t, u, cta, warp, warps, sm, cap, bytes, first, inverse, number, mask, low, gap;
.reg .b64 row, wide, tm, c0, c1;
mov.u64 $0, 0;
mov.u32 $1, 0;
mov.b64 {{first, inverse}}, $4;
mov.b64 {{number, mask}}, $5;
mov.u32 cta, %ctaid.z;
mov.u32 u, %nctaid.y;
mov.u32 low, %ctaid.y;
mad.lo.u32 cta, cta, u, low;
mov.u32 u, %nctaid.x;
mov.u32 low, %ctaid.x;
mad.lo.u32 cta, cta, u, low;
sub.u32 first, cta, first;
mul.lo.u32 first, first, inverse;
setp.ge.u32 p, first, number;
@p bra done;
mov.u32 t, %tid.z;
mov.u32 u, %ntid.y;
mov.u32 warp, %tid.y;
mad.lo.u32 t, t, u, warp;
mov.u32 warps, %ntid.x;
mov.u32 warp, %tid.x;
mad.lo.u32 t, t, warps, warp;
shr.u32 warp, t, 5;
and.b32 t, t, 31;
shr.u32 low, mask, warp;
and.b32 low, low, 1;
setp.eq.u32 p, t, 0;
setp.ne.and.u32 p, low, 0, p;
setp.ne.and.u64 p, $2, 0, p;
@!p bra done;
mov.b64 {{cap, bytes}}, $3;
mov.u32 low, 1;
shl.b32 low, low, warp;
sub.u32 low, low, 1;
and.b32 low, low, mask;
popc.b32 low, low;
popc.b32 u, mask;
mad.lo.u32 t, first, u, low;
mul.wide.u32 wide, t, bytes;
add.u64 row, $2, wide;
mov.u32 u, %ntid.y;
mul.lo.u32 warps, warps, u;
mov.u32 u, %ntid.z;
mad.lo.u32 warps, warps, u, 31;
shr.u32 warps, warps, 5;
mov.u32 sm, %smid;
add.u64 $0, row, {layout.HEADER_BYTES};
mov.u32 $1, cap;
st.global.v4.u32 [row], {{{layout.MAGIC_OPEN}, sm, cta, warp}};
{_CLOCKS}
st.global.v2.u64 [row+{_AT["time_begin"]}], {{tm, c0}};
st.global.v4.u32 [row+{_AT["count"]}], {{0, gap, 0, warps}};
done:
}}"""

_FINISH = f"""{{
.reg .pred p;
.reg .b32 gap, cap, count;
.reg .b64 row, tm, c0, c1;
mad.wide.s32 row, $2, {layout.RECORD_BYTES}, $1;
setp.eq.u64 p, row, 0;
@p bra done;
{_CLOCKS}
cvt.u32.u64 cap, $0;
sub.u32 count, cap, $2;
mul.wide.u32 c1, cap, {layout.RECORD_BYTES};
sub.u64 row, row, c1;
st.global.v2.u64 [row+{_AT["time_end"] - layout.HEADER_BYTES}], {{tm, c0}};
st.global.u32 [row+{_AT["count"] - layout.HEADER_BYTES}], count;
st.global.u32 [row+{_AT["gap_end"] - layout.HEADER_BYTES}], gap;
st.global.u32 [row+{-layout.HEADER_BYTES}], {layout.MAGIC_CLOSED};
done:
}}"""

# $0: whether there is room.
_RECORD = """{
.reg .pred room;
.reg .b32 now;
setp.ne.u32 room, $0, 0;
@!room bra done;
mov.u32 now, %clock;
st.global.cs.v2.u32 [$1], {now, $2};
done:
}"""

# The end of a range: with the timer, read right behind the clock.
_RECORD_END = f"""{{
.reg .pred room;
.reg .b32 now, time;
setp.ne.u32 room, $0, 0;
@!room bra done;
mov.u32 now, %clock;
mov.u32 time, %globaltimer_lo;
shr.u32 time, time, {layout.TIME_SHIFT};
lop3.b32 time, time, {layout.PAYLOAD_MASK}, $2, 0xea;
st.global.cs.v2.u32 [$1], {{now, time}};
done:
}}"""

_RAW = layout.word(layout.KIND_EXTENDED, 0, layout.SUB_RAW << layout.SUB_SHIFT)
# A value's second record: the number where others have the clock.
_RECORD_RAW = f"""{{
.reg .pred room;
setp.ne.u32 room, $0, 0;
@room st.global.cs.v2.u32 [$1], {{$2, {_RAW}}};
}}"""


def _assembly(text: str, result: Any, arguments: list[Any], constraints: str) -> Any:
    return ir.InlineAsm(ir.FunctionType(result, arguments), text, constraints, side_effect=True)


_begin = _assembly(_BEGIN, ir.LiteralStructType([_I64, _I32]), [_I64] * 4, "=&l,=&r,l,l,l,l,~{memory}")
_end = _assembly(_FINISH, ir.VoidType(), [_I64, _I64, _I32], "l,l,r,~{memory}")
_record, _record_end, _record_raw = (
    _assembly(text, ir.VoidType(), [_I32, _I64, _I32], "r,l,r,~{memory}")
    for text in (_RECORD, _RECORD_END, _RECORD_RAW)
)


_settle = _assembly("bar.warp.sync 0xffffffff;", ir.VoidType(), [], "~{memory}")


def _word(context: Any, builder: Any, value: Any, kind: Any) -> Any:
    """A whole number's low 32 bits."""
    return context.cast(builder, value, kind, types.uint32)


def _written(builder: Any, assembly: Any, state: Any, word: Any) -> Any:
    """Write one record. Returns the state after it.

    The comparison is left to LLVM, which then subtracts only once for several records in a row.
    """
    following, left = state
    room = builder.zext(builder.icmp_signed(">", left, ir.Constant(_I32, 0)), _I32)
    builder.call(assembly, [room, following, word])
    return (
        builder.add(following, ir.Constant(_I64, layout.RECORD_BYTES)),
        builder.sub(left, ir.Constant(_I32, 1), flags=["nsw"]),
    )


@intrinsic
def begin(typing_context, rows, sizes, ctas, chosen):
    """Write this warp's header if it is traced. Returns this thread's state: (next, left)."""

    def codegen(context, builder, signature, args):
        made = builder.call(_begin, list(args))
        state = [builder.extract_value(made, i) for i in range(2)]
        return context.make_tuple(builder, signature.return_type, state)

    return _STATE(*[types.uint64] * 4), codegen


@intrinsic
def end(typing_context, sizes, following, left):
    """Complete this warp's header."""

    def codegen(context, builder, signature, args):
        builder.call(_end, list(args))
        return context.get_dummy_value()

    return types.void(types.uint64, *_STATE), codegen


@intrinsic
def record(typing_context, following, left, word):
    """Write one record. Returns the new state."""

    def codegen(context, builder, signature, args):
        state = _written(builder, _record, args[:2], args[2])
        return context.make_tuple(builder, signature.return_type, state)

    return _STATE(*_STATE, types.uint32), codegen


@intrinsic
def record_end(typing_context, following, left, word):
    """Write a range's end. Returns the new state."""

    def codegen(context, builder, signature, args):
        state = _written(builder, _record_end, args[:2], args[2])
        return context.make_tuple(builder, signature.return_type, state)

    return _STATE(*_STATE, types.uint32), codegen


@intrinsic
def record_with(typing_context, following, left, word, payload, mask):
    """Write one record with the payload's bits that `mask` keeps. Returns the new state."""
    if not isinstance(payload, types.Integer | types.Boolean):
        raise TypeError(f"a stage's payload is a whole number, not {payload}")

    def codegen(context, builder, signature, args):
        kept = builder.and_(_word(context, builder, args[3], signature.args[3]), args[4])
        state = _written(builder, _record, args[:2], builder.or_(args[2], kept))
        return context.make_tuple(builder, signature.return_type, state)

    return _STATE(*_STATE, types.uint32, payload, types.uint32), codegen


@intrinsic
def value(typing_context, following, left, name, number):
    """Write a number in two records: an integer's low 32 bits, or a float32. Returns the new state."""
    if isinstance(number, types.Float):
        sub, kind = layout.SUB_VALUE_F32, types.float32
    elif isinstance(number, types.Boolean) or number in types.unsigned_domain:
        sub, kind = layout.SUB_VALUE_U32, types.uint32
    elif isinstance(number, types.Integer):
        sub, kind = layout.SUB_VALUE_I32, types.int32
    else:
        raise TypeError(f"value() records an integer or a float, not {number}")
    word = layout.word(layout.KIND_EXTENDED, 0, sub << layout.SUB_SHIFT)

    def codegen(context, builder, signature, args):
        bits = context.cast(builder, args[3], signature.args[3], kind)
        if kind is types.float32:
            bits = builder.bitcast(bits, _I32)
        name = builder.shl(args[2], ir.Constant(_I32, layout.PAYLOAD_BITS))
        state = _written(builder, _record, args[:2], builder.or_(name, ir.Constant(_I32, word)))
        state = _written(builder, _record_raw, state, bits)
        return context.make_tuple(builder, signature.return_type, state)

    return _STATE(*_STATE, types.uint32, number), codegen


@intrinsic
def settle(typing_context):
    """Behind a barrier, which lets a warp run on for some cycles before it holds it: wait for it."""

    def codegen(context, builder, signature, args):
        builder.call(_settle, [])
        return context.get_dummy_value()

    return types.void(), codegen


_REGISTERS = {"i16": "h", "i32": "r", "i64": "l", "float": "f", "double": "d"}


@intrinsic
def pin(typing_context, number):
    """The number itself, which the compiler can't move what computes or uses it across."""
    number = types.unliteral(number)
    # Of a complex number, or one of CUDA's vectors, each part.
    part: Any = getattr(number, "underlying_float", getattr(number, "base_type", number))
    if not isinstance(part, types.Number) or getattr(part, "bitwidth", 0) not in (16, 32, 64):
        raise TypeError(f"pin() takes numbers of 16, 32 or 64 bits and vectors of these, not {number}")

    def pinned(builder, value):
        if isinstance(value.type, ir.LiteralStructType):
            for i in range(len(value.type)):
                value = builder.insert_value(value, pinned(builder, builder.extract_value(value, i)), i)
            return value
        assembly = _assembly("", value.type, [value.type], f"={_REGISTERS[str(value.type)]},0,~{{memory}}")
        return builder.call(assembly, [value])

    return number(number), lambda context, builder, signature, args: pinned(builder, args[0])
