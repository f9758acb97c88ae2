"""The ways to put a request to a server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from . import schema as schemas
from .negotiate import Plan, Turn, names_form
from .settings import LlmSettings
from .wire import Exchange, Wire


class Form(Protocol):
    """A way to put a request. `messages` is the conversation as it is logged, `params` the request's body."""

    params: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]
    plan: Plan | None

    def open(self, wire: Wire) -> Exchange:
        """Send it."""
        ...

    def without(self, rejected: str, *, absent: bool) -> tuple[Form, str] | None:
        """The same without what the server rejected, and what that was; None if it can't do without.

        `rejected`: the server's words, after the parameter if it named one. `absent`: it hasn't this API.
        """
        ...


def form_of(plan: Plan, turn: Turn, settings: LlmSettings) -> Form:
    """How a plan asks."""
    return (ChatForm if plan.api == "chat" else ResponsesForm)(plan, turn, settings)


class ChatForm:
    """POST /chat/completions, which any server has."""

    def __init__(self, plan: Plan, turn: Turn, settings: LlmSettings) -> None:
        self.plan: Plan | None = plan
        self.params: Mapping[str, Any] = plan.params(turn, settings)
        self.messages: Sequence[Mapping[str, Any]] = self.params["messages"]
        self._parts = (plan, turn, settings)

    def open(self, wire: Wire) -> Exchange:
        """Send it."""
        return wire.chat(self.params)

    def without(self, rejected: str, *, absent: bool) -> tuple[Form, str] | None:
        """See `Form`."""
        plan, turn, settings = self._parts
        better = None if absent else plan.without(self.params, rejected)
        return None if better is None else (form_of(better[0], turn, settings), better[1])


class ResponsesForm:
    """POST /responses: OpenAI's own, and the only one that shows its models' reasoning, as a summary."""

    def __init__(self, plan: Plan, turn: Turn, settings: LlmSettings) -> None:
        self.plan: Plan | None = plan
        self.messages: Sequence[Mapping[str, Any]] = plan.messages(turn)
        self.params: Mapping[str, Any] = _responses_params(plan, turn, settings, self.messages)
        self._parts = (plan, turn, settings)

    def open(self, wire: Wire) -> Exchange:
        """Send it."""
        return wire.responses(self.params)

    def without(self, rejected: str, *, absent: bool) -> tuple[Form, str] | None:
        """See `Form`. What it can't name makes it fall back on chat completions."""
        plan, turn, settings = self._parts
        reasoning = self.params.get("reasoning", {})
        better: Plan | None = None
        what = ""
        if not absent and "summary" in reasoning and "summar" in rejected:
            better, what = replace(plan, dropped=plan.dropped | {"summary"}), "reasoning summaries"
        elif not absent and reasoning and re.search("reasoning|effort", rejected):
            better, what = replace(plan, dropped=plan.dropped | {"reasoning_effort"}), "reasoning"
        elif not absent and "text" in self.params and names_form(rejected):
            better, what = plan.simpler(), f"the form {plan.form}"
        if better is None:
            better, what = replace(plan, api="chat"), "the responses API"
        return form_of(better, turn, settings), what


class ResearchForm:
    """POST /responses with the provider's web search, limited to some domains."""

    plan: Plan | None = None

    def __init__(
        self, settings: LlmSettings, question: str, domains: tuple[str, ...], think: bool = True
    ) -> None:
        self.messages: Sequence[Mapping[str, Any]] = [{"role": "user", "content": question}]
        params: dict[str, Any] = {
            "model": settings.model,
            "input": question,
            "tools": [{"type": "web_search", "filters": {"allowed_domains": list(domains)}}],
            "store": False,
            "stream": True,
        }
        if think and settings.effort:
            params["reasoning"] = {"effort": settings.effort, "summary": "auto"}
        self.params: Mapping[str, Any] = params
        self._again = lambda: ResearchForm(settings, question, domains, think=False)

    def open(self, wire: Wire) -> Exchange:
        """Send it."""
        return wire.responses(self.params)

    def without(self, rejected: str, *, absent: bool) -> tuple[Form, str] | None:
        """See `Form`: only the reasoning can be left out."""
        if absent or "reasoning" not in self.params or "reasoning" not in rejected:
            return None
        return self._again(), "reasoning"


def _responses_params(
    plan: Plan, turn: Turn, settings: LlmSettings, messages: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    params: dict[str, Any] = {
        "model": settings.model,
        "input": [item for message in messages for item in _items(message)],
        "store": False,
        "stream": True,
    }
    if settings.effort and "reasoning_effort" not in plan.dropped:
        params["reasoning"] = {"effort": settings.effort}
        if "summary" not in plan.dropped:
            params["reasoning"]["summary"] = "auto"
    if settings.answer_tokens is not None:
        params["max_output_tokens"] = settings.answer_tokens
    if turn.tools and plan.tools:
        params["tools"] = [{"type": "function", **tool, "strict": False} for tool in turn.tools]
    form = plan.form_of(turn)
    if form == "json_schema" and turn.schema is not None:
        exact = schemas.strict(turn.schema)
        body = {"name": "answer", "schema": exact or dict(turn.schema), "strict": exact is not None}
        params["text"] = {"format": {"type": form, **body}}
    elif form == "json_object":
        params["text"] = {"format": {"type": form}}
    return params


def _items(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A chat message as input items. Without ids, so that nothing refers to what wasn't stored."""
    if message["role"] == "tool":
        output = {"type": "function_call_output", "call_id": message["tool_call_id"]}
        return [{**output, "output": message["content"]}]
    items: list[dict[str, Any]] = []
    if message["content"] or not message.get("tool_calls"):
        items.append({"role": message["role"], "content": message["content"]})
    for call in message.get("tool_calls", ()):
        items.append({"type": "function_call", "call_id": call["id"], **call["function"]})
    return items
