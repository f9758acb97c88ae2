"""SASS of a cubin, with the source line of each instruction, by NVIDIA's disassembler. No GPU, no toolkit.

The disassembler comes with the wheel `nvidia-cuda-nvdisasm` (extra `cuda`), else with a CUDA toolkit.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import programs
from .compiled import ToolchainError

_SECTION = re.compile(r"^\.text\.(\S+):")
_PLACE = re.compile(r'//## File "([^"]*)", line (\d+)( inlined at)?')
_CODE = re.compile(r"^\s*/\*([0-9a-f]+)\*/\s+(.+?)\s*;")
_LABEL = re.compile(r"^(\.L\S*):")


@dataclass(frozen=True)
class Instruction:
    """One machine instruction.

    `address`: offset in its kernel, bytes. `file` and `line`: the innermost source line it was compiled from
    ("" and 0 where unknown). `label`: of a jump's target.
    """

    kernel: str  # symbol
    address: int
    text: str
    file: str = ""
    line: int = 0
    label: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return dict(self.__dict__)


def find() -> Path:
    """The disassembler's program. Raises ToolchainError where there is none."""
    return programs.find("nvdisasm", "nvidia-cuda-nvdisasm")


def disassemble(cubin: bytes) -> list[Instruction]:
    """Every instruction of every kernel of a cubin, in order.

    Raises:
        ToolchainError: there is no disassembler, or it doesn't know this code or is too old for it.
    """
    tool = find()
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = programs.run(tool, "-c", "-g", file.name)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise ToolchainError(f"{tool}: {said[0] if said else f'exit code {done.returncode}'}")
    return list(parse(done.stdout))


def parse(text: str) -> Iterator[Instruction]:
    """Instructions in the output of `nvdisasm -c -g`."""
    kernel, file, line, label, fresh = "", "", 0, "", True
    for row in text.splitlines():
        if found := _SECTION.match(row):
            kernel, file, line, label, fresh = found[1], "", 0, "", True
        elif found := _PLACE.search(row):
            if fresh:  # inlined code: the innermost place comes first, then where it was inlined
                file, line = found[1], int(found[2])
            fresh = False
        elif found := _LABEL.match(row):
            label = found[1]
        elif kernel and (found := _CODE.match(row)):
            yield Instruction(kernel, int(found[1], 16), found[2], file, line, label)
            label, fresh = "", True
