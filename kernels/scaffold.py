"""A new workload's folder, complete and working, to start from."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

from ..core.errors import UsageError
from ..telemetry.whole import whole

TEMPLATES = Path(__file__).parent / "templates"
LANGUAGES = ("cuda", "numba")


def new_workload(folder: Path, language: str = "cuda") -> list[Path]:
    """Create `folder` with workload.toml, reference.py and kernel.cu or kernel.py; returns the files.

    The workload and its kernel take the folder's name.

    Raises:
        UsageError: an unknown language, a name that can't name a kernel, or a folder that isn't empty.
    """
    if language not in LANGUAGES:
        raise UsageError(f"unknown language '{language}'; use {' or '.join(LANGUAGES)}")
    name = folder.resolve().name.replace("-", "_")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(f"'{folder.name}' can't name a kernel; use letters, digits and _, not a digit first")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already; choose another name or an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    # Not the folder of compiled files that an installer makes beside a kernel.py.
    own = {file.name: file for file in sorted((TEMPLATES / language).iterdir()) if file.is_file()}
    shared = {"workload.toml": TEMPLATES / "template.toml", "reference.py": TEMPLATES / "reference.py"}
    for name_there, template in (own | shared).items():
        target = folder / name_there
        text = template.read_text(encoding="utf-8").replace("axpy", name)
        with whole(target) as partial:
            partial.write_text(text, encoding="utf-8")
        files.append(target)
    return files
