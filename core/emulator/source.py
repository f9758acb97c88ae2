"""A kernel's text as the host's compiler gets it: its files rewritten, with knobs, entries, and line numbers.

A line's number says which file it is in, too: file k's lines begin at k · `FILE_LINES`, in error messages,
debug information and what the runtime tells. `Places` translates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..model import Status, Value
from ..toolchain import CompileError
from ..toolchain.compiled import CompileRequest
from ..toolchain.sources import TRACE_INCLUDE, source_files
from .errors import CandidateFault
from .rewrite import rewrite
from .rules import refuse

FILE_LINES = 1_000_000
ENTRIES = "wde-entries"  # the file name that the lines after the kernel's have

# Words that a kernel may not use: what this device lacks. Poisoned in the preprocessor, so that a branch for
# another architecture may have them.
MISSING: Mapping[str, str] = {
    **dict.fromkeys(("asm", "__asm__", "__asm"), "inline PTX (asm)"),
    "nvcuda": "tensor-core code (wmma)",
    **dict.fromkeys(("CUtensorMap", "CUtensorMap_st"), "TMA (CUtensorMap)"),
    **dict.fromkeys(
        [
            "tex1D",
            "tex2D",
            "tex3D",
            "tex1Dfetch",
            "tex2DLod",
            "tex2Dgather",
            "cudaTextureObject_t",
            "surf1Dread",
            "surf2Dread",
            "surf2Dwrite",
            "cudaSurfaceObject_t",
        ],
        "texture and surface memory",
    ),
    **dict.fromkeys(("this_grid", "grid_group"), "synchronisation of the whole grid"),
    **dict.fromkeys(("this_cluster", "cluster_group", "__cluster_dims__"), "a thread-block cluster"),
    **dict.fromkeys(("coalesced_threads", "coalesced_group"), "a coalesced group"),
    **dict.fromkeys(("__nv_fp8_e4m3", "__nv_fp8_e5m2"), "8-bit floating point"),
}
# Functions of the host's C library: no GPU has them, and as names of a kernel's own they'd be odd.
HOST = [
    "dlopen",
    "dlsym",
    "execl",
    "execle",
    "execlp",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "fopen",
    "fork",
    "freopen",
    "getenv",
    "mmap",
    "mprotect",
    "munmap",
    "openat",
    "popen",
    "posix_spawn",
    "posix_spawnp",
    "prctl",
    "pthread_create",
    "ptrace",
    "putenv",
    "setenv",
    "setrlimit",
    "sigaction",
    "syscall",
    "system",
    "vfork",
]


@dataclass(frozen=True)
class Places:
    """The kernel's files, by number."""

    files: tuple[str, ...]

    def name(self, line: int) -> str:
        """A line as people know it: "kernel.cu:12"; the empty text for none."""
        number, inside = divmod(line, FILE_LINES)
        return f"{self.files[number]}:{inside}" if inside and number < len(self.files) else ""

    def told(self, text: str) -> str:
        """A message whose lines are written as @12."""
        return re.sub(r"@(\d+)", lambda found: self.name(int(found[1])) or "an unknown line", text)


@dataclass(frozen=True)
class Source:
    """What is compiled. `texts` by file name, relative to the kernel's folder; the first is the kernel's."""

    texts: Mapping[str, str]
    entries: tuple[str, ...]
    knobs: Mapping[str, Value]

    @property
    def places(self) -> Places:
        """Its files."""
        return Places(tuple(self.texts))

    @property
    def main(self) -> str:
        """The kernel's own file."""
        return next(iter(self.texts))


def collect(file: Path, entries: Sequence[str], knobs: Mapping[str, Value]) -> Source:
    """A kernel's file and the headers of its folder, rewritten.

    Raises CandidateFault: a file can't be read or includes what it may not, or holds what isn't available.
    """
    request = CompileRequest("cuda", str(file.resolve()), tuple(entries), (0, 0), knobs=knobs)
    try:
        found = [Path(path) for path in source_files(request)]
    except CompileError as error:
        raise CandidateFault(Status.COMPILE_ERROR, str(error)) from None
    folder = file.resolve().parent
    main, *others = [path for path in found if not path.is_relative_to(TRACE_INCLUDE)]
    texts: dict[str, str] = {}
    for path in (main, *sorted(others)):
        text = path.read_text(encoding="utf-8", errors="replace")
        name = path.name if path == main else str(path.relative_to(folder))
        places = Places((*texts, name))
        try:
            refuse(text)
            texts[name] = rewrite(text)
        except CandidateFault as fault:
            first = len(texts) * FILE_LINES
            message = re.sub(r"@(\d+)", lambda m: f"@{int(m[1]) + first}", fault.message)  # noqa: B023
            raise CandidateFault(fault.status, places.told(message)) from None
    return Source(texts, tuple(entries), {k: v for k, v in knobs.items() if k != "reg_cap"})


def wrapped(source: Source) -> dict[str, str]:
    """The files to compile, by name; the first includes the others."""
    files: dict[str, str] = {}
    for number, (name, text) in enumerate(source.texts.items()):
        numbered = f'#line {number * FILE_LINES + 1} "{name}"\n{text}\n'
        files[name if number else f"{name}.cpp"] = _main(source, numbered) if number == 0 else numbered
    return files


def _main(source: Source, text: str) -> str:
    knobs = "".join(f"#define {name} {_macro(name, value)}\n" for name, value in source.knobs.items())
    poison = f"#pragma GCC poison {' '.join((*MISSING, *HOST))}\n"
    # A kernel that the host launches by its plain name must have that name in the object file.
    plain = "".join(f'extern "C" decltype({e}) {e};\n' for e in source.entries if e.isidentifier())
    table = ", ".join(f'wde_entry_of<({e})>("{e}")' for e in source.entries)
    return (
        f'{knobs}{poison}{text}#line 1 "{ENTRIES}"\n{plain}'
        f'extern "C" {{\nextern const wde_entry wde_entries[] = {{{table}}};\n'
        f"extern const int wde_entry_count = {len(source.entries)};\n}}\n"
    )


def _macro(name: str, value: Value) -> str:
    if not name.isidentifier():
        raise CandidateFault(Status.COMPILE_ERROR, f"knob {name!r} can't be a macro's name")
    return str(int(value)) if isinstance(value, bool) else str(value)
