"""Generated kernels that work: what a model of the GPU tests proposes."""

from __future__ import annotations

from typing import Any

from llm_runs import SIGNATURE, propose

_HEAD = "#include <warpdeck/trace.cuh>\nWD_STAGES(multiply, store)\n"
_MARKED = SIGNATURE.replace("long long k)", "long long k WD_TRACE_PARAM)")
_BODY = """ {
    WD_TRACE_BEGIN();
    const long long row = blockIdx.y * 16LL + threadIdx.y, col = blockIdx.x * 16LL + threadIdx.x;
    float sum = 0.0f;
    WD_PUSH(multiply);
    if (row < m && col < n) {
        for (long long i = 0; i < k; ++i) sum = fmaf(a[row * k + i], b[i * n + col], sum);
    }
    WD_PIN(sum);
    WD_POP(multiply);
    WD_PUSH(store);
    if (row < m && col < n) c[row * n + col] = sum;
    WD_POP(store);
    WD_TRACE_END();
}
"""
COALESCED = _HEAD + _MARKED + _BODY
TWICE = COALESCED.replace("float sum = 0.0f;", "float sum = 0.0f;  // the same machine code")


def unrolled(times: int) -> str:
    """`COALESCED` with other machine code for each number."""
    return COALESCED.replace("        for (", f"#pragma unroll {times}\n        for (")


def proposal(source: str) -> dict[str, Any]:
    """A proposal with this source, launched in blocks of 16 x 16."""
    return {**propose("x"), "source": source}
