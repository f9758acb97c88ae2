"""PTX to cubin through NVIDIA's assembler, as NVRTC does it. No GPU.

nvJitLink compiles PTX apart from the program that it becomes part of, which gives other code: it doesn't know
where shared memory lies. The assembler comes with the wheel `nvidia-cuda-nvcc` (extra `cuda`), else with a
CUDA toolkit.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from . import programs
from .compiled import CompileError, ToolchainError

# Where all blocks run the markers: their few registers must not be those that keep loads in flight or
# operands in different banks. At the usual level (5) a loop of four loads came out as two and two, and on an
# H200 a gemm was 5.7% slower, not 2.6%. With both bodies the usual level keeps the untraced one as it is.
TRACED = ("--register-usage-level=2",)


def find() -> Path:
    """The assembler's program. Raises ToolchainError where there is none."""
    return programs.find("ptxas", "nvidia-cuda-nvcc")


def assemble(ptx: str, cc: tuple[int, int], *, reg_cap: int = 0) -> tuple[bytes, str]:
    """A program's cubin and the assembler's verbose log.

    Raises:
        CompileError: it refuses the text, or is too old for it.
        ToolchainError: it is missing, or hangs.
    """
    tool = find()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx, encoding="utf-8")
        options = ["-v", f"-arch=sm_{cc[0]}{cc[1]}", *([f"-maxrregcount={reg_cap}"] if reg_cap else [])]
        done = programs.run(tool, *options, str(source), "-o", str(target))
        log = done.stdout + done.stderr
        if done.returncode != 0:
            said = log.replace(f"{source}, ", "").strip().splitlines()
            raise CompileError(said[0] if said else f"ptxas: exit code {done.returncode}", log)
        try:
            return target.read_bytes(), log
        except OSError as error:
            raise ToolchainError(f"{tool}: {error}") from None
