"""One answer of a model, put together from what a server streams."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .prices import Usage

MAX_CHARACTERS = 1_000_000  # of text, reasoning and arguments together; longer than any model's output limit

_THINKING = re.compile(r"\A\s*<think>(.*?)</think>\s*", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """A tool call as the model wrote it; `arguments` is JSON, or should be."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """A complete answer. `finish`: stop, length (cut at a limit), tool_calls, content_filter, or too_long (we
    cut it). `usage`: None where the server doesn't say."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[Call, ...] = ()
    finish: str = "stop"
    usage: Usage | None = None
    sources: tuple[str, ...] = ()
    """Addresses that a web search cited."""
    searches: int = 0
    """Web searches that it says it made."""

    def to_data(self) -> dict[str, Any]:
        """As a response event holds it (without usage and cost)."""
        return {
            "text": self.text,
            "reasoning": self.reasoning,
            "refusal": self.refusal,
            "tool_calls": [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in self.calls],
            "finish": self.finish,
            "sources": list(self.sources),
            "searches": self.searches,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Answer:
        """From a response event."""
        return cls(
            str(data.get("text") or ""),
            str(data.get("reasoning") or ""),
            str(data.get("refusal") or ""),
            tuple(
                Call(str(c["id"]), str(c["name"]), str(c["arguments"])) for c in data.get("tool_calls") or ()
            ),
            str(data.get("finish") or "stop"),
            Usage.from_data(data.get("usage") or {}),
            tuple(data.get("sources") or ()),
            int(data.get("searches") or 0),
        )

    def cleaned(self, clean: Callable[[str], str]) -> Answer:
        """With every text passed through `clean`, and thoughts that were left in the text moved out of it."""
        text, reasoning = self.text, self.reasoning
        thoughts = _THINKING.match(text)
        if thoughts:
            text = text[thoughts.end() :]
            reasoning = reasoning or thoughts[1].strip()
        return replace(
            self,
            text=clean(text),
            reasoning=clean(reasoning),
            refusal=clean(self.refusal),
            calls=tuple(Call(clean(c.id), clean(c.name), clean(c.arguments)) for c in self.calls),
            sources=tuple(clean(source) for source in self.sources),
        )


class ChatCollector:
    """Collects /chat/completions: streamed chunks, or one whole completion."""

    def __init__(self, limit: int = MAX_CHARACTERS) -> None:
        self.finished = False
        """Whether the server said that the answer is complete."""
        self.full = False
        """Whether the limit of characters is reached: the rest isn't wanted."""
        self._limit = limit
        self._size = 0
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._finish = "stop"
        self._usage: Usage | None = None

    def feed(self, data: Mapping[str, Any]) -> tuple[str, str]:
        """Take a chunk or a completion; returns the new text and the new reasoning."""
        if isinstance(data.get("usage"), Mapping):
            self._usage = usage_of(data["usage"])
        choices = data.get("choices")
        if not choices:
            return "", ""
        choice = choices[0]
        part = choice.get("delta") or choice.get("message") or {}
        text = _words(part.get("content"))
        reasoning = _words(part.get("reasoning_content") or part.get("reasoning"))
        refusal = _words(part.get("refusal"))
        self._size += len(text) + len(reasoning) + len(refusal)
        for position, call in enumerate(part.get("tool_calls") or ()):
            self._call(call, position)
        self._text.append(text)
        self._reasoning.append(reasoning)
        self._refusal.append(refusal)
        if choice.get("finish_reason"):
            self._finish = str(choice["finish_reason"])
            self.finished = True
        if self._size > self._limit:
            self.full = True
        return text, reasoning

    def _call(self, part: Mapping[str, Any], position: int) -> None:
        # Servers differ: an index, only an id, or whole calls without either.
        index = part.get("index")
        known = part.get("id")
        slot = None
        for call in self._calls:
            if (index is not None and call["index"] == index) or (
                index is None and known and call["id"] == known
            ):
                slot = call
        if slot is None:
            slot = {"index": position if index is None else index, "id": "", "name": "", "arguments": ""}
            self._calls.append(slot)
        function = part.get("function") or {}
        slot["id"] = slot["id"] or _words(known)
        slot["name"] = slot["name"] or _words(function.get("name"))
        arguments = function.get("arguments")
        more = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        slot["arguments"] += more
        self._size += len(more) + len(slot["name"])

    def answer(self) -> Answer:
        """What was collected. Cut down to a piece if it was longer than the limit."""
        text = "".join(self._text)
        if self.full:
            return Answer(text[:2000], "".join(self._reasoning)[:2000], finish="too_long", usage=self._usage)
        return Answer(
            text,
            "".join(self._reasoning).strip(),
            "".join(self._refusal).strip(),
            tuple(Call(c["id"], c["name"], c["arguments"]) for c in self._calls),
            self._finish,
            self._usage,
        )


class ResponseCollector:
    """Collects /responses (OpenAI): streamed events, or one whole response."""

    def __init__(self, limit: int = MAX_CHARACTERS) -> None:
        self.finished = False
        self.full = False
        self._limit = limit
        self._size = 0
        self._answer = Answer()

    def feed(self, data: Mapping[str, Any]) -> tuple[str, str]:
        """Take an event or a response; returns the new text and the new reasoning."""
        kind = str(data.get("type") or "")
        delta = _words(data.get("delta"))
        self._size += len(delta)
        self.full = self._size > self._limit
        if kind == "response.output_text.delta":
            return delta, ""
        if kind == "response.reasoning_summary_text.delta":
            return "", delta
        whole = data.get("response") if kind.startswith("response.") else data
        if isinstance(whole, Mapping) and whole.get("status") in ("completed", "incomplete"):
            self._answer = _response(whole)
            self.finished = True
        return "", ""

    def answer(self) -> Answer:
        """The response. Empty if it was longer than the limit."""
        return Answer(finish="too_long") if self.full else self._answer


class ModelsCollector:
    """Collects the names that /models lists."""

    def __init__(self) -> None:
        self.finished = True
        self.full = False
        self.names: list[str] = []

    def feed(self, data: Mapping[str, Any]) -> tuple[str, str]:
        """Take the list."""
        entries = data.get("data") or ()
        self.names = [str(entry["id"]) for entry in entries if isinstance(entry, Mapping) and entry.get("id")]
        return "", ""


Collector = ChatCollector | ResponseCollector | ModelsCollector


def usage_of(data: Mapping[str, Any]) -> Usage:
    """Token counts of either protocol, and of servers that count cached tokens their own way."""
    given = data.get("prompt_tokens_details") or data.get("input_tokens_details") or {}
    made = data.get("completion_tokens_details") or data.get("output_tokens_details") or {}
    return Usage(
        _count(data.get("prompt_tokens") or data.get("input_tokens")),
        _count(given.get("cached_tokens") or data.get("prompt_cache_hit_tokens")),
        _count(data.get("completion_tokens") or data.get("output_tokens")),
        _count(made.get("reasoning_tokens")),
    )


def _response(data: Mapping[str, Any]) -> Answer:
    text, thoughts, refusal, calls, sources = [], [], [], [], {}
    searches = 0
    for item in data.get("output") or ():
        if item.get("type") == "reasoning":
            thoughts += [_words(part.get("text")) for part in item.get("summary") or ()]
        searches += item.get("type") == "web_search_call"
        if item.get("type") == "function_call":
            name, arguments = _words(item.get("name")), _words(item.get("arguments"))
            calls.append(Call(_words(item.get("call_id")), name, arguments))
        for part in item.get("content") or () if item.get("type") == "message" else ():
            text.append(_words(part.get("text")))
            refusal.append(_words(part.get("refusal")))
            for cited in part.get("annotations") or ():
                if cited.get("type") == "url_citation":
                    sources[_words(cited.get("url"))] = None
    usage = data.get("usage")
    why = data.get("incomplete_details")
    filtered = isinstance(why, Mapping) and why.get("reason") == "content_filter"
    return Answer(
        "".join(text),
        "\n\n".join(thoughts),
        "".join(refusal),
        tuple(calls),
        "stop" if data.get("status") == "completed" else "content_filter" if filtered else "length",
        usage_of(usage) if isinstance(usage, Mapping) else None,
        tuple(sources),
        searches,
    )


def _words(value: Any) -> str:
    """A text; of a list of parts (some servers), their texts."""
    if isinstance(value, list):
        return "".join(_words(part.get("text")) for part in value if isinstance(part, Mapping))
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) and value > 0 else 0
