"""What the model proposes, as JSON: a kernel's source, its launches, and why. Parsed strictly; every problem
is named in words that the model gets back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...core.errors import UsageError
from ...core.expr import FUNCTIONS, compile_expr, near
from ...core.model import Candidate, Case
from ...core.workload import LaunchSpec, Variant, Workload

MAX_SOURCE = 200_000  # characters
MAX_LAUNCHES = 16  # kernels of one candidate
MAX_WORDS = 2_000  # characters of an idea or a summary that are kept
PROBLEMS_TOLD = 8
PROBE = "proposal"  # the name of a variant that only lives while its launches are tried

_EXTENT = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3}
_LAUNCHES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "entry": {"type": "string"},
            "grid": _EXTENT,
            "block": _EXTENT,
            "shared": {"type": "string"},
        },
        "required": ["entry", "grid", "block", "shared"],
        "additionalProperties": False,
    },
}

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "idea": {"type": "string", "description": "the change, in one sentence"},
        "summary": {"type": "string", "description": "why it should be faster: two or three sentences"},
        "source": {"type": "string", "description": "the whole CUDA C++ file"},
        "launches": {**_LAUNCHES, "description": "kernels in order, for every case that has none of its own"},
        "case_launches": {
            "type": "array",
            "description": "other launches for single cases; empty if there are none",
            "items": {
                "type": "object",
                "properties": {"case": {"type": "string"}, "launches": _LAUNCHES},
                "required": ["case", "launches"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["idea", "summary", "source", "launches", "case_launches"],
    "additionalProperties": False,
}

IDEAS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "ideas": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"idea": {"type": "string"}, "why": {"type": "string"}},
                "required": ["idea", "why"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["ideas"],
    "additionalProperties": False,
}

_FENCE = re.compile(r"\A\s*```[\w+-]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"[A-Za-z_]\w{0,127}\Z")


class ProposalError(Exception):
    """A proposal that can't be evaluated; `problems` are told to the model."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class Proposal:
    """A kernel to try. `launches` and `case_launches` as in `core.model.Variant`."""

    idea: str
    summary: str
    source: str
    launches: tuple[LaunchSpec, ...]
    case_launches: Mapping[str, tuple[LaunchSpec, ...]]


def parse(data: Any, workload: Workload, cases: Sequence[Case]) -> Proposal:
    """A proposal from the model's JSON.

    Args:
        data: What the JSON held; anything.
        workload: Whose parameters the launches are expressions of.
        cases: The performance cases; only they can have launches of their own. The workload's other cases are
            hidden from the model, but what it proposes must be launchable for them.

    Raises:
        ProposalError: with every problem found (at most 8).
    """
    if not isinstance(data, Mapping):
        raise ProposalError([f"the answer must be a JSON object with {', '.join(SCHEMA['required'])}"])
    problems: list[str] = []
    source = _source(data.get("source"), problems)
    named = {c.name: c for c in cases}
    launches = _launches(data.get("launches"), "launches", workload, problems)
    special: dict[str, tuple[LaunchSpec, ...]] = {}
    rows = data.get("case_launches") or []
    if isinstance(rows, Mapping):  # {case: launches}, as models write it without a schema
        rows = [{"case": case, "launches": launches} for case, launches in rows.items()]
    if not isinstance(rows, list):
        problems.append("case_launches must be a list of {case, launches}")
        rows = []
    for row in rows:
        case = row.get("case") if isinstance(row, Mapping) else None
        if not isinstance(case, str) or case not in named:
            problems.append(f"case_launches: unknown case {case!r}; {near(str(case), named)}")
            continue
        special[case] = _launches(row.get("launches"), f"case_launches of {case}", workload, problems)
    if source and not problems:
        for entry in dict.fromkeys(s.entry for group in (launches, *special.values()) for s in group):
            problem = _entry_problem(entry, source)
            if problem:
                problems.append(problem)
        problems += _unlaunchable(workload, (*cases, *workload.cases), launches, special)
    if problems:
        raise ProposalError(problems[:PROBLEMS_TOLD])
    return Proposal(_words(data, "idea"), _words(data, "summary"), source, launches, special)


def parse_ideas(data: Any, wanted: int) -> list[str]:
    """At most `wanted` ideas from the model's JSON. Raises ProposalError if there is none."""
    rows = data.get("ideas") if isinstance(data, Mapping) else None
    found = []
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, Mapping):
            idea, why = (str(row.get(key) or "").strip() for key in ("idea", "why"))
            text = f"{idea} ({why})" if idea and why else idea
        else:
            text = row.strip() if isinstance(row, str) else ""
        if text:
            found.append(text[:MAX_WORDS])
    if not found:
        raise ProposalError(['the answer must be {"ideas": [{"idea": …, "why": …}]} with at least one idea'])
    return list(dict.fromkeys(found))[:wanted]


def _words(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    return value.strip()[:MAX_WORDS] if isinstance(value, str) else ""


def _source(value: Any, problems: list[str]) -> str:
    if not isinstance(value, str) or not value.strip():
        problems.append("source must be the whole CUDA C++ file as a text")
        return ""
    if len(value) > MAX_SOURCE:
        problems.append(f"source has {len(value):,} characters; at most {MAX_SOURCE:,}")
        return ""
    if "\0" in value:
        problems.append("source holds a null character")
        return ""
    try:
        value.encode()
    except UnicodeEncodeError:
        problems.append("source holds a lone surrogate; write plain UTF-8")
        return ""
    fenced = _FENCE.match(value)
    return (fenced[1] if fenced else value).rstrip() + "\n"


def _launches(value: Any, where: str, workload: Workload, problems: list[str]) -> tuple[LaunchSpec, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_LAUNCHES:
        problems.append(
            f"{where} must be a list of 1 to {MAX_LAUNCHES} launches {{entry, grid, block, shared}}"
        )
        return ()
    found = []
    for number, row in enumerate(value, 1):
        place = where if len(value) == 1 else f"{where}, number {number}"
        if not isinstance(row, Mapping):
            problems.append(f"{place}: must be an object {{entry, grid, block, shared}}")
            continue
        entry = row.get("entry")
        if not isinstance(entry, str) or not _ENTRY.match(entry):
            problems.append(f'{place}: entry must be the name of an extern "C" kernel, not {entry!r}')
            continue
        grid = _extent(row.get("grid"), f"{place}: grid", workload, problems)
        block = _extent(row.get("block"), f"{place}: block", workload, problems)
        shared = _expression(row.get("shared", 0), f"{place}: shared", workload, problems)
        found.append(LaunchSpec(entry, grid, block, shared))
    return tuple(found)


def _extent(value: Any, where: str, workload: Workload, problems: list[str]) -> tuple[str, ...]:
    items = list(value) if isinstance(value, list) else [value]
    while len(items) > 3 and str(items[-1]).strip() == "1":
        items.pop()
    if not 1 <= len(items) <= 3:
        problems.append(f"{where} needs 1 to 3 expressions (x, y, z), got {len(items)}")
        return ()
    return tuple(_expression(item, where, workload, problems) for item in items)


def _expression(value: Any, where: str, workload: Workload, problems: list[str]) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        problems.append(f"{where}: must be a whole number or an expression as a text, not {value!r:.60}")
        return "1"
    text = str(value).strip()
    try:
        compile_expr(text, workload.params)
    except UsageError as error:
        problems.append(
            f"{where}: {error} (allowed: {', '.join(workload.params)}, numbers, {EXPRESSION_HELP})"
        )
    return text


EXPRESSION_HELP = f"+ - * // %, comparisons, `a if c else b`, {', '.join(FUNCTIONS)}"


def _entry_problem(entry: str, source: str) -> str | None:
    """Why a kernel can't be launched by this name; a glance: the compiler has the last word."""
    code = _COMMENT.sub(" ", source)
    if not re.search(rf"\b{re.escape(entry)}\s*\(", code):
        return f"launches name the kernel {entry!r}, which the source doesn't define"
    if not re.search(r'extern\s*"C"', code):
        return f'declare extern "C" __global__ void {entry}(…): kernels are found by their plain names'
    if "<<<" in code:
        return "the source launches with <<<…>>>: write device code only, and give launches in `launches`"
    return None


def _unlaunchable(
    workload: Workload,
    cases: Iterable[Case],
    launches: tuple[LaunchSpec, ...],
    special: Mapping[str, tuple[LaunchSpec, ...]],
) -> list[str]:
    """Launches that are impossible for a case, one problem each."""
    entry = launches[0].entry
    variant = Variant(PROBE, Path(), "cuda", entry, launches, "", case_launches=special)
    probed = replace(workload, variants={PROBE: variant})
    found: dict[str, None] = {}
    for case in cases:
        try:
            probed.launches(Candidate(PROBE, {}, ""), case)
        except UsageError as error:
            found[f"case {case.name}: {str(error).removeprefix(workload.name + ': ')}"] = None
    return list(found)
