"""What can go wrong with Nsight Compute, each with its own message and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

Kind = Literal[
    "not_installed",
    "permission",
    "counters_held",
    "driver_mismatch",
    "no_driver",
    "unsupported_gpu",
    "no_kernel",
    "no_program",
    "program_failed",
    "launch_failed",
    "timeout",
    "lock_file",
    "bad_option",
    "report",
    "failed",
]


class NcuError(Exception):
    """Nsight Compute could not do what was asked. `str()` is one plain line: what, where, what to do.

    `kind` names the failure for programs; `message` says what happened; `remedy` says what to do about it.
    """

    def __init__(self, kind: Kind, message: str, remedy: str) -> None:
        super().__init__(f"{message}; {remedy}")
        self.kind: Kind = kind
        self.message = message
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[NcuError], tuple[Kind, str, str]]:
        return NcuError, (self.kind, self.message, self.remedy)


_ADMIN = (
    "run as root or with CAP_PERFMON (before driver 565: CAP_SYS_ADMIN), in a container with "
    "`--cap-add=SYS_ADMIN`, or let an administrator set NVreg_RestrictProfilingToAdminUsers=0 for the module "
    "nvidia"
)
_VERSIONS = "install the Nsight Compute of the driver's CUDA version, or update the driver"

# Phrases of the tool's own lines, most telling first: one failure prints several of them, and the last ones
# ("The application returned an error code", "No kernels were profiled") only follow from the first.
_KNOWN: tuple[tuple[str, Kind, str, str], ...] = (
    (r"ERR_NVGPUCTRPERM", "permission", "no permission to read the GPU's performance counters", _ADMIN),
    (
        r"driver resource was unavailable|already under profiling",
        "counters_held",
        "another program holds the GPU's performance counters",
        "end other profilers, or pause DCGM's with `dcgmi profile --pause` (and --resume afterwards)",
    ),
    (
        r"InterprocessLockFailed|lock file|nsight-compute-lock",
        "lock_file",
        "Nsight Compute can't open its lock file, which belongs to another user",
        "set TMPDIR to a directory of your own",
    ),
    (
        r"failed to connect to the CUDA driver|stub libcuda",
        "no_driver",
        "Nsight Compute finds no CUDA driver, or only the toolkit's stub of it",
        "install the NVIDIA driver, or take the toolkit's stubs folder out of LD_LIBRARY_PATH",
    ),
    (
        r"LibraryNotLoaded",
        "driver_mismatch",
        "Nsight Compute can't load the driver's profiling library (a sandboxed or different driver)",
        _VERSIONS,
    ),
    (
        r"not compatible with (?:Nsight|this version)|driver version is insufficient",
        "driver_mismatch",
        "the CUDA driver is not compatible with this Nsight Compute",
        _VERSIONS,
    ),
    (
        r"Profiling is not supported on (?:this )?device",
        "unsupported_gpu",
        "Nsight Compute can't profile this GPU",
        "it needs compute capability 7.0 or newer and native Linux, or WSL2 with a recent driver",
    ),
    (
        r"is not an executable|does not exist",
        "no_program",
        "the program to profile does not exist or can't be run",
        "check its path",
    ),
    (
        r"unrecogni[sz]ed option|unknown option|[Ii]nvalid (?:option|argument)|ambiguous",
        "bad_option",
        "this Nsight Compute does not know an option that was asked for",
        "use Nsight Compute 2023.1 or newer, or another metric set",
    ),
    (
        r"Failed to prepare kernel for profiling|Failed to profile",
        "launch_failed",
        "Nsight Compute could not profile the launch",
        "see whether the kernel runs by itself (`warpdeck check`); kernels that wait for other blocks or "
        "processes can't be replayed",
    ),
    (
        r"The application returned an error code",
        "program_failed",
        "the profiled program failed",
        "run it without the profiler (`warpdeck check`)",
    ),
    (
        r"No kernels were profiled",
        "no_kernel",
        "no kernel was profiled",
        "check the kernel's name, the launch number and the profiled range; none of the launches matched",
    ),
)

_TOOL_LINE = re.compile(r"^\s*==(ERROR|WARNING|PROF)==\s*(.*?)\s*$")
# Errors that only announce the next line, or that follow from an earlier one.
_EMPTY_WORDS = re.compile(
    r"An error (was reported by|occurred while)|^Failed to profile|^The application ret"
)


def explain(output: str, exit_code: int | None) -> NcuError | None:
    """The failure that `output` (Nsight Compute's stdout, stderr and log together) tells of, or None.

    The exit code alone says little: the tool ends with 0 when it profiled nothing, and with the program's
    code otherwise. Only the tool's own lines are searched, since the program may print anything. A metric
    that the GPU lacks is no failure: it reads `(!) n/a` and is reported as missing. `exit_code` None: the
    tool was ended by a signal or its code is not known.
    """
    errors, warnings = _tool_lines(output)
    told = "\n".join([*errors, *warnings])
    for pattern, kind, message, remedy in _KNOWN:
        # "lock file" and the like only count in errors; that nothing was profiled is told as a warning.
        where = told if kind in ("no_kernel", "permission", "counters_held") else "\n".join(errors)
        if re.search(pattern, where):
            return NcuError(kind, message + _detail(kind, errors, output), remedy)
    said = next((line for line in errors if not _EMPTY_WORDS.search(line)), errors[0] if errors else "")
    if said:
        return NcuError("failed", f"Nsight Compute failed: {_short(said)}", _VERSIONS)
    if exit_code != 0:
        last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "no output")
        ended = "was ended"
        if exit_code is not None:
            killed = exit_code < 0  # `subprocess` tells a signal so
            ended = f"was killed by signal {-exit_code}" if killed else f"ended with exit code {exit_code}"
        return NcuError(
            "failed",
            f"Nsight Compute {ended}: {_short(last)}",
            "run the program without the profiler (`warpdeck check`), then `warpdeck doctor`",
        )
    return None


def not_installed(searched: Iterable[str] = ()) -> NcuError:
    """Nsight Compute is not there; `searched`: the places where it was looked for."""
    places = ", ".join(searched)
    return NcuError(
        "not_installed",
        "Nsight Compute (ncu) was not found" + (f" in {places}" if places else ""),
        "install it with the CUDA toolkit (package nsight-compute), or set WARPDECK_NCU to its path",
    )


def timed_out(seconds: float, what: str = "profiling") -> NcuError:
    """`what` took longer than `seconds`."""
    return NcuError(
        "timeout",
        f"{what} took longer than {seconds:g} s and was ended",
        "ask for a smaller metric set or allow more time; kernels that wait for other blocks never end when "
        "replayed",
    )


def bad_report(where: str, why: str) -> NcuError:
    """A report that can't be read: `where` it lies and `why`."""
    return NcuError(
        "report",
        f"{where} can't be read: {why}",
        "give an .ncu-rep file that Nsight Compute finished writing",
    )


def _tool_lines(output: str) -> tuple[list[str], list[str]]:
    """The texts of the tool's error lines, and of its other lines."""
    errors: list[str] = []
    others: list[str] = []
    for line in output.splitlines():
        if match := _TOOL_LINE.match(line):
            (errors if match[1] == "ERROR" else others).append(match[2])
    return errors, others


def _detail(kind: Kind, errors: list[str], output: str) -> str:
    """What to add to a known message: the program's own code, the names of kernels that were there."""
    if kind == "no_kernel":
        names = re.findall(
            r"^\s*\d+\.\s+(\S.*?)\s*$", output.partition("Available Kernels:")[2], re.MULTILINE
        )
        return f" (launched: {_short(', '.join(names))})" if names else ""
    if kind in ("program_failed", "no_program", "bad_option", "unsupported_gpu"):
        wanted = {
            "program_failed": r"error code \(?(-?\d+)",
            "no_program": r"('[^']*')",
            "bad_option": r"('[^']*'|--[\w-]+)",
            "unsupported_gpu": r"on device (\d+)",
        }[kind]
        found = next((m[1] for line in errors if (m := re.search(wanted, line))), None)
        return f" ({_short(found)})" if found else ""
    return ""


def _short(text: str, limit: int = 200) -> str:
    """`text` on one line, without control characters and at most `limit` long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
