"""Running CUDA C++ kernels on the CPU, for correctness only.

`source.collect` reads and rewrites a kernel's files, `build.Builder` compiles them with g++ and its
sanitizers, `process.Process` runs the result. What that proves, and what it can't run, is in
docs/emulation.md.
"""

from .build import Build, Builder, Built, find_compiler
from .errors import CandidateFault, EmulatorError
from .faults import Report, race_fault
from .process import Array, Job, Process, Scalar, races_of, warnings_of
from .source import Source, collect

__all__ = [
    "Array",
    "Build",
    "Builder",
    "Built",
    "CandidateFault",
    "EmulatorError",
    "Job",
    "Process",
    "Report",
    "Scalar",
    "Source",
    "collect",
    "find_compiler",
    "race_fault",
    "races_of",
    "warnings_of",
]
