"""What a server takes (structured answers, tools, streaming, parameters), learnt from its refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from . import schema as schemas
from .settings import LlmSettings

FORMS = ("json_schema", "json_object", "text")
APIS = ("chat", "responses")
LIMITS = ("max_completion_tokens", "max_tokens")

_TOOLS = re.compile(r"\btools?\b|tool[_ -](choice|call|use)|function[_ -]call", re.IGNORECASE)
_FORM = re.compile(
    r"text\.format|response[_ ]format|json[_ ](schema|object|mode)|structured output|grammar|guided",
    re.IGNORECASE,
)
_EFFORT = re.compile(r"reasoning|thinking|effort", re.IGNORECASE)


@dataclass(frozen=True)
class Turn:
    """What is asked next, whatever the server takes.

    `entries`: `{role, content}`; an assistant's may have `calls [{id, name, arguments}]` and `reasoning`, and
    a `tool` entry has `call` (id) and `name`. `tools`: `{name, description, parameters}`, to be called now.
    """

    entries: Sequence[Mapping[str, Any]]
    schema: Mapping[str, Any] | None = None
    tools: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Plan:
    """How requests are put to this server. `api`: chat (completions) or responses. `echo`: it wants its
    reasoning back within a tool loop."""

    form: str = FORMS[0]
    tools: bool = True
    stream: bool = True
    echo: bool = False
    dropped: frozenset[str] = field(default_factory=frozenset)
    api: str = APIS[0]

    def to_data(self) -> dict[str, Any]:
        """As a response event holds it."""
        return {
            "form": self.form,
            "tools": self.tools,
            "stream": self.stream,
            "echo": self.echo,
            "dropped": sorted(self.dropped),
            "api": self.api,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Plan:
        """From a response event."""
        form = data.get("form")
        return cls(
            form if form in FORMS else FORMS[0],
            bool(data.get("tools", True)),
            bool(data.get("stream", True)),
            bool(data.get("echo")),
            frozenset(map(str, data.get("dropped") or ())),
            "responses" if data.get("api") == "responses" else "chat",
        )

    def merged(self, other: Plan) -> Plan:
        """What two parallel requests learnt together."""
        return Plan(
            max(self.form, other.form, key=FORMS.index),
            self.tools and other.tools,
            self.stream and other.stream,
            self.echo or other.echo,
            self.dropped | other.dropped,
            min(self.api, other.api),  # chat, once one fell back on it
        )

    def simpler(self) -> Plan | None:
        """With the next simpler form of structured answers; None if it is plain text already."""
        at = FORMS.index(self.form) + 1
        return replace(self, form=FORMS[at]) if at < len(FORMS) else None

    def without(self, params: Mapping[str, Any], rejected: str) -> tuple[Plan, str] | None:
        """The plan without what a server rejected, and what that is.

        Args:
            params: What was sent.
            rejected: The server's words, beginning with the parameter if it named one.

        Where the words name nothing that was sent, the optional parts go one by one. None if none is left.
        """
        named, _, rest = rejected.partition(":")
        # The parameter it named counts first; then its words.
        for words in (named, rest):
            found = self._named(params, words)
            if found is not None:
                return found
        if "response_format" in params:
            return self._form_refused()
        if "tools" in params:
            return replace(self, tools=False), "tools"
        for name in ("reasoning_effort", "stream_options", *LIMITS):
            if name in params:
                return self._drop(name)
        return None

    def _named(self, params: Mapping[str, Any], words: str) -> tuple[Plan, str] | None:
        for name in ("reasoning_effort", "stream_options"):
            if name in words and name in params:
                return self._drop(name)
        limit = next((name for name in LIMITS if name in params), None)
        if limit is not None and any(name in words for name in LIMITS):  # servers mix their names up
            return self._drop(limit)
        if "reasoning_content" in words and not self.echo:
            return replace(self, echo=True), "conversations without reasoning_content"
        if "response_format" in params and _FORM.search(words):
            return self._form_refused()
        if "tools" in params and _TOOLS.search(words):
            return replace(self, tools=False), "tools"
        if "reasoning_effort" in params and _EFFORT.search(words):
            return self._drop("reasoning_effort")
        if params.get("stream") and re.search(r"\bstream", words):
            return replace(self, stream=False), "stream"
        return None

    def _form_refused(self) -> tuple[Plan, str] | None:
        simpler = self.simpler()
        return None if simpler is None else (simpler, f"response_format {self.form}")

    def _drop(self, name: str) -> tuple[Plan, str]:
        return replace(self, dropped=self.dropped | {name}), name

    def params(self, turn: Turn, settings: LlmSettings) -> dict[str, Any]:
        """The body of a chat request: model, messages and the parameters that the server takes."""
        params: dict[str, Any] = {"model": settings.model, "messages": self.messages(turn)}
        if settings.effort and "reasoning_effort" not in self.dropped:
            params["reasoning_effort"] = settings.effort
        if settings.answer_tokens is not None:
            limit = next((name for name in LIMITS if name not in self.dropped), None)
            if limit is not None:
                params[limit] = settings.answer_tokens
        if turn.tools and self.tools:
            params["tools"] = [{"type": "function", "function": dict(tool)} for tool in turn.tools]
        form = self.form_of(turn)
        if form == "json_schema" and turn.schema is not None:
            exact = schemas.strict(turn.schema)
            body = {"name": "answer", "schema": exact or dict(turn.schema), "strict": exact is not None}
            params["response_format"] = {"type": form, "json_schema": body}
        elif form == "json_object":
            params["response_format"] = {"type": form}
        if self.stream:
            params["stream"] = True
            if "stream_options" not in self.dropped:
                params["stream_options"] = {"include_usage": True}
        return params

    def form_of(self, turn: Turn) -> str | None:
        """The form of the answer that is asked for; None for plain text."""
        if turn.schema is None:
            return None
        # A forced form would leave no room for a tool call written as text.
        return "text" if turn.tools and not self.tools else self.form

    def messages(self, turn: Turn) -> list[dict[str, Any]]:
        """The conversation as the server takes it."""
        messages = [self._message(entry) for entry in turn.entries]
        notes = []
        if turn.tools and not self.tools:
            notes.append(_tools_note(turn.tools))
        form = self.form_of(turn)
        if form in ("json_object", "text") and turn.schema is not None:
            notes.append(_form_note(turn.schema, fenced=form == "text"))
        if notes:
            text = "\n\n".join(notes)
            if messages and messages[0]["role"] in ("system", "developer"):
                messages[0] = {**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}
            else:
                messages.insert(0, {"role": "system", "content": text})
        return messages

    def _message(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        role, content = entry["role"], entry["content"]
        calls = entry.get("calls")
        if role == "tool":
            if self.tools:
                return {"role": "tool", "tool_call_id": entry["call"], "content": content}
            return {"role": "user", "content": f"Result of tool {entry['name']}:\n{content}"}
        message: dict[str, Any] = {"role": role, "content": content}
        if calls and self.tools:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": call["arguments"]},
                }
                for call in calls
            ]
        elif calls:
            written = "\n".join(f'{{"tool": "{c["name"]}", "arguments": {c["arguments"]}}}' for c in calls)
            message["content"] = f"{content}\n{written}".strip()
        if self.echo and role == "assistant" and entry.get("reasoning"):
            message["reasoning_content"] = entry["reasoning"]
        return message


def names_form(words: str) -> bool:
    """Whether a server's words are about the form of structured answers."""
    return bool(_FORM.search(words))


def _tools_note(tools: Sequence[Mapping[str, Any]]) -> str:
    listed = "\n".join(
        f"- {tool['name']}: {tool['description']} Arguments (JSON schema): {json.dumps(tool['parameters'])}"
        for tool in tools
    )
    return (
        "You may use these tools before you answer:\n"
        f"{listed}\n"
        'To use one, answer with nothing but a JSON object {"tool": "its name", "arguments": {…}}; its result'
        " comes with the next message."
    )


def _form_note(schema: Mapping[str, Any], *, fenced: bool) -> str:
    text = json.dumps(schema)
    if not fenced:
        return f"Answer with nothing but one JSON object that satisfies this JSON schema:\n{text}"
    return (
        "Your final answer is one JSON object in a ```json block, satisfying this JSON schema:\n"
        f"{text}\n"
        'Source code may follow it in a fenced block of its own; write "@code1" in its place in the JSON (the'
        ' first such block; "@code2" is the second).'
    )
