"""The grammar of `workload.toml`: which tables and keys it has, and the workload that they make."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import UsageError
from ..core.expr import compile_expr, near
from ..core.model import Case, Role, Trust, Value
from ..core.space import SearchSpace
from ..core.workload import Argument, LaunchSpec, Tolerance, Variant, Workload
from .table import Table

KINDS = ("buffer", "scalar", "workspace")
DIRECTIONS = ("in", "out", "inout")
DATA = ("normal", "uniform", "integers", "zeros", "python")
SCALARS = ("int32", "int64", "uint32", "uint64", "float32", "float64")
BUFFERS = ("bool", "int8", "int16", "uint8", "uint16", "float16", *SCALARS)
LANGUAGES = {".py": "numba", ".cu": "cuda"}
SINGLE_SPACE = "full"  # the space's name where a file has one variant and no [space.…]

SOURCE_KEYS = ("entry", "restrictions", "file", "language")  # of the one variant, in the short form
WORKLOAD_KEYS = ("name", "description", "tolerance", "default_size", "reference_limit_s", *SOURCE_KEYS)
VARIANT_KEYS = (
    *("name", "file", "language", "entry", "tolerance", "ladder", "precision"),
    *("restrictions", "knobs", "launch"),
)
MAX_REFERENCE_S = 86_400  # more than a day is a mistake
ORIGIN_KEYS = ("description", "signature", "reference", "kernel", "cases", "launch", "tolerance", "checks")
GENERATED = "generated"  # how the origin of a part begins that a model wrote: it runs in a sandbox
MAX_REGISTERS = 255  # of a thread, on every CUDA device
LADDER = "ladder"  # the space that appears by itself where variants have rungs: the lowest rung's


def parse_workload(root: Table, folder: Path, trust: Trust, source_hash: Callable[[Path], str]) -> Workload:
    """Build a Workload from a parsed file. Raises UsageError."""
    root.known(
        (
            *("workload", "origins", "argument", "case", "launch", "knobs", "variant", "space"),
            *("vendor", "floor", "sizes"),
        )
    )
    head = root.table("workload")
    head.known(WORKLOAD_KEYS)
    name = head.text("name")
    params = _params(root)
    sizes = _sizes(root, params)
    names = frozenset(params)
    arguments = tuple(_argument(t, names) for t in root.tables("argument"))
    if not any(a.is_output for a in arguments):
        raise root.error("[[argument]]", 'no buffer has direction "out" or "inout"; a kernel must write one')
    _unique(root, "[[argument]]", [a.name for a in arguments])
    variants, own_spaces = _variants(root, head, folder, names, source_hash)
    spaces = _spaces(root, variants, own_spaces, names)
    floor = root.table("floor")
    floor.known(("bytes", "flops"))
    vendor = root.table("vendor")
    vendor.known(("name",))
    default_size = head.get("default_size", int, "a positive whole number", 1024)
    if default_size < 1:
        raise head.error("default_size", "must be a positive whole number")
    limit = head.get("reference_limit_s", (int, float), "a number of seconds")
    if limit is not None and not 0 < limit <= MAX_REFERENCE_S:
        raise head.error("reference_limit_s", f"must be more than 0 and at most {MAX_REFERENCE_S} seconds")
    origins = _origins(root)
    if trust is Trust.OWN and origins.get("reference", "").startswith(GENERATED):
        trust = Trust.GENERATED
    if origins.get("kernel", "").startswith(GENERATED):
        variants = {name: replace(v, trust=Trust.GENERATED) for name, v in variants.items()}
    workload = Workload(
        name=name,
        description=head.text("description", ""),
        folder=folder,
        trust=trust,
        origins=origins,
        arguments=arguments,
        variants=variants,
        spaces=spaces,
        cases=tuple(_case(t, params) for t in root.tables("case")),
        sizes=sizes,
        tolerance=_tolerance(head) or Tolerance(),
        vendor_name=vendor.text("name", None),
        floor_bytes=floor.expression("bytes", floor.data["bytes"], names) if "bytes" in floor else None,
        floor_flops=floor.expression("flops", floor.data["flops"], names) if "flops" in floor else None,
        default_size=default_size,
        # A stranger's file doesn't say how long his code may run.
        reference_limit_s=None if limit is None or trust is not Trust.OWN else float(limit),
    )
    _unique(root, "[[case]]", [c.name for c in workload.cases])
    for case in workload.cases:  # shapes and scalars must exist for each, and say which case if not
        try:
            workload.shapes(case)
            workload.scalars(case)
        except UsageError as e:
            raise root.error("[[case]]", str(e)) from None
    return workload


def _origins(root: Table) -> dict[str, str]:
    """Where each part of an assembled workload comes from; `checks` is a list, joined here."""
    table = root.table("origins")
    table.known(ORIGIN_KEYS)
    checks = table.get("checks", list, "a list of texts", [])
    found = {key: table.text(key) for key in table.data if key != "checks"}
    return found | ({"checks": "; ".join(map(str, checks))} if checks else {})


def _unique(table: Table, key: str, names: list[str]) -> None:
    for n in names:
        if names.count(n) > 1:
            raise table.error(key, f"the name {n!r} occurs twice; rename one")


def _params(root: Table) -> tuple[str, ...]:
    """Case parameters: the keys of [sizes] and of the cases, in order of appearance."""
    reserved = ("name", "role", "edge", "data", "exact")
    found = list(root.table("sizes").data)
    for case in root.tables("case"):
        found += [k for k in case.data if k not in reserved and k not in found]
    if not found:
        raise root.error("[[case]]", "no case gives a parameter; write for example n = 1003")
    for p in found:
        if not p.isidentifier():
            raise root.error("[[case]]", f"parameter {p!r} isn't a name; use letters, digits and _")
    return tuple(found)


def _sizes(root: Table, params: tuple[str, ...]) -> dict[str, str]:
    table = root.table("sizes")
    sizes = {p: table.expression(p, table.data[p], ("size",)) for p in table.data}
    if sizes and len(sizes) != len(params):
        missing = next(p for p in params if p not in sizes)
        raise table.error(missing, "missing; a case uses this parameter")
    return sizes or dict.fromkeys(params, "size")


def _argument(t: Table, names: Collection[str]) -> Argument:
    t.known(("name", "kind", "dtype", "shape", "direction", "data", "value", "language"))
    name = t.text("name")
    if not name.isidentifier():
        raise t.error("name", f"{name!r} isn't a name; use letters, digits and _")
    kind = t.choice("kind", KINDS)
    dtype = t.choice("dtype", SCALARS if kind == "scalar" else BUFFERS)
    if kind == "scalar":
        t.known(("name", "kind", "dtype", "value", "language"))
        if "value" not in t:
            raise t.error("value", "missing; give a number or an expression over the case's parameters")
        only = t.choice("language", tuple(LANGUAGES.values())) if "language" in t else None
        value = t.expression("value", t.data["value"], names)
        return Argument(name, kind, dtype, value=value, language=only)
    if "language" in t:
        raise t.error("language", "only a scalar can be for one language; kernels share the buffers")
    shape = t.expressions("shape", names, most=4)
    if kind == "workspace":
        t.known(("name", "kind", "dtype", "shape"))
        return Argument(name, kind, dtype, shape, direction="inout", data="zeros")
    direction = t.choice("direction", DIRECTIONS)
    default = "normal" if np.dtype(dtype).kind == "f" else "integers"
    return Argument(name, kind, dtype, shape, direction, _data(t, default))


def _data(t: Table, default: Any) -> Any:
    value = t.text("data", default)
    if isinstance(value, str) and value not in DATA and not (value.startswith("file:") and len(value) > 5):
        raise t.error("data", f"{value!r} isn't one of {', '.join(DATA)} or file:PATH")
    return value


def _case(t: Table, params: tuple[str, ...]) -> Case:
    values = {}
    for p in params:
        values[p] = t.get(p, int, "a whole number of at least 1", ...)
        if values[p] < 1:
            raise t.error(p, f"must be a whole number of at least 1, got {values[p]}")
    role = Role(t.choice("role", [r.value for r in Role], Role.CORRECTNESS.value))
    edge = t.get("edge", bool, "true or false", False)
    exact = t.get("exact", bool, "true or false", False)
    return Case(t.text("name"), role, values, edge=edge, data=_data(t, None), exact=exact)


def _tolerance(t: Table) -> Tolerance | None:
    if "tolerance" not in t:
        return None
    table = Table(t.get("tolerance", dict, "a table"), t.path, f"{t.where} tolerance")
    table.known(("rtol", "atol", "product", "exact"))
    values = {}
    for key in ("rtol", "atol", "product"):
        value = table.get(key, (int, float), "a number of at least 0")
        if value is not None:
            if not 0 <= value < 1:
                raise table.error(key, f"must be at least 0 and below 1, got {value}")
            values[key] = float(value)
    if "product" in values and len(values) > 1:
        raise table.error("product", "stands alone; leave out rtol and atol")
    return Tolerance(**values, exact=table.get("exact", bool, "true or false", False))


def _knobs(t: Table) -> dict[str, tuple[Value, ...]]:
    knobs = {}
    for name, values in t.data.items():
        if not name.isidentifier():
            raise t.error(name, "isn't a name; use letters, digits and _")
        if not isinstance(values, list) or not values:
            raise t.error(name, f"must be a list of at least one value, got {values!r}")
        if not all(isinstance(v, bool | int | float | str) for v in values):
            raise t.error(name, "values must be numbers, texts or true/false")
        if len({type(v) for v in values}) != 1:
            raise t.error(name, "values must all have the same type")
        if len(set(values)) != len(values):
            raise t.error(name, "a value occurs twice; remove one")
        if name == "reg_cap" and not all(type(v) is int and 0 <= v <= MAX_REGISTERS for v in values):
            raise t.error(name, f"must be whole numbers from 0 (no cap) to {MAX_REGISTERS}")
        knobs[name] = tuple(values)
    return knobs


def _restrictions(t: Table, names: Collection[str]) -> tuple[str, ...]:
    values = t.get("restrictions", list, "a list of expressions", [])
    return tuple(t.expression("restrictions", v, names) for v in values)


def _variants(
    root: Table, head: Table, folder: Path, params: frozenset[str], source_hash: Callable[[Path], str]
) -> tuple[dict[str, Variant], dict[str, SearchSpace]]:
    """All variants, and for each the space of its own knobs."""
    rows = root.tables("variant")
    if rows:
        for key in ("launch", "knobs"):
            if key in root:
                raise root.error(f"[{key}]", f"stands beside [[variant]]; write [variant.{key}]")
        for key in SOURCE_KEYS:
            if key in head:
                raise head.error(key, "stands beside [[variant]]; write it in each variant")
    else:
        short = {k: v for k, v in head.data.items() if k in SOURCE_KEYS}
        for key in ("launch", "knobs"):
            if key in root:
                short[key] = root.data[key]
        rows = [Table(short, root.path, "[workload]")]
    variants: dict[str, Variant] = {}
    spaces: dict[str, SearchSpace] = {}
    for t in rows:
        t.known(VARIANT_KEYS)
        file = _file(t, folder)
        name = t.text("name", file.stem)
        if name in variants:
            raise t.error("name", f"{name!r} occurs twice; rename one")
        language = t.choice("language", tuple(LANGUAGES.values()), LANGUAGES.get(file.suffix, ...))
        knobs = _knobs(Table(t.get("knobs", dict, "a table", {}), t.path, f"{t.where} knobs"))
        _distinct(t, knobs, params)
        names = params | knobs.keys() | _space_knobs(root, name, alone=len(rows) == 1)
        entry = t.text("entry")
        launches = _launches(t, entry, names)
        variants[name] = Variant(
            name,
            file,
            language,
            entry,
            launches.pop(None),
            source_hash(file),
            _tolerance(t),
            ladder=t.get("ladder", int, "a whole number"),
            case_launches={str(case): specs for case, specs in launches.items()},
            precision=t.text("precision", None),
        )
        spaces[name] = SearchSpace(name, name, knobs, _restrictions(t, names))
    return variants, spaces


def _space_knobs(root: Table, variant: str, *, alone: bool) -> set[str]:
    """Knobs that only the spaces over a variant give; its launches may use them too."""
    listed = root.table("space")
    tables = [listed.table(name).data for name in listed.data]
    return {
        knob
        for t in tables
        if t.get("variant", variant if alone else None) == variant and isinstance(t.get("knobs"), dict)
        for knob in t["knobs"]
    }


def _distinct(t: Table, knobs: Collection[str], params: Collection[str]) -> None:
    both = next((k for k in knobs if k in params or k == "size"), None)
    if both is not None:
        raise t.error(both, "is a knob and a case parameter; rename one")


def _file(t: Table, folder: Path) -> Path:
    given = t.text("file", None)
    if given is None:
        present = [folder / n for n in ("kernel.cu", "kernel.py") if (folder / n).is_file()]
        if len(present) != 1:
            found = "both kernel.cu and kernel.py exist" if present else "no kernel.cu or kernel.py exists"
            raise t.error("file", f"missing, and {found}; name the source file")
        return present[0]
    file = folder / given
    if not file.is_file():
        raise t.error("file", f"{file} doesn't exist")
    if not file.resolve().is_relative_to(folder.resolve()):
        raise t.error("file", f"{given!r} is outside the workload's folder")
    return file


def _launches(t: Table, entry: str, names: Collection[str]) -> dict[str | None, tuple[LaunchSpec, ...]]:
    """A variant's launches; those of single cases under the case's name, all others' under None."""
    if isinstance(t.data.get("launch"), dict):
        rows = [Table(t.data["launch"], t.path, f"{t.where} launch")]
    else:
        rows = t.tables("launch")
    if not rows:
        raise t.error("launch", "missing; give grid and block")
    specs: dict[str | None, list[LaunchSpec]] = {}
    for row in rows:
        row.known(("name", "case", "entry", "grid", "block", "shared"))
        grid = row.expressions("grid", names, most=3)
        block = row.expressions("block", names, most=3)
        shared = row.expression("shared", row.data.get("shared", 0), names)
        spec = LaunchSpec(row.text("entry", entry), grid, block, shared)
        specs.setdefault(row.text("case", None), []).append(spec)
    if None not in specs:
        raise t.error("launch", "each is for one case; give one without `case`, for all others")
    return {case: tuple(found) for case, found in specs.items()}


def _spaces(
    root: Table,
    variants: Mapping[str, Variant],
    own: Mapping[str, SearchSpace],
    params: frozenset[str],
) -> dict[str, SearchSpace]:
    listed = root.table("space")
    spaces: dict[str, SearchSpace] = {}
    for name in listed.data:
        t = listed.table(name)
        t.known(("variant", "knobs", "restrictions", "baseline", "baseline_space"))
        variant = t.text("variant", next(iter(variants)) if len(variants) == 1 else ...)
        if variant not in variants:
            raise t.error("variant", f"unknown variant {variant!r}; {near(variant, variants)}")
        base = own[variant]
        knobs = _knobs(t.table("knobs")) if "knobs" in t else dict(base.knobs)
        _distinct(t, knobs, params)
        needed = set(base.knobs) | _names_used(variants[variant], base) - params
        missing = next((k for k in sorted(needed) if k not in knobs), None)
        if missing is not None:
            raise t.error("knobs", f"{missing} is missing; variant {variant!r} needs it (one value will do)")
        rules = base.restrictions + _restrictions(t, params | knobs.keys())
        baseline = t.get("baseline", dict, "a table of knob values")
        other = t.text("baseline_space", None)
        if baseline is not None and other is not None:
            raise t.error("baseline_space", "stands beside baseline; keep one of them")
        spaces[name] = SearchSpace(name, variant, knobs, rules, baseline, other)
        if baseline is not None:
            if any(isinstance(v, dict | list) for v in baseline.values()):
                raise t.error("baseline", "must give every knob one value")
            try:
                spaces[name].encode(baseline)
            except UsageError as e:
                raise t.error("baseline", str(e)) from None
    for name, space in spaces.items():
        _reaches_baseline(listed.table(name), space, spaces)
    covered = {s.variant for s in spaces.values()}
    for name, space in own.items():
        if name not in covered:
            label = SINGLE_SPACE if len(own) == 1 else name
            if label in spaces:
                raise listed.error(label, "also names a variant that has no space; rename one")
            spaces[label] = SearchSpace(label, name, space.knobs, space.restrictions)
    rungs = {v.ladder: v for v in variants.values() if v.ladder is not None}
    if rungs and LADDER not in spaces:
        lowest = own[rungs[min(rungs)].name]
        spaces[LADDER] = SearchSpace(LADDER, lowest.variant, lowest.knobs, lowest.restrictions)
    return spaces


def _names_used(variant: Variant, space: SearchSpace) -> set[str]:
    texts = [t for spec in variant.launches for t in (*spec.grid, *spec.block, spec.shared)]
    return {name for t in (*texts, *space.restrictions) for name in compile_expr(t).names}


def _reaches_baseline(t: Table, space: SearchSpace, spaces: Mapping[str, SearchSpace]) -> None:
    seen = {space.name}
    while space.baseline_space is not None:
        if space.baseline_space not in spaces:
            unknown = space.baseline_space
            raise t.error("baseline_space", f"unknown space {unknown!r}; {near(unknown, spaces)}")
        space = spaces[space.baseline_space]
        if space.name in seen:
            raise t.error("baseline_space", "leads back to itself; give one of them a baseline")
        seen.add(space.name)
