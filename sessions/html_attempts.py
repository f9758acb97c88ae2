"""The report's section of an agent that tries sources: its attempts, what each changed, what it cost."""

from __future__ import annotations

import difflib
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..core.errors import WarpdeckError
from . import html_elements as html
from .attempts import workload_of
from .html_elements import Html, section, tag
from .html_plots import Layer, plot
from .state import RunState
from .store import SessionStore
from .words import NONE, clipped, ratio_text, time_text

MOST = 400  # attempts listed, the last ones
MOST_BYTES = 256 * 1024  # of a source that is diffed
MOST_LINES = 3000
DIFF_BYTES = 500_000  # of all diffs together
ONE_DIFF = 60_000  # of one
WORDS = 2000  # characters of an idea, a verdict, a message


def section_of(store: SessionStore, state: RunState, rows: Sequence[Mapping[str, Any]]) -> Html:
    """The attempts; nothing for an agent without them."""
    if not rows:
        return Html()
    emulated = bool(state.info and state.info.device and state.info.device.emulated)
    shown = rows[-MOST:]
    texts = _Texts(store, state, rows)
    left = DIFF_BYTES
    details = []
    for row in shown:
        diff = texts.diff(row, min(left, ONE_DIFF))
        left -= len(diff)
        details.append(_detail(row, diff))
    times = [(row["attempt"], row["score_ms"]) for row in rows if row["score_ms"]]
    failed = [row["attempt"] for row in rows if row["status"] not in (None, "ok")]
    kept = [(row["attempt"], row["score_ms"]) for row in rows if row["score_ms"] and row["kept"]]
    picture = Html()
    if times and not emulated:
        picture = plot(
            "Time of each attempt, ms",
            [
                Layer.of("dots", "attempt", "each", *zip(*times, strict=True)),
                Layer.of("line", "kept", "best", *zip(*kept, strict=True)) if kept else _none(),
                Layer.of("rug", "failed", "failed", failed, [0.0] * len(failed)),
            ],
            x_name="attempt",
            y_name="ms",
            log=True,
        )
    head = ("", "from", "kept", "status", "time", "speedup", "tokens", "cost", "idea")
    table = html.table(
        head,
        [_row(row, emulated) for row in shown],
        right=(0, 1, 4, 5, 6, 7),
        classes={i: "kept" for i, row in enumerate(shown) if row["kept"]},
    )
    note = (
        f"{len(rows):,} attempts" + (f", the last {MOST} listed" if len(rows) > MOST else "") + _spent(rows)
    )
    return section("Attempts", "attempts", picture, table, details, note=note)


def _none() -> Layer:
    return Layer.of("dots", "", "each", [], [])


def _spent(rows: Sequence[Mapping[str, Any]]) -> str:
    tokens = sum(_tokens(row) or 0 for row in rows)
    costs = [row["cost"] for row in rows if row["cost"] is not None]
    words = f"; {tokens:,} tokens" if tokens else ""
    return words + (f", ${sum(costs):.4g}" if costs else "") + "."


def _tokens(row: Mapping[str, Any]) -> int | None:
    usage = row.get("usage") or {}
    known = [usage.get(name) for name in ("input", "output")]
    return sum(n for n in known if isinstance(n, int)) if usage else None


def _kept(row: Mapping[str, Any]) -> str:
    return NONE if row["kept"] is None else "kept" if row["kept"] else "not kept"


def _row(row: Mapping[str, Any], emulated: bool) -> Sequence[Any]:
    tokens, cost = _tokens(row), row["cost"]
    return (
        tag("a", row["attempt"], href=f"#attempt-{int(row['attempt'])}"),
        row["repairs"] or row["parent"] or NONE,
        _kept(row),
        str(row["status"] or "not judged").replace("_", " "),
        NONE if emulated else time_text(row["score_ms"]),
        NONE if emulated else ratio_text(row["speedup"]),
        NONE if tokens is None else f"{tokens:,}",
        NONE if cost is None else f"${cost:.4g}",
        ("draft: " if row["draft"] else "") + clipped(row["idea"] or row["variant"] or "", 200),
    )


def _detail(row: Mapping[str, Any], diff: str) -> Html:
    title = f"Attempt {row['attempt']}: {clipped(row['idea'] or row['variant'] or '', 120)}"
    source = row["repairs"] or row["parent"]
    beside = f"changes from attempt {source}" if source else "source"
    return tag(
        "details",
        tag("summary", title),
        html.facts(
            [
                ("variant", row["variant"]),
                ("precision", row["precision"]),
                ("what it does", _long(row["summary"])),
                ("verdict", _long(row["verdict"])),
                ("reason", _long(row["reason"])),
                ("message", _long(row["message"])),
            ]
        ),
        [tag("h4", beside), _lines(diff.split("\n"))] if diff else None,
        id=f"attempt-{int(row['attempt'])}",
    )


def _long(text: Any) -> Html | None:
    return tag("span", clipped(text, WORDS), class_="pre") if text else None


def _lines(lines: Iterable[str]) -> Html:
    """A diff; the sign at a line's start tells what its colour does."""
    kinds = {"+": "add", "-": "del", "@": "at"}
    parts: list[Any] = []
    for line in lines:
        kind = kinds.get(line[:1])
        parts += [tag("span", line, class_=kind) if kind else line, "\n"]
    return tag("pre", tag("code", parts), class_="diff", tabindex="0")


class _Texts:
    """The sources of a session's attempts, read when they are needed."""

    def __init__(self, store: SessionStore, state: RunState, rows: Sequence[Mapping[str, Any]]) -> None:
        self._folder = store.folder.resolve()
        self._rows = {row["attempt"]: row for row in rows}
        self._known: dict[Any, str | None] = {}
        self._variants: Mapping[str, Any] = {}
        if any(not row["source"] for row in rows):  # a variant of the workload, which may be gone
            with suppress(WarpdeckError, OSError, ValueError):
                self._variants = workload_of(store, state.info.workload if state.info else None).variants

    def diff(self, row: Mapping[str, Any], most: int) -> str:
        """From the attempt that this one changes; of a first one the source. At most `most` characters."""
        new = self._text(row["attempt"])
        if new is None or most <= 0:
            return ""
        old = self._text(row["repairs"] or row["parent"])
        if old is None:
            found = new
        else:
            pair = (old.splitlines()[:MOST_LINES], new.splitlines()[:MOST_LINES])
            found = "\n".join(list(difflib.unified_diff(*pair, lineterm="", n=3))[2:]) or "(no difference)"
        return found if len(found) <= most else f"{found[:most]}\n… cut; the session holds the whole source"

    def _text(self, attempt: Any) -> str | None:
        if attempt not in self._known:
            row = self._rows.get(attempt)
            self._known[attempt] = None if row is None else self._read(row)
        return self._known[attempt]

    def _read(self, row: Mapping[str, Any]) -> str | None:
        try:
            if row["source"]:
                return _below(self._folder, str(row["source"]))
            variant = self._variants.get(str(row["variant"]))
            return None if variant is None else variant.source()
        except (WarpdeckError, OSError, ValueError):
            return None


def _below(folder: Path, name: str) -> str | None:
    """A file's text; None unless it is a plain file of usual size below the folder, whatever links say."""
    file = (folder / name).resolve(strict=True)
    found = file.stat()
    if not file.is_relative_to(folder) or not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
        return None
    return file.read_text(encoding="utf-8", errors="replace")
