"""Numba kernels to LTO-IR, for an architecture that need not be here: no GPU, no driver, no context.

Only compile processes import this: Numba calls cuInit where there is a driver, after which no fork of
the process can use CUDA.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from ...telemetry.trace.markers import PARAMETERS, instrument, strip
from ...telemetry.trace.marking import MODULE, MarkerError, imported
from .compiled import CompileError, CompileRequest, ToolchainError
from .nvjitlink import missing

_PACKAGE = Path(__file__).resolve().parents[2]
# (file, whether traced) -> state of its sources, module, names of its stages
_loaded: dict[tuple[str, bool], tuple[str, ModuleType, tuple[str, ...]]] = {}


def to_ltoir(
    request: CompileRequest, files: Mapping[str, str]
) -> tuple[list[tuple[str, bytes]], bool, tuple[str, ...]]:
    """Compile every wanted kernel of a request to LTO-IR.

    Args:
        files: Digests of the module and what it imports (`sources.source_files`).

    Returns:
        Pieces of code as (kind, data) for `nvjitlink.link`, whether fast math was used, and the names of
        the stages where they are traced. The symbol of entry `e` starts with `_ZN8warpdeck` + len(e) + e.

    Raises:
        CompileError: the module, `make` or a kernel fails; the message is Python's or Numba's own.
        ToolchainError: Numba is missing.
    """
    try:
        numba, cuda = importlib.import_module("numba"), importlib.import_module("numba.cuda")
    except ImportError as error:
        raise ToolchainError(missing(error)) from None
    _refuse_markers_elsewhere(request, files)
    module, stages = _load(Path(request.file), "".join(sorted(files.values())), request.trace)
    functions = _functions(module, request)
    types = [_numba_type(numba, dtype, rank) for dtype, rank in request.parameters]
    traced = {entry for entry, (function, _) in functions.items() if _takes_trace(function)}
    if request.trace and not traced:
        raise CompileError(
            f"{request.file}: nothing to trace: {', '.join(functions)} has no stage markers; import them "
            f'with `from {MODULE} import stage` and put what takes time under `with stage("load"):`'
        )
    codes: list[tuple[str, bytes]] = []
    fast = bool(request.knobs.get("fastmath", False))
    for entry, (function, options) in functions.items():
        fast = fast or options["fastmath"]
        signature = numba.void(*types, *([numba.uint64] * len(PARAMETERS) if entry in traced else []))
        # NVVM fails on Numba's debug information on a trace's state, folded away here and there
        # ("Symbol name with unsupported characters").
        lineinfo = request.lineinfo and not request.trace
        with _architecture(request.cc):
            try:
                while True:
                    pieces, _ = cuda.compile_all(
                        function,
                        signature,
                        cc=request.cc,
                        output="ltoir",
                        abi="numba",
                        device=False,
                        lineinfo=lineinfo,
                        fastmath=fast,
                        launch_bounds=options["launch_bounds"],
                    )
                    if not lineinfo or not any(map(_is_cuda, pieces)):
                        break
                    lineinfo = False  # NVVM links no code of CUDA C++ to it, half-precision arithmetic's say
                    _forget_callees()
            except ImportError as error:
                raise ToolchainError(missing(error)) from None
            except Exception as error:  # noqa: BLE001 - whatever Numba makes of a user's kernel
                raise _numba_error(error, entry, request.file) from None
        codes += [_piece(piece) for piece in pieces]
    return codes, fast, stages


def _numba_type(numba: Any, dtype: str, rank: int) -> Any:
    import numpy as np

    scalar = numba.from_dtype(np.dtype(dtype))
    return scalar if rank < 0 else numba.types.Array(scalar, max(rank, 1), "C")


def _piece(piece: Any) -> tuple[str, bytes]:
    """One item of `compile_all`'s list: LTO-IR, or code that the kernel links."""
    if isinstance(piece, bytes | bytearray):
        return "ltoir", bytes(piece)
    if _is_cuda(piece):
        return str(piece.code_type), bytes(piece.code)
    kind = str(piece.kind)
    return {"lib": "library", "a": "library", "o": "object"}.get(kind, kind), bytes(piece.data)


def _is_cuda(piece: Any) -> bool:
    """Whether an item of `compile_all`'s list is CUDA C++ that Numba had compiled."""
    return hasattr(piece, "code_type")


def _forget_callees() -> None:
    """Numba keeps what kernels call, with the debug information that it was first compiled with."""
    importlib.import_module("numba.cuda.descriptor").cuda_target.target_context.cached_internal_func.clear()


# -- the user's module ------------------------------------------------------------------------------


def _load(file: Path, state: str, trace: bool) -> tuple[ModuleType, tuple[str, ...]]:
    """Run a kernel module, afresh whenever it or something it imports has changed.

    Its stage markers become records if `trace`, else they are taken out. Also returns the stages' names.
    """
    known = _loaded.get((str(file), trace))
    if known is not None and known[0] == state:
        return known[1:]
    spec = importlib.util.spec_from_file_location(f"_warpdeck_kernel_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise CompileError(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(file.parent)
    below = tuple(f"{known}{os.sep}" for known in _folders)
    for name, other in list(sys.modules.items()):  # siblings of an earlier state, or of another workload
        if not name.startswith("warpdeck.") and str(getattr(other, "__file__", None)).startswith(below):
            del sys.modules[name]
    _folders.add(folder)
    stages: tuple[str, ...] = ()
    with _user_code(file), _importing_from(folder):
        tree = ast.parse(file.read_bytes(), str(file))
        if trace:
            stages = instrument(tree, str(file))
        marked = bool(stages) or strip(tree, str(file))
        if marked:
            exec(compile(tree, str(file), "exec", dont_inherit=True), module.__dict__)
        else:
            spec.loader.exec_module(module)
    _loaded[str(file), trace] = state, module, stages
    return module, stages


def _takes_trace(function: FunctionType) -> bool:
    code = function.__code__
    return PARAMETERS[0] in code.co_varnames[: code.co_argcount]


def _refuse_markers_elsewhere(request: CompileRequest, files: Mapping[str, str]) -> None:
    """Only the kernel's own module is rewritten; Numba would stumble over markers in another."""
    own = Path(request.file)
    for name in files:
        path = Path(name)
        if path != own and not path.is_relative_to(_PACKAGE) and imported(ast.parse(path.read_bytes(), name)):
            raise CompileError(f"{path}: stage markers belong in the kernel's own module, {own.name}")


_folders: set[str] = set()  # of the kernel modules run so far


@contextlib.contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


@contextlib.contextmanager
def _user_code(file: Path) -> Iterator[None]:
    """Errors of the user's module as CompileError with its file and line."""
    try:
        yield
    except CompileError:
        raise
    except MarkerError as error:
        raise CompileError(str(error)) from None
    except SyntaxError as error:
        raise CompileError(f"{error.filename}:{error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's own code may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if Path(f.filename).parent == file.parent]
        where = f"{own[-1].filename}:{own[-1].lineno}" if own else str(file)
        text = "".join(traceback.format_exception(error))
        raise CompileError(f"{where}: {type(error).__name__}: {error}", text) from None


def _functions(module: ModuleType, request: CompileRequest) -> dict[str, tuple[FunctionType, dict[str, Any]]]:
    """The Python function to compile for each entry, with Numba's options for it."""
    file, make = Path(request.file), getattr(module, "make", None)
    if make is None:
        knobs = [name for name in request.knobs if name != "fastmath"]
        if knobs:
            raise CompileError(f"{file}: no make({', '.join(knobs)}); it must return the function to compile")
        made: Any = {entry: getattr(module, entry, None) for entry in request.entries}
    else:
        with _user_code(file), _importing_from(str(file.parent)):
            made = make(**_accepted(make, request, file))
    if not isinstance(made, Mapping):
        if len(request.entries) > 1:
            raise CompileError(
                f"{file}: make() returned one function, but the launches name "
                f"{', '.join(map(repr, request.entries))}; return a dict of them"
            )
        made = dict.fromkeys(request.entries, made)
    functions = {}
    for entry in request.entries:
        if made.get(entry) is None:
            raise CompileError(f"{file}: there is no kernel {entry!r}")
        functions[entry] = _plain(made[entry], entry, file)
    return functions


def _accepted(make: Callable[..., Any], request: CompileRequest, file: Path) -> dict[str, Any]:
    """The knobs to call make() with; `fastmath` only if it takes it."""
    knobs = dict(request.knobs)
    parameters = inspect.signature(make).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return knobs
    if "fastmath" not in parameters:
        knobs.pop("fastmath", None)
    unknown = [name for name in knobs if name not in parameters]
    if unknown:
        raise CompileError(f"{file}: make() takes no knob {unknown[0]!r}")
    return knobs


def _plain(function: Any, entry: str, file: Path) -> tuple[FunctionType, dict[str, Any]]:
    """A copy of the function under its entry's name, so that symbols are short and known."""
    options: dict[str, Any] = {"fastmath": False, "launch_bounds": None}
    if hasattr(function, "py_func"):  # decorated with cuda.jit
        given = getattr(function, "targetoptions", {})
        options["fastmath"] = bool(given.get("fastmath"))
        options["launch_bounds"] = given.get("launch_bounds")
        if given.get("max_registers"):
            raise CompileError(f"{file}: {entry}: use the knob reg_cap, not max_registers")
        function = function.py_func
    if not isinstance(function, FunctionType):
        raise CompileError(f"{file}: {entry}: a Python function is needed, not {type(function).__name__}")
    copy = FunctionType(
        function.__code__, function.__globals__, entry, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__, copy.__module__ = entry, "warpdeck"
    return copy, options


# -- Numba ------------------------------------------------------------------------------------------


class _Device:
    def __init__(self, cc: tuple[int, int]) -> None:
        self.compute_capability = cc


@contextlib.contextmanager
def _architecture(cc: tuple[int, int]) -> Iterator[None]:
    """Let Numba compile device functions for `cc`.

    It asks the current GPU for the architecture even where `cc` was given. That fails without a GPU,
    and with one it would create a context there while something is being timed.
    """
    dispatcher: Any = importlib.import_module("numba.cuda.dispatcher")
    original = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: _Device(cc)
    try:
        yield
    finally:
        dispatcher.get_current_device = original


_NOISE = re.compile(
    r"^(Failed in \w+ mode pipeline|During: |File |There (is|are) \d+ candidate|<source elided>|\s*\^|$)"
)
_CALL = re.compile(r"No implementation of function .* found for signature:\s*>>> (.+)", re.DOTALL)


def _numba_error(error: Exception, entry: str, file: str) -> CompileError:
    """Numba's message without its padding, with the user's line, which Numba itself often loses."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    found = _CALL.search(text)
    if "Cannot bind" in text and PARAMETERS[0] in text:
        message = "it calls a function that has stage markers; they belong in the kernel, around the call"
    elif found:
        message = f"no implementation of {found[1].splitlines()[0]}"
        if re.search(r"Function\(<function (shared|local)\.array", text):
            message += " (the shape and type must be constants: numbers, globals or knobs)"
    else:
        lines = [line.strip() for line in text.splitlines() if not _NOISE.match(line.strip())]
        message = lines[0].removesuffix(". Raised from None") if lines else type(error).__name__
    if not isinstance(error, _numba_errors()):
        message = f"{type(error).__name__}: {message}"
    where = _location(error, text, file)
    return CompileError(f"{where}: {entry}: {message}", text)


def _numba_errors() -> tuple[type[BaseException], ...]:
    modules = map(importlib.import_module, ("numba.core.errors", "numba.cuda.core.errors"))
    return tuple(module.NumbaError for module in modules)


def _location(error: Exception, text: str, file: str) -> str:
    """`file:line` of the statement Numba was at: from its frames' locals, else from its message."""
    place = ""
    frame = error.__traceback__
    while frame is not None:
        for name in ("self", "inst", "expr"):
            loc = getattr(frame.tb_frame.f_locals.get(name), "loc", None)
            line, source = getattr(loc, "line", None), getattr(loc, "filename", None)
            if line and source and Path(source).is_file():
                place = f"{Path(source).resolve()}:{line}"
        frame = frame.tb_next
    if not place:
        found = re.search(r'File "([^"]+)", line (\d+)', text)
        place = f"{Path(found[1]).resolve()}:{found[2]}" if found else file
    return place
