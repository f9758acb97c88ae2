"""What a session can be exported as; one list for the command line and the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from . import listing, phase0
from .database import odd_content
from .html_report import write_report
from .portable import SUFFIXES, export_session
from .report import history_document, json_text, write_text
from .store import SessionStore


@dataclass(frozen=True)
class Form:
    """`suffix`: of the file's name; `words`: what it is for."""

    suffix: str
    words: str
    write: Callable[[Path, Path], Path]


def session_document(folder: Path) -> dict[str, Any]:
    """Everything that `sessions show --json` has, and every evaluation. UsageError for a damaged session."""
    with SessionStore.open(folder) as store, odd_content(store.id):
        history = history_document(store)
    return {**listing.show(folder), "attempts": history["attempts"], "evaluations": history["evaluations"]}


def _json(folder: Path, target: Path) -> Path:
    write_text(target, json_text(session_document(folder)))
    return target


def _csv(folder: Path, target: Path) -> Path:
    with SessionStore.open(folder) as store:
        phase0.export([store], target)
    return target


FORMS: Mapping[str, Form] = {
    "tar": Form(".tar.gz", "everything, packed: to import elsewhere", export_session),
    "html": Form(".html", "a report to read and send", write_report),
    "json": Form(".json", "result and every evaluation", _json),
    "csv": Form(".csv", "a row a configuration and size", _csv),
}


def export(folder: Path, form: str, target: Path | None = None) -> Path:
    """Write a session in a form; returns the file.

    Args:
        folder: the session's.
        form: a key of `FORMS`.
        target: the file, or a folder to put `ID.suffix` into; None: the working directory.

    Raises:
        UsageError: an unknown form, a damaged session, or one that the form doesn't fit.
        WarpdeckError: the file can't be written.
    """
    if form not in FORMS:
        raise UsageError(f"unknown form '{form}': use {', '.join(FORMS)}")
    chosen = FORMS[form]
    path = target or Path()
    if path.is_dir():
        path /= f"{folder.name}{chosen.suffix}"
    if form == "tar" and not path.name.endswith(SUFFIXES):
        raise UsageError(f"{path}: a session is packed as {' or '.join(SUFFIXES)}")
    return chosen.write(folder, path)
