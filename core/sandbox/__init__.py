"""Running code of others: what a model or a client wrote for the host, compilers that read it, its binaries.

`run` runs a program to its end under a `Policy`; `Sandbox` gives each run a private folder; `wrap` is the
command line for whoever watches a process of its own (start it with `spawn`, end it with `end`);
`run_python` runs a generated script, and `host_code.HostCode` calls functions of one. `layers` tells what
isolates here, `require` refuses where nothing does. What each layer holds against is in docs/security.md.
"""

from __future__ import annotations

from .commands import Layer
from .errors import SandboxError
from .policy import Policy, default_memory
from .probing import REMEDY, Layers, Probe, allow_unsandboxed, layers, record, require
from .process import Completed, end, kill_group, spawn
from .programs import PREFIX, Sandbox, private_folder, read_file, run, run_python, wrap, write_file
from .watch import Excess, excess

__all__ = [
    "PREFIX",
    "REMEDY",
    "Completed",
    "Excess",
    "Layer",
    "Layers",
    "Policy",
    "Probe",
    "Sandbox",
    "SandboxError",
    "allow_unsandboxed",
    "default_memory",
    "end",
    "excess",
    "kill_group",
    "layers",
    "private_folder",
    "read_file",
    "record",
    "require",
    "run",
    "run_python",
    "spawn",
    "wrap",
    "write_file",
]
