"""Which files a kernel's code comes from, and the key under which its compiled form is kept.

Standard library only: this runs in the run process, which imports neither Numba nor the CUDA bindings.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ...telemetry.parsing import parse_module
from ...telemetry.trace.marking import MODULE
from .compiled import CompileError, CompileRequest
from .confine import confine
from .directives import BRINGING, directives

_PACKAGE = Path(__file__).resolve().parents[2]  # the folder that is the package `warpdeck`
TRACE_INCLUDE = _PACKAGE / "telemetry" / "trace" / "include"  # for #include <warpdeck/trace.cuh>
# What a Numba module with stage markers becomes depends on these, too.
_TRACING = tuple(
    TRACE_INCLUDE.with_name(f"{name}.py") for name in ("layout", "marking", "markers", "numba_device")
)
_TOOLS = (
    "cuda-bindings",
    "llvmlite",
    "numba",
    "numba-cuda",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-nvrtc-cu12",
    "nvidia-nvjitlink",
    "nvidia-nvjitlink-cu12",
    "nvidia-nvvm",
    "nvidia-cuda-nvcc",
    "nvidia-cuda-nvcc-cu12",
    "nvidia-cuda-runtime",
    "nvidia-cuda-runtime-cu12",
    "nvidia-cuda-cccl",
    "nvidia-cuda-cccl-cu12",
)
MAX_BYTES = 2_000_000  # of one source file: reading more for what it includes takes minutes and gigabytes
_FORMAT = 4  # raise it when the same inputs would give another result


@functools.cache
def toolchain_versions() -> dict[str, str]:
    """Versions of the compilers that are installed as packages, and of a system toolkit if there is one."""
    versions = {}
    for name in _TOOLS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    try:
        toolkit = json.loads(Path("/usr/local/cuda/version.json").read_text(encoding="utf-8"))
        versions["cuda-toolkit"] = str(toolkit["cuda"]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return versions


@functools.cache
def include_folders() -> tuple[Path, ...]:
    """Where CUDA C++ may take headers from: the toolkit's wheels, else /usr/local/cuda."""
    roots: list[Path] = []
    for entry in dict.fromkeys([*sys.path, sysconfig.get_path("purelib")]):
        wheels = Path(entry) / "nvidia"
        if wheels.is_dir():
            roots += sorted(wheels.glob("*/include"))
    if not any((root / "cuda_fp16.h").is_file() for root in roots):
        roots.append(Path("/usr/local/cuda/include"))
    folders = [folder for root in roots for folder in (root, root / "cccl") if folder.is_dir()]
    return tuple(dict.fromkeys(folders))


def header_folders() -> tuple[Path, ...]:
    """Where every kernel may take headers from: this package's, then the toolkit's."""
    return (TRACE_INCLUDE, *include_folders())


def source_files(request: CompileRequest) -> dict[str, str]:
    """Digest of every source file that a request's code comes from, by path.

    For Numba the module and what it imports from its own folder, from this package or from other
    folders of the user's; for CUDA C++ the file and what it includes from its own folder and of this
    package's headers. Installed packages and toolkit headers count by their versions.

    Raises:
        CompileError: a file can't be read, or includes a file that isn't allowed.
    """
    main, names, files = Path(request.file), _included, _header_files
    if request.confined and request.language == "cuda":
        confine(request, request.text or "", header_folders())
    if request.text is not None:  # it has no folder of its own
        todo = [file for name in _included(request.text, request.file) for file in _own_header(name)]
    else:
        todo = [main]
        if request.language == "numba":
            names, files = _python_imports, _module_files
    found: dict[str, str] = {}
    while todo:
        path = todo.pop()
        if str(path) not in found:
            found[str(path)], more = _scan(path, names)
            todo += [file for name in more for file in files(name, path, main.parent)]
    if request.confined:
        stranger = next((p for p in map(Path, found) if p != main and not p.is_relative_to(_PACKAGE)), None)
        if stranger is not None:
            raise CompileError(
                f"{request.file}: imports {stranger.name}: code of others may import installed packages only"
            )
    return found


_scans: dict[tuple[Path, int, int], tuple[str, tuple[str, ...]]] = {}


def _scan(path: Path, names: Callable[[str, str], Iterator[str]]) -> tuple[str, tuple[str, ...]]:
    """A file's digest and what it brings in, remembered while its size and time stay the same."""
    try:
        state = path.stat()
        if state.st_size > MAX_BYTES:
            size = f"{state.st_size / 1e6:.1f} MB"
            raise CompileError(f"{path}: {size} of source; at most {MAX_BYTES / 1e6:g} MB are compiled")
        known = (path, state.st_mtime_ns, state.st_size)
        if known not in _scans:
            data = path.read_bytes()
            more = tuple(names(data.decode(errors="replace"), str(path)))
            _scans[known] = hashlib.sha256(data).hexdigest(), more
        return _scans[known]
    except OSError as error:
        raise CompileError(f"{path}: can't read the source: {error.strerror}") from None


def request_key(request: CompileRequest, files: Mapping[str, str], stage: str = "cubin") -> str:
    """Hex digest over everything that decides the result: sources, knobs, options, architecture,
    toolchain, stage, and the file's path (line information holds it)."""
    numba = {
        k: v for k, v in os.environ.items() if k.startswith("NUMBA_") and not k.startswith("NUMBA_CACHE")
    }
    text = json.dumps(
        [_FORMAT, stage, request.to_json(), dict(files), toolchain_versions(), numba], sort_keys=True
    )
    return hashlib.sha256(text.encode()).hexdigest()


# -- Python -----------------------------------------------------------------------------------------


def _python_imports(text: str, where: str) -> Iterator[str]:
    """Names of what may be modules that a source imports."""
    try:
        tree = parse_module(text, where)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise CompileError(f"{where}:{line}: {getattr(error, 'msg', None) or error}") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module_files(module: str, _path: Path, root: Path) -> list[Path]:
    """The file of a module that isn't an installed one; empty if there is none."""
    head, *tail = module.split(".")
    if head in sys.stdlib_module_names:
        return []
    if head == "warpdeck":
        file = _PACKAGE.joinpath(*tail).with_suffix(".py") if tail else None
        own = [file] if file is not None and file.is_file() else []
        return [*own, *_TRACING] if module == MODULE else own
    inside = "/".join((head, *tail))
    for entry in [str(root), *sys.path]:
        if not _installed(entry):
            for file in (f"{entry or '.'}/{inside}.py", f"{entry or '.'}/{inside}/__init__.py"):
                if os.path.isfile(file):  # noqa: PTH113 - twice as fast, and there are many
                    return [Path(file)]
    return []


@functools.cache
def _installed(entry: str) -> bool:
    """Whether packages are installed into a folder of sys.path: this Python's, one that it shares
    (`venv --system-site-packages`, a user's), or an installer's target."""
    if entry in {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")}:
        return True
    if Path(entry).name in ("site-packages", "dist-packages"):
        return True
    return bool(entry) and next(Path(entry).glob("*.dist-info"), None) is not None


# -- CUDA C++ ---------------------------------------------------------------------------------------

_NAMED = re.compile(r'"([^"\n]+)"|<([^>\n]+)>')


def _included(text: str, where: str) -> Iterator[str]:
    """Names of the headers a source includes. Raises CompileError for one that may not be read."""
    for directive, operand, _ in directives(re.sub(r"\\[ \t]*\r?\n", "", text)):
        if directive not in BRINGING:
            continue
        named = _NAMED.match(operand)
        if named is None or directive in ("import", "embed"):
            raise CompileError(
                f"{where}: #{directive} {operand.strip()}: only an #include that names its header may "
                "bring in another file"
            )
        name = named[1] or named[2]
        if name.startswith(("/", "\\", "~")) or ".." in Path(name).parts:
            raise CompileError(
                f"{where}: #include {named[0]}: only headers of the CUDA toolkit and of the kernel's own "
                "folder may be included"
            )
        yield name


def _own_header(name: str) -> list[Path]:
    """This package's header that an include may mean."""
    return [TRACE_INCLUDE / name] if (TRACE_INCLUDE / name).is_file() else []


def _header_files(name: str, path: Path, root: Path) -> list[Path]:
    """The files of the kernel's own folder, and of this package's headers, that an include may mean."""
    if path.is_relative_to(TRACE_INCLUDE):
        root = TRACE_INCLUDE
    files = [folder / name for folder in dict.fromkeys((path.parent, root)) if (folder / name).is_file()]
    for file in files:
        if not file.resolve().is_relative_to(root.resolve()):
            raise CompileError(f'{path}: #include "{name}" leads out of the kernel\'s own folder')
    return files + [file for file in _own_header(name) if file not in files]
