"""What may be pasted."""

from __future__ import annotations

import re

MOST_PASTED = 64 << 10  # characters of a paste that are kept; nothing here takes more
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufffd]")


def plain(text: str) -> str:
    """Pasted text without what commands a terminal, and not too much of it; lines stay lines."""
    text = text[:MOST_PASTED].replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("", text)
