"""Which machine code a user's words mean, compiled and disassembled: what `warpdeck sass` shows."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core.bench import performance_cases
from ..core.model import Candidate
from ..core.toolchain import Compiled, compile_candidate
from ..core.toolchain.disassembly import Instruction, disassemble
from ..kernels.loader import load_workload
from .contenders import completed, implementation


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
    compiled = compile_candidate(both, candidate, case, cc, trace=traced)
    settings = " ".join(f"{k}={v}" for k, v in config.items())
    title = f"{loaded.name}, variant {implemented.name}, {settings}, sm_{cc[0]}{cc[1]}"
    return MachineCode(title, compiled, tuple(disassemble(compiled.cubin)))
