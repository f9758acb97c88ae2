"""RunState to what the panes of a run that tries sources show. Pure functions, as in `view`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.text import Text

from ..sessions.entries import Entry
from ..sessions.llm_state import Attempt, LlmState, Request, Usage
from ..sessions.state import RunState
from .braille import Series, Shape
from .format import NONE, clip, duration
from .verdicts import kept_words, status_tone, status_words
from .widgets.attempts import AttemptRow

SPREAD = 8  # slowest over fastest from which on times are drawn on a logarithmic axis


def emulated(state: RunState) -> bool:
    """Whether the device checks only, and times nothing."""
    return bool(state.info and state.info.device and state.info.device.emulated)


def attempt_rows(state: RunState, llm: LlmState) -> list[AttemptRow]:
    """The attempts in order. A finalist's time is the one measured again at the end."""
    board = {entry.candidate: entry for entry in state.leaderboard}
    best = state.best.candidate if state.best else None
    timed = not emulated(state)
    return [
        _row(attempt, board.get(attempt.candidate) or attempt.entry, best, timed) for attempt in llm.attempts
    ]


def _row(attempt: Attempt, entry: Entry | None, best: str | None, timed: bool) -> AttemptRow:
    return AttemptRow(
        number=attempt.number,
        parent=attempt.parent,
        repairs=attempt.repairs,
        idea=attempt.idea or attempt.summary,
        status=None if entry is None else entry.status,
        kept=attempt.kept,
        score_ms=entry.score_ms if entry and timed else None,
        speedup=entry.speedup if entry and timed else None,
        speedup_ci=entry.speedup_ci if entry and timed else None,
        precision=attempt.precision,
        best=timed and best is not None and attempt.candidate == best,
        words=_about(attempt, entry),
    )


def _about(attempt: Attempt, entry: Entry | None) -> str:
    """The marked attempt in one line: why it failed first, since that is nowhere else in the table."""
    parts = [f"attempt {attempt.number}"]
    if attempt.repairs is not None:
        parts.append(f"repairs {attempt.repairs}")
    if attempt.draft:
        parts.append("a draft")
    if entry is not None and entry.status != "ok":
        failed = status_words(entry.status)
        parts.append(f"{failed}: {entry.message}" if entry.message else failed)
    elif entry is None:
        parts.append(status_words(None))
    parts += [attempt.precision, kept_words(attempt)]
    if entry is None or entry.status == "ok":
        parts.append(attempt.reason)
    parts.append(attempt.summary or attempt.idea)
    return " · ".join(" ".join(part.split()) for part in parts if part)


def latency_series(state: RunState, llm: LlmState) -> tuple[list[Series], str, bool]:
    """(curves, unit, whether a logarithmic scale suits them): time of each attempt, the best so far as
    stairs, the baseline's and the vendor's times, failures as a rug."""
    rows = attempt_rows(state, llm)
    timed = [row for row in rows if row.score_ms]
    failed = [row.number for row in rows if status_tone(row.status) == "bad"]
    if not timed:
        return [Series.of(failed, np.zeros(len(failed)), Shape.RUG, "failed", "failed")], "", False
    x = [row.number for row in timed]
    times = np.array([row.score_ms for row in timed], dtype=np.float64)
    base = state.baseline.score_ms if state.baseline else None
    vendor = None
    if base and state.baseline and state.baseline.vendor_ratio:
        vendor = base * state.baseline.vendor_ratio
    levels = [level for level in (base, vendor) if level]
    every = np.array([*times, *levels])
    log = every.max() > SPREAD * every.min()
    factor, unit = (1e3, "µs") if every.min() < 1 else (1.0, "ms")

    def scaled(values: Sequence[float] | np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=np.float64) * factor

    counted = np.array([not row.precision for row in timed])
    best = np.minimum.accumulate(np.where(counted, times, np.inf))
    begun = np.isfinite(best)
    kept = np.array([row.kept is True for row in timed])
    xs = np.array(x, dtype=np.float64)
    series = [
        Series.of(xs[:1], scaled([base] if base else [np.nan]), Shape.DASHES, "baseline", "level"),
        Series.of(xs[:1], scaled([vendor] if vendor else [np.nan]), Shape.DOTTED, "vendor", "vendor"),
        Series.of(failed, np.zeros(len(failed)), Shape.RUG, "failed", "failed"),
        Series.of(xs, scaled(times), Shape.DOTS, "attempt", "each"),
        Series.of(xs[begun], scaled(best[begun]), Shape.STAIRS, "best", "best"),
        Series.of(xs[kept], scaled(times[kept]), Shape.POINT, "kept", "best"),
    ]
    return series, unit, bool(log)


def nodes_line(llm: LlmState, width: int) -> Text:
    """The state machine's nodes as the run came by them, the present one marked; then what it does there."""
    text = Text(no_wrap=True, overflow="ellipsis")
    names = list(llm.nodes)
    if sum(len(name) + 3 for name in names) > width - 20:
        names = [llm.node] if llm.node else []
    for i, name in enumerate(names):
        here = name == llm.node
        text.append((" · " if i else "") + ("▸ " if here else ""), "bold" if here else "dim")
        text.append(name, "bold" if here else "dim")
    if llm.detail and width - len(text) > 8:
        text.append(clip(f"   {' '.join(llm.detail.split())}", width - len(text)))
    return text


def count_text(count: int) -> str:
    """Tokens: "812", "12.3k", "1.24M"."""
    for size, unit, decimals in ((1_000_000, "M", 2), (1000, "k", 1)):
        if count >= size:
            return f"{count / size:.{decimals}f}{unit}"
    return str(count)


def cost_text(usage: Usage) -> str:
    """What was paid: "$0.0312", "at least $1.20", "cost unknown"; "" before the first answer."""
    if not usage.answers:
        return ""
    if usage.unpriced == usage.answers:
        return "cost unknown"
    cost = f"${usage.cost:.2f}" if usage.cost >= 1 else f"${usage.cost:.4f}"
    return f"at least {cost}" if usage.unpriced else cost


def usage_line(llm: LlmState, now: float, width: int) -> str:
    """Tokens, money, what is being asked, the model; what there is no room for is left out."""
    usage = llm.usage
    parts = [f"{count_text(usage.input)} tokens in", f"{count_text(usage.output)} out"]
    cost = cost_text(usage)
    wide = width >= 100
    if wide and usage.cached:
        parts[0] += f" ({count_text(usage.cached)} cached)"
    if wide and usage.reasoning:
        parts[1] += f" ({count_text(usage.reasoning)} reasoning)"
    parts += [cost] if cost else []
    if len(llm.requests) == 1:
        request = llm.requests[0]
        parts.append(f"asking: {_purpose(request)}, {duration(max(0.0, now - request.since))}")
    elif llm.requests:
        parts.append(f"{len(llm.requests)} requests in flight")
    if llm.retries:
        parts.append(f"{llm.retries} sent again")
    parts.append(" ".join(part for part in (llm.model, llm.effort) if part))
    if llm.tool_calls:
        parts.append(f"{llm.tool_calls} tool calls")
    line = ""
    for part in parts:
        joined = f"{line} · {part}" if line else part
        line = joined if len(joined) <= width else line
    return line


def _purpose(request: Request) -> str:
    words = request.purpose or "a request"
    return words if request.attempt is None else f"{words} for attempt {request.attempt}"


def model_sections(llm: LlmState) -> list[tuple[str, str, bool]]:
    """(heading, text, whether it is prose) of the model pane."""
    sections = []
    streamed = any(request.reasoning for request in llm.requests)
    if llm.reasoning and not streamed:
        sections.append(("Reasoning summary", llm.reasoning, True))
    for request in llm.requests:
        head = _purpose(request)
        if request.reasoning:
            sections.append((f"{head}: reasoning summary", request.reasoning, True))
        if request.length:
            sections.append(
                (f"{head}: streaming, {count_text(request.length)} characters", request.text, False)
            )
        else:
            sections.append((f"{head}: waiting for the first words", "", False))
    if not llm.requests and llm.answer is not None:
        answer = llm.answer
        asked = Request(answer.id, answer.purpose, answer.attempt)
        took = NONE if answer.seconds is None else f"{answer.seconds:.1f} s"
        took = "from the log" if answer.from_log else took
        ended = f"no answer: {answer.error}" if answer.error else f"answered, {took}"
        sections.append((f"{_purpose(asked)}: {ended}", answer.text, False))
    return [(head, _unescaped(text), prose) for head, text, prose in sections]


def _unescaped(text: str) -> str:
    """A structured answer as it reads: JSON that is still being streamed can't be parsed."""
    if not text.lstrip().startswith("{") and "\\n" not in text:
        return text
    for escape, character in (("\\n", "\n"), ("\\t", "    "), ('\\"', '"')):
        text = text.replace(escape, character)
    return text
