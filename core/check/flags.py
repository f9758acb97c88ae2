"""What a kernel of others may not do at all, read from its code before it runs.

A measurement is only worth something if every launch does the same work. Three things would let a kernel
tell one launch from another, and no sample of launches could prove that it doesn't: memory of its own that
outlives a launch, a clock, and the number of the launch. An honest kernel needs none of them, as
`docs/cheats.md` argues, so for code of others they are refused, as `incorrect`, with the reason.

Three readings of the same rules: of PTX, what NVRTC made of the source, macros and inline assembly included;
of the text, for devices without NVRTC; of the object file that the emulator made of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from ..emulator.symbols import OBJECT, THREAD_LOCAL, allocators, symbols
from ..emulator.tokens import Token, tokens


class Severity(StrEnum):
    """What follows from a flag."""

    HARD = "hard"  # code of others is refused
    NOTE = "note"  # said beside the result


@dataclass(frozen=True)
class Flag:
    """Something found in a kernel's code, in words that begin after "the kernel"."""

    severity: Severity
    reason: str


def refusal(flags: Iterable[Flag]) -> str | None:
    """Why code of others is refused: the hard flags in one line; None if there is none."""
    hard = [flag.reason for flag in flags if flag.severity is Severity.HARD]
    return f"the kernel {'; it '.join(dict.fromkeys(hard))}" if hard else None


def notes(flags: Iterable[Flag]) -> tuple[str, ...]:
    """What is worth saying beside a result."""
    found = [flag.reason for flag in flags if flag.severity is Severity.NOTE]
    return tuple(f"the kernel {reason}" for reason in dict.fromkeys(found))


def _hard(reason: str) -> Flag:
    return Flag(Severity.HARD, reason)


def _memory(name: str) -> Flag:
    return _hard(
        f"keeps memory of its own between launches ('{name}'): make it const, or take a workspace argument, "
        "which is zeroed before every launch"
    )


_CLOCK = "reads a clock ({}): what it computes could depend on when it runs"
_LAUNCH = "reads the number of its launch ({})"
_HEAP = "allocates device memory ({}), which outlives a launch: take a workspace argument"
_FOREIGN = "calls {}, which isn't part of it"
_PRINT = "prints: that costs time"
_REGISTERS = (  # special registers of PTX
    (re.compile(r"%(clock(?:64|_hi)?|globaltimer(?:_lo|_hi)?|pm\d+(?:_64)?)\b"), Severity.HARD, _CLOCK),
    (re.compile(r"%(gridid)\b"), Severity.HARD, _LAUNCH),
    (re.compile(r"%(smid|nsmid|warpid)\b"), Severity.NOTE, "reads where it runs ({})"),
)
_HINTS = re.compile(r"\b(createpolicy|evict_last|griddepcontrol)\b")
_HINT = "gives hints about caches or launches ({}), which may outlive it"
_HARMLESS_CALLS = ("vprintf", "__assertfail")


# -- PTX ------------------------------------------------------------------------------------------------

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LOCATION = re.compile(  # the one directive that ends without a semicolon
    r"\.loc\s+\d+\s+\d+\s+\d+"
    r"(?:\s*,\s*function_name\s+[\w$]+(?:\s*\+\s*\d+)?\s*,\s*inlined_at\s+\d+\s+\d+\s+\d+)?"
)
_DECLARES = re.compile(r"\.(?:reg|local|shared|param|global|const|pragma|branchtargets|callprototype)\b")
_VARIABLE = re.compile(
    r"(?:^|[;{}])\s*(?:\.(?:visible|extern|weak|common)\s+)*\.(?:global|const)\b[^;={]*?\s(?P<name>[\w$%]+)\s*"
    r"(?:\[[^\]]*\]\s*)*(?:=\s*(?P<value>[^;]*))?;",
    re.MULTILINE,
)
_EXTERN = re.compile(r"\.extern\s+\.func\s+(?:\([^)]*\)\s*)?([\w$]+)")
_BODY = re.compile(r"^(?:\.\w+\s+)*\.(?:entry|func)\b", re.MULTILINE)
_INSTRUCTION = re.compile(r"(?:@!?%?[\w$]+\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<operands>.*)", re.DOTALL)
_LABELS = re.compile(r"[\s{}]*(?:[\w$]+:\s*)*[\s{}]*")
_NAMES = re.compile(r"[%A-Za-z_$][\w$]*")
_CALLED = re.compile(r"\bcall(?:\.uni)?\s+(?:\([^)]*\)\s*,\s*)?([\w$]+)")
_GIVEN = re.compile(r"\[\s*param\d")  # what a function is called with
_TAKEN_BACK = re.compile(r"\bld\.param\S*\s+[^;]*\[\s*param\d")
# Instructions that make an address of an address, and those that only read what lies there.
_DERIVING = frozenset(
    (
        "mov",
        "add",
        "addc",
        "sub",
        "subc",
        "mul",
        "mad",
        "madc",
        "shl",
        "shr",
        "and",
        "or",
        "xor",
        "not",
        "neg",
        "selp",
        "slct",
        "cvt",
        "cvta",
        "min",
        "max",
        "prmt",
        "bfe",
        "bfi",
        "shf",
        "lop3",
    )
)
_READING = frozenset(
    (
        "ld",
        "ldu",
        "setp",
        "prefetch",
        "prefetchu",
        "isspacep",
        "testp",
    )
)


@lru_cache(maxsize=64)
def ptx_flags(ptx: str) -> tuple[Flag, ...]:
    """Flags of a module's PTX.

    A variable in global or constant memory is constant if every use of its address leads to loads only; an
    address that is stored, passed on or combined in another way counts as written to.
    """
    text = _LOCATION.sub(" ", _COMMENT.sub(" ", ptx))
    flags = [_memory(_plain(name)) for name in _written(text)]
    for name in dict.fromkeys(_EXTERN.findall(text)):
        if name in ("malloc", "free"):
            flags.append(_hard(_HEAP.format(name)))
        elif name == "vprintf":
            flags.append(Flag(Severity.NOTE, _PRINT))
        elif name not in _HARMLESS_CALLS:
            flags.append(_hard(_FOREIGN.format(name)))
    return (*flags, *_register_flags(text))


def _register_flags(text: str) -> Iterator[Flag]:
    for pattern, severity, reason in _REGISTERS:
        for name in dict.fromkeys(pattern.findall(text)):
            yield Flag(severity, reason.format(f"%{name}"))
    for hint in dict.fromkeys(_HINTS.findall(text)):
        yield Flag(Severity.NOTE, _HINT.format(hint))


def _written(text: str) -> list[str]:
    """Variables that some instruction may write to, in order."""
    variables = {found["name"]: found["value"] or "" for found in _VARIABLE.finditer(text)}
    if not variables:
        return []
    written = {name for value in variables.values() for name in _NAMES.findall(value) if name in variables}
    for body in _bodies(text):
        written |= _written_in(body, frozenset(variables))
    return [name for name in variables if name in written]


def _bodies(text: str) -> Iterator[str]:
    """The text of each function between its outer braces; the next one's for one that is only declared."""
    for found in _BODY.finditer(text):
        begin = text.find("{", found.end())
        if begin < 0:
            return
        depth = 0
        for at in range(begin, len(text)):
            depth += (text[at] == "{") - (text[at] == "}")
            if depth == 0:
                yield text[begin + 1 : at]
                break


def _written_in(body: str, variables: frozenset[str]) -> set[str]:
    """Variables that a function's instructions may write to."""
    instructions = list(_instructions(body))
    holds: dict[str, set[str]] = {
        name: {name} for name in variables
    }  # register -> variables it may point into
    written: set[str] = set()
    changed = True
    while changed:
        changed = False
        for opcode, names, targets in instructions:
            sources = names[targets:] if opcode in _DERIVING else names
            pointed = set().union(*(holds[name] for name in sources if name in holds))
            if not pointed or opcode in _READING:
                continue
            if opcode not in _DERIVING:
                written |= pointed
                continue
            for name in names[:targets]:
                known = holds.setdefault(name, set())
                if not pointed <= known:
                    known |= pointed
                    changed = True
    return written


def _instructions(body: str) -> Iterator[tuple[str, list[str], int]]:
    """Of each instruction its opcode without suffixes, the names among its operands, and how many of these
    are its targets. What printf and assert are given isn't told; what isn't understood has the opcode "?"."""
    parts = body.split(";")
    taken_back = _TAKEN_BACK.search(body) is not None
    for number, part in enumerate(parts):
        statement = _LABELS.sub("", part, count=1).rstrip(" \n\t}")
        if not statement or _DECLARES.match(statement):
            continue
        found = _INSTRUCTION.fullmatch(statement)
        if found is None:
            yield "?", _NAMES.findall(statement), 0
            continue
        opcode = found["opcode"].split(".")[0]
        if found["opcode"].startswith("st.param") and _GIVEN.match(found["operands"]) and not taken_back:
            call = next((c for later in parts[number:] if (c := _CALLED.search(later))), None)
            if call is not None and call[1] in _HARMLESS_CALLS:
                continue
        operands = found["operands"].strip()
        first = operands[: operands.find("}")] if operands.startswith("{") else operands.partition(",")[0]
        yield opcode, _NAMES.findall(operands), len(_NAMES.findall(first))


def _plain(symbol: str) -> str:
    """A variable's name as written, of its symbol."""
    parts = []
    at = 0
    while symbol.startswith("_Z") and (found := re.compile(r"\d+").search(symbol, at)):
        length = int(found[0])
        parts.append(symbol[found.end() : found.end() + length])
        at = found.end() + length
    return "::".join(part for part in parts if part) or symbol


# -- text -----------------------------------------------------------------------------------------------

_CLOCKS = frozenset(
    (
        "clock",
        "clock64",
        "__clock",
        "__clock64",
        "__clockhi",
        "__globaltimer",
        "__nvvm_read_ptx_sreg_globaltimer",
    )
)
_ALLOCATORS = frozenset(
    (
        "malloc",
        "free",
        "__nv_aligned_device_malloc",
    )
)


def source_flags(text: str) -> tuple[Flag, ...]:
    """Flags of CUDA C++ text, where no compiler has read it. Names that macros put together escape it, but
    then the emulator, which has none of these functions, doesn't compile the kernel."""
    return tuple(dict.fromkeys(_told(tokens(text))))


def _told(every: list[Token]) -> Iterator[Flag]:
    code = [token for token in every if token.kind not in ("comment", "space")]
    for index, token in enumerate(code):
        if token.kind == "directive":
            body = token.text.lstrip().removeprefix("#").replace("\\\n", " ")
            if body.lstrip().startswith("define"):
                yield from _told(tokens(body))
        elif token.kind == "string":
            yield from _register_flags(token.text.replace("%%", "%"))
        elif token.kind == "word":
            called = index + 1 < len(code) and code[index + 1].text == "("
            member = index > 0 and code[index - 1].text in (".", ">")
            if called and not member:
                yield from _called(token.text)
        elif token.text == "<" and [t.text for t in code[index : index + 3]] == ["<"] * 3:
            yield _hard("launches another kernel")


def _called(name: str) -> Iterator[Flag]:
    if name in _CLOCKS:
        yield _hard(_CLOCK.format(name))
    elif name in _ALLOCATORS:
        yield _hard(_HEAP.format(name))
    elif name == "printf":
        yield Flag(Severity.NOTE, _PRINT)


# -- the emulator's object file -------------------------------------------------------------------------

_SANITIZERS = re.compile(r"__odr_asan\.|\.")  # names that no text can have


def object_flags(kernel: bytes, texts: Iterable[str]) -> tuple[Flag, ...]:
    """Flags of an object file (ELF, 64-bit little-endian) that the emulator made of a kernel.

    Args:
        texts: the kernel's source as it was compiled: only what it names there is the emulator's own.

    Raises ValueError for what isn't such a file.
    """
    own = {t.text for text in texts for t in tokens(text) if t.kind == "word" and t.text.startswith("wde_")}
    found = dict.fromkeys(
        _plain(s.name)
        for s in symbols(kernel)
        if s.writable and s.size and s.type in (OBJECT, THREAD_LOCAL) and not _SANITIZERS.match(s.name)
    )
    memory = [_memory(name) for name in found if name.split("::")[-1] not in own]
    return (*memory, *(_hard(_HEAP.format(name)) for name in dict.fromkeys(allocators(kernel))))
