"""The two settings of a model's server from `.env` in the working directory, as many tools keep them."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from pathlib import Path

NAMES = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
_LINE = re.compile(r"\s*(?:export\s+)?(\w+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s#]*))\s*(?:#.*)?")


def load(environ: MutableMapping[str, str], file: Path) -> None:
    """Put them into `environ`, where they aren't set; nothing else, and nothing of it is ever printed."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        match = _LINE.fullmatch(line)
        if match and match[1] in NAMES:
            value = next((text for text in match.groups()[1:] if text), "")
            if value and not environ.get(match[1]):
                environ[match[1]] = value
