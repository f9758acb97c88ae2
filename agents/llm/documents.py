"""`search_docs`: a full-text index over our own notes and the documents a user adds.

SQLite's FTS5 in memory, ranked by BM25. Texts are split at their headings (sources at blank lines) into
passages of some 1,500 characters, which are given back whole, with where they come from.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from ...core.errors import UsageError, WarpdeckError
from .client import Tool
from .passages import READERS, Passage, passages, unreadable

MAX_FILE = 8 << 20  # bytes
MAX_ALL = 64 << 20
MAX_FILES = 5000
MAX_SEEN = 200_000  # files below a folder, documents or not
MAX_PROBLEMS = 20  # that are told one by one
MAX_WORDS = 24  # of a query
MAX_RESULTS = 5
MAX_ANSWER = 9000  # characters

_WORD = re.compile(r"[^\W_]+")
_COMMON = frozenset(
    _WORD.findall(
        "a an and are as at be by can do does for from how i in is it my of on or should that the this to use"
        " what when which why with you"
    )
)


@dataclass(frozen=True)
class Hit:
    """A passage that was found. `source`: a file, as the user named it, or `notes/NAME`."""

    source: str
    section: str
    text: str


class Documents:
    """The index. Safe to use from several threads.

    Attributes:
        files: how many were read.
        problems: files that were left out, each with its reason, in plain words; of many the first ones.

    Args:
        paths: Files and folders; folders are searched for the known suffixes.
        notes: Whether our own notes are in it.

    Raises:
        UsageError: a path isn't there, or a file named by itself can't be read.
    """

    def __init__(self, paths: Sequence[str | Path] = (), *, notes: bool = True) -> None:
        self.files = 0
        self.problems: list[str] = []
        self._left_out = 0
        self._lock = threading.Lock()
        self._bytes = 0
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            self._database.execute(
                "CREATE VIRTUAL TABLE passage USING fts5"
                "(source UNINDEXED, name, section, body, tokenize = 'porter unicode61 remove_diacritics 2')"
            )
        except sqlite3.OperationalError as error:
            raise WarpdeckError(f"search_docs: this Python's SQLite can't search texts ({error})") from None
        if notes:
            self._notes()
        for path in paths:
            self._add(Path(path).expanduser())
        self._database.commit()

    def close(self) -> None:
        """Free the index."""
        self._database.close()

    def _notes(self) -> None:
        for note in sorted(
            resources.files(__package__ or "").joinpath("notes").iterdir(), key=lambda n: n.name
        ):
            if note.name.endswith(".md"):
                self._insert(f"notes/{note.name}", passages(note.read_bytes(), ".md"))

    def _add(self, path: Path) -> None:
        if path.is_dir():
            for file in _below(path):
                problem = self._file(file)
                if problem:
                    self._left_out += 1
                    if self._left_out <= MAX_PROBLEMS:
                        self.problems.append(f"{file}: {problem}")
            if self._left_out > MAX_PROBLEMS:
                self.problems[MAX_PROBLEMS:] = [f"{self._left_out - MAX_PROBLEMS:,} more were left out"]
        else:
            refuse(path)
            problem = self._file(path)
            if problem:
                raise UsageError(f"--docs: {path}: {problem}")

    def _file(self, path: Path) -> str | None:
        """Index a file. Why not, if it can't be."""
        if self.files >= MAX_FILES:
            return f"left out: there are more than {MAX_FILES} documents"
        try:
            if self._bytes + path.stat().st_size > MAX_ALL:
                return f"left out: the documents are larger than {MAX_ALL >> 20} MB together"
            data = _read(path)
            found = passages(data, path.suffix.lower())
        except (OSError, ValueError) as error:
            return _told(error)
        self._bytes += len(data)
        self._insert(str(path), found)
        return None

    def _insert(self, source: str, found: Iterable[Passage]) -> None:
        self.files += 1
        name = Path(source).stem
        rows = [(source, name, passage.section, passage.text) for passage in found]
        self._database.executemany("INSERT INTO passage VALUES (?, ?, ?, ?)", rows)

    def find(self, query: str, limit: int = MAX_RESULTS) -> list[Hit]:
        """The passages that fit best, best first. Any text is a query; one without a word finds nothing."""
        words = _words(query)
        if not words:
            return []
        terms = " OR ".join(f'"{word}"' for word in words)  # quoted: never FTS5's own syntax
        with self._lock:
            rows = self._database.execute(
                "SELECT source, section, body FROM passage WHERE passage MATCH ?"
                " ORDER BY bm25(passage, 0, 3, 4, 1), rowid LIMIT ?",
                (terms, limit),
            ).fetchall()
        return [Hit(*row) for row in rows]

    def search(self, query: str) -> str:
        """What is found, as text for a model: at most `MAX_ANSWER` characters."""
        hits = self.find(query)
        if not hits:
            return (
                "Nothing found. Try other words: names of instructions, intrinsics, counters or techniques."
            )
        parts = []
        left = MAX_ANSWER
        for number, hit in enumerate(hits, 1):
            where = f"{hit.source} › {hit.section}" if hit.section else hit.source
            part = f"[{number}] {where}\n{hit.text.strip()}\n"
            if len(part) > left:
                break
            parts.append(part)
            left -= len(part) + 1
        return "\n".join(parts)

    def tool(self) -> Tool:
        """`search_docs`, as a model calls it."""

        def run(arguments: Mapping[str, Any]) -> str:
            return self.search(arguments["query"])

        what = "notes on CUDA optimisation" + (" and the user's documents" if self._bytes else "")
        return Tool(
            "search_docs",
            f"Search {what}; returns the passages that fit best. Use a few technical words.",
            {
                "type": "object",
                "properties": {"query": {"type": "string", "description": "what you want to know"}},
                "required": ["query"],
                "additionalProperties": False,
            },
            run,
        )


def _words(query: str) -> list[str]:
    """The words to look for, each once; common ones only if there are no others."""
    found = list(dict.fromkeys(word.lower() for word in _WORD.findall(query[:4000])))
    return [word for word in found if word not in _COMMON][:MAX_WORDS] or found[:MAX_WORDS]


def refuse(path: Path) -> None:
    """Say at once that a file or folder can't be searched. Reads a file at most, and no more than its limit.

    Raises UsageError.
    """
    try:
        if path.is_dir():
            if not os.access(path, os.R_OK | os.X_OK):
                raise ValueError("can't be read (Permission denied)")
            if next(_below(path), None) is None:
                raise ValueError(f"no document in it; known: {' '.join(sorted(READERS))}")
            return
        if not path.exists():
            raise ValueError("there is no such file or folder")
        if path.suffix.lower() not in READERS and path.is_file():
            raise ValueError(f"unknown kind of document; known: {' '.join(sorted(READERS))}")
        reason = unreadable(_read(path), path.suffix.lower())
        if reason is not None:
            raise ValueError(reason)
    except (OSError, ValueError) as error:
        raise UsageError(f"--docs: {path}: {_told(error)}") from None


def _told(error: OSError | ValueError) -> str:
    return f"can't be read ({error.strerror})" if isinstance(error, OSError) else str(error)


def _read(path: Path) -> bytes:
    """A document. ValueError for a pipe, a device, and what is too large, whatever its size is said to be."""
    if not path.is_file():
        raise ValueError("neither a file nor a folder")
    with path.open("rb") as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise ValueError(f"larger than {MAX_FILE >> 20} MB")
    return data


def _below(folder: Path) -> Iterator[Path]:
    """Documents below a folder, in order; hidden files, and folders behind links, are passed over, and so is
    what lies beyond `MAX_SEEN` files."""
    seen = 0
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            seen += 1
            if seen > MAX_SEEN:
                return
            if not name.startswith(".") and Path(name).suffix.lower() in READERS:
                yield Path(root, name)
