"""Symbols of object files and programs (ELF, 64-bit little-endian), and which of them a kernel may have.

A kernel for a GPU is linked with nothing. Here it shares a program with a C library, whose functions it could
call by declaring them, and whose names it could take, so that the runtime would call it in their place.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

ENTRY_TABLE = ("wde_entries", "wde_entry_count")  # what the runtime takes from a kernel's object file
OBJECT, THREAD_LOCAL = 1, 6  # symbol types
_LOCAL = 0  # binding
_WRITE = 1  # section flag
_TABLE = 2  # section type: symbols
_COMMON = 0xFFF2  # in no section yet: uninitialised
_SEALED = (b".data.rel.ro", b".wde_references")  # sections that only the linker, or our own text, writes to


@dataclass(frozen=True)
class Symbol:
    """One entry of a symbol table."""

    name: str
    type: int
    size: int
    local: bool
    defined: bool
    writable: bool  # in memory that can be written to


def symbols(program: bytes) -> Iterator[Symbol]:
    """All symbols. Raises ValueError for what isn't such a file."""
    try:
        if program[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no 64-bit ELF file")
        (offset,) = struct.unpack_from("<Q", program, 0x28)
        size, count = struct.unpack_from("<HH", program, 0x3A)
        sections = [struct.unpack_from("<IIQQQQIIQQ", program, offset + i * size) for i in range(count)]
        table = next(s for s in sections if s[1] == _TABLE)
        strings = sections[table[6]]
        names = sections[struct.unpack_from("<H", program, 0x3E)[0]][4]
        writables = {_COMMON} | {
            i
            for i, s in enumerate(sections)
            if s[2] & _WRITE and not program.startswith(_SEALED, names + s[0])
        }
        for at in range(table[4], table[4] + table[5], 24):
            name_at, info, _, section, _, nbytes = struct.unpack_from("<IBBHQQ", program, at)
            start = strings[4] + name_at
            name = program[start : program.index(b"\0", start)].decode(errors="replace")
            writable = section in writables
            yield Symbol(name, info & 15, nbytes, info >> 4 == _LOCAL, section != 0, writable)
    except (struct.error, IndexError, StopIteration) as error:
        raise ValueError(f"damaged ELF file: {error}") from None


# What a kernel's object may want from elsewhere: the runtime, the sanitizers, the compiler's own library, and
# what it makes of arithmetic and of copies.
_MATHS = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs"
    " fdim floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p"
    " log2 logb lrint lround modf nan nearbyint nextafter pow remainder remquo rint round roundeven scalbln"
    " scalbn sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn"
)
_PROVIDED = re.compile(
    r"wde_\w+|__(asan|ubsan|tsan|sanitizer|cxa|stack_chk)_\w+|__dso_handle|__gxx_personality_v0"
    r"|_GLOBAL_OFFSET_TABLE_|_Unwind_Resume|_ZTVN10__cxxabiv1\w+|__\w+[dhstbx][fi]\d?|__(is|sig)\w+"
    rf"|__fpclassify\w*|memcpy|memmove|memset|memcmp|printf|puts|putchar|({_MATHS.replace(' ', '|')})f?"
)
_HEAP = re.compile(r"malloc|free|_Zn[wa]m(St11align_val_t)?|_Zd[la]Pv\w*")


def foreign_names(kernel: bytes) -> list[str]:
    """What a kernel's object file wants from elsewhere and no GPU has. Raises ValueError as `symbols`."""
    wanted = [s.name for s in symbols(kernel) if s.name and not s.defined]
    return [name for name in wanted if not _PROVIDED.fullmatch(name) and not _HEAP.fullmatch(name)]


def allocators(kernel: bytes) -> list[str]:
    """The functions of the heap that a kernel's object file wants. Raises ValueError as `symbols`."""
    return [s.name for s in symbols(kernel) if not s.defined and _HEAP.fullmatch(s.name)]


def taken_names(kernel: bytes, runtime: bytes) -> list[str]:
    """What a kernel's object file defines in the place of the C library's for the runtime's.

    Raises ValueError as `symbols`.
    """
    wanted = {s.name for s in symbols(runtime) if s.name and not s.defined}
    found = [s.name for s in symbols(kernel) if s.defined and not s.local and s.name in wanted]
    return [name for name in found if name not in ENTRY_TABLE]
