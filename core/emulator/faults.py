"""What the runtime tells, in words: file, line, block, thread, and the status that a candidate ends with."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..environment import without_secrets
from ..model import Status
from .errors import CandidateFault
from .source import Places

_STATUS: Mapping[str, Status] = {
    "timeout": Status.TIMEOUT,
    "input": Status.INCORRECT,
    "launch": Status.LAUNCH_ERROR,
    "shared_size": Status.RESTRICTED,
    "out_of_memory": Status.OUT_OF_MEMORY,
}
_ADDRESSES = 12


@dataclass(frozen=True)
class Report:
    """One thing that the runtime noticed. `line` is one of `Places`, 0 if unknown."""

    kind: str
    message: str
    line: int
    places: Places
    block: tuple[int, ...] | None = None
    thread: tuple[int, ...] | None = None
    code: tuple[str, ...] = ()  # addresses in the program, the innermost first

    @classmethod
    def of(cls, answer: Mapping[str, Any], places: Places) -> Report:
        """From the runtime's answer, which code of others may have written."""
        code = answer.get("code")
        return cls(
            kind=str(answer.get("kind"))[:40],
            message=places.told(str(answer.get("message", ""))[:2000]),
            line=_whole(answer.get("line")),
            places=places,
            block=_triple(answer.get("block")),
            thread=_triple(answer.get("thread")),
            code=tuple(str(a) for a in code[:_ADDRESSES] if _is_address(a)) if isinstance(code, list) else (),
        )

    def located(self, program: Path) -> Report:
        """With the line that the code's addresses tell, where they do and none is known better."""
        if not self.code:
            return self
        line = _line_of(program, self.code, self.places)
        return replace(self, line=line or self.line)

    @property
    def text(self) -> str:
        """ "kernel.cu:12: block (0,0,0), thread (1,0,0): …"."""
        where = self.places.name(self.line)
        parts = [where] if where else []
        if self.block is not None and self.thread is not None:
            parts.append(f"block {_shown(self.block)}, thread {_shown(self.thread)}")
        return ": ".join([*parts, self.message])


def fault_of(report: Report) -> CandidateFault:
    """A report that ends the run."""
    said = re.search(r"unsupported: (.*)", report.message)
    status = Status.UNSUPPORTED if said else _STATUS.get(report.kind, Status.RUNTIME_ERROR)
    if report.kind in ("launch", "shared_size", "out_of_memory"):
        report = replace(report, block=None)
    return CandidateFault(status, report.text.replace("unsupported: ", ""), report.kind)


def race_fault(report: Report) -> CandidateFault:
    """A race in shared memory."""
    return CandidateFault(Status.RUNTIME_ERROR, f"race in shared memory: {report.text}", "race")


def warning_of(report: Report) -> str:
    """A warning, without the thread that happened to be first."""
    return replace(report, block=None).text


def _line_of(program: Path, code: tuple[str, ...], places: Places) -> int:
    """The innermost line of the user's files at these addresses; 0 if there is none."""
    tool = shutil.which("addr2line", path="/usr/local/bin:/usr/bin:/bin")
    if tool is None:
        return 0
    try:
        done = subprocess.run(
            [tool, "-i", "-e", str(program), *code],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env=without_secrets(),
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    for text in done.stdout.splitlines():
        found = re.match(r"(.*):(\d+)(?: \(.*)?$", text)
        if found is not None and places.name(int(found[2])) and _same_file(found[1], places, int(found[2])):
            return int(found[2])
    return 0


def _same_file(path: str, places: Places, line: int) -> bool:
    """Whether a path of the debug information is the file that a line's number names."""
    return f"/{path}".endswith("/" + places.name(line).rpartition(":")[0])


def _whole(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0


def _triple(value: object) -> tuple[int, ...] | None:
    if isinstance(value, list) and len(value) == 3 and all(isinstance(v, int) for v in value):
        return tuple(value)
    return None


def _is_address(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"0x[0-9a-f]{1,16}", value) is not None


def _shown(triple: tuple[int, ...]) -> str:
    return f"({','.join(map(str, triple))})"
