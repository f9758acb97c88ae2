"""What source text of others may bring in: headers of the CUDA toolkit and this package's, nothing else.

A header's text can show in the compiler's messages, and file names in line information are opened later to
show a kernel's lines beside its samples. The sandbox in which such text is compiled can't read the user's
files; these rules hold without it too, and say what is wrong in the user's words.
"""

from __future__ import annotations

import re
from pathlib import Path

from .compiled import CompileError, CompileRequest
from .directives import directives

# What kernels include out of habit, and what NVRTC wants instead.
_USE = "NVRTC has no host headers; use "
REMEDIES = {
    "stdint.h": _USE + "<cuda/std/cstdint>",
    "cstdint": _USE + "<cuda/std/cstdint>",
    "stddef.h": _USE + "<cuda/std/cstddef>",
    "limits.h": _USE + "<cuda/std/climits>",
    "float.h": _USE + "<cuda/std/cfloat>",
    "limits": _USE + "<cuda/std/limits>",
    "type_traits": _USE + "<cuda/std/type_traits>",
    "math.h": "leave it out: NVRTC has the functions built in",
    "cmath": "leave it out: NVRTC has the functions built in",
    "cuda_runtime.h": "leave it out: NVRTC has the declarations built in",
    "stdio.h": "leave it out: NVRTC has printf built in",
    "cstdio": "leave it out: NVRTC has printf built in",
}
_SPLICE = re.compile(r"\\[ \t]*\r?\n")
_TRIGRAPHS = {"??=": "#", "??/": "\\", "??'": "^", "??!": "|", "??-": "~"}
_NAMED = re.compile(r'"([^"\n]+)"|<([^>\n]+)>')
_ASKS = re.compile(r"\b__has_(?:include|include_next|embed)\b")
_ENTRY = re.compile(r"[\w:<>, *&()+\-]+")
_FILE = re.compile(r'\.file\b\s*(?:\d+\s*"([^"\n]*)")?')
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INCLUDE = re.compile(r"(?<![\w.$%])\.include\b")


def confine(request: CompileRequest, text: str, folders: tuple[Path, ...]) -> None:
    """Refuse CUDA C++ of others that asks for any file but headers in `folders`.

    Raises CompileError with the line.
    """
    for entry in request.entries:
        if not _ENTRY.fullmatch(entry) or "\n" in entry:
            raise CompileError(f"{request.file}: {entry!r} can't be a kernel's name")
    plain = text
    for trigraph, meant in _TRIGRAPHS.items():
        plain = plain.replace(trigraph, meant)
    joined = _SPLICE.sub("", plain)
    for directive, operand, start in directives(joined):
        marker = directive == "line" or directive.isdigit()
        operand = operand.strip()
        where = f"{request.file}:{_line(plain, start)}"
        if marker:
            raise CompileError(f"{where}: #line: code of others keeps its own file's name")
        named = _NAMED.match(operand)
        if directive != "include" or named is None:
            raise CompileError(
                f"{where}: #{directive} {operand}: only #include <NAME> of a CUDA toolkit header may bring "
                "in another file"
            )
        name = named[1] or named[2]
        outside = name.startswith(("/", "\\", "~")) or ".." in Path(name).parts or "\\" in name
        if outside or not any((folder / name).is_file() for folder in folders):
            raise CompileError(
                f"{where}: #include {named[0]}: code of others may include headers of the CUDA toolkit and "
                f"<warpdeck/trace.cuh> only{f' ({REMEDIES[name]})' if name in REMEDIES else ''}"
            )
    asks = _ASKS.search(joined)
    if asks is not None:
        raise CompileError(
            f"{request.file}:{_line(plain, asks.start())}: {asks[0]}: code of others may not ask for files"
        )


def confine_ptx(request: CompileRequest, ptx: str, folders: tuple[Path, ...]) -> None:
    """Refuse inline PTX of others that names a file: what its line information names is opened later.

    Raises CompileError.
    """
    plain = _COMMENT.sub(" ", ptx)
    for found in _FILE.finditer(plain):
        name = found[1]
        own = name == request.file or any(Path(name or "/").is_relative_to(f) for f in folders)
        if name is None or not own:
            raise CompileError(f"{request.file}: inline PTX may not name a file ({found[0]!r})")
    if _INCLUDE.search(plain):
        raise CompileError(f"{request.file}: inline PTX may not include a file")


def _line(text: str, position: int) -> int:
    """The line of a position in `text` without its splices."""
    removed = splices = 0
    for splice in _SPLICE.finditer(text):
        if splice.start() - removed > position:
            break
        removed += len(splice[0])
        splices += 1
    return _SPLICE.sub("", text).count("\n", 0, position) + splices + 1
