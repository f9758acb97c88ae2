"""Source to cubin, without a GPU: Numba through LTO-IR and nvJitLink, CUDA C++ through NVRTC.

`CompilePool` compiles in processes of its own; nothing here imports Numba or the CUDA bindings before
something is compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import exports

if TYPE_CHECKING:
    from .compiled import Compiled, CompileError, CompileRequest, ToolchainError
    from .cubin import KernelInfo
    from .pool import CompilePool, compile_candidate, compile_cuda, default_pool

__getattr__ = exports(
    __name__,
    {
        "compiled": ("Compiled", "CompileError", "CompileRequest", "ToolchainError"),
        "cubin": ("KernelInfo",),
        "pool": ("CompilePool", "compile_candidate", "compile_cuda", "default_pool"),
    },
)

__all__ = [
    "CompileError",
    "CompilePool",
    "CompileRequest",
    "Compiled",
    "KernelInfo",
    "ToolchainError",
    "compile_candidate",
    "compile_cuda",
    "default_pool",
]
