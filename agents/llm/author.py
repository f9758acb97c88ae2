"""Has the model write what a workload lacks: signature, cases, reference, initial kernel; and checks it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...core.check.plan import CheckPlan
from ...core.errors import UsageError
from ...core.workload import Workload
from ...kernels.assemble import assemble, derived, missing
from ...kernels.derive import parameters_of
from ...kernels.parts import GENERATED, Parts
from ...kernels.signature import kernels_in
from .client import Client, Message
from .crosscheck import KINDS, SMALL, Disagreement, Property, References, agree, holds
from .errors import LlmError
from .prompts import DATA_RULE, quoted
from .proposal import EXPRESSION_HELP
from .schema import problems

TRIES = 3  # answers to one question, the mended ones included
REFERENCES = 3  # independent ones at most; two that agree are enough

_TEXT = {"type": "string"}
_EXTENT = {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 3}
_FIELDS: dict[str, Any] = {
    "signature": {**_TEXT, "description": "the kernel's prototype in the grammar that you were given"},
    "reference": {**_TEXT, "description": "a Python file with the function reference(…), in NumPy"},
    "kernel": {**_TEXT, "description": "a CUDA C++ file: simple, correct, device code only"},
    "launches": {
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "properties": {"entry": _TEXT, "grid": _EXTENT, "block": _EXTENT, "shared": _TEXT},
            "required": ["entry", "grid", "block", "shared"],
            "additionalProperties": False,
        },
    },
    "properties": {
        "type": "array",
        "description": "what must hold for the function whatever its inputs; empty if nothing does",
        "items": {
            "type": "object",
            "properties": {
                "kind": {"type": "string", "enum": list(KINDS)},
                "inputs": {"type": "array", "items": _TEXT, "minItems": 1},
                "power": {"type": "number"},
                "axis": {"type": "integer"},
                "output_axis": {"type": "integer"},
            },
            "required": ["kind", "inputs", "power", "axis", "output_axis"],
            "additionalProperties": False,
        },
    },
    "rtol": {"type": "number", "description": "relative tolerance for the kernel's precision, as 1e-4"},
    "atol": {"type": "number", "description": "absolute tolerance, as 1e-5"},
}

_GRAMMAR = """\
The signature is one C prototype with extents in brackets behind each buffer's name, for example
void gemm(const float A[m][k], const float B[k][n], float C[m][n], int m, int n, int k)
const marks an input; inout, out or workspace (zeroed scratch memory) say another use; no marker: an output.
An extent is an expression over case parameters (whole numbers that the cases give). An int named like a
parameter has its value; other scalars need one: float alpha = 2."""

_REFERENCE = """\
The reference is a Python file that imports only numpy. reference(…) takes inputs (float64 and int64 arrays)
and scalars by the signature's names, in any order, only those that it needs, and returns the output array of
the declared shape, or {name: array} for several outputs. It computes in float64, plainly, without
randomness, files, or tricks for speed."""

_KERNEL = f"""\
The kernel is a CUDA C++ file for NVRTC: device code only, each kernel extern "C" __global__ void with exactly
the signature's parameters. `launches` says grid, block (lists of expressions) and shared memory in bytes over
the case parameters ({EXPRESSION_HELP}). Write the simple version: it is the start of an optimisation."""

_PROPERTIES = """\
`properties` lists what must hold: linear (in `inputs` together), scaling (all `inputs` times c: the result
times c**power), permutation (of `axis` of the one input permutes `output_axis` of the result), invariant
(permuting `axis` of the one input changes nothing). Name only what is mathematically certain."""


def complete(parts: Parts, client: Client, tell: Callable[[str], None], *, seed: int = 0) -> Parts:
    """The parts with everything that was missing, written by the model and checked.

    A generated reference is compared with a second one that the model writes without seeing the first, and
    with a third if those two disagree, on random inputs in float64; properties that the model names are
    checked numerically. All of it runs in the sandbox.

    Args:
        parts: what the user gave.
        client: asks the model.
        tell: gets a line for people at each step.
        seed: of the inputs.

    Raises:
        LlmError: no two of its references agree, or nothing usable came; says what to give instead.
        SandboxError: nothing isolates here, so that no reference of a model's can be run.
        UsageError: what the user gave contradicts itself.
    """
    parts = derived(parts)
    origin = f"{GENERATED}{client.settings.model}"
    lacking = missing(parts)
    if not lacking:
        return parts
    tell(f"the model writes what the workload lacks: {', '.join(lacking)}")
    drafted, rules = _draft(parts, lacking, client, origin)
    if "reference" in lacking:
        drafted = _checked(drafted, rules, client, tell, seed)
    return drafted


def _draft(
    parts: Parts, lacking: Sequence[str], client: Client, origin: str
) -> tuple[Parts, tuple[Property, ...]]:
    """One answer with all that is missing, mended until it fits together."""
    wanted = list(lacking)
    if "shapes" in wanted or "values" in wanted:
        wanted = list(dict.fromkeys(["signature", *(w for w in wanted if w not in ("shapes", "values"))]))
    fields = [w for w in ("signature", "reference", "kernel") if w in wanted]
    fields += ["launches"] * ("kernel" in wanted) + ["properties"] * ("reference" in wanted)
    fields += ["rtol", "atol"] * (parts.tolerance is None)
    messages = [{"role": "system", "content": _system(fields)}, {"role": "user", "content": _known(parts)}]

    def use(data: Mapping[str, Any]) -> tuple[Parts, tuple[Property, ...]]:
        filled = _filled(parts, data, fields, origin)
        with tempfile.TemporaryDirectory(prefix="warpdeck-author-") as folder:
            try:
                workload = assemble(filled, Path(folder))
                _fits(filled, workload)
                if "reference" not in fields:
                    _runs(workload)
            except UsageError as fault:  # a resumed run must ask the same again: no folder's random name
                raise UsageError(str(fault).replace(f"{Path(folder).resolve()}/", "")) from None
        return filled, _rules(data, workload)

    return _asked(client, messages, _schema(fields), "author: workload", use)


def _checked(
    parts: Parts, rules: Sequence[Property], client: Client, tell: Callable[[str], None], seed: int
) -> Parts:
    """The parts with a reference that another one agrees with, and what was found."""
    with tempfile.TemporaryDirectory(prefix="warpdeck-author-") as folder:
        workload = assemble(parts, Path(folder))
    texts = [parts.reference or ""]
    last = ""
    while len(texts) < REFERENCES:
        tell(f"the model writes reference {len(texts) + 1} without seeing the others, to compare them")
        texts.append(_another(parts, workload, client, len(texts) + 1))
        for older in range(len(texts) - 1):
            pair = (texts[older], texts[-1])
            try:
                found = _compared(workload, pair, rules, seed)
            except Disagreement as problem:
                last = str(problem)
                tell(f"references {older + 1} and {len(texts)}: {last}")
                continue
            return replace(parts, reference=pair[0], checks=found)
    raise LlmError(
        f"no two of {REFERENCES} references that the model wrote agree ({last})",
        "give --reference FILE.py, or describe the computation more exactly",
        "invalid",
    )


def _compared(
    workload: Workload, pair: tuple[str, str], rules: Sequence[Property], seed: int
) -> tuple[str, ...]:
    with References(workload, pair) as references:
        largest = agree(references, seed)
        for rule in rules:
            holds(references, rule, seed + 1)
    said = f"agrees with a second, independent one in float64 (largest difference {largest:.1e})"
    return (said, *(f"{rule}: verified" for rule in rules)) if rules else (said, "no property to verify")


def _another(parts: Parts, workload: Workload, client: Client, number: int) -> str:
    """A reference written from the description and the signature alone."""
    approach = "with explicit loops or another formula than the obvious one, where you can"
    messages = [
        {
            "role": "system",
            "content": f"You write the reference of a computation. {_REFERENCE}\n\n{DATA_RULE}",
        },
        {
            "role": "user",
            "content": "\n\n".join(
                [
                    quoted("description", parts.description or f"what {parts.name} computes"),
                    quoted("signature", parts.signature or ""),
                    *(
                        [quoted("kernel", parts.kernel)]
                        if _is_given(parts, "kernel") and parts.kernel
                        else []
                    ),
                    f"Write reference number {number}, {approach}.",
                ]
            ),
        },
    ]

    def use(data: Mapping[str, Any]) -> str:
        _fits(replace(parts, reference=data["reference"]), workload)
        return data["reference"]

    return _asked(client, messages, _schema(["reference"]), f"author: reference {number}", use)


def _asked(
    client: Client,
    messages: Sequence[Message],
    schema: Mapping[str, Any],
    purpose: str,
    use: Callable[[Mapping[str, Any]], Any],
) -> Any:
    """What `use` makes of the answer; its UsageErrors are told to the model, which may mend them."""
    said = list(messages)
    problem = ""
    for _ in range(TRIES):
        reply = client.ask(said, purpose=purpose, schema=schema)
        wrong = problems(reply.data, schema)
        try:
            if wrong:
                raise UsageError("; ".join(wrong))
            return use(reply.data)
        except UsageError as error:
            problem = str(error)
        said += [
            {"role": "assistant", "content": json.dumps(reply.data)},
            {"role": "user", "content": f"That can't be used:\n{quoted('problem', problem)}\nMend it."},
        ]
    raise LlmError(
        f"the model's answer can't be used ({problem})",
        "describe the computation more exactly, or give the part yourself",
        "invalid",
    )


def _schema(fields: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: _FIELDS[name] for name in fields},
        "required": list(fields),
        "additionalProperties": False,
    }


def _system(fields: Sequence[str]) -> str:
    texts = ["You complete the description of a computation that a CUDA kernel shall do.", _GRAMMAR]
    texts += [_REFERENCE, _PROPERTIES] if "reference" in fields else []
    texts += [_KERNEL] if "kernel" in fields else []
    return "\n\n".join([*texts, f"Answer with a JSON object: {', '.join(fields)}.", DATA_RULE])


def _known(parts: Parts) -> str:
    """What the user gave, as data."""
    given = [
        ("description", parts.description),
        ("signature", parts.signature),
        ("reference", parts.reference),
        ("kernel", parts.kernel),
        ("cases", json.dumps([dict(case) for case in parts.cases]) if parts.cases else None),
        ("launches", json.dumps([dict(row) for row in parts.launches]) if parts.launches else None),
    ]
    return "\n\n".join(quoted(name, text) for name, text in given if text)


def _is_given(parts: Parts, part: str) -> bool:
    return not parts.origins.get(part, "").startswith(GENERATED)


def _filled(parts: Parts, data: Mapping[str, Any], fields: Sequence[str], origin: str) -> Parts:
    """The parts with the model's; what the user gave stays."""
    origins, changes = dict(parts.origins), {}
    for name in ("signature", "reference", "kernel"):
        if name in fields:
            changes[name] = data[name].strip() + "\n"
            origins[name] = origin
    if "launches" in fields:
        changes["launches"] = tuple(data["launches"])
        origins["launch"] = origin
    if "rtol" in fields:
        changes["tolerance"] = {"rtol": float(data["rtol"]), "atol": float(data["atol"])}
        origins["tolerance"] = origin
    return derived(replace(parts, origins=origins, **changes))


def _fits(parts: Parts, workload: Workload) -> None:
    """Whether reference and kernel are of the signature. Raises UsageError."""
    names = [a.name for a in workload.arguments if a.kind == "scalar" or a.is_input]
    asked = parameters_of(parts.reference)
    if not asked:
        raise UsageError("the reference has no function reference(…) with parameters")
    unknown = sorted(asked - set(names))
    if unknown:
        raise UsageError(f"reference asks for {', '.join(unknown)}; the inputs are {', '.join(names)}")
    entries = {str(row["entry"]) for row in parts.launches if row.get("entry")}
    lost = sorted(entries - set(kernels_in(parts.kernel or "")))
    if lost:
        raise UsageError(f"launches name {', '.join(lost)}, which the kernel's source doesn't define")
    for case in workload.cases:
        workload.launches(workload.baseline("ladder"), case)


def _runs(workload: Workload) -> None:
    """Whether the reference that the user gave runs on what the model wrote around it. Raises UsageError."""
    cases = [c for c in workload.cases if workload.total_bytes(c) <= SMALL] or [workload.size_case(48)]
    with CheckPlan(workload, cases) as plan:
        for case in cases:
            plan.inputs(case, 0)


def _rules(data: Mapping[str, Any], workload: Workload) -> tuple[Property, ...]:
    """The properties that the model named. Raises UsageError for inputs and axes that aren't there."""
    found = []
    for row in data.get("properties") or ():
        rule = Property(
            row["kind"], tuple(row["inputs"]), float(row["power"]), int(row["axis"]), int(row["output_axis"])
        )
        for name in rule.inputs:
            a = workload.argument(name)
            if not a.is_input or not a.dtype.startswith("float"):
                raise UsageError(f"properties: {name!r} is no floating-point input")
            if not -len(a.shape) <= rule.axis < len(a.shape):
                raise UsageError(f"properties: {name!r} has no axis {rule.axis}")
        outputs = [a for a in workload.arguments if a.is_output]
        if rule.kind in ("permutation", "invariant") and len(rule.inputs) != 1:
            raise UsageError(f"properties: {rule.kind} is of one input")
        if rule.kind == "permutation" and any(
            not -len(a.shape) <= rule.output_axis < len(a.shape) for a in outputs
        ):
            raise UsageError(f"properties: an output has no axis {rule.output_axis}")
        found.append(rule)
    return tuple(found)
