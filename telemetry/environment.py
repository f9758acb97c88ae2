"""The environment of every process that is started but the run process: this one's, without its secrets.

A kernel's module is Python that runs when it is compiled, and tools start what they profile. What only agents
need (the key of a model's API, say) has no business there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

# KEY, TOKEN and the like as whole words of a name or at its end: KEYBOARD and TOKENIZERS_PARALLELISM are no
# secrets, OPENAIKEY is.
_SECRET = re.compile(
    r"SECRET|PASSW(OR)?D|PASSPHRASE|CREDENTIAL|(KEY|TOKEN)S?$|"
    r"(^|_)(API_?KEYS?|KEYS?|TOKENS?|AUTH|COOKIES?|PASS|PAT)($|_)",
    re.IGNORECASE,
)
_WITH_PASSWORD = re.compile(
    r"^[a-z][a-z0-9+.-]*://[^/@\s]+:[^/@\s]+@", re.IGNORECASE
)  # in a URL, as a proxy's


def is_secret(name: str, value: str = "") -> bool:
    """Whether a variable looks like a secret: by its name, or a URL that holds a password."""
    return _SECRET.search(name) is not None or _WITH_PASSWORD.match(value) is not None


def without_secrets(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """A copy of the environment (this process' if None) without what looks like a secret."""
    source = os.environ if environment is None else environment
    return {name: value for name, value in source.items() if not is_secret(name, value)}
