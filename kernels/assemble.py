"""Puts a workload's folder together from its parts; what is missing is derived, or named for the model."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import UsageError, WarpdeckError
from ..core.model import Case, Role
from ..core.workload import Argument, LaunchSpec, Workload
from . import derive
from .bare import launch_row
from .loader import load_workload
from .parts import DERIVED, GIVEN, Parts
from .signature import Signature, kernels_in

INITIAL = "initial"  # the variant of the initial kernel
FILES = ("workload.toml", "reference.py", "kernel.cu")
_REMEDY = {
    "signature": "--signature FILE",
    "reference": "--reference FILE.py",
    "kernel": "--initial-kernel FILE.cu",
    "shapes": "--signature FILE with extents, as in const float A[m][k]",
    "values": "a value in the signature, as in float alpha = 2",
}


def derived(parts: Parts) -> Parts:
    """The parts, with all that follows from those that are there. Raises UsageError for contradictions."""
    signature = parts.parsed_signature()
    if signature is None:
        return parts
    origins = dict(parts.origins)
    if parts.signature is None:
        origins["signature"] = DERIVED
        signature = derive.directions(signature, parts.reference)
    if signature.shapeless:
        signature = signature.with_shapes(derive.only_shape(signature))
    signature = _with_values(signature, parts)
    own = {a.name: a.data for a in signature.arguments if a.data not in ("normal", "integers")}
    data = {**{name: kind for name, kind in own.items() if kind != "zeros"}, **parts.data}
    parts = replace(parts, signature=signature.text(), name=parts.name or signature.entry, data=data)
    checked = any(case.get("role", Role.CORRECTNESS) == Role.CORRECTNESS for case in parts.cases)
    stored = any(value.startswith("file:") for value in parts.data.values())  # which have one shape
    if not checked and not stored and not signature.shapeless:
        origins["cases"] = f"{GIVEN}, with derived ones to check" if parts.cases else DERIVED
        parts = replace(parts, cases=(*parts.cases, *derive.cases(signature.params)))
    if parts.kernel is not None and not parts.launches and not signature.shapeless:
        entry = _entry(signature, parts.kernel)
        output = next(a for a in signature.arguments if a.is_output)
        origins["launch"] = DERIVED
        parts = replace(parts, launches=(derive.launch(parts.kernel, entry, output),))
    return replace(parts, origins=origins)


def missing(parts: Parts) -> tuple[str, ...]:
    """What no part says and none follows from: of `signature shapes values reference kernel`."""
    found = []
    signature = parts.parsed_signature()
    if signature is None:
        found.append("signature")
    else:
        found += ["shapes"] * bool(signature.shapeless)
        found += ["values"] * any(a.kind == "scalar" and a.value is None for a in signature.arguments)
    found += ["reference"] * (parts.reference is None)
    found += ["kernel"] * (parts.kernel is None)
    return tuple(found)


def require_describable(parts: Parts) -> None:
    """Refuse parts from which not even a model could tell what is wanted. Raises UsageError."""
    if parts.description is None and parts.reference is None and parts.kernel is None:
        raise UsageError("what shall the kernel compute? give --description, --reference or --initial-kernel")


def refusal(lacking: Sequence[str]) -> UsageError:
    """What to say where something is missing and no model is asked."""
    ways = ", ".join(_REMEDY[part] for part in lacking)
    return UsageError(
        f"the workload has no {' and no '.join(lacking)}: give {ways}; or let --agent llm generate it"
    )


def assemble(parts: Parts, folder: Path) -> Workload:
    """Write a workload's folder and load it. Files that are there already are replaced.

    Args:
        parts: with nothing missing after `derived`.
        folder: created if need be.

    Raises:
        UsageError: a part is missing, or they don't fit together; says which.
        WarpdeckError: the folder can't be written.
    """
    parts = derived(parts)
    lacking = missing(parts)
    if lacking:
        raise refusal(lacking)
    signature = parts.parsed_signature()
    assert signature is not None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        parts = replace(parts, data=_copied(parts.data, folder))
        texts = (_toml(parts, signature), parts.reference or "", parts.kernel or "")
        for name, text in zip(FILES, texts, strict=True):
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as e:
        raise WarpdeckError(f"{folder}: the workload can't be written: {e.strerror}") from None
    try:
        return load_workload(folder)
    except UsageError as e:
        raise UsageError(_placed(str(e), parts, folder.resolve())) from None


# A table of workload.toml, and the field of the parts that it was written from.
_TABLES = (
    (r"\[\[case\]\]", "cases"),
    (r"\[sizes\]", "sizes"),
    (r"\[workload\] (?=tolerance\b)", "tolerance"),
    (r"\[workload\] (?=default_size\b)", "default_size"),
    (rf"\[\[variant\]\] {INITIAL} (?=knobs\b)", "knobs"),
    (rf"\[\[variant\]\] {INITIAL} \[\[launch\]\]", "launch"),
    (r"\[\[argument\]\]", "signature"),
)


_WORDS = {"cases": "case", "sizes": "sizes", "launch": "launch", "signature": "parameter"}


def _placed(fault: str, parts: Parts, folder: Path) -> str:
    """A fault in the written folder, told of what the user wrote instead: that folder is about to go."""
    for name, part in (("reference.py", "reference"), ("kernel.cu", "initial_kernel")):
        fault = fault.replace(str(folder / name), parts.places.get(part) or name)
    head = f"{folder / FILES[0]}: "
    if not fault.startswith(head):
        return fault.replace(f"{folder}/", "")
    told = fault.removeprefix(head)
    for table, part in _TABLES:
        found = re.match(table, told)
        if found:
            rest = told[found.end() :].strip()
            where = parts.places.get(part) or "the parts of the workload"
            what = f"{part}{rest}" if rest.startswith(":") else f"{_WORDS.get(part, '')} {rest}".strip()
            return f"{where}: {what}"
    return f"the parts of the workload: {told}"


def parts_of(
    workload: Workload,
    kernel: str,
    launches: Sequence[LaunchSpec],
    case_launches: Mapping[str, Sequence[LaunchSpec]],
) -> Parts:
    """The parts of a workload, with another kernel in CUDA C++ to begin with, whose knobs are fixed.

    Raises UsageError: its reference can't be read, or only a recording of it is here.
    """
    if workload.recorded:
        raise UsageError(f"{workload.name} was imported: a recording holds no kernel to go on from")
    rows = [launch_row(spec) for spec in launches]
    rows += [{"case": case, **launch_row(spec)} for case, specs in case_launches.items() for spec in specs]
    taken = [a for a in workload.arguments if a.taken_by("cuda")]
    path = workload.folder / "reference.py"
    try:
        reference = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"{path}: can't be read: {e}") from None
    data = {a.name: a.data for a in taken if a.kind == "buffer"}
    stored = {name: text.removeprefix("file:") for name, text in data.items() if text.startswith("file:")}
    data |= {name: f"file:{workload.folder / Path(text).expanduser()}" for name, text in stored.items()}
    inherited = ("signature", "reference", "cases")
    known = {key: text for key, text in workload.origins.items() if key in inherited}
    floor = {"bytes": workload.floor_bytes, "flops": workload.floor_flops}
    return Parts(
        name=workload.name,
        description=workload.description or None,
        signature=Signature(launches[0].entry, tuple(replace(a, language=None) for a in taken)).text(),
        reference=reference,
        kernel=kernel,
        cases=tuple(_case_row(case) for case in workload.cases),
        sizes=dict(workload.sizes),
        data=data,
        tolerance=workload.tolerance.to_json(),
        launches=tuple(rows),
        default_size=workload.default_size,
        origins={**dict.fromkeys(inherited, workload.name), **known},
        checks=tuple(filter(None, [workload.origins.get("checks")])),
        floor={key: text for key, text in floor.items() if text},
        vendor=workload.vendor_name,
    )


def _case_row(case: Case) -> dict[str, Any]:
    row: dict[str, Any] = {"name": case.name, "role": str(case.role), **case.params}
    row |= {key: True for key in ("edge", "exact") if getattr(case, key)}
    return row | ({"data": case.data} if case.data else {})


def _with_values(signature: Signature, parts: Parts) -> Signature:
    """Scalars' values and buffers' data as the cases' document gives them."""
    names = {a.name: a for a in signature.arguments}
    for what, given in (("values", parts.values), ("data", parts.data), ("shapes", parts.shapes)):
        unknown = next((n for n in given if n not in names), None)
        if unknown is not None:
            raise UsageError(f"{what}: the signature has no parameter {unknown!r}")
    arguments = tuple(
        replace(a, value=parts.values[a.name]) if a.kind == "scalar" and a.name in parts.values else a
        for a in signature.arguments
    )
    return replace(signature, arguments=arguments)


def _entry(signature: Signature, kernel: str) -> str:
    """The kernel's name in the source: the signature's, or the only one there is."""
    names = kernels_in(kernel)
    if not names:
        raise UsageError('the initial kernel holds no kernel; write extern "C" __global__ void NAME(…)')
    if signature.entry in names:
        return signature.entry
    if len(names) == 1:
        return names[0]
    raise UsageError(f"the initial kernel has {', '.join(names)}, none of them {signature.entry!r}")


def _copied(data: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Data files lie in the folder, so that it stands alone."""
    found = {}
    for name, value in data.items():
        if value.startswith("file:"):
            source, target = Path(value.removeprefix("file:")), folder / "data" / f"{name}.npy"
            if source != target.absolute():
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(source, target)
            value = f"file:data/{target.name}"
        found[name] = value
    return found


# -- workload.toml ---------------------------------------------------------------------------------------


def _toml(parts: Parts, signature: Signature) -> str:
    assert parts.kernel is not None
    entry = _entry(signature, parts.kernel)
    head: dict[str, Any] = {"name": _name(parts.name or entry)}
    if parts.description:
        head["description"] = " ".join(parts.description.split())
    if parts.tolerance:
        head["tolerance"] = dict(parts.tolerance)
    if parts.default_size:
        head["default_size"] = parts.default_size
    sections = [_table("workload", head), _table("origins", _origins(parts))]
    params = _params(parts, signature)
    if parts.sizes:
        sections.append(_table("sizes", {p: parts.sizes.get(p, "size") for p in params}))
    if parts.floor:
        sections.append(_table("floor", parts.floor))
    if parts.vendor:
        sections.append(_table("vendor", {"name": parts.vendor}))
    sections += [_table("argument", _argument(a, parts.data), array=True) for a in signature.arguments]
    sections += [_table("case", dict(case), array=True) for case in parts.cases]
    sections.append(
        _table("variant", {"name": INITIAL, "file": "kernel.cu", "entry": entry, "ladder": 0}, array=True)
    )
    if parts.knobs:
        sections.append(_table("variant.knobs", dict(parts.knobs)))
    for launch in parts.launches:
        sections.append(
            _table("variant.launch", {k: v for k, v in launch.items() if v is not None}, array=True)
        )
    return "\n\n".join(sections) + "\n"


def _origins(parts: Parts) -> dict[str, Any]:
    known = {part: parts.origins.get(part, GIVEN) for part in ("signature", "reference", "kernel", "cases")}
    known |= {
        part: parts.origins[part] for part in ("launch", "description", "tolerance") if part in parts.origins
    }
    return known | ({"checks": list(parts.checks)} if parts.checks else {})


def _params(parts: Parts, signature: Signature) -> list[str]:
    reserved = ("name", "role", "edge", "data", "exact")
    named = [p for case in parts.cases for p in case if p not in reserved]
    return list(dict.fromkeys([*signature.params, *named]))


def _name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text).strip("-") or "workload"


def _argument(a: Argument, data: Mapping[str, str]) -> dict[str, Any]:
    if a.kind == "scalar":
        return {"name": a.name, "kind": a.kind, "dtype": a.dtype, "value": a.value}
    row: dict[str, Any] = {"name": a.name, "kind": a.kind, "dtype": a.dtype, "shape": list(a.shape)}
    if a.kind == "buffer":
        row["direction"] = a.direction
        if a.name in data or a.is_input:
            row["data"] = data.get(a.name, a.data)
    return row


def _table(name: str, values: Mapping[str, Any], *, array: bool = False) -> str:
    head = f"[[{name}]]" if array else f"[{name}]"
    return "\n".join([head, *(f"{_key(k)} = {_value(v)}" for k, v in values.items())])


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else json.dumps(text)


def _value(value: Any) -> str:
    """A TOML value. Raises UsageError for what TOML has no form for."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(k))} = {_value(v)}" for k, v in value.items()) + " }"
    raise UsageError(f"the parts of the workload hold {value!r}, which workload.toml has no form for")
