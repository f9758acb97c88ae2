"""What is left of an unexpected error: its traceback in a file, which a report can quote."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from pathlib import Path


def save_traceback(problem: BaseException) -> Path | None:
    """Write it to a new file that only its owner can read; None if no file can be written."""
    text = f"command: {sys.argv}\npython: {sys.version}\n\n" + "".join(traceback.format_exception(problem))
    try:
        handle, path = tempfile.mkstemp(prefix="warpdeck-traceback-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        return None
    return Path(path)
