"""Compiled code on disk, shared by concurrent processes, and safe to lose at any moment."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import platformdirs

DEFAULT_LIMIT = 1 << 30  # bytes
_SCAN_EVERY = 256  # stores between two looks at the folder's size
_KEEP = 0.8  # of the limit, after old entries were removed
_MAGIC = b"warpdeck cache 1\n"


def default_folder() -> Path:
    """Where compiled code is kept: `compiled` in `$WARPDECK_HOME/cache`, else in the user's cache."""
    home = os.environ.get("WARPDECK_HOME")
    root = Path(home).expanduser() / "cache" if home else Path(platformdirs.user_cache_dir("warpdeck"))
    return root / "compiled"


def pack(header: Mapping[str, Any], blobs: Sequence[bytes]) -> bytes:
    """A self-checking container: JSON header and byte strings."""
    text = json.dumps({"header": header, "sizes": [len(blob) for blob in blobs]}).encode()
    body = b"".join((struct.pack("<Q", len(text)), text, *blobs))
    return _MAGIC + hashlib.sha256(body).digest() + body


def unpack(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Inverse of `pack`. Raises ValueError for anything else."""
    start = len(_MAGIC) + 32
    body = data[start:]
    if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        raise ValueError("not compiled code, or damaged")
    (size,) = struct.unpack_from("<Q", body)
    text = json.loads(body[8 : 8 + size])
    at, blobs = 8 + size, []
    for length in text["sizes"]:
        blobs.append(body[at : at + length])
        at += length
    return text["header"], blobs


class CompileCache:
    """Files by key, least recently used removed first once they exceed `limit` bytes.

    Every failure of the file system (read-only, full, gone) only means that nothing is kept.
    """

    def __init__(self, folder: Path | None = None, limit: int = DEFAULT_LIMIT) -> None:
        self.folder = default_folder() if folder is None else Path(folder)
        self.limit = limit
        self._stores = 0

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def get(self, key: str) -> bytes | None:
        """What was stored under a key (hex digits), marked as used just now; None if nothing was."""
        path = self._path(key)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return data

    def put(self, key: str, data: bytes) -> None:
        """Store, replacing at once what was there: a reader sees the old or the new, never a part."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".tmp")
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                Path(temporary).replace(path)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError:
            return
        self._stores += 1
        if self._stores % _SCAN_EVERY == 1:
            self.trim()

    def drop(self, key: str) -> None:
        """Forget an entry (a damaged one)."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def trim(self) -> None:
        """Remove the least recently used entries down to 80% of the limit, if it is exceeded."""
        entries = []
        for path in self.folder.glob("??/*"):
            with contextlib.suppress(OSError):
                state = path.stat()
                entries.append((state.st_mtime, state.st_size, path))
        total = sum(size for _, size, _ in entries)
        if total <= self.limit:
            return
        for _, size, path in sorted(entries, key=lambda entry: entry[0]):
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size
            if total <= self.limit * _KEEP:
                return
