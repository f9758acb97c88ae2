"""LTO-IR to cubin (and PTX) through nvJitLink. Needs no driver and no GPU."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from .compiled import CompileError, ToolchainError


def link(
    codes: Sequence[tuple[str, bytes]],
    cc: tuple[int, int],
    *,
    reg_cap: int = 0,
    lineinfo: bool = True,
    fastmath: bool = False,
    ptx: bool = False,
    assembler: Sequence[str] = (),
) -> tuple[bytes, str]:
    """Link pieces of code, each (kind, data), into one cubin, or PTX if `ptx`.

    Kinds: "ltoir", "ptx", "cubin", "fatbin", "object", "library". `assembler`: options for it. Returns the
    code and the assembler's verbose log.

    Raises:
        CompileError: the linker refused it.
        ToolchainError: nvJitLink is missing.
    """
    try:
        nvjitlink: Any = importlib.import_module("cuda.bindings.nvjitlink")
    except ImportError as error:
        raise ToolchainError(missing(error)) from None
    kinds = {
        "ltoir": nvjitlink.InputType.LTOIR,
        "ptx": nvjitlink.InputType.PTX,
        "cubin": nvjitlink.InputType.CUBIN,
        "fatbin": nvjitlink.InputType.FATBIN,
        "object": nvjitlink.InputType.OBJECT,
        "library": nvjitlink.InputType.LIBRARY,
    }
    # nvJitLink's own cache gives an empty log on a hit, and with it no spills.
    options = [f"-arch=sm_{cc[0]}{cc[1]}", "-lto", "-Xptxas=-v", "-no-cache"]
    if reg_cap:
        options.append(f"-maxrregcount={reg_cap}")
    if lineinfo:
        options.append("-lineinfo")
    if fastmath:
        options += ["-ftz=1", "-prec-div=0", "-prec-sqrt=0", "-fma=1"]
    options += [f"-Xptxas={option}" for option in assembler]
    if ptx:
        options.append("-ptx")
    try:
        handle = nvjitlink.create(len(options), options)
    except RuntimeError as error:  # the library can't be loaded
        raise ToolchainError(missing(error)) from None
    except nvjitlink.nvJitLinkError as error:
        raise CompileError(f"nvJitLink refuses {' '.join(options)}: {error}") from None
    try:
        for index, (kind, data) in enumerate(codes):
            nvjitlink.add_data(handle, kinds[kind], data, len(data), f"kernel{index}")
        nvjitlink.complete(handle)
        if ptx:
            code = bytearray(nvjitlink.get_linked_ptx_size(handle))
            nvjitlink.get_linked_ptx(handle, code)
        else:
            code = bytearray(nvjitlink.get_linked_cubin_size(handle))
            nvjitlink.get_linked_cubin(handle, code)
        return bytes(code), _log(nvjitlink.get_info_log_size, nvjitlink.get_info_log, handle)
    except nvjitlink.nvJitLinkError as error:
        log = _log(nvjitlink.get_error_log_size, nvjitlink.get_error_log, handle)
        lines = [line for line in log.splitlines() if line.strip()]
        raise CompileError(lines[0] if lines else f"nvJitLink: {error}", log) from None
    finally:
        nvjitlink.destroy(handle)


def _log(size: Callable[[int], int], get: Callable[[int, bytearray], None], handle: int) -> str:
    text = bytearray(size(handle))
    if not text:
        return ""
    get(handle, text)
    return text.decode(errors="replace").strip("\0 \n")


def missing(error: BaseException) -> str:
    """The message for a toolchain that isn't there."""
    first = str(error).strip().splitlines()
    return (
        f"the CUDA compilers aren't installed here ({first[0] if first else type(error).__name__}); "
        "install them with: pip install 'warpdeck[cuda]'"
    )
