"""What g++ says about a kernel, in one line: with the user's file and line, and what can't run here named."""

from __future__ import annotations

import re

from ..model import Status
from .errors import CandidateFault, unsupported
from .source import ENTRIES, HOST, MISSING, Source

_ERROR = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$", re.MULTILINE
)
_WHERE = re.compile(  # "kernel.cu:3:5:   required from here", "In file included from kernel.cu:3:"
    r"^(?:(?:In file included)?\s+from )?(?P<file>[^:\s]+):(?P<line>\d+)[:,]\d*:?(?:\s+(?:required|in )|$)",
    re.MULTILINE,
)
_LINKED = re.compile(r"(multiple definition of|undefined reference to) [`']([^']+)'")


def complaint(log: str, source: Source) -> CandidateFault:
    """What the compiler complains about, by the user's file and line."""
    errors = list(_ERROR.finditer(log))
    for found in errors:
        missing = _missing(found["text"])
        if missing is not None:
            return CandidateFault(Status.UNSUPPORTED, f"{_place(found, log, source)}{missing}", "unsupported")
    for found in errors:
        if found["file"] == ENTRIES:
            return CandidateFault(Status.COMPILE_ERROR, _entry_problem(found["text"], source))
        return CandidateFault(
            Status.COMPILE_ERROR, f"{_place(found, log, source)}{_explained(found['text'])}"
        )
    linked = _LINKED.search(log)
    if linked is not None:
        return CandidateFault(Status.COMPILE_ERROR, f"{source.main}: {linked[1]} {linked[2]}")
    return CandidateFault(
        Status.COMPILE_ERROR, f"{source.main}: {' '.join(log[:2000].split())[:300] or 'the compiler failed'}"
    )


def _place(found: re.Match[str], log: str, source: Source) -> str:
    """The file and line of an error, or of the user's code that led to it."""
    if found["file"] in source.texts:
        return f"{source.places.name(int(found['line']))}: "
    others = [m for m in _WHERE.finditer(log) if m["file"] in source.texts]
    before = [m for m in others if m.start() < found.start()]
    after = [m for m in others if m.start() > found.start()]
    for where in (*reversed(before), *after):
        return f"{source.places.name(int(where['line']))}: "
    return f"{source.main}: "


def _missing(text: str) -> str | None:
    """What an error says about something that this device can't do; None for an ordinary error."""
    poisoned = re.search(r'attempt to use poisoned "(\w+)"', text)
    if poisoned is not None and poisoned[1] in MISSING:
        return str(unsupported(MISSING[poisoned[1]]))
    library = re.search(
        r"'(\w+)' is not a member of 'cuda'|'(\w+)' in namespace 'cuda'",
        text.replace("‘", "'").replace("’", "'"),
    )
    if library is not None:
        return str(unsupported(f"libcu++ (cuda::{library[1] or library[2]})"))
    said = re.search(r'unsupported: ([^"]*)', text)
    return None if said is None else said[1].strip()


def _explained(text: str) -> str:
    poisoned = re.search(r'attempt to use poisoned "(\w+)"', text)
    if poisoned is not None and poisoned[1] in HOST:
        return f"{poisoned[1]} is a function of the host; a kernel has none"
    header = re.match(r"(\S+): No such file or directory|no include path in which to search for (\S+)", text)
    if header is not None:
        name = header[1] or header[2]
        return f"there is no header {name}: only CUDA's and those of the kernel's own folder may be included"
    return text.replace("‘", "'").replace("’", "'")


def _entry_problem(text: str, source: Source) -> str:
    plain = text.replace("‘", "'").replace("’", "'")
    named = next((e for e in source.entries if f"'{e}'" in plain or f" {e}(" in plain), source.entries[0])
    if "linkage" in plain:
        return f'{source.main}: kernel {named} must be extern "C"'
    if "not declared" in plain:
        return f"{source.main}: there is no kernel {named} in it"
    return f"{source.main}: kernel {named} can't be launched: {plain}"
