"""Keeps the key out of everything that is logged, shown or sent on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "[key]"

# Other keys that a server's message or a document may hold, in the usual forms.
_KEYS = re.compile(r"\bsk-[A-Za-z0-9_-]{16,}|\b[Bb]earer\s+[A-Za-z0-9._~+/-]{16,}=*")


class Redactor:
    """Replaces a key wherever it occurs.

    Args:
        key: The secret; shorter than 8 characters (a local server's placeholder) it is not looked for.
    """

    def __init__(self, key: str | None) -> None:
        self._key = key if key and len(key) >= 8 else None

    def text(self, text: str) -> str:
        """The text without the key."""
        if self._key is not None:
            text = text.replace(self._key, MASK)
        return _KEYS.sub(MASK, text)

    def data(self, value: Any) -> Any:
        """JSON-like data without the key, in keys and values."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.data(name): self.data(item) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.data(item) for item in value]
        return value

    def safe_length(self, text: str) -> int:
        """How much of a growing text may be shown: not an end that may be the beginning of the key."""
        if self._key is None:
            return len(text)
        for length in range(min(len(self._key) - 1, len(text)), 0, -1):
            if text.endswith(self._key[:length]):
                return len(text) - length
        return len(text)
