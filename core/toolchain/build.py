"""One compile, in this process: source to cubin with everything that is known about it.

Imports Numba or NVRTC when called, so it runs in compile processes (`pool.CompilePool`), tests and
scripts, not in the run process.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from . import assembler
from .abi import DESCRIPTOR, item_bytes
from .cache import CompileCache, pack, unpack
from .compiled import Compiled, CompileError, CompileRequest, ToolchainError
from .cubin import Cubin, KernelInfo
from .sources import request_key, source_files
from .split import SplitError, split

_STAGE_NAMES = "wd_stage_names"  # the variable that trace.cuh's WD_STAGES defines


def build(
    request: CompileRequest, files: Mapping[str, str] | None = None, cache: CompileCache | None = None
) -> Compiled:
    """Compile a request.

    Args:
        files: The digests its key was made from, if it has one.
        cache: Keeps Numba's intermediate code, which all register caps of a configuration share.

    Raises:
        CompileError: it doesn't compile, or a source changed since `files`.
        ToolchainError: the compiler is missing.
    """
    start = time.perf_counter()
    now = source_files(request)
    if files is not None and dict(files) != now:
        raise CompileError(f"{request.file} changed while it was being compiled; evaluate it again")
    if request.split:
        return _split(request, now, cache)
    stages: tuple[str, ...] = ()
    if request.language == "numba":
        cubin, ptx, log, stages = _numba(request, now, cache)
        symbols: Mapping[str, str] = {}
    else:
        text = Path(request.file).read_text(encoding="utf-8") if request.text is None else request.text
        from .nvrtc import compile_source

        cubin, ptx, log, symbols = compile_source(request, text)
    try:
        parsed = Cubin(cubin)
    except ValueError as error:
        raise CompileError(f"{request.file}: the compiler gave a {error}", log) from None
    kernels = {
        entry: parsed.info(symbol, log)
        for entry, symbol in _entries(request, parsed.kernels, symbols).items()
    }
    if request.language == "cuda":
        if request.trace:
            stages = _stages(request, parsed)
        _check_parameters(request, kernels, log)
    return Compiled(
        language=request.language,
        cc=request.cc,
        cubin=cubin,
        kernels=kernels,
        code_hash=parsed.code_hash([info.symbol for info in kernels.values()]),
        log=log,
        warnings=tuple(_cap_warnings(request, kernels, log)),
        ptx=ptx,
        seconds=time.perf_counter() - start,
        stages=stages,
    )


def _split(request: CompileRequest, files: Mapping[str, str], cache: CompileCache | None) -> Compiled:
    """Both builds in one; the traced one with `unsplit` where that can't be."""
    assert request.split is not None
    both = replace(request, split=None, lineinfo=False, ptx=request.language == "numba")
    traced, plain = (build(replace(both, trace=trace), files, cache) for trace in (True, False))
    try:
        if request.confined:
            raise SplitError("code of others is compiled in a sandbox, which starts no assembler")
        if any(re.search("ptxas|maxrregcount", option, re.IGNORECASE) for option in request.options):
            raise SplitError("the variant has options of the assembler")
        symbols = {
            info.symbol: plain.kernels[entry].symbol
            for entry, info in traced.kernels.items()
            if info.parameters != plain.kernels[entry].parameters
        }
        ptx = split(traced.ptx or "", plain.ptx or "", symbols, request.split)
        cubin, log = assembler.assemble(ptx, request.cc, reg_cap=request.reg_cap)
    except (SplitError, CompileError, ToolchainError) as error:
        return replace(traced, unsplit=str(error))
    parsed = Cubin(cubin)
    kernels = {entry: parsed.info(info.symbol, log) for entry, info in traced.kernels.items()}
    return replace(
        traced,
        cubin=cubin,
        kernels=kernels,
        code_hash=parsed.code_hash([info.symbol for info in kernels.values()]),
        log=log,
        ptx=ptx,
        seconds=traced.seconds + plain.seconds,
    )


def _numba(
    request: CompileRequest, files: Mapping[str, str], cache: CompileCache | None
) -> tuple[bytes, str | None, str, tuple[str, ...]]:
    from .nvjitlink import link

    codes, fast, stages = _ltoir(request, files, cache)
    options = {
        "reg_cap": request.reg_cap,
        "lineinfo": request.lineinfo,
        "fastmath": fast,
        "assembler": assembler.TRACED if request.trace else (),
    }
    try:
        cubin, log = link(codes, request.cc, **options)
    except CompileError as error:
        # The assembler knows no file, and the kernel only by its mangled name.
        message = re.sub(r"_ZN8warpdeck\d+([A-Za-z]\w*?)B\d+v\d+\w*", r"\1", str(error))
        raise CompileError(f"{request.file}: {message}", error.log) from None
    ptx = None
    if request.ptx:
        ptx = link(codes, request.cc, ptx=True, **options)[0].rstrip(b"\0").decode()
    return cubin, ptx, log, stages


def _ltoir(
    request: CompileRequest, files: Mapping[str, str], cache: CompileCache | None
) -> tuple[list[tuple[str, bytes]], bool, tuple[str, ...]]:
    """Numba's part, which takes most of the time and doesn't depend on the register cap."""
    from .numba_frontend import to_ltoir

    if cache is None:
        return to_ltoir(request, files)
    key = request_key(replace(request, reg_cap=0, ptx=False), files, "ltoir")
    stored = cache.get(key)
    if stored is not None:
        try:
            header, blobs = unpack(stored)
            kinds = zip(header["kinds"], blobs, strict=True)
            return list(kinds), bool(header["fast"]), tuple(header["stages"])
        except ValueError:
            cache.drop(key)
    codes, fast, stages = to_ltoir(request, files)
    header = {"kinds": [kind for kind, _ in codes], "fast": fast, "stages": list(stages)}
    cache.put(key, pack(header, [data for _, data in codes]))
    return codes, fast, stages


def _entries(request: CompileRequest, kernels: list[str], known: Mapping[str, str]) -> dict[str, str]:
    """Entry -> symbol, in the request's order; every kernel under its own name if none was asked for."""
    if not request.entries:
        if not kernels:
            raise CompileError(f"{request.file}: there is no kernel (a __global__ function) in it")
        return {symbol: symbol for symbol in kernels}
    return {entry: known.get(entry) or _symbol(request, entry, kernels) for entry in request.entries}


def _symbol(request: CompileRequest, entry: str, kernels: list[str]) -> str:
    if entry in kernels:
        return entry
    # Mangled by C++ (_Z4axpyPf, _ZN2ns4axpyEPf) or by Numba (_ZN8warpdeck4axpyB2v1…).
    mangled = re.compile(rf"^_ZN?(\d+\w+?)?{len(entry)}{re.escape(entry)}")
    found = [symbol for symbol in kernels if mangled.match(symbol)]
    if len(found) == 1:
        return found[0]
    what = "several kernels are called" if found else "there is no kernel"
    have = f"; it has {', '.join(sorted(kernels))}" if kernels else ""
    hint = '; declare it extern "C" __global__' if request.language == "cuda" else ""
    raise CompileError(f"{request.file}: {what} {entry!r}{have}{hint}")


def _stages(request: CompileRequest, cubin: Cubin) -> tuple[str, ...]:
    """The names of a traced source's stages, which WD_STAGES leaves in the cubin."""
    names = cubin.data(_STAGE_NAMES)
    if names is None:
        raise CompileError(
            f"{request.file}: nothing to trace: it has no stage markers; #include <warpdeck/trace.cuh>, name "
            "the stages with WD_STAGES(load, compute) and mark them in the kernel with WD_TRACE_PARAM, "
            "WD_TRACE_BEGIN, WD_PUSH, WD_POP and WD_TRACE_END"
        )
    return tuple(name.strip() for name in names.rstrip(b"\0").decode(errors="replace").split(","))


def _check_parameters(request: CompileRequest, kernels: Mapping[str, KernelInfo], log: str) -> None:
    """A kernel that takes other parameters than the workload declares would read garbage.

    Of several kernels some may have no markers; a traced one takes the descriptor last.
    """
    expected = tuple(8 if rank >= 0 else item_bytes(dtype) for dtype, rank in request.parameters)
    more = DESCRIPTOR[request.language]
    traced = {entry for entry, info in kernels.items() if info.parameters == (*expected, *more)}
    if request.trace and request.parameters and not traced:
        raise CompileError(
            f"{request.file}: {next(iter(kernels))}: nothing to trace: it doesn't take the trace's"
            " descriptor; write WD_TRACE_PARAM after its last parameter",
            log,
        )
    for entry, info in kernels.items():
        if request.trace and entry in traced:
            continue
        if request.parameters and info.parameters != expected:
            raise CompileError(
                f"{request.file}: {entry}: its parameters take {_bytes(info.parameters)}, but the workload's "
                f"arguments {_bytes(expected)}; make both the same, in the same order",
                log,
            )


def _bytes(sizes: tuple[int, ...]) -> str:
    return f"{', '.join(map(str, sizes)) or 'no'} bytes"


def _cap_warnings(request: CompileRequest, kernels: Mapping[str, KernelInfo], log: str) -> Iterator[str]:
    """Where the register cap isn't what runs. Beside __launch_bounds__ the assembler drops it silently."""
    cap = request.reg_cap
    if not cap:
        return
    raised = re.search(r"adjusting per thread register count of \d+ to lower bound of (\d+)", log)
    if raised:
        yield f"reg_cap={cap} is too low for this architecture; the compiler uses {raised[1]}"
    for entry, info in kernels.items():
        if info.max_threads is not None and info.register_limit is None:
            yield (
                f"reg_cap={cap} has no effect on {entry!r}: the compiler obeys its "
                f"__launch_bounds__ ({info.max_threads} threads) instead"
            )
        elif info.register_limit not in (None, cap) and not raised:
            yield (
                f"reg_cap={cap} has no effect on {entry!r}: the compiler obeys its "
                f"__maxnreg__({info.register_limit}) instead"
            )
