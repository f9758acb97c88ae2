"""CUDA C++ to cubin and PTX through NVRTC, in one compile. Needs no driver and no GPU."""

from __future__ import annotations

import importlib
import itertools
import re
from pathlib import Path
from typing import Any

from .assembler import TRACED
from .compiled import CompileError, CompileRequest, ToolchainError
from .confine import REMEDIES, confine_ptx
from .nvjitlink import missing
from .sources import header_folders

_USED = re.compile(r" at line (\d+) of (.+)$")
_LINE = re.compile(r"^(?P<file>[^\n(]+)\((?P<line>\d+)\): (?:catastrophic )?error(?: #\S+)?: (?P<text>.*)$")
_STAGES = "name the stages with WD_STAGES(load, compute) at file scope, after #include <warpdeck/trace.cuh>"
_MARKERS = (  # what NVRTC says of misused stage markers, and what was forgotten
    (r'"wd_stages" has no member "(\w+)"', r"stage \1 isn't among those that WD_STAGES names"),
    (r'identifier "wd_trace" is undefined', "put WD_TRACE_PARAM after the kernel's last parameter"),
    (
        r'identifier "wd_state" is undefined',
        "WD_TRACE_BEGIN() comes first in the kernel; a device function takes WD_STATE_PARAM",
    ),
    (r"must be a class or namespace name\n.*\bWD_", _STAGES),
)


def compile_source(request: CompileRequest, text: str) -> tuple[bytes, str, str, dict[str, str]]:
    """Compile `text` for one architecture.

    Knobs become -DNAME=value (a truth value 0 or 1).

    Returns:
        Cubin, PTX, the compiler's and assembler's log, and the symbols of those entries that are C++
        expressions (`gemm<64>`).

    Raises:
        CompileError: it doesn't compile, or NVRTC doesn't know the architecture.
        ToolchainError: NVRTC is missing.
    """
    try:
        nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
        *_, supported = nvrtc.nvrtcGetSupportedArchs()
    except (ImportError, RuntimeError) as error:
        raise ToolchainError(missing(error)) from None
    arch = request.cc[0] * 10 + request.cc[1]
    if arch not in supported:
        raise CompileError(
            f"NVRTC here compiles for sm_{min(supported)} to sm_{max(supported)}, not sm_{arch}; "
            "for older GPUs install warpdeck[cuda12]"
        )
    options = [f"--gpu-architecture=sm_{arch}", "--ptxas-options=-v", "--std=c++17"]
    options += [f"-I{folder}" for folder in header_folders()]
    if request.trace:
        options += ["-DWARPDECK_TRACE=1", *(f"--ptxas-options={option}" for option in TRACED)]
    options += [f"-D{name}={_macro(name, value)}" for name, value in request.knobs.items()]
    if request.reg_cap:
        options.append(f"--maxrregcount={request.reg_cap}")
    if request.lineinfo:
        options.append("-lineinfo")
    options += request.options
    program = _checked(nvrtc, nvrtc.nvrtcCreateProgram(text.encode(), request.file.encode(), 0, [], []))
    try:
        expressions = [entry for entry in request.entries if not entry.isidentifier()]
        for entry in expressions:
            _checked(nvrtc, nvrtc.nvrtcAddNameExpression(program, entry.encode()))
        (result,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        log = _text(nvrtc, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(_first_error(log, request.file) or f"NVRTC: {result.name}", log)
        symbols = {
            entry: _checked(nvrtc, nvrtc.nvrtcGetLoweredName(program, entry.encode())).decode()
            for entry in expressions
        }
        ptx = _text(nvrtc, program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
        if request.confined:
            confine_ptx(request, ptx, header_folders())
        size = _checked(nvrtc, nvrtc.nvrtcGetCUBINSize(program))
        cubin = _fill(nvrtc, program, nvrtc.nvrtcGetCUBIN, size)
        return cubin, ptx, log, symbols
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _checked(nvrtc: Any, result: tuple[Any, ...]) -> Any:
    if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC: {result[0].name}")
    return result[1] if len(result) == 2 else result[1:]


def _fill(nvrtc: Any, program: Any, get: Any, size: int) -> bytes:
    data = b" " * size  # the bindings write into it
    _checked(nvrtc, get(program, data))
    return data


def _text(nvrtc: Any, program: Any, size: Any, get: Any) -> str:
    data = _fill(nvrtc, program, get, _checked(nvrtc, size(program)))
    return data.replace(b"\0", b"").decode(errors="replace").rstrip()


def _macro(name: str, value: object) -> str:
    if not name.isidentifier():
        raise CompileError(f"knob {name!r} can't be a macro's name")
    return str(int(value)) if isinstance(value, bool) else str(value)


def _first_error(log: str, file: str) -> str:
    """`file:line: message` of the first error, with a remedy for headers of the host's library."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        found = _LINE.match(line)
        if found is None:
            continue
        # Of an error in another's header's template, the line that uses it.
        foreign = not Path(found["file"]).is_relative_to(Path(file).parent)
        after = itertools.takewhile(str.strip, lines[number + 1 :])
        used = [m[1] for m in map(_USED.search, after) if m and m[2] == file and foreign]
        where = f"{file}:{used[-1]}" if used else f"{found['file']}:{found['line']}"
        message = f"{where}: {found['text']}"
        header = re.search(r'cannot open source file "([^"]+)"|could not open source file "([^"]+)"', line)
        name = Path(header[1] or header[2]).name if header else ""
        if name in REMEDIES:
            message += f" ({REMEDIES[name]})"
        for pattern, remedy in _MARKERS:
            marker = re.search(pattern, "\n".join(lines[number : number + 2]))
            if marker is not None:
                return f"{message} ({marker.expand(remedy)})"
        return f"{message} ({_STAGES})" if 'identifier "WD_' in log else message
    return next((f"{file}: {line.strip()}" for line in lines if "error" in line), "")
