"""Which machine code a user's words mean, compiled and disassembled: what `warpdeck sass` shows."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core.bench import performance_cases
from ..core.errors import UsageError
from ..core.model import Candidate, Trust
from ..core.toolchain import Compiled, compile_candidate
from ..core.toolchain.disassembly import Instruction, disassemble
from ..core.workload import LaunchSpec, Variant
from ..kernels.loader import load_workload, source_hash
from .contenders import LANGUAGES, completed, implementation


@dataclass(frozen=True)
class MachineCode:
    """A configuration, what the compiler made of it, and its instructions in order."""

    title: str
    compiled: Compiled
    instructions: tuple[Instruction, ...]

    @staticmethod
    def source(file: str, number: int) -> str:
        """A line of source, stripped; empty if it can't be read."""
        lines = _lines(file)
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    def to_json(self) -> dict[str, Any]:
        """`sass --json`, without `schema_version`."""
        return {
            "title": self.title,
            "compute_capability": list(self.compiled.cc),
            "resources": self.compiled.resources.to_json(),
            "instructions": [i.to_json() for i in self.instructions],
        }


@functools.lru_cache(64)
def _lines(file: str) -> tuple[str, ...]:
    try:
        return tuple(Path(file).read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ()


def machine_code(
    workload: str,
    *,
    variant: str | None = None,
    space: str | None = None,
    knobs: Mapping[str, str] | None = None,
    size: int | None = None,
    cc: tuple[int, int] = (9, 0),
    traced: bool = False,
    ptx: bool = False,
) -> MachineCode:
    """Compile one configuration and disassemble it.

    Args:
        workload: name or folder.
        variant: a variant's name, or a source file for the same task; None: the space's.
        space: whose knobs are named; None: the variant's first, or the first that has all the knobs.
        knobs: values by name, as texts; others take the baseline's value, else the first allowed.
        size: the case; None: the workload's first performance case.
        cc: compute capability.
        traced: with the stage markers on.
        ptx: Numba: keep the PTX too (CUDA C++ always has it).

    Raises:
        UsageError: an unknown name, or a value that isn't allowed.
        CompileError, ToolchainError: it doesn't compile here, or there is no disassembler.
    """
    loaded = load_workload(workload)
    implemented, chosen = implementation(loaded, variant, space, knobs=knobs or {})
    sizes = [] if size is None else [size]
    case = performance_cases(loaded, sizes)[0]
    config = completed(chosen, knobs or {}, loaded, sizes)
    both = replace(loaded, variants={**loaded.variants, implemented.name: implemented})
    candidate = Candidate(implemented.name, config, implemented.source_hash)
    compiled = compile_candidate(both, candidate, case, cc, trace=traced, ptx=ptx)
    settings = " ".join(f"{k}={v}" for k, v in config.items())
    title = f"{loaded.name}, variant {implemented.name}, {settings}, sm_{cc[0]}{cc[1]}"
    return MachineCode(title, compiled, tuple(disassemble(compiled.cubin)))


def generated_code(
    workload: str, file: Path, launches: Sequence[Mapping[str, Any]], cc: tuple[int, int] = (9, 0)
) -> MachineCode:
    """The same of a source that a model wrote: it is compiled in the sandbox.

    Args:
        workload: name or folder.
        file: the source.
        launches: `{entry, grid, block, shared}` each, with numbers.
        cc: compute capability.

    Raises:
        As `machine_code`; UsageError also for launches that make no sense.
    """
    loaded = load_workload(workload)
    try:
        specs = tuple(
            LaunchSpec(
                str(row["entry"]),
                tuple(str(int(n)) for n in row["grid"]),
                tuple(str(int(n)) for n in row["block"]),
                str(int(row.get("shared") or 0)),
            )
            for row in launches
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise UsageError(f"{file.name}: how it is launched is not known, or makes no sense") from None
    if not specs or file.suffix not in LANGUAGES:
        raise UsageError(f"{file.name}: how it is launched is not known")
    digest = source_hash(file)
    language = LANGUAGES[file.suffix]
    variant = Variant(file.stem, file, language, specs[0].entry, specs, digest, trust=Trust.GENERATED)
    both = replace(loaded, variants={**loaded.variants, variant.name: variant})
    candidate = Candidate(variant.name, {}, digest)
    compiled = compile_candidate(both, candidate, performance_cases(loaded, [])[0], cc, ptx=True)
    title = f"{loaded.name}, {file.name}, sm_{cc[0]}{cc[1]}"
    return MachineCode(title, compiled, tuple(disassemble(compiled.cubin)))
