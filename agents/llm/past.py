"""The answers of an interrupted run: given back, not paid for again."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from .answer import Answer
from .negotiate import Plan, Turn
from .prices import Usage


def key_of(model: str, purpose: str, turn: Turn) -> str:
    """What makes two requests the same: model, purpose, conversation, schema and tools; not how the server
    takes them, which a resumed run knows from the start."""
    parts = [model, purpose, list(turn.entries), turn.schema, list(turn.tools)]
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Past:
    """The agent's own events of the interrupted run, by request.

    Args:
        events: (kind, data), in order. Damaged ones are passed over: their requests are sent again.
    """

    def __init__(self, events: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        self._answers: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
        self._tools: dict[tuple[str, str], str] = {}
        self.last_id = 0
        """The highest number of a request's id."""
        self.plan: Plan | None = None
        """What the server was known to take."""
        self.usage = Usage()
        self.cost = 0.0
        self.unpriced = 0
        for kind, data in events:
            number = re.fullmatch(r"r(\d+)", str(data.get("id")))
            if number:
                self.last_id = max(self.last_id, int(number[1]))
            if kind == "response" and not data.get("from_log"):
                with suppress(AttributeError, KeyError, TypeError, ValueError):  # damaged
                    self._response(data)
            elif kind == "tool" and isinstance(data.get("call"), str):
                self._tools[str(data.get("id")), data["call"]] = str(data.get("result") or "")

    def _response(self, data: Mapping[str, Any]) -> None:
        plan = Plan.from_data(data["plan"]) if data.get("plan") else self.plan
        if not data.get("error"):
            usage, cost = Usage.from_data(data.get("usage") or {}), data.get("cost")
            Answer.from_data(data)  # so that a damaged one isn't found out when it is given back
            self.cost += float(cost or 0.0)
            self.unpriced += cost is None
            self.usage += usage
            if isinstance(data.get("key"), str):
                self._answers[data["key"]].append(data)
        self.plan = plan

    def take(self, key: str) -> Mapping[str, Any] | None:
        """The next logged response to this request, once; None if there is none left."""
        answers = self._answers.get(key)
        return answers.popleft() if answers else None

    def tool(self, request: str, call: str) -> str | None:
        """What a tool said to this call of this response; None if it isn't logged."""
        return self._tools.get((request, call))
