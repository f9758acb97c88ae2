"""The caller's side of `profiled`: its specification, environment, command, and completion marker."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from ..environment import without_secrets
from ..errors import WarpdeckError
from ..model import Case, Status
from ..scratch import make_folder
from .session import Code

_PREFIX = "warpdeck-profile-"


@dataclass(frozen=True)
class Item:
    """One candidate on one case. `description`: the case's, from `Session.describe`, with its draw 0."""

    code: Code
    case: Case
    description: Mapping[str, Any]


@dataclass(frozen=True)
class ItemEnd:
    """What became of an item. `launched`: symbols of the kernels that were started between the marks."""

    status: Status
    message: str
    launched: tuple[str, ...]


@dataclass(frozen=True)
class Marker:
    """The program's last words. Not `complete`: it couldn't start; `fault` says why."""

    complete: bool
    items: tuple[ItemEnd, ...]
    fault: str = ""


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WarpdeckError(
            f"{tempfile.gettempdir()}: can't hold a profiling run's files: {error.strerror}; set TMPDIR"
        ) from None


class Program:
    """A folder with all that one run of `profiled` needs; a context manager that removes it.

    The program may start before it is given its work: it opens its context meanwhile.

    Args:
        device: CUDA's ordinal.

    Raises WarpdeckError if the folder can't be made.
    """

    def __init__(self, device: int) -> None:
        self._device = device
        with _told():
            self.folder = make_folder(Path(tempfile.gettempdir()), _PREFIX)

    def give(self, items: Sequence[Item], *, invocation: int, limit_s: float) -> None:
        """Its work.

        Args:
            items: in the order in which they run; those of one case together.
            invocation: launches of each candidate before the one that counts.
            limit_s: after which the program ends itself, whoever else has died.

        Raises WarpdeckError if the folder can't be written.
        """
        with _told():
            self._write(items, invocation, limit_s)

    def _write(self, items: Sequence[Item], invocation: int, limit_s: float) -> None:
        listed: list[dict[str, Any]] = []
        cubins: dict[str, str] = {}
        for item in items:
            code = item.code
            if code.key not in cubins:
                cubins[code.key] = str(self.folder / f"{len(cubins)}.cubin")
                Path(cubins[code.key]).write_bytes(code.compiled.cubin)
            listed.append(
                {
                    "code": code.key,
                    "cubin": cubins[code.key],
                    "entries": list(code.compiled.entries.values()),
                    "language": code.compiled.language,
                    "key": item.case.name,
                    "draw": 0,
                    "launches": code.wire(item.case),
                }
            )
        spec = {
            "invocation": invocation,
            "limit_s": limit_s,
            "marker": str(self.folder / "marker.json"),
            "progress": str(self.folder / "progress"),
            "cases": {item.case.name: item.description for item in items},
            "items": listed,
        }
        written = self.folder / "spec.part"
        written.write_text(json.dumps(spec), encoding="utf-8")
        written.replace(self.folder / "spec.json")

    @property
    def command(self) -> list[str]:
        """What a tool has to run."""
        arguments = (self._device, os.getpid(), self.folder / "spec.json")
        return [sys.executable, "-m", f"{__package__}.profiled", *map(str, arguments)]

    @property
    def environment(self) -> dict[str, str]:
        """For the tool and the program: this process', without its secrets."""
        return {
            **without_secrets(),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "OPENBLAS_NUM_THREADS": "1",
        }

    @property
    def progress(self) -> int:
        """Number of the item that was begun last; -1 if none was."""
        try:
            return int((self.folder / "progress").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return -1

    @property
    def marker(self) -> Marker | None:
        """The completion marker; None if the program never got there."""
        try:
            data = json.loads((self.folder / "marker.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        items = tuple(
            ItemEnd(Status(x["status"]), str(x["message"]), tuple(x["launched"])) for x in data["items"]
        )
        return Marker(bool(data["complete"]), items, (data["fault"] or {}).get("message", ""))

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
