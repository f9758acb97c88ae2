"""Bookmarks of a session: named places in its log, in a file beside it. The log itself is never touched."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core.errors import UsageError, WarpdeckError
from .words import one_line

FILE = "bookmarks.json"
SCHEMA_VERSION = 1
MOST = 500
MOST_NAME = 60
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Bookmark:
    """A named place. `seq`: the last event that is seen there; `step`: steps done then; `position`: seconds
    since the log's start, of playing time."""

    name: str
    seq: int
    step: int
    position: float

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Bookmark:
        """Inverse of `asdict`. KeyError, TypeError or ValueError for anything else."""
        mark = cls(_clean(str(data["name"])), int(data["seq"]), int(data["step"]), float(data["position"]))
        if not mark.name or mark.seq < 0 or mark.step < 0 or not 0 <= mark.position < float("inf"):
            raise ValueError("impossible values")
        return mark


class Bookmarks:
    """The bookmarks of one session's folder, in the log's order. Names are unique, whatever their case.

    Every change is written at once, to a new file that replaces the old one, after reading what another
    console may have written meanwhile.
    """

    def __init__(self, folder: str | Path) -> None:
        self._file = Path(folder) / FILE

    def read(self) -> tuple[Bookmark, ...]:
        """All of them.

        Raises:
            WarpdeckError: the file can't be read, or is damaged.
        """
        try:
            if self._file.stat().st_size > MOST_BYTES:
                raise WarpdeckError(f"{self._file} is too large to be bookmarks; move it away")
            data = json.loads(self._file.read_text(encoding="utf-8"))
            marks = [Bookmark.from_json(entry) for entry in data["bookmarks"]]
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise WarpdeckError(f"can't read {self._file}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise WarpdeckError(f"{self._file} is damaged; move it away to start anew") from None
        return tuple(sorted(marks, key=lambda mark: (mark.seq, mark.name)))

    def add(self, mark: Bookmark) -> tuple[Bookmark, ...]:
        """Set one; one of its name moves. UsageError: no name, or there are too many."""
        mark = Bookmark(_clean(mark.name), mark.seq, mark.step, mark.position)
        if not mark.name:
            raise UsageError("a bookmark needs a name")
        kept = [other for other in self.read() if other.name.lower() != mark.name.lower()]
        if len(kept) >= MOST:
            raise UsageError(f"a session holds {MOST} bookmarks; delete one first")
        return self._write([*kept, mark])

    def remove(self, name: str) -> tuple[Bookmark, ...]:
        """Delete one; no harm if it isn't there."""
        return self._write([mark for mark in self.read() if mark.name != name])

    def _write(self, marks: list[Bookmark]) -> tuple[Bookmark, ...]:
        marks.sort(key=lambda mark: (mark.seq, mark.name))
        text = json.dumps(
            {"schema_version": SCHEMA_VERSION, "bookmarks": [asdict(m) for m in marks]}, indent=1
        )
        try:
            handle, name = tempfile.mkstemp(prefix=f".{FILE}.", dir=self._file.parent)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(text + "\n")
                Path(name).replace(self._file)
            except BaseException:
                with suppress(OSError):
                    Path(name).unlink()
                raise
        except OSError as error:
            raise WarpdeckError(f"can't write {self._file}: {error.strerror}") from None
        return tuple(marks)


def _clean(name: str) -> str:
    """One line of printable characters, of a length that a list can show."""
    return " ".join(one_line(name).split())[:MOST_NAME].rstrip()
