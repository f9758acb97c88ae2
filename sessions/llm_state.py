"""What a run that writes or climbs sources says of itself (agents `llm` and `ladder`): its attempts, what the
model streams, tokens and money, the node its state machine is in. Part of RunState, and bounded: a log of any
length makes a state of at most some megabytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from .entries import Entry
from .events import Event, Kind
from .words import tame

ATTEMPTS = 1000  # kept, the latest ones
RECENT = 128  # evaluations that no attempt has claimed yet
REQUESTS = 64  # in flight
TOOLS = 50  # calls kept
NODES = 40  # names of nodes
TAIL = 12_000  # characters kept of a streamed text, from its end
WORDS = 2000  # characters kept of an idea, a summary, a verdict

AGENTS = frozenset({"llm", "ladder"})


@dataclass(frozen=True)
class Usage:
    """Tokens and money of all answers that were paid for. `cached` is part of `input`, `reasoning` of
    `output`. `cost`: USD of the answers whose price is known; `unpriced`: how many have none."""

    answers: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    cost: float = 0.0
    unpriced: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Request:
    """One request that has no answer yet. `text` and `reasoning`: the ends of what was streamed; `length`:
    how long the text is."""

    id: str
    purpose: str = ""
    attempt: int | None = None
    model: str = ""
    since: float = 0.0
    text: str = ""
    reasoning: str = ""
    length: int = 0


@dataclass(frozen=True)
class Answer:
    """How the latest request ended. Text and reasoning summary: their ends; `error`: why there is none."""

    id: str
    purpose: str = ""
    attempt: int | None = None
    text: str = ""
    reasoning: str = ""
    seconds: float | None = None
    from_log: bool = False
    error: str = ""


@dataclass(frozen=True)
class ToolCall:
    """A tool the model called."""

    t: float
    name: str
    seconds: float | None = None


@dataclass(frozen=True)
class Attempt:
    """One source that was tried. `parent` is the attempt that it changes, `repairs` the one it mends; `kept`
    is None until it was judged; `source` lies below the session's folder. `launches`: case → its launches,
    each `{entry, grid, block, shared}`, as far as they are known. `precision`: where it isn't the workload's
    own, so that it is never the best. `reason`: why it is as it is, in words. `draft`: the model had it
    evaluated within its turn. `entry`: its evaluation."""

    number: int
    t: float
    parent: int | None = None
    idea: str = ""
    summary: str = ""
    variant: str = ""
    candidate: str = ""
    source: str | None = None
    launches: Mapping[str, Any] = field(default_factory=dict)
    repairs: int | None = None
    kept: bool | None = None
    verdict: str = ""
    precision: str = ""
    reason: str = ""
    draft: bool = False
    entry: Entry | None = None

    @property
    def status(self) -> str | None:
        """Its evaluation's status; None before there is one."""
        return None if self.entry is None else self.entry.status


@dataclass(frozen=True)
class LlmState:
    """An immutable picture; build with `reduce` and `evaluated`."""

    node: str = ""
    detail: str = ""
    nodes: tuple[str, ...] = ()  # in the order in which they were first entered
    model: str = ""
    effort: str = ""
    attempts: tuple[Attempt, ...] = ()  # by number, the latest `ATTEMPTS`
    requests: tuple[Request, ...] = ()  # in flight, oldest first
    sent: int = 0  # requests, each counted once however often it had to be sent
    retries: int = 0
    answer: Answer | None = None
    reasoning: str = ""  # the latest summary that there was
    usage: Usage = field(default_factory=Usage)
    tools: tuple[ToolCall, ...] = ()
    tool_calls: int = 0
    recent: tuple[Entry, ...] = ()  # evaluations that an attempt may still claim

    @property
    def asks(self) -> bool:
        """Whether a model takes part."""
        return bool(self.sent)

    def attempt(self, number: int | None) -> Attempt | None:
        """The attempt of this number, if it is kept."""
        return next((a for a in reversed(self.attempts) if a.number == number), None)


def reduce(state: LlmState | None, event: Event) -> LlmState:
    """The state after one of these events. KeyError, TypeError or ValueError if its data is damaged."""
    return _HANDLERS[event.kind](state or LlmState(), event)


def evaluated(state: LlmState | None, entry: Entry) -> LlmState | None:
    """The state when a candidate was evaluated: its attempt's, or kept for an attempt that is told later."""
    if state is None:
        return None
    mine = [i for i, attempt in enumerate(state.attempts) if attempt.candidate == entry.candidate]
    if mine:
        attempts = list(state.attempts)
        for i in mine:
            attempts[i] = replace(attempts[i], entry=entry)
        state = replace(state, attempts=tuple(attempts))
    others = tuple(known for known in state.recent if known.candidate != entry.candidate)
    return replace(state, recent=(*others, entry)[-RECENT:])


def interrupted(state: LlmState | None) -> LlmState | None:
    """The state when the run has ended, or goes on in another process: nothing is in flight."""
    return replace(state, requests=()) if state is not None and state.requests else state


def _node(state: LlmState, event: Event) -> LlmState:
    name = _words(event.data["node"])
    known = state.nodes if name in state.nodes or len(state.nodes) == NODES else (*state.nodes, name)
    return replace(state, node=name, detail=_words(event.data.get("detail")), nodes=known)


def _request(state: LlmState, event: Event) -> LlmState:
    data = event.data
    name = str(data["id"])
    params = data.get("params")
    params = params if isinstance(params, Mapping) else {}
    request = Request(
        name, _words(data.get("purpose")), _number(data.get("attempt")), _words(data.get("model")), event.t
    )
    again = bool(data.get("retry")) or any(known.id == name for known in state.requests)
    others = tuple(known for known in state.requests if known.id != name)
    return replace(
        state,
        model=request.model or state.model,
        effort=_effort(params) or state.effort,
        requests=(*others, request)[-REQUESTS:],
        sent=state.sent + (not again),
        retries=state.retries + bool(data.get("retry")),
    )


def _effort(params: Mapping[str, Any]) -> str:
    reasoning = params.get("reasoning")
    nested = reasoning.get("effort") if isinstance(reasoning, Mapping) else None
    return _words(params.get("reasoning_effort") or params.get("effort") or nested)


def _partial(state: LlmState, event: Event) -> LlmState:
    name, text = str(event.data["id"]), tame(event.data.get("text") or "")
    reasoning = tame(event.data.get("reasoning") or "")

    def longer(request: Request) -> Request:
        if request.id != name:
            return request
        return replace(
            request,
            text=(request.text + text)[-TAIL:],
            reasoning=(request.reasoning + reasoning)[-TAIL:],
            length=request.length + len(text),
        )

    requests = tuple(longer(request) for request in state.requests)
    return replace(state, requests=requests)


def _response(state: LlmState, event: Event) -> LlmState:
    data = event.data
    name = str(data["id"])
    asked = next((known for known in state.requests if known.id == name), Request(name))
    from_log = bool(data.get("from_log"))
    seconds = data.get("seconds")
    reasoning = _tail(data.get("reasoning"))
    return replace(
        state,
        requests=tuple(known for known in state.requests if known.id != name),
        answer=Answer(
            name,
            asked.purpose,
            asked.attempt,
            _tail(data.get("text")),
            reasoning,
            None if seconds is None else float(seconds),
            from_log,
            _words(data.get("error")),
        ),
        reasoning=reasoning or state.reasoning,
        # An answer out of the log was counted when it came; a request without an answer costs nothing.
        usage=state.usage if from_log or data.get("error") else _spent(state.usage, data),
    )


def _spent(usage: Usage, data: Mapping[str, Any]) -> Usage:
    tokens = data.get("usage") or {}
    cost = data.get("cost")
    counts = {name: int(tokens.get(name) or 0) for name in ("input", "cached", "output", "reasoning")}
    return replace(
        usage,
        **{name: getattr(usage, name) + count for name, count in counts.items()},
        answers=usage.answers + 1,
        cost=usage.cost + float(cost or 0.0),
        unpriced=usage.unpriced + (cost is None),
        seconds=usage.seconds + float(data.get("seconds") or 0.0),
    )


def _tool(state: LlmState, event: Event) -> LlmState:
    seconds = event.data.get("seconds")
    call = ToolCall(event.t, _words(event.data["name"]), None if seconds is None else float(seconds))
    return replace(state, tools=(*state.tools, call)[-TOOLS:], tool_calls=state.tool_calls + 1)


def _attempt(state: LlmState, event: Event) -> LlmState:
    data = event.data
    number = int(data["attempt"])
    before = state.attempt(number) or Attempt(number, event.t)
    changes: dict[str, Any] = {
        name: _words(data[name])
        for name in ("idea", "summary", "variant", "candidate", "verdict", "precision", "reason")
        if data.get(name) is not None
    }
    changes |= {name: _number(data[name]) for name in ("parent", "repairs") if data.get(name) is not None}
    if data.get("kept") is not None:
        changes["kept"] = bool(data["kept"])
    if data.get("draft") is not None:
        changes["draft"] = bool(data["draft"])
    if data.get("source") is not None:
        changes["source"] = str(data["source"])[:WORDS]
    if isinstance(data.get("launches"), Mapping):
        changes["launches"] = data["launches"]
    attempt = replace(before, **changes)
    if attempt.candidate != before.candidate or attempt.entry is None:
        known = (entry for entry in reversed(state.recent) if entry.candidate == attempt.candidate)
        attempt = replace(attempt, entry=next(known, None))
    if state.attempts and number > state.attempts[-1].number:
        attempts = (*state.attempts, attempt)
    else:
        others = [known for known in state.attempts if known.number != number]
        attempts = tuple(sorted([*others, attempt], key=lambda known: known.number))
    return replace(state, attempts=attempts[-ATTEMPTS:])


_HANDLERS = {
    Kind.NODE.value: _node,
    Kind.REQUEST.value: _request,
    Kind.PARTIAL.value: _partial,
    Kind.RESPONSE.value: _response,
    Kind.TOOL.value: _tool,
    Kind.ATTEMPT.value: _attempt,
}
KINDS = frozenset(_HANDLERS)


def _words(value: Any) -> str:
    return "" if value is None else tame(str(value)[:WORDS])


def _tail(value: Any) -> str:
    return "" if value is None else tame(str(value)[-TAIL:])


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


# As JSON, for snapshots


def to_json(state: LlmState | None) -> dict[str, Any] | None:
    """The state as plain data."""
    return None if state is None else _plain(state)


def _plain(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def from_json(data: Mapping[str, Any] | None) -> LlmState | None:
    """Inverse of `to_json`. KeyError or TypeError for anything damaged."""
    if data is None:
        return None
    return LlmState(
        **{
            **data,
            "nodes": tuple(data["nodes"]),
            "attempts": tuple(
                Attempt(**{**attempt, "entry": attempt["entry"] and Entry.from_json(attempt["entry"])})
                for attempt in data["attempts"]
            ),
            "requests": tuple(Request(**request) for request in data["requests"]),
            "answer": None if data["answer"] is None else Answer(**data["answer"]),
            "usage": Usage(**data["usage"]),
            "tools": tuple(ToolCall(**call) for call in data["tools"]),
            "recent": tuple(Entry.from_json(entry) for entry in data["recent"]),
        }
    )
