"""compute-sanitizer: find it, run a program under one of its tools, read what it found.

A pass takes three things, because each alone has been seen with nothing checked: exit code 0 where findings
give another, a summary that counts none, and (the caller's to look at) the program's own completion marker.
"""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import process

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
FOUND = 86  # the exit code that stands for findings
_PRINTED = 200  # findings; the summary counts the rest
_PREFIX = "========="

_SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: (\d+)")
_RACES = re.compile(r"\((\d+) errors?, (\d+) warnings?\)")
# "at kernel(int *)+0x70 in file.cu:12", without "in …" for code without line information; before 2022
# "at 0x70 in file.cu:12:kernel(int *)".
_AT = re.compile(r"\bat (?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<file>\S.*?):(?P<line>\d+))?(?=\s|$|\[)")
_OLD_AT = re.compile(r"\bat 0x[0-9a-f]+ in (?P<file>\S.*?):(?P<line>\d+):(?P<kernel>.+)$")
_THREAD = re.compile(r"by thread \([\d,]+\) in block \([\d,]+\)")
_NO_FINDING = re.compile(
    r"COMPUTE-SANITIZER|\w+ SUMMARY:|Target application|This tool|Launch timeout|Note:"
    r"|Error: (process didn't|Target application|No attachable|The (application|target))"
    r"|Warning: (Detected overflow|Unable)"
)
_CONSEQUENCE = re.compile(r"Program hit |The application")  # of an error that was found before it


class SanitizerError(Exception):
    """compute-sanitizer isn't there. `str()` is one plain line: what, and what to do."""


@dataclass(frozen=True)
class Finding:
    """Something that a tool found, so many times. `file` "" and `line` 0: the place isn't known."""

    tool: str
    message: str
    kernel: str = ""
    file: str = ""
    line: int = 0
    detail: str = ""  # more of it: the first one's thread, the other access of a race
    count: int = 1

    @property
    def text(self) -> str:
        """One plain line."""
        place = f"{self.file}:{self.line}" if self.file else ""
        where = " in ".join(p for p in (self.kernel, place) if p)
        times = f" ({self.count} times)" if self.count > 1 else ""
        detail = f", {self.detail}" if self.detail else ""
        return f"{self.message}{' at ' + where if where else ''}{detail}{times}"

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return dict(self.__dict__)


@dataclass(frozen=True)
class Report:
    """One run of one tool. `errors`: what its summary counts, None without a summary.

    `problem`: why the run proves nothing, "" if it does.
    """

    tool: str
    findings: tuple[Finding, ...]
    errors: int | None
    problem: str
    output: str
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether the tool ran to its end and found nothing."""
        return not self.problem and not self.findings and self.errors == 0


def find(environ: Mapping[str, str] | None = None) -> Path:
    """The program: on PATH, in this environment's wheel, in a toolkit. Raises SanitizerError."""
    env = os.environ if environ is None else environ
    found = shutil.which("compute-sanitizer", path=env.get("PATH", os.defpath))
    if found:
        return Path(found)
    wheels = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    places = [
        *wheels.glob("*/bin/compute-sanitizer"),
        *wheels.glob("sanitizer*/bin/compute-sanitizer"),
        *sorted(Path("/usr/local").glob("cuda*/bin/compute-sanitizer"), reverse=True),
    ]
    usable = next((p for p in places if p.is_file() and os.access(p, os.X_OK)), None)
    if usable is None:
        raise SanitizerError(
            "compute-sanitizer was not found on PATH, in this environment or under /usr/local/cuda*: "
            "pip install nvidia-cuda-sanitizer-api, or install the CUDA toolkit"
        )
    return usable


def command(sanitizer: Path, tool: str, program: Sequence[str]) -> list[str]:
    """The command line that runs `program` under one of `TOOLS`."""
    options = ["--destroy-on-device-error", "kernel"] if tool == "memcheck" else []
    return [
        str(sanitizer),
        *("--tool", tool),
        *("--error-exitcode", str(FOUND)),
        *("--target-processes", "application-only"),
        *("--print-limit", str(_PRINTED)),
        *("--show-backtrace", "no"),
        *("--require-cuda-init", "yes"),
        *options,
        *program,
    ]


def run(
    tool: str,
    program: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    sanitizer: Path | None = None,
) -> Report:
    """Run `program` under one tool. Everything that was started is gone afterwards.

    Args:
        tool: one of `TOOLS`.
        program: what to run; its own process launches the kernels.
        folder: for the log and temporary files.
        environment: all of the tool's and the program's.
        timeout_s: when to kill them.
        sanitizer: from `find`; None: look for it.

    Raises SanitizerError if it isn't there.
    """
    temporary = folder / "tmp"
    temporary.mkdir(mode=0o700, exist_ok=True)
    try:
        ended = process.run(
            command(sanitizer or find(environment), tool, program),
            environment={**environment, "TMPDIR": str(temporary)},
            timeout_s=timeout_s,
            log=folder / f"{tool}.log",
        )
    except OSError as error:
        raise SanitizerError(f"compute-sanitizer can't be started: {error}; reinstall it") from None
    findings, errors = parse(tool, ended.output)
    problem = ""
    if ended.left:
        problem = f"process {', '.join(map(str, ended.left))} can't be ended: the driver holds it"
    elif ended.timed_out:
        problem = f"it took longer than {timeout_s:g} s and was ended"
    elif errors is None:
        problem = f"it printed no summary: {_last(ended.output)}"
    elif ended.code not in (0, FOUND) or (ended.code == FOUND) != bool(findings or errors):
        problem = f"it ended with exit code {ended.code} and counted {errors} errors: {_last(ended.output)}"
    return Report(tool, tuple(findings), errors, problem, ended.output, ended.seconds)


def parse(tool: str, output: str) -> tuple[list[Finding], int | None]:
    """What a tool found, equal findings counted together, and the number that its summary gives (None: none).

    Failed calls that only follow from a finding are left out.
    """
    blocks: list[list[str]] = []
    errors: int | None = None
    for raw in output.splitlines():
        if not raw.startswith(_PREFIX):
            continue
        text = raw[len(_PREFIX) :]
        if summary := _SUMMARY.search(text):
            errors = int(summary[2])
            if races := _RACES.search(text):
                errors = int(races[1]) + int(races[2])
            continue
        if not text.strip():
            continue
        if text.startswith("    ") and blocks:
            blocks[-1].append(text.strip())
        elif not text.startswith("    "):
            blocks.append([text.strip()])
    found: dict[Finding, int] = {}
    consequences: dict[Finding, int] = {}
    for block in blocks:
        if _NO_FINDING.match(block[0]):
            continue
        finding, times = _finding(tool, block)
        known = consequences if _CONSEQUENCE.match(finding.message) else found
        same = next((f for f in known if _same(f, finding)), finding)
        known[same] = known.get(same, 0) + times
    return [replace(f, count=n) for f, n in (found or consequences).items()], errors


def _same(a: Finding, b: Finding) -> bool:
    return (a.message, a.kernel, a.file, a.line) == (b.message, b.kernel, b.file, b.line)


def _finding(tool: str, block: Sequence[str]) -> tuple[Finding, int]:
    """A block of the log as a finding, and how often it says that it happened."""
    lines = list(block)
    places = [m for line in lines if (m := _AT.search(line) or _OLD_AT.search(line))]
    message = re.sub(r"^(Error|Warning): ", "", lines[0])
    message = re.split(r"\s+at (?:\S.*?\+)?0x", message)[0].strip().rstrip(":.")
    first = places[0].groupdict() if places else {}
    detail = next((m[0] for line in lines if (m := _THREAD.search(line))), "")
    if tool == "racecheck" and len(places) > 1:
        other = places[1].groupdict()
        kind = re.search(r"and (\w+) access", " ".join(lines[1:]))
        place = f"{Path(other['file']).name}:{other['line']}" if other.get("file") else other["kernel"]
        detail = f"with {kind[1].lower() if kind else 'the'} access at {place}"
        message = re.sub(r"^Race reported between (\w+) access", lambda m: f"Race: {m[1].lower()}", message)
    hazards = re.search(r"\[(\d+) hazards?\]", " ".join(lines))
    return Finding(
        tool,
        message,
        str(first.get("kernel") or ""),
        Path(str(first.get("file") or "")).name,
        int(first.get("line") or 0),
        detail,
    ), int(hazards[1]) if hazards else 1


def _last(output: str) -> str:
    lines = [line.removeprefix(_PREFIX).strip() for line in output.splitlines()]
    lines = [line for line in lines if line]
    return "".join(c if c.isprintable() else " " for c in lines[-1])[:200] if lines else "no output"
