"""WD_PIN on values of several words and of half a word, by the machine code."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="needs the cuda extra")

from test_trace_cuda import between_reads, compiled, loop, sass

from warpdeck.core.toolchain import CompileError

# As ORDER of test_trace_cuda.py, with values of several words.
WORDS = """\
#include <warpdeck/trace.cuh>
WD_STAGES(first, second)
struct Part { float x[4]; };
extern "C" __global__ void k(TYPE *o, const TYPE *__restrict__ in, int n WD_TRACE_PARAM) {
    WD_TRACE_BEGIN();
    TYPE a = in[threadIdx.x];
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        WD_PUSH(first, i); PIN;
#pragma unroll
        for (int j = 0; j < 16; j++) { STEP(7) }
        PIN; WD_POP(first);
        WD_PUSH(second, i); PIN;
#pragma unroll
        for (int j = 0; j < 16; j++) { STEP(11) }
        PIN; WD_POP(second);
    }
    o[blockIdx.x * blockDim.x + threadIdx.x] = a;
    WD_TRACE_END();
}
"""
PARTS = [
    ("float2", "a.{} = a.{} * N.5f + 0.25f;", "xy"),
    ("float4", "a.{} = a.{} * N.5f + 0.25f;", "xyzw"),
    ("double2", "a.{} = a.{} * N.5 + 0.25;", "xy"),
    ("uint2", "a.{} = a.{} * threadIdx.x + N;", "xy"),
    ("int4", "a.{} = a.{} * threadIdx.x + N;", "xyzw"),
    ("Part", "a.x[{}] = a.x[{}] * N.5f + 0.25f;", "0123"),
]


@pytest.mark.parametrize(("kind", "step", "parts"), PARTS, ids=[part[0] for part in PARTS])
@pytest.mark.parametrize("cc", [(7, 5), (9, 0), (12, 0)])
def test_values_of_several_words_are_pinned(cc: tuple[int, int], kind: str, step: str, parts: str) -> None:
    each = " ".join(step.replace("{}", part) for part in parts)
    text = re.sub(r"STEP\((\d+)\)", lambda found: each.replace("N", found[1]), WORDS.replace("TYPE", kind))
    pinned, free = (loop(sass(compiled(text, cc, trace=True, pin=pin).cubin)) for pin in ("WD_PIN(a)", ""))
    amount = 16 * len(parts)
    arithmetic = r"FFMA|DFMA|IMAD(?!\.MOV|\.SHL)"
    assert between_reads(pinned, arithmetic) == [amount, 0, amount]
    assert between_reads(free, arithmetic) != [amount, 0, amount]
    assert len(pinned) <= len(free) + (kind == "Part")  # one more for four pins, on sm_120


PINNED = """\
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <warpdeck/trace.cuh>
WD_STAGES(only)
extern "C" __global__ void k(half *o, const half *x, __nv_bfloat16 *p, int n WD_TRACE_PARAM) {
    WD_TRACE_BEGIN();
    half one = x[0], many[2][2] = {{x[1], x[2]}, {x[3], x[4]}};
    half2 pair = __halves2half2(one, one);
    __nv_bfloat16 b = p[0];
    short s = n;
    unsigned short u = n;
    WD_PIN(one, many, pair, b, s, u);
    o[0] = one + many[0][0] + many[0][1] + many[1][0] + many[1][1] + __low2half(pair) + half(s) + half(u);
    p[1] = b;
    WD_TRACE_END();
}
"""


def test_half_words_can_be_pinned() -> None:
    info = compiled(PINNED, (9, 0), trace=True).kernels["k"]
    assert info.spill_bytes == info.local_bytes == 0
    for kind in ("bool", "char", "unsigned char"):
        text = PINNED.replace("unsigned short u", f"{kind} u")
        line = text.splitlines().index("    WD_PIN(one, many, pair, b, s, u);") + 1
        with pytest.raises(CompileError, match=rf"^k\.cu:{line}: .*WD_PIN takes values of 2 bytes"):
            compiled(text, trace=True)
