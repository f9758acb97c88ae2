"""Rewrites CUDA C++ so that a C++ compiler takes it: only declarations with `__shared__` change.

`__shared__ T a[N], b;` becomes, for each name, a typedef of the same declarator, a key and a reference into
the arena of shared memory; `extern __shared__ T s[];` a pointer to dynamic shared memory. Every line stays
where it is. Everything else (`__global__`, `threadIdx`, …) is a macro or a function of `include/emulator.h`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Status
from .errors import CandidateFault
from .tokens import Token, tokens

_OPEN, _CLOSE = "([{", ")]}"
_STORAGE = ("__shared__", "static", "extern", "inline", "thread_local")
_REFERENCE = '__attribute__((section(".wde_references")))'  # tells it from a variable of the kernel's own
_ALIGN = ("alignas", "__align__", "__attribute__")


def rewrite(text: str) -> str:
    """The text with its `__shared__` declarations rewritten; as many lines, each with the same code.

    Raises CandidateFault (`compile_error`) for a declaration that can't be read or isn't CUDA.
    """
    if "__shared__" not in text:
        return text
    every = tokens(text)
    out: list[str] = []
    begin = 0  # where the declaration that may follow begins, in `out`; tokens and texts correspond
    scopes: list[bool] = []  # of the open braces: whether declarations in them are at file scope
    statement: list[Token] = []
    number = i = 0
    while i < len(every):
        token = every[i]
        if token.text == "__shared__" and token.kind == "word":
            end = _end(every, i)
            prefix = statement
            gone = "".join(out[begin:])
            declaration = [t for t in (*prefix, *every[i:end]) if t.is_code]
            rewritten = _declaration(declaration, token.line, number, at_file_scope=all(scopes))
            kept = "\n" * (gone + "".join(t.text for t in every[i:end])).count("\n")
            del out[begin:]
            out.append(f"{rewritten}{kept} ")
            number += 1
            i, begin, statement = end + 1, len(out), []
            continue
        out.append(token.text)
        i += 1
        if token.text == "{":
            scopes.append(_is_file_scope(statement))
        elif token.text == "}" and scopes:
            scopes.pop()
        if token.kind == "directive" or token.text in ("{", "}", ";", ":"):
            begin, statement = len(out), []
        elif token.is_code:
            if not statement:
                begin = len(out) - 1
            statement.append(token)
    return "".join(out)


def _is_file_scope(statement: Sequence[Token]) -> bool:
    """Whether the brace after these tokens opens a namespace or a linkage specification."""
    words = [t.text for t in statement]
    return "namespace" in words or (words[:1] == ["extern"] and len(words) == 2)


def _end(every: Sequence[Token], start: int) -> int:
    """Index of the semicolon that ends a declaration."""
    depth = 0
    for index in range(start, len(every)):
        token = every[index]
        if not token.is_code:
            continue
        if token.text in _OPEN:
            depth += 1
        elif token.text in _CLOSE:
            depth -= 1
        elif token.text == ";" and depth == 0:
            return index
        if depth < 0:
            break
    raise _unreadable(every[start].line, "it has no end")


def _unreadable(line: int, why: str) -> CandidateFault:
    return CandidateFault(Status.COMPILE_ERROR, f"@{line}: this __shared__ declaration can't be read: {why}")


def _declaration(words: Sequence[Token], line: int, number: int, *, at_file_scope: bool) -> str:
    """C++ for one declaration, `words` being its code without the semicolon."""
    external = any(t.text == "extern" for t in words)
    alignments, rest = _without_alignment([t for t in words if t.text not in _STORAGE])
    parts = _split(rest)
    if any(_initialised(part) for part in parts):
        raise _unreadable(line, "shared memory can't be initialised")
    base, first = _first_declarator(parts[0], line)
    declarators = [first, *(_declarator(part, line) for part in parts[1:])]
    if external:
        return " ".join(_dynamic(base, *declarator) for declarator in declarators)
    aligned = f"wde_a{number}"
    wanted = " ".join(f"alignas({a})" for a in alignments)
    out = [f"struct {wanted} {aligned} {{}};"]
    for stars, name, array in declarators:
        kind, key = f"wde_t{number}_{name}", f"wde_k{number}_{name}"
        about = f'alignof({aligned}), "{name}", {line}'
        out.append(f"typedef {base} {stars} {kind}{array};")
        if at_file_scope:
            out.append(f"static {kind}& {name} {_REFERENCE} = wde_shared_at_file_scope<{kind}>({about});")
        else:
            out.append(f"static wde_key {key}; {kind}& {name} = wde_shared<{kind}>({key}, {about});")
    return " ".join(out)


def _without_alignment(words: Sequence[Token]) -> tuple[list[str], list[Token]]:
    """The alignments that a declaration asks for (types or expressions), and its other tokens."""
    kept: list[Token] = []
    alignments: list[str] = []
    i = 0
    while i < len(words):
        if words[i].text not in _ALIGN or i + 1 == len(words) or words[i + 1].text != "(":
            kept.append(words[i])
            i += 1
            continue
        close = _closing(words, i + 1)
        inside = words[i + 2 : close]
        if words[i].text == "__attribute__":  # ((aligned(16)))
            named = next((k for k, t in enumerate(inside) if t.text in ("aligned", "__aligned__")), None)
            if named is not None and named + 1 < len(inside) and inside[named + 1].text == "(":
                alignments.append(_text(inside[named + 2 : _closing(inside, named + 1)]))
        else:
            alignments.append(_text(inside))
        i = close + 1
    return alignments, kept


def _closing(words: Sequence[Token], start: int) -> int:
    """Index of the bracket that closes the one at `start`, or of the end."""
    depth = 0
    for index in range(start, len(words)):
        depth += (words[index].text in _OPEN) - (words[index].text in _CLOSE)
        if depth == 0:
            return index
    return len(words)


def _split(words: Sequence[Token]) -> list[list[Token]]:
    """The base type with the first declarator, and the other declarators: parts between the outer commas."""
    parts: list[list[Token]] = [[]]
    depth = angles = 0
    for token in words:
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if depth == 0 and len(parts) == 1:  # the angle brackets of the base type
            angles += (token.text == "<") - (token.text == ">")
        if token.text == "," and depth == 0 and angles <= 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _initialised(words: Sequence[Token]) -> bool:
    depth = 0
    for token in words:
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
        if token.text == "=" and depth == 0:
            return True
    return False


Declarator = tuple[str, str, str]  # stars, name, dimensions


def _first_declarator(words: Sequence[Token], line: int) -> tuple[str, Declarator]:
    """The base type, and the first declarator."""
    at = _name(words, line)
    begin = at
    while begin > 1 and (
        words[begin - 1].text == "*" or (words[begin - 1].text == "const" and words[begin - 2].text == "*")
    ):
        begin -= 1
    if begin == 0:
        raise _unreadable(line, "it names no type")
    return _text(words[:begin]), _declarator(words[begin:], line)


def _declarator(words: Sequence[Token], line: int) -> Declarator:
    at = _name(words, line)
    if any(t.text not in ("*", "const") for t in words[:at]):
        raise _unreadable(line, "a declarator is no plain variable or array")
    return _text(words[:at]), words[at].text, _text(words[at + 1 :])


def _name(words: Sequence[Token], line: int) -> int:
    """Index of a declarator's name: the word before its dimensions."""
    at = len(words) - 1
    while at >= 0 and words[at].text == "]":
        depth = 0
        while at >= 0:
            depth += (words[at].text == "]") - (words[at].text == "[")
            at -= 1
            if depth == 0:
                break
    if at < 0 or words[at].kind != "word":
        raise _unreadable(line, "a declarator is no plain variable or array")
    return at


def _dynamic(base: str, stars: str, name: str, array: str) -> str:
    """A declaration of dynamic shared memory, whose first dimension is left open or doesn't matter."""
    if not array:
        return f"{base} {stars}& {name} = *({base} {stars}*)WDE_DYNAMIC;"
    rows = array[_first_dimension(array) :].strip()
    if not rows:
        return f"{base} {stars}* const {name} = ({base} {stars}*)WDE_DYNAMIC;"
    return f"{base} {stars}(* const {name}){rows} = ({base} {stars}(*){rows})WDE_DYNAMIC;"


def _first_dimension(array: str) -> int:
    depth = 0
    for index, character in enumerate(array):
        depth += (character == "[") - (character == "]")
        if depth == 0:
            return index + 1
    return len(array)


def _text(words: Sequence[Token]) -> str:
    """Code, with what stood between its tokens taken out, but for a space where it keeps them apart."""
    out: list[str] = []
    apart = ("word", "number", "string")
    for before, token in zip((None, *words), words, strict=False):
        glued = before is not None and token.glued and not (before.kind in apart and token.kind in apart)
        out += [token.text] if glued or before is None else [" ", token.text]
    return "".join(out)
