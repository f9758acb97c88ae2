"""What a kernel's text may not hold where it is compiled for the host.

On a GPU none of this works, or NVRTC refuses it; on a host it would read files, run before `main`, or put
text into the assembler's hands. The sandbox is what isolates; these rules keep the compiler to its job and
give the reason in plain words. `toolchain.sources` has judged the names of headers before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..model import Status
from .errors import CandidateFault
from .tokens import Token, tokens

_PRAGMAS = (
    "unroll",
    "nounroll",
    "once",
    "nv_diag_suppress",
    "nv_diag_default",
    "nv_diagnostic",
    "region",
    "endregion",
)
_ATTRIBUTES = frozenset(
    [
        "aligned",
        "always_inline",
        "const",
        "deprecated",
        "fallthrough",
        "flatten",
        "gnu_inline",
        "likely",
        "maybe_unused",
        "may_alias",
        "nodiscard",
        "noinline",
        "noreturn",
        "nothrow",
        "packed",
        "pure",
        "unlikely",
        "unused",
        "used",
    ]
)
_TESTS = ("__has_include", "__has_include_next", "__has_embed")
# Macros and variables of the emulation, and of the compiler's own runtime.
_RESERVED = re.compile(
    r"_*(wde|WDE)_|__(asan|tsan|ubsan|sanitizer|builtin_(apply|return_address|frame_address))"
)


def refuse(text: str) -> None:
    """Raise CandidateFault (`compile_error`) for what isn't allowed, with its line as `@line`."""
    every = tokens(text)
    for index, token in enumerate(every):
        if token.kind == "directive":
            _directive(token)
        elif token.kind == "word":
            _word(every, index)
        elif token.text == "[" and (following := _next(every, index)) is not None and following.text == "[":
            _standard_attribute(every, index)


def _fault(token: Token, what: str) -> CandidateFault:
    return CandidateFault(Status.COMPILE_ERROR, f"@{token.line}: {what}")


def _next(every: Sequence[Token], index: int) -> Token | None:
    return next((t for t in every[index + 1 :] if t.kind not in ("comment", "space")), None)


def _word(every: Sequence[Token], index: int) -> None:
    token = every[index]
    if token.text in _TESTS:
        raise _fault(token, f"{token.text} isn't available to kernels")
    if _RESERVED.match(token.text):
        raise _fault(token, f"the name {token.text} is reserved")
    if token.text in ("__attribute__", "__attribute", "__declspec"):
        _attributes(token, _inside(every, index))
    elif token.text in ("_Pragma", "__pragma"):
        inside = [t for t in _inside(every, index) if t.is_code]
        if len(inside) != 1 or not _pragma_allowed(inside[0].text.strip('"')):
            raise _fault(token, "only #pragma unroll may be given to the compiler")


def _inside(every: Sequence[Token], index: int) -> list[Token]:
    """The tokens between the brackets that follow."""
    found: list[Token] = []
    depth = 0
    for token in every[index + 1 :]:
        if not token.is_code:
            continue
        if token.text in "([":
            depth += 1
        if depth == 0:
            break
        found.append(token)
        if token.text in ")]":
            depth -= 1
            if depth == 0:
                break
    return found[1:-1]


def _attributes(token: Token, inside: Sequence[Token]) -> None:
    depth = 0
    for part in inside:
        depth += (part.text == "(") - (part.text == ")")
        if part.kind == "word" and depth == 1 and part.text.strip("_") not in _ATTRIBUTES:
            raise _fault(token, f"attribute {part.text} isn't available to kernels")


def _standard_attribute(every: Sequence[Token], index: int) -> None:
    """[[…]]: of the standard's only. (`a[[…] {…}()]` isn't C++.)"""
    following = [t for t in every[index + 1 : index + 40] if t.is_code]
    if len(following) > 1 and following[1].kind == "word" and following[1].text.strip("_") not in _ATTRIBUTES:
        raise _fault(every[index], f"attribute {following[1].text} isn't available to kernels")


def _pragma_allowed(text: str) -> bool:
    words = re.findall(r"\w+", text)
    return not words or words[0] in _PRAGMAS or words[:2] == ["GCC", "unroll"]


def _directive(token: Token) -> None:
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", re.sub(r"\\\r?\n", "", token.text), flags=re.DOTALL)
    found = re.match(r"\s*(?:#|%:)\s*(\w*)\s*(.*)", text, re.DOTALL)
    name, rest = (found[1], found[2]) if found else ("", "")
    if name == "pragma" and not _pragma_allowed(rest):
        raise _fault(token, f"#pragma {rest.strip()} isn't available to kernels")
    if name.isdigit():
        raise _fault(token, "a line marker isn't available to kernels")
    if name in ("line", "ident", "sccs", "assert", "unassert", "embed", "import", "include_next"):
        raise _fault(token, f"#{name} isn't available to kernels")
    if name not in ("error", "warning", "include", "pragma"):
        inner = tokens(rest)
        for index in range(len(inner)):
            if inner[index].kind == "word":
                _word([Token(t.kind, t.text, token.line) for t in inner], index)
