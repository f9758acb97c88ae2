"""Two builds of a kernel in one: blocks that a trace selects run the one with markers, others the plain one.

Markers that record nothing cost a kernel nearly as much as those that do, and most blocks record nothing. The
PTX of both comes from one source. The kernel that is made of them decides with one comparison, the same for a
whole block, which body it runs. Every block needs that comparison, so it is made of constants, and stands
among the untraced body's first instructions, which don't have to wait for it. Registers and labels stay apart
in scopes of their own; variables of the module, shared memory and parameters are the traced text's, if it has
all of the plain one's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ...telemetry.trace import layout
from .compiled import Blocks

_STAGE_NAMES = "wd_stage_names"  # the traced text alone has it
_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LINE = re.compile(r"\.(?:version|target|address_size|file|loc)\b[^\n]*")
_PIECE = re.compile(r'"(?:[^"\\\n]|\\.)*"|[{};]')
_NAME = re.compile(r"(?<![\w$%.])[A-Za-z_$%][\w$]*(?![\w$.])")  # not an instruction or a type
_FUNCTION = re.compile(r"\.(entry|func)\b")
_PARAMETER = re.compile(r"\.param\s+(.*?)([A-Za-z_$%][\w$]*)\s*(\[\s*\d+\s*\])?\s*$", re.DOTALL)
_SHARED = re.compile(r"(?<![\w.])\.shared\s+([^;{}]*?)([A-Za-z_$%][\w$]*)\s*((?:\[\s*\d+\s*\])*)\s*;")
# (cta - first) * inverse < count, as in `layout.DESCRIPTOR`, multiplied out.
_DISPATCH = """
	.reg .pred wd_chosen;
	.reg .b32 wd_index, wd_cta;
	mov.u32 wd_cta, %ctaid.x;
	mad.lo.u32 wd_index, wd_cta, {by}, {more};
{dimensions}	setp.lt.u32 wd_chosen, wd_index, {count};
"""
_DIMENSION = """	mov.u32 wd_cta, %ctaid.{axis};
	mad.lo.u32 wd_index, wd_cta, {by}, wd_index;
"""
# What may run before it is known which body does: it changes nothing but registers.
_PURE = re.compile(
    r"\s*(?:\.(?:reg|local)|ld\.param|mov|cvt|cvta|add|sub|mul|mad|neg|abs|min|max|shl|shr|and|or|xor|not|setp|selp)"
    r"\b[^;{}]*;"
)


class SplitError(Exception):
    """The two texts can't be one; the message says why, in a line."""

    def __init__(self, why: str) -> None:
        super().__init__(" ".join(why.split())[:200])


@dataclass(frozen=True)
class _Function:
    """An entry or a function of a module, with its body if it has one."""

    kind: str  # entry | func
    name: str
    before: str  # up to the name
    parameters: str  # between their parentheses
    after: str  # directives between these and the body
    body: str | None  # without its braces

    @property
    def text(self) -> str:
        return f"{self.before}{self.name}({self.parameters}){self.after}" + (
            ";" if self.body is None else f"{{{self.body}}}"
        )

    def renamed(self, names: Mapping[str, str]) -> str:
        return _renamed(self.text, names)


def split(traced: str, plain: str, symbols: Mapping[str, str], blocks: Blocks) -> str:
    """The PTX of a module whose kernels run `plain` in blocks that aren't selected.

    Args:
        traced: PTX with markers; each kernel takes the descriptor after the others' parameters.
        plain: PTX of the same source without.
        symbols: of each kernel to be split, its symbol in `traced` and in `plain`.
        blocks: which blocks of which grid are selected. The traced body still asks the descriptor.

    Raises SplitError where the texts differ in more than markers.
    """
    ours, theirs = list(_statements(traced)), list(_statements(plain))
    kernels = {part.name: part for part in theirs if isinstance(part, _Function) and part.kind == "entry"}
    moved = {
        part.name: f"{part.name}__untraced"
        for part in theirs
        if isinstance(part, _Function) and part.kind == "func" and ".extern" not in part.before
    }
    _compare_variables(_variables(ours), _variables(theirs), moved)
    helpers = [
        part.renamed(moved)
        for part in theirs
        if isinstance(part, _Function) and part.kind == "func" and part.name in moved
    ]
    known = {part.name for part in ours if isinstance(part, _Function)}
    helpers += [  # what only the plain text calls
        part.text
        for part in theirs
        if isinstance(part, _Function) and part.kind == "func" and part.name not in known | moved.keys()
    ]
    found: list[str] = []
    for part in ours:
        if isinstance(part, _Function) and part.kind == "entry":
            found += helpers
            helpers = []
            if part.name in symbols:
                other = kernels.get(symbols[part.name])
                if other is None:
                    raise SplitError(f"the untraced code has no kernel {symbols[part.name]}")
                found.append(_joined(part, other, moved, blocks))
                continue
        found.append(part.text if isinstance(part, _Function) else part)
    return "\n".join(found) + "\n"


def _joined(traced: _Function, plain: _Function, moved: Mapping[str, str], blocks: Blocks) -> str:
    if traced.after.split() != plain.after.split():
        raise SplitError(f"launch bounds differ: {' '.join(plain.after.split()) or 'none'} without markers")
    ours, theirs = _parameters(traced), _parameters(plain)
    if [kind for kind, _ in theirs] != [kind for kind, _ in ours[: len(theirs)]]:
        raise SplitError("the parameters differ")
    bodies, arrays = zip(*(_without_shared(part.body or "") for part in (traced, plain)), strict=True)
    same = _same_shared(*arrays)
    names = {**moved, **same}
    names |= {old: new for (_, old), (_, new) in zip(theirs, ours, strict=False)}
    shared = "".join(f"\t.shared {kind}{name}{size};\n" for name, (kind, size) in arrays[0].items())
    other, at = _renamed(bodies[1], names), 0
    while start := _PURE.match(other, at):
        at = start.end()
    other = f"{other[:at]}\n\t@wd_chosen bra.uni wd_traced;{other[at:]}"
    body = f"\n{shared}{_dispatch(blocks)}\t{{{other}}}\n\tret;\nwd_traced:\n\t{{{bodies[0]}}}\n"
    return f"{traced.before}{traced.name}({traced.parameters}){traced.after}{{{body}}}"


def _dispatch(blocks: Blocks) -> str:
    first, stride, count, *grid = blocks
    inverse, dimensions, by = layout.stride_inverse(stride), "", 1
    for axis, below, size in zip("yz", grid, grid[1:], strict=False):
        by *= below
        if size > 1:
            dimensions += _DIMENSION.format(axis=axis, by=by * inverse % (1 << 32))
    more = -first * inverse % (1 << 32)
    return _DISPATCH.format(by=inverse, more=more, dimensions=dimensions, count=count)


def _same_shared(
    ours: Mapping[str, tuple[str, str]], theirs: Mapping[str, tuple[str, str]]
) -> dict[str, str]:
    """The traced kernel's name of each of the plain one's arrays: the same, or the next one like it. No block
    runs both bodies, so which of several equal arrays it is makes no difference."""
    free = dict(ours)
    names: dict[str, str] = {}
    for name, form in sorted(theirs.items(), key=lambda item: item[0] not in ours):
        match = name if free.get(name) == form else next((n for n, f in free.items() if f == form), None)
        if match is None:
            raise SplitError(f"shared memory differs: {' '.join(form[0].split())} {name}{form[1]}")
        names[name] = match
        del free[match]
    return names


def _without_shared(body: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """A body, and the shared arrays that it declared: (alignment and type, size) by name."""
    arrays: dict[str, tuple[str, str]] = {}

    def take(found: re.Match[str]) -> str:
        arrays[found[2]] = (f"{' '.join(found[1].split())} ", "".join(found[3].split()))
        return ""

    return _SHARED.sub(take, body), arrays


def _parameters(function: _Function) -> list[tuple[str, str]]:
    """(type with alignment and size, name) of each."""
    if not function.parameters.strip():
        return []
    found = []
    for text in function.parameters.split(","):
        part = _PARAMETER.fullmatch(text.strip())
        if part is None:
            raise SplitError(f"a parameter that isn't understood: {text.strip()}")
        found.append((" ".join(part[1].split()) + "".join((part[3] or "").split()), part[2]))
    return found


def _variables(parts: Iterable[str | _Function]) -> dict[str, str]:
    """The module's variables by name."""
    found: dict[str, str] = {}
    for part in parts:
        if isinstance(part, _Function) or _LINE.match(part):
            continue
        head = part.partition("=")[0].partition("[")[0]
        names = _NAME.findall(re.sub(r"\.[\w:]+(\s*\([^)]*\))?", " ", head))
        if len(names) != 1:
            raise SplitError(f"a declaration that isn't understood: {part.split(';')[0][:80]}")
        found[names[0]] = " ".join(part.split())
    return found


def _compare_variables(ours: Mapping[str, str], theirs: Mapping[str, str], functions: Iterable[str]) -> None:
    for name in {**ours, **theirs}:
        if name != _STAGE_NAMES and ours.get(name) != theirs.get(name):
            raise SplitError(f"the module's variable {name} differs")
    named = {word for text in theirs.values() for word in _NAME.findall(text.partition("=")[2])}
    if taken := named.intersection(functions):
        raise SplitError(f"a variable holds the address of {min(taken)}")


def _renamed(text: str, names: Mapping[str, str]) -> str:
    return _NAME.sub(lambda found: names.get(found[0], found[0]), text)


def _statements(text: str) -> Iterator[str | _Function]:
    """What stands in a module, in order, without comments and debug information."""
    text = _COMMENT.sub(lambda found: found[1] or " ", text)
    at = 0
    while True:
        at += len(text[at:]) - len(text[at:].lstrip())
        if at == len(text):
            return
        line = _LINE.match(text, at)
        if line:
            at = line.end()
            if not line[0].startswith((".file", ".loc")):
                yield line[0]
            continue
        end = _end(text, at)
        part, at = text[at:end], end
        if not part.startswith(".section"):
            yield _function(part) or part


def _end(text: str, at: int) -> int:
    """Where the statement that begins here ends: after its `;`, or its body's closing brace."""
    depth, variable = 0, None
    for found in _PIECE.finditer(text, at):
        piece = found[0]
        if piece == "{":
            if not depth:
                head = text[at : found.start()]
                variable = not (_FUNCTION.search(head) or head.startswith(".section"))
            depth += 1
        elif piece == "}":
            depth -= 1
            if depth < 0:
                break
            if not depth and not variable:
                return found.end()
        elif piece == ";" and not depth:
            return found.end()
    raise SplitError("PTX that isn't understood: a statement without an end")


_HEAD = re.compile(
    r"(?P<before>[^({};]*?\.(?P<kind>entry|func)\s*(?:\([^)]*\)\s*)?)(?P<name>[A-Za-z_$%][\w$]*)\s*"
    r"(?:\((?P<parameters>[^)]*)\))?(?P<after>[^{;]*)(?P<rest>[{;].*)",
    re.DOTALL,
)


def _function(part: str) -> _Function | None:
    if not _FUNCTION.search(part.partition("{")[0].partition("=")[0]):
        return None
    found = _HEAD.fullmatch(part)
    if found is None:
        raise SplitError(f"PTX that isn't understood: {part[:80]}")
    body = None if found["rest"].startswith(";") else found["rest"][1:-1]
    return _Function(
        found["kind"], found["name"], found["before"], found["parameters"] or "", found["after"], body
    )
