"""Sessions that come with the package, to replay without having run anything; and archives, the same way."""

from __future__ import annotations

from pathlib import Path

from ..core.errors import UsageError
from . import paths
from .portable import SUFFIXES, import_session

FOLDER = Path(__file__).parent / "examples"
SUFFIX = ".tar.gz"


def names() -> list[str]:
    """Names of the bundled sessions."""
    return sorted(file.name.removesuffix(SUFFIX) for file in FOLDER.glob(f"*{SUFFIX}"))


def resolve(session: str) -> Path:
    """As `paths.resolve`; a bundled session, or an archive's, is unpacked among the others when it is first
    asked for.

    Raises UsageError for an unknown name; as `import_session`.
    """
    archive = Path(session).expanduser()
    if session.endswith(SUFFIXES) and archive.is_file():
        return import_session(archive)
    try:
        return paths.resolve(session)
    except UsageError as unknown:
        if session in names():
            return import_session(FOLDER / f"{session}{SUFFIX}", name=session)
        have = ", ".join(names())
        raise UsageError(f"{unknown}; bundled: {have}" if have else str(unknown)) from None
