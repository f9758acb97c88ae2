"""RunState as bytes, so that seeking in a log need not reduce it from the beginning.

The per-step series is stored apart, in blocks that all later snapshots share; a snapshot holds only the
rows of its last, unfinished block.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from . import llm_state
from .entries import Entry, RunInfo
from .events import Lifecycle
from .series import BLOCK, Series
from .state import Message, Record, RunState

VERSION = 4  # of the state and this encoding; snapshots of another version are ignored
# What JSON escapes. A command: a control character but for tabs and ends of lines, or one that turns the
# direction of text. It begins with a plain byte, so that a search is fast.
_ESCAPE = re.compile(
    rb"\\(?:(?P<command>[bfr]|u(?:00[01]|007f|00[89]|061c|200[ef]|202[89a-e]|206[6-9]))|.)", re.I | re.S
)


def encode(state: RunState) -> tuple[bytes, bytes]:
    """The state without the series' full blocks, and the rows after those."""
    data = {
        "seq": state.seq,
        "t": state.t,
        "started": state.started,
        "active_s": state.active_s,
        "lifecycle": state.lifecycle,
        "reason": state.reason,
        "exit_code": state.exit_code,
        "info": state.info.data if state.info else None,
        "baseline": state.baseline and state.baseline.to_json(),
        "steps": len(state.steps),
        "step": state.step,
        "best_speedup": state.best_speedup,
        "last_step": state.last_step,
        "evaluations": state.evaluations,
        "counts": state.counts,
        "leaderboard": [entry.to_json() for entry in state.leaderboard],
        "failed": [entry.to_json() for entry in state.failed],
        "records": [[r.t, r.step, r.config, r.score_ms, r.speedup, r.speedup_ci] for r in state.records],
        "last": state.last and state.last.to_json(),
        "samples": state.samples,
        "messages": [[m.t, m.level, m.text] for m in state.messages],
        "artifacts": state.artifacts,
        "result": state.result,
        "llm": llm_state.to_json(state.llm),
    }
    full = len(state.steps) // BLOCK
    text = json.dumps(data, separators=(",", ":")).encode()
    return zlib.compress(text, 1), state.steps.block(full)


def is_tame(data: bytes) -> bool:
    """Whether no text in it commands a terminal. What `encode` made of events may be shown; but a snapshot
    may be an older warpdeck's, or come with a session that was made to harm."""
    try:
        text = zlib.decompress(data)
    except zlib.error:
        return False
    if not text.isascii() or b"\x7f" in text:  # `encode` escapes all of it
        return False
    return all(found["command"] is None for found in _ESCAPE.finditer(text))


def decode(data: bytes, blocks: Sequence[bytes], tail: bytes) -> RunState:
    """Inverse of `encode`, given the full blocks. Raises ValueError for anything damaged."""
    try:
        raw = json.loads(zlib.decompress(data))
        steps = Series.from_blocks([*blocks, tail] if tail else blocks)
        if len(steps) != raw["steps"]:
            raise ValueError(f"{len(steps)} steps stored of {raw['steps']}")
        return RunState(
            seq=raw["seq"],
            t=raw["t"],
            started=raw["started"],
            active_s=raw["active_s"],
            lifecycle=Lifecycle(raw["lifecycle"]),
            reason=raw["reason"],
            exit_code=raw["exit_code"],
            info=RunInfo(raw["info"]) if raw["info"] is not None else None,
            baseline=_entry(raw["baseline"]),
            steps=steps,
            step=raw["step"],
            best_speedup=raw["best_speedup"],
            last_step=raw["last_step"],
            evaluations=raw["evaluations"],
            counts=raw["counts"],
            leaderboard=tuple(Entry.from_json(entry) for entry in raw["leaderboard"]),
            failed=tuple(Entry.from_json(entry) for entry in raw["failed"]),
            records=tuple(_record(record) for record in raw["records"]),
            last=_entry(raw["last"]),
            samples=tuple(raw["samples"]),
            messages=tuple(Message(*message) for message in raw["messages"]),
            artifacts=tuple((name, path) for name, path in raw["artifacts"]),
            result=raw["result"],
            llm=llm_state.from_json(raw["llm"]),
        )
    except (zlib.error, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"damaged snapshot: {error}") from error


def _record(data: list[Any]) -> Record:
    t, step, config, score_ms, speedup, ci = data
    return Record(t, step, config, score_ms, speedup, ci and (ci[0], ci[1]))


def _entry(data: Mapping[str, Any] | None) -> Entry | None:
    return None if data is None else Entry.from_json(data)
