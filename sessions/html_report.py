"""One file that tells a session: self-contained HTML, without scripts and without anything from a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from .._version import __version__
from ..core.errors import WarpdeckError
from . import attempts as tried
from . import heatmap, html_attempts, html_counters, html_lanes, html_run, paths
from .database import odd_content
from .effects import effects_of
from .html_elements import Html, section, tag, visible
from .report import tune_document, write_text
from .state import RunState
from .store import SessionStore
from .words import config_text

TRACES, PROFILES = "*.wdtrace", "*.counters.json.gz"
MOST_FILES = 20  # traces, and profiles, that are looked through for the best's
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def write_report(folder: Path, target: Path | None = None) -> Path:
    """Write a session's report; returns its file.

    Args:
        folder: the session's.
        target: the file; a folder gets `ID.html` in it. None: the working directory does.

    Raises:
        UsageError: a damaged session.
        WarpdeckError: the file can't be written.
    """
    path = target or Path(f"{folder.name}.html")
    if path.is_dir():
        path /= f"{folder.name}.html"
    write_text(path, report(folder))
    return path


def report(folder: Path) -> str:
    """A session's report as HTML, of bounded size. UsageError for a damaged one."""
    with SessionStore.open(folder) as store, odd_content(store.id):
        return _report(store)


def _report(store: SessionStore) -> str:
    folder, state = store.folder, store.state()
    document = tune_document(store, state)
    rows = tried.attempts(store)
    parts = [
        html_run.heading(store, state, document),
        html_run.result(state, document),
        html_run.cases(state, document),
        html_run.plots(state),
        html_run.board(state, document),
        html_run.knobs(effects_of(store), state),
        html_attempts.section_of(store, state, rows),
        _heatmap(store, state, rows),
        _trace(folder, state),
        _profile(folder, state),
        html_run.failures(store, state),
        html_run.messages(state),
    ]
    return _page(store.id, parts)


def _page(title: str, parts: Sequence[Html]) -> str:
    style = resources.files("warpdeck.sessions").joinpath("report.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title}: warpdeck"),
        tag("style", Html(style)),
    )
    foot = tag("footer", f"warpdeck {__version__}")
    body = tag("body", tag("main", list(parts), foot))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _heatmap(store: SessionStore, state: RunState, rows: Sequence[dict[str, Any]]) -> Html:
    if state.info is None:
        return Html()
    names, found = heatmap.columns(store, rows)
    if not found or not names:
        return Html()
    more = max(0, (len(rows) or state.evaluations) - len(found))
    note = f"The last {len(found)} of {len(found) + more:,}." if more else ""
    drawn = heatmap.draw(names, found, f"{state.info.workload}, {state.device_label}")
    picture = tag("div", Html(visible(drawn.svg())), class_="wide paper", tabindex="0")
    return section("Heatmap", "heatmap", picture, note=note)


def _trace(folder: Path, state: RunState) -> Html:
    from ..core.tracing import read

    found, words = _of_best(_read(folder, TRACES, read), state)
    if found is None:
        return Html()
    return section("Timeline", "timeline", html_lanes.traced(html_lanes.Trace(*found, words)))


def _profile(folder: Path, state: RunState) -> Html:
    from ..core.devices.stored_counters import load

    found, words = _of_best(_read(folder, PROFILES, load), state)
    if found is None:
        return Html()
    file, counters = found
    return section("Counters", "counters", html_counters.profiled(counters, file.name, words))


def _read(folder: Path, pattern: str, read: Callable[[Path], Any]) -> list[tuple[Path, Any]]:
    """The session's files of a kind that can be read, the newest first."""
    root = (folder / paths.ARTIFACTS).resolve()
    files = [p for p in root.glob(pattern) if p.is_file() and p.resolve().is_relative_to(root)]
    files.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    found = []
    for file in files[:MOST_FILES]:
        with suppress(WarpdeckError, OSError, ValueError):
            found.append((file, read(file)))
    return found


def _of_best(found: Sequence[tuple[Path, Any]], state: RunState) -> tuple[tuple[Path, Any] | None, str]:
    """The best's, else the newest, and in words what it is of."""
    if not found:
        return None, ""
    best = state.best
    for file, each in found:
        meta = each.meta
        if best and meta.get("config") == dict(best.config) and meta.get("variant") in (None, best.variant):
            return (file, each), f"the best: {_subject(meta)}"
    meta = found[0][1].meta
    return found[0], f"{_subject(meta)}{', not the best' if best else ''}"


def _subject(meta: Mapping[str, Any]) -> str:
    config = meta.get("config")
    device = meta.get("device")
    words = [
        str(meta.get("variant") or ""),
        config_text(config) if isinstance(config, Mapping) else "",
        f"size {meta['case']}" if meta.get("case") else "",
        f"on {device.get('name')}" if isinstance(device, Mapping) and device.get("name") else "",
    ]
    return " ".join(word for word in words if word)
