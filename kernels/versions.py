"""Remembers a workload's sources each time they are benched: an edit is compared with what was before.

Each version is a folder of copies, complete enough to be loaded as a workload; the newest few are kept.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from ..core.errors import UsageError
from ..core.workload import Variant, Workload
from .loader import load_workload

SUFFIXES = frozenset({".py", ".cu", ".cuh", ".h", ".hpp", ".inl", ".toml"})
MAX_FILE_BYTES = 4 << 20
KEPT = 20


class Versions:
    """Earlier sources of one workload, under `home`/versions."""

    def __init__(self, home: Path, workload: Workload) -> None:
        key = hashlib.sha256(str(workload.folder.resolve()).encode()).hexdigest()[:12]
        self.root = home / "versions" / f"{workload.name}-{key}"

    def remember(self, workload: Workload, variant: Variant) -> Path:
        """Copy the folder's sources, unless this version of the variant is known; it becomes the newest."""
        folder = self.root / f"{variant.name}-{variant.source_hash}"
        if folder.is_dir():
            folder.touch()
            return folder
        scratch = self.root / f".{folder.name}"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        for file in workload.folder.iterdir():
            if file.is_file() and file.suffix in SUFFIXES and file.stat().st_size <= MAX_FILE_BYTES:
                shutil.copy2(file, scratch / file.name)
        scratch.touch()
        scratch.rename(folder)
        for old in self._folders(variant.name)[KEPT:]:
            shutil.rmtree(old, ignore_errors=True)
        return folder

    def before(self, variant: Variant) -> Variant | None:
        """The newest remembered version of a variant whose source differs; None if there is none."""
        for folder in self._folders(variant.name):
            if folder.name == f"{variant.name}-{variant.source_hash}":
                continue
            try:
                earlier = load_workload(folder).variants.get(variant.name)
            except UsageError:
                continue  # its workload.toml was broken then, or reads something that wasn't copied
            if earlier is not None and earlier.source_hash != variant.source_hash:
                return earlier
        return None

    def _folders(self, variant: str) -> list[Path]:
        """Versions of a variant, newest first."""
        found = [f for f in self.root.glob(f"{variant}-*") if f.is_dir()]
        return sorted(found, key=lambda f: f.stat().st_mtime_ns, reverse=True)
