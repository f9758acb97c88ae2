"""A bare .cu file that says itself what it implements: a comment names its workload, launches and cases.

`best.cu` of a session is such a file. The comment is one line, `// warpdeck-kernel: {…}`, anywhere among the
first; its JSON has `workload` (a bundled one's name), or `folder` (relative to the file, or absolute), and
`plans`, lists of launches (`entry`, `grid`, `block`, `shared`, expressions over case parameters); `cases`
gives the plan of a case by its name, and every other case takes the first one.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.model import Config, Trust
from ..core.space import SearchSpace
from ..core.workload import LaunchSpec, Variant, Workload
from ..telemetry.parsing import parse_expression
from .loader import load_workload, lone_hash, may_name

MARK = "// warpdeck-kernel: "
HEAD_LINES = 40
SPACE = "file"  # the space of a bare file's one configuration


def head_line(
    workload: Workload,
    plans: Sequence[Sequence[LaunchSpec]],
    cases: Mapping[str, int],
    folder: str | None,
    **more: Any,
) -> str:
    """The comment. `cases`: index of each case's plan; `more`: what else to note down."""
    about: dict[str, Any] = {"workload": workload.name} | ({"folder": folder} if folder else {})
    about["plans"] = [[launch_row(spec) for spec in plan] for plan in plans]
    about["cases"] = {name: index for name, index in cases.items() if index}
    return MARK + json.dumps({**about, **more}, separators=(",", ":"))


def launch_row(spec: LaunchSpec) -> dict[str, Any]:
    """A launch as JSON."""
    return {"entry": spec.entry, "grid": list(spec.grid), "block": list(spec.block), "shared": spec.shared}


def fixed(spec: LaunchSpec, config: Config, entry: str | None = None) -> LaunchSpec:
    """The launch with the knobs' values in the place of their names."""
    return LaunchSpec(
        entry or spec.entry,
        tuple(_fixed(text, config) for text in spec.grid),
        tuple(_fixed(text, config) for text in spec.block),
        _fixed(spec.shared, config),
    )


def read_bare(file: Path) -> tuple[Workload, Variant]:
    """What a bare file implements, and itself as a variant of that, in the space `file`.

    Raises:
        UsageError: it can't be read, has no such comment, or the workload isn't there.
    """
    about = _head(file)
    workload = _workload(file, about)
    try:
        plans = [tuple(_launch(row) for row in plan) for plan in about["plans"]]
        cases = {str(name): plans[int(index)] for name, index in (about.get("cases") or {}).items()}
        first = plans[0]
        entry = first[0].entry
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise UsageError(f"{file}: its comment {MARK.strip()} names no launches: it is damaged") from None
    digest = lone_hash(file)
    variant = Variant(
        f"{file.stem}@{digest[:8]}",
        file.resolve(),
        "cuda",
        entry,
        first,
        digest,
        trust=Trust.GENERATED,  # whoever wrote it
        case_launches=cases,
        precision=about.get("precision"),
    )
    space = SearchSpace(SPACE, variant.name, {})
    workload = replace(
        workload,
        variants={**workload.variants, variant.name: variant},
        spaces={**workload.spaces, SPACE: space},
    )
    return workload, variant


def stands_alone(file: Path) -> bool:
    """Whether a file says what it implements, or nothing beside it does. Raises UsageError: unreadable."""
    return not (file.parent / "workload.toml").is_file() or _mark(file) is not None


def _mark(file: Path) -> str | None:
    """The comment's JSON, if it is there."""
    try:
        with file.open(encoding="utf-8") as lines:
            head = [line for line, _ in zip(lines, range(HEAD_LINES), strict=False)]
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not text in UTF-8") from None
    except OSError as error:
        raise UsageError(f"{file}: can't be read: {error.strerror}") from None
    return next((line.removeprefix(MARK) for line in head if line.startswith(MARK)), None)


def _head(file: Path) -> Mapping[str, Any]:
    found = _mark(file)
    if found is None:
        raise UsageError(
            f"{file}: no comment in it says which workload it implements; say it: "
            f"warpdeck check WORKLOAD --variant {file}"
        )
    try:
        about = json.loads(found)
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict):
        raise UsageError(f"{file}: its comment {MARK.strip()} is damaged")
    return about


def _workload(file: Path, about: Mapping[str, Any]) -> Workload:
    folder, origin = about.get("folder"), file.resolve()
    if folder is None:
        return load_workload(may_name(origin, str(about.get("workload", ""))))
    path = origin.parent / str(folder)
    may_name(origin, str(path))
    if not (path / "workload.toml").is_file():
        raise UsageError(
            f"{file}: its workload's folder {path} is gone; say where it is: "
            f"warpdeck check FOLDER --variant {file}"
        )
    return load_workload(path)


def _launch(row: Mapping[str, Any]) -> LaunchSpec:
    return LaunchSpec(
        str(row["entry"]),
        tuple(str(text) for text in row["grid"]),
        tuple(str(text) for text in row["block"]),
        str(row.get("shared", 0)),
    )


class _Values(ast.NodeTransformer):
    def __init__(self, config: Config) -> None:
        self._config = config

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A knob becomes its value."""
        return ast.Constant(self._config[node.id]) if node.id in self._config else node


def _fixed(text: str, config: Config) -> str:
    return ast.unparse(_Values(config).visit(parse_expression(text.strip())))
